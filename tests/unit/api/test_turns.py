"""Answers that take long: however many are asked for, others are answered."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anyio
import pytest

from api.turns import AllTurns, Turns
from mars.errors import TooMany
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
    taken, most = turns._at_once, turns._at_once + turns._waiting_max
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
