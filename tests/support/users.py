"""Users who register, change, pause, resume, delete and register again, whatever dies meanwhile.

What a user does is decided before: his script is the same for the same seed, however long each step
takes. He does one thing after the other. Where the API cannot be reached, answers that a server is
away, or does not answer, he looks what has become of his request before he asks again.

    script   wait, ask ──▶ answer ──────────────▶ next step
                       ──▶ none, 503 or 409 ──▶ look ──▶ it has taken effect ──▶ next step
                            ▲                        ──▶ it has not ─┐
                            └────────────────────────────────────────┘
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Self, assert_never

import msgspec

from mars.client.answers import Task
from mars.client.blocking import Client
from mars.core.errors import (
    Conflict,
    MarsError,
    NotFound,
    Rejected,
    RequestError,
    TooMany,
    Unavailable,
    VersionMismatch,
)
from tests.support.chronicle import Chronicle
from tests.support.cluster import MarsCluster, wait_for
from tests.support.load import PARTITIONS, Load, Row
from tests.support.queries import DELAY_MS_MAX, Query, any_query, every_query, other_query
from tests.support.rows import closing_rows

PAUSE_S = (0.2, 1.5)
"""Between two steps of one user."""

AGAIN_S = 0.3
"""Between two tries."""

PATIENCE_S = 300.0
"""For one step. The longest blow lasts 75 s. Kafka, killed at a load of 70 on two processors, took
190 s to start again."""

ANSWER_S = 60.0
"""For one answer: the API itself gives up sooner, so that what it still does is known."""

NAMES = 2
"""Of each user."""

STEPS_MAX = 200
"""More than anybody gets through in a run."""

BACK_S = (1, 10)
"""How far a start by time lies back."""

NO_QUERY = "SELECT FROM WHERE"


class UsersLoad(Load):
    """A load that closes the windows of every user's task."""

    def closing(self, rows: Sequence[Row]) -> list[Row]:
        """Past the longest delay of any user, too."""
        return closing_rows(rows, PARTITIONS, self.window_s * 1000 + DELAY_MS_MAX)


class What(Enum):
    """What a user does."""

    REGISTER = "register"
    CHANGE = "change"
    CHANGE_IF = "change, if nobody else did"
    CHANGE_STALE = "change an older version"
    SAME = "ask for the same again"
    WRONG = "ask for a wrong query"
    PAUSE = "pause"
    RESUME = "resume"
    DELETE = "delete"


_ABSENT = {What.REGISTER: 1}
_RUNNING = {
    What.CHANGE: 6,
    What.CHANGE_IF: 2,
    What.CHANGE_STALE: 1,
    What.SAME: 1,
    What.WRONG: 1,
    What.PAUSE: 2,
    What.DELETE: 2,
}
_PAUSED = {What.RESUME: 5, What.CHANGE: 2, What.DELETE: 1}

