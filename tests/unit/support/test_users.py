"""Users do the same for the same seed, and look what has become of a request before another."""

from __future__ import annotations

import random
from typing import Any, cast

import pytest

from mars.client.answers import TaskVersion
from mars.client.blocking import Client
from mars.core.errors import Conflict, Rejected, Unavailable, VersionMismatch
from tests.faults.blows import plan
from tests.support import users
from tests.support.chronicle import Chronicle
from tests.support.queries import TUMBLING, WHERES, Query
from tests.support.users import Step, User, What, script

QUERY = Query(TUMBLING, WHERES[0], "1s")
AWAY = Unavailable("api", "it did not answer in time")


class Task:
    """As much of a task as a user looks at."""

    def __init__(self, name: str, version: int, sql: str, options: dict[str, Any]) -> None:
        self.name, self.version, self.sql, self.options = name, version, sql, options
        self.state = "running"
        self.versions = [TaskVersion(version, sql, 0, begun=True)]


class FakeClient:
    """An API with one task, whose next answers may be lost or refused."""

    def __init__(self, *fates: str) -> None:
        self.fates = list(fates)
        self.task_now = Task("t", 1, "old", {})
        self.changes = 0

    def task(self, _name: str) -> Task:
        """The task as it is."""
        return self.task_now

    def change_task(
        self, name: str, sql: str, *, options: dict[str, Any], expected_version: int | None = None
    ) -> Task:
        """By the next fate: taken and answered, taken, not taken."""
        fate = self.fates.pop(0) if self.fates else "answered"
        if fate == "not taken":
            raise AWAY
        if fate == "undecided":
            raise Conflict("version 1 has not begun yet")
        if fate == "wrong":
            raise Rejected("no")
        if expected_version not in {None, self.task_now.version}:
            raise VersionMismatch("another version")
        self.changes += 1
        self.task_now = Task(name, self.task_now.version + 1, sql, options)
        if fate == "taken":
            raise AWAY
        return self.task_now


class Blind:
    """A chronicle that sees nothing."""

    def look(self, *_names: str) -> None:
        """Nothing."""


def user(client: FakeClient) -> User:
    chronicle = cast("Chronicle", Blind())
    return User(cast("Client", client), chronicle, "s", [], "out", lambda _stream: {})


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(users, "AGAIN_S", 0.0)


@pytest.mark.parametrize("what", [What.CHANGE, What.CHANGE_IF])
@pytest.mark.parametrize(
    ("fates", "tries", "looked"),
    [
        ([], 1, False),
        (["not taken", "not taken"], 3, False),
        (["undecided", "taken"], 2, True),
        (["taken"], 1, True),
    ],
)
def test_a_change_is_made_once_whatever_is_answered(
    what: What, fates: list[str], tries: int, looked: bool
) -> None:
    client = FakeClient(*fates)
    someone = user(client)

    someone._act(Step(0, "t", what, QUERY))

    assert client.changes == 1
    assert client.task_now.sql == QUERY.sql("s")
    assert [(deed.tries, deed.looked) for deed in someone.deeds] == [(tries, looked)]


def test_a_change_of_a_paused_task_waits_for_no_version_that_waits_for_its_resumption() -> None:
    client = FakeClient("undecided")
    client.task_now.state = "paused"
    client.task_now.versions = [TaskVersion(1, "old", 0, begun=False)]
    someone = user(client)

    someone._act(Step(0, "t", What.CHANGE, QUERY))

    assert client.changes == 0
    assert [(deed.tries, deed.looked) for deed in someone.deeds] == [(1, True)]


def test_a_refusal_of_the_first_try_is_a_find() -> None:
    with pytest.raises(Rejected):
        user(FakeClient("wrong"))._act(Step(0, "t", What.CHANGE, QUERY))


def test_a_change_of_an_older_version_must_be_refused() -> None:
    user(FakeClient())._act(Step(0, "t", What.CHANGE_STALE, QUERY))

    class Careless(FakeClient):
        def change_task(self, name: str, sql: str, **_more: Any) -> Task:
            return super().change_task(name, sql, options={})

    with pytest.raises(AssertionError, match="older version"):
        user(Careless())._act(Step(0, "t", What.CHANGE_STALE, QUERY))


def test_whoever_gets_no_answer_gives_up_at_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(users, "PATIENCE_S", 0.0)
    with pytest.raises(AssertionError, match="no answer"):
        user(FakeClient("not taken"))._act(Step(0, "t", What.CHANGE, QUERY))


def _told(seed: int) -> list[Any]:
    planned = [(one.at_s, one.blow.told) for one in plan(random.Random(seed), 17)]
    return [*planned, *script(random.Random(f"{seed} user 0"), ["a", "b"])]


def test_the_same_seed_makes_the_same_run() -> None:
    assert _told(7) == _told(7)
    assert _told(7) != _told(8)


def test_no_blow_strikes_what_another_holds() -> None:
    for seed in range(50):
        planned = plan(random.Random(seed), 17)
        for number, one in enumerate(planned):
            for other in planned[number + 1 :]:
                apart = other.at_s >= one.at_s + one.blow.seconds
                assert apart or not one.blow.targets & other.blow.targets, (one, other)


CHANGES = dict.fromkeys(
    [What.CHANGE, What.CHANGE_IF, What.CHANGE_STALE, What.SAME, What.WRONG], "running"
)
AFTER: dict[str, dict[What, str]] = {
    "absent": {What.REGISTER: "running"},
    "running": {**CHANGES, What.PAUSE: "paused", What.DELETE: "absent"},
    "paused": {What.CHANGE: "paused", What.RESUME: "running", What.DELETE: "absent"},
}


def test_each_step_of_a_script_is_possible_after_those_before_it() -> None:
    for seed in range(50):
        state = {"a": "absent", "b": "absent"}
        for step in script(random.Random(seed), ["a", "b"]):
            state[step.name] = AFTER[state[step.name]][step.what]
