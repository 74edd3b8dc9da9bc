"""Answers that take long: however many are asked for, others are answered."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anyio
import pytest

from api.callers import Caller, acting
from api.http.places import Places, price_of
from api.http.turns import AllTurns, Turns
from mars.core.errors import TooMany
from mars.protocol.ports import KeyId, Role
from tests.support.cluster import wait_for
from tests.unit.api.twins import World, problem

ASKED_AT_ONCE = 60
"""More than the threads that all other answers share (40)."""

SLOW = {
    "/v1/tasks/by_sip/verify?window_start={n}": ("verifying", "verify", "verifications"),
    "/v1/tasks/by_sip/dead?limit={n}": ("dead", "page", "topics"),
    "/v1/tasks/by_sip/dead?order=newest&limit={n}": ("dead", "newest", "topics"),
    "/v1/tasks/by_sip/results?limit={n}": ("results", "recent", "topics"),
    "/v1/tasks/by_sip/ledger?window_start={n}": ("window_ledgers", "of_window", "topics"),
    "/v1/tasks/by_sip/windows?key={n}": ("windows", "open_windows", "logs"),
    "/v1/tasks/t{n}/why": ("why", "why", "logs"),
    "/v1/queries/q{n}/rows": ("queries", "json_rows", "rows"),
}
"""Paths, what is slow about them, and the turns that they wait for."""


class Held:
    """A server that does not answer until it is let."""

    def __init__(self) -> None:
        self.let = threading.Event()
        self.asked = 0

    def __call__(self, *_asked: object) -> Any:
        self.asked += 1
        assert self.let.wait(60)
        raise ZeroDivisionError


@pytest.fixture
def held() -> Iterator[Held]:
    made = Held()
    yield made
    made.let.set()


@pytest.mark.parametrize("path", SLOW)
def test_who_asks_for_much_that_takes_long_holds_up_nobody_else(
    world: World, held: Held, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    assert world.register().status_code == 201
    service, method, kind = SLOW[path]
    turns: Turns = getattr(world.services.turns, kind)
    taken, most = turns._at_once, turns._places.count
    monkeypatch.setattr(getattr(world.services, service), method, held)
    with ThreadPoolExecutor(most + ASKED_AT_ONCE) as many:
        try:
            asked = [
                many.submit(world.http.get, path.format(n=n))
                for n in range(1, most + ASKED_AT_ONCE + 1)
            ]
            wait_for("all others to be refused", lambda: _done(asked) == ASKED_AT_ONCE)
            refused = [each.result() for each in asked if each.done()]
            assert held.asked == taken
            for one in refused:
                assert "try again" in problem(one, 429)["detail"]
                assert one.headers["retry-after"] == "1"
            assert world.http.get("/v1/streams").status_code == 200
            assert world.http.get("/v1/tasks/by_sip").status_code == 200
        finally:
            held.let.set()
        answered = [each for each in asked if each.exception() is not None]
        assert len(answered) == most  # whoever waited had its turn, and the test's error


HEAVY = "SELECT count(*) FROM flows WHERE sip IN (" + ",".join(["'a'"] * 900) + ") WINDOWING 1 s"


@pytest.mark.parametrize(
    ("path", "body", "service", "method", "kind"),
    [
        ("/v1/tasks/validate", {"sql": HEAVY}, "tasks", "validate", "checks"),
        ("/v1/tasks", {"sql": HEAVY, "name": "a"}, "tasks", "create", "changes"),
        ("/v1/queries", {"sql": HEAVY}, "queries", "create", "changes"),
    ],
)
def test_who_has_many_queries_compiled_holds_up_nobody_else(
    world: World,
    held: Held,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    body: dict[str, str],
    service: str,
    method: str,
    kind: str,
) -> None:
    turns: Turns = getattr(world.services.turns, kind)
    most = turns._places.count
    monkeypatch.setattr(getattr(world.services, service), method, held)
    with ThreadPoolExecutor(most + ASKED_AT_ONCE) as many:
        try:
            asked = [
                many.submit(world.http.post, path, json=body) for _ in range(most + ASKED_AT_ONCE)
            ]
            wait_for("all others to be refused", lambda: _done(asked) == ASKED_AT_ONCE)
            assert held.asked == turns._at_once
            assert world.http.get("/v1/tasks").status_code == 200
        finally:
            held.let.set()


def test_a_key_gets_a_share_of_the_places() -> None:
    places, others = Places(8, "full"), Caller(Role.READER, KeyId("b"))
    with acting(Caller(Role.READER, KeyId("a"))):
        back = [places.take(), places.take()]
        with pytest.raises(TooMany, match="key a has 2 of 8 places already, and 2 are for one key"):
            places.take()
        with acting(others):
            places.take(9)  # a share: what costs most is possible, if alone
            with pytest.raises(TooMany, match="for one key"):
                places.take()
        back.pop()()
        places.take()
    with acting(Caller(Role.ADMIN)):
        for _ in range(4):
            places.take()
        with pytest.raises(TooMany, match="full"):
            places.take()


@pytest.mark.parametrize(
    ("places", "share"),
    [
        (lambda world: world.services.results._places, 16),
        (lambda world: world.services.figures._places, 50),
        (lambda world: world.services.previews._places, 2),
        (lambda world: world.services.turns.checks._places, 4),
        (lambda world: world.services.turns.topics._places, 18),
        (lambda world: world.services.turns.verifications._places, 1),
    ],
)
def test_every_kind_of_places_keeps_some_for_others(
    world: World, places: Callable[[World], Places], share: int
) -> None:
    assert places(world).share == share < places(world).count


def test_a_long_query_takes_more_places() -> None:
    assert [price_of("x" * length) for length in (10, 16_384, 65_536)] == [1, 2, 5]


def _done(asked: list[Any]) -> int:
    return sum(each.done() for each in asked)


def test_who_waits_is_answered_in_its_turn() -> None:
    made: list[int] = []

    async def all_of_them() -> None:
        turns = Turns("answers", 1, 2)
        async with anyio.create_task_group() as tasks:
            for number in range(3):
                tasks.start_soon(turns.take, lambda number=number: made.append(number))
                await anyio.sleep(0)

    anyio.run(all_of_them)
    assert made == [0, 1, 2]


def test_a_place_is_free_again_whatever_came_of_it() -> None:
    async def both() -> None:
        turns = Turns("answers", 1, 0)
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                await turns.take(lambda: 1 // 0)

    anyio.run(both)


def test_one_too_many_is_told_how_many_there_are(held: Held) -> None:
    async def refused() -> None:
        turns = Turns("answers", 1, 0)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_swallowed, turns, held)
            while not held.asked:
                await anyio.sleep(0.01)
            with pytest.raises(TooMany, match="1 answers are under way and 0 wait"):
                await turns.take(lambda: None)
            held.let.set()

    anyio.run(refused)


async def _swallowed(turns: Turns, held: Held) -> None:
    with pytest.raises(ZeroDivisionError):
        await turns.take(held)


def test_the_slow_ones_together_leave_threads_to_all_others() -> None:
    kinds = AllTurns()
    assert all(
        kind._at_once <= 8 for kind in (kinds.logs, kinds.topics, kinds.rows, kinds.verifications)
    )