_AFTER = {
    What.REGISTER: _RUNNING,
    What.PAUSE: _PAUSED,
    What.RESUME: _RUNNING,
    What.DELETE: _ABSENT,
}


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to do: how long to wait before, with which task, what, and with which query.

    `start` is that of a registration: latest, earliest, or how many seconds back.
    """

    wait_s: float
    name: str
    what: What
    query: Query
    start: str | int = "latest"

    @property
    def told(self) -> str:
        """For a person."""
        match self.what:
            case What.REGISTER:
                return f"{self.what.value} from {self.start}: {self.query.name}"
            case What.CHANGE | What.CHANGE_IF:
                return f"{self.what.value}: {self.query.name}"
            case _:
                return str(self.what.value)


Outcome = tuple[int, bool]
"""How often a user asked, and whether he had to look what had become of it."""


def script(chance: random.Random, names: Sequence[str]) -> list[Step]:
    """What a user does with his tasks, each step possible after those before it."""
    can = dict.fromkeys(names, _ABSENT)
    queries = {name: any_query(chance) for name in names}
    steps = []
    for _ in range(STEPS_MAX):
        wait_s, name = chance.uniform(*PAUSE_S), chance.choice(names)
        (what,) = chance.choices(list(can[name]), list(can[name].values()))
        query = other_query(chance, queries[name])
        starts: list[str | int] = ["latest", "earliest", chance.randint(*BACK_S)]
        start = chance.choice(starts)
        steps.append(Step(wait_s, name, what, query, start))
        can[name] = _AFTER.get(what, can[name])
        if what in {What.REGISTER, What.CHANGE, What.CHANGE_IF}:
            queries[name] = query
    return steps


class Deed(msgspec.Struct, frozen=True):
    """What a user has done, seconds after the begin of the run; `tries` more than one: asked again.

    `looked`: no request was answered, he saw that one of them had taken effect.
    """

    at_s: float
    name: str
    what: str
    tries: int = 1
    looked: bool = False


@dataclass(frozen=True, slots=True)
class Registration:
    """What was asked for and answered: rows written after `answered_ms` are the task's.

    `there`: how far each partition surely was before it was asked for.
    """

    name: str
    version: int
    start: str | int
    answered_ms: int
    there: Mapping[int, int]


@dataclass(slots=True)
class User:
    """One user with his tasks over a stream, and what he did."""

    client: Client
    chronicle: Chronicle
    stream: str
    steps: Sequence[Step]
    output_topic: str
    acknowledged: Callable[[str], Mapping[int, int]]
    begun: float = field(default_factory=time.monotonic)
    deeds: list[Deed] = field(default_factory=list)
    answered: dict[tuple[str, int], str] = field(default_factory=dict)
    """The query of each version of which the API said that it is there."""

    registrations: list[Registration] = field(default_factory=list)
    failures: list[BaseException] = field(default_factory=list)
    enough: threading.Event = field(default_factory=threading.Event)
    _acting: threading.Lock = field(default_factory=threading.Lock)

    @property
    def names(self) -> list[str]:
        """Of all tasks that he might have."""
        return sorted({step.name for step in self.steps})

    def run(self) -> None:
        """Step after step, until it was enough. What fails is in `failures`."""
        try:
            for step in self.steps:
                if self.enough.wait(step.wait_s):
                    return
                with self._acting:
                    self._act(step)
        except BaseException as problem:  # noqa: BLE001 -- told to the run's own thread
            self.failures.append(problem)

    def change_at_once(self, queries: Sequence[Query]) -> int:
        """Change one of his tasks between two steps, once for each query; how often he did.

        A version begins before the next change is taken: while nobody decides, it is not.
        """
        with self._acting:
            live = [name for name in self.names if self._shown(name) is not None]
            for query in queries if live else ():
                self._act(Step(0, live[0], What.CHANGE, query))
            return len(queries) if live else 0

    def resume_all(self) -> None:
        """Let every task of his run."""
        for name in self.names:
            found = self._shown(name)
            if found is not None and found.state == "paused":
                self._act(Step(0, name, What.RESUME, self.steps[0].query))

    # ------------------------------------------------------------------------------ one step

    def _act(self, step: Step) -> None:
        self._insist(lambda: self.chronicle.look(step.name), lambda: False)
        begun = time.monotonic() - self.begun
        tries, looked = self._do(step)
        self.deeds.append(Deed(round(begun, 1), step.name, step.told, tries, looked))

    def _do(self, step: Step) -> Outcome:  # noqa: PLR0911 -- one for each thing that users do
        match step.what:
            case What.REGISTER:
                return self._register(step)
            case What.CHANGE:
                return self._change(step)
            case What.CHANGE_IF:
                return self._change_if(step)
            case What.CHANGE_STALE:
                return self._change_stale(step)
            case What.SAME:
                return self._same(step)
            case What.WRONG:
                return self._wrong(step)
            case What.PAUSE:
                return self._pause(step)
            case What.RESUME:
                return self._resume(step)
            case What.DELETE:
                return self._delete(step)
            case _:
                assert_never(step.what)

    def _register(self, step: Step) -> Outcome:
        """409 after an answer that was lost: it may be his own."""
        start = step.start
        if isinstance(start, int):
            start = time.time_ns() // 1_000_000 - 1000 * start
        sql, options = step.query.sql(self.stream), self._options(step.query)

        def ask() -> None:
            there = self.acknowledged(self.stream)
            task = self.client.create_task(step.name, sql, start=start, options=options)
            self.answered[task.name, task.version] = task.sql
            answered_ms = time.time_ns() // 1_000_000
            self.registrations.append(
                Registration(task.name, task.version, start, answered_ms, there)
            )

        return self._insist(ask, lambda: self._is(step, sql, options))

    def _change_if(self, step: Step) -> Outcome:
        """With the version that he sees: should that change come late, it must not come twice."""
        return self._change(step, self._seen(step.name).version)

    def _change(self, step: Step, expected: int | None = None) -> Outcome:
        sql, options = step.query.sql(self.stream), self._options(step.query)

        def ask() -> None:
            task = self.client.change_task(
                step.name, sql, options=options, expected_version=expected
            )
            self.answered[task.name, task.version] = task.sql

        return self._insist(
            ask, lambda: self._is(step, sql, options) or self._waits_to_be_resumed(step)
        )

    def _change_stale(self, step: Step) -> Outcome:
        """412, and nothing is changed."""
        sql, options = step.query.sql(self.stream), self._options(step.query)

        def ask() -> None:
            version = self.client.task(step.name).version
            try:
                task = self.client.change_task(
                    step.name, sql, options=options, expected_version=version - 1
                )
            except VersionMismatch:
                return
            raise AssertionError(f"a change of an older version was taken: {task}")

        return self._insist(ask, lambda: False)

    def _same(self, step: Step) -> Outcome:
        """The same version is answered."""

        def ask() -> None:
            before = self.client.task(step.name)
            after = self.client.change_task(step.name, before.sql, options=before.options)
            assert after.version == before.version, f"the same made a version: {after}"

        return self._insist(ask, lambda: False)

    def _wrong(self, step: Step) -> Outcome:
        """422, and the version is what it was."""

        def ask() -> None:
            before = self.client.task(step.name)
            try:
                self.client.change_task(step.name, NO_QUERY)
            except Rejected:
                after = self.client.task(step.name)
                assert after.version == before.version, f"{before} then {after}"
                return
            raise AssertionError(f"{NO_QUERY} was taken")

        return self._insist(ask, lambda: False)

    def _pause(self, step: Step) -> Outcome:
        return self._insist(
            lambda: self.client.pause_task(step.name), lambda: self._state(step) == "paused"
        )

    def _resume(self, step: Step) -> Outcome:
        return self._insist(
            lambda: self.client.resume_task(step.name), lambda: self._state(step) == "running"
        )

    def _delete(self, step: Step) -> Outcome:
        return self._insist(
            lambda: self.client.delete_task(step.name), lambda: self._state(step) is None
        )

    # ---------------------------------------------------------------------------- how he asks

    def _insist(self, ask: Callable[[], object], effective: Callable[[], bool]) -> Outcome:
        """Ask until it is answered, or has taken effect; how often, and whether he had to look.

        A refusal of the first try is one. Later ones may come from what an earlier try has done.
        """
        deadline = time.monotonic() + PATIENCE_S
        tries = 1
        while True:
            try:
                ask()
            except (Unavailable, Conflict, TooMany) as problem:
                last: MarsError = problem
            except RequestError as problem:
                if tries == 1:
                    raise
                last = problem
            else:
                return tries, False
            if self._sees(effective):
                return tries, True
            if time.monotonic() > deadline:
                raise AssertionError(f"no answer within {PATIENCE_S:.0f} s, at last {last}")
            time.sleep(AGAIN_S)  # a person's pause
            tries += 1

    @staticmethod
    def _sees(effective: Callable[[], bool]) -> bool:
        try:
            return effective()
        except Unavailable:
            return False

    def _is(self, step: Step, sql: str, options: dict[str, str]) -> bool:
        found = self._found(step.name)
        return found is not None and found.sql == sql and dict(found.options) == options

    def _waits_to_be_resumed(self, step: Step) -> bool:
        """Whether a change before this one waits, which ends the step.

        After a loss of the store a version begins once all is read again that was counted by the
        one before. A paused task reads nothing.
        """
        found = self._found(step.name)
        return found is not None and found.state == "paused" and not found.versions[-1].begun

    def _state(self, step: Step) -> str | None:
        found = self._found(step.name)
        return None if found is None else found.state

    def _found(self, name: str) -> Task | None:
        try:
            return self.client.task(name)
        except NotFound:
            return None

    def _seen(self, name: str) -> Task:
        """One that is there."""
        found = self._shown(name)
        assert found is not None, f"{name} is gone, and nobody has deleted it"
        return found

    def _shown(self, name: str) -> Task | None:
        """What is there, or not, as soon as the API can tell."""
        found: list[Task | None] = []
        self._insist(lambda: found.append(self._found(name)), lambda: False)
        return found[0]

    def _options(self, query: Query) -> dict[str, str]:
        return {**query.options, "output_topic": self.output_topic}


class Users:
    """Several users over one stream; `acting` lets them act inside of a `with`."""

    def __init__(self, mars: MarsCluster, stream: str, *, seed: int, users: int) -> None:
        self.mars = mars
        self.stream = stream
        self.output_topic = f"{stream}-of-users"
        self._scripts = [
            script(
                random.Random(f"{seed} user {number}"),
                [f"{stream}_u{number}{letter}" for letter in "abcdefgh"[:NAMES]],
            )
            for number in range(users)
        ]
        self.names = sorted({step.name for steps in self._scripts for step in steps})
        self.chronicle = Chronicle(mars, self.names)
        self.users: list[User] = []

    @property
    def queries(self) -> dict[tuple[str, str], Query]:
        """All queries there may be, by text and options: blows change tasks, too."""
        return {identity(one.sql(self.stream), one.options): one for one in every_query()}

    @contextmanager
    def acting(self) -> Iterator[Self]:
        """Who is in the middle of something at the end finishes it."""
        with ExitStack() as stack:
            stack.enter_context(self.chronicle)
            threads = []
            for steps in self._scripts:
                client = stack.enter_context(Client(self.mars.api, timeout_s=ANSWER_S))
                user = User(
                    client,
                    self.chronicle,
                    self.stream,
                    steps,
                    self.output_topic,
                    self.mars.acknowledged,
                )
                self.users.append(user)
                threads.append(threading.Thread(target=user.run, name=f"user {steps[0].name}"))
            for thread in threads:
                thread.start()
            try:
                yield self
            finally:
                for user in self.users:
                    user.enough.set()
                for thread in threads:
                    thread.join()
            for user in self.users:
                if user.failures:
                    raise user.failures[0]
                user.resume_all()
            self._look_at_last()

    def _look_at_last(self) -> None:
        """Until nothing waits to begin."""

        def all_begun() -> bool:
            self.chronicle.look()
            living = [story.newest for story in self.chronicle.stories.values() if story.lives_on]
            return all(task is None or task.current.starts is not None for task in living)

        wait_for("every version to begin", all_begun, seconds=PATIENCE_S)

    @property
    def deeds(self) -> tuple[Deed, ...]:
        """What all of them did, in order."""
        return tuple(sorted((d for user in self.users for d in user.deeds), key=lambda d: d.at_s))


def identity(sql: str, options: dict[str, Any]) -> tuple[str, str]:
    """What tells queries apart: the text, and the options but for where results go."""
    kept = {name: value for name, value in options.items() if name != "output_topic"}
    return sql, msgspec.json.encode(kept, order="sorted").decode()
