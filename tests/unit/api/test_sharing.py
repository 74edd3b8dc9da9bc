"""Work that is done once for all who want it at the same moment."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from threading import Semaphore

import pytest

from api.http.answering import Rendered, Responder
from api.services.sharing import Shared
from tests.contracts.waiting import eventually

ASKING = 6


class Work:
    """Work that waits until it is let go on, and counts how often it began."""

    def __init__(self) -> None:
        self.began = 0
        self.go_on = Semaphore(0)
        self.problem: Exception | None = None

    def __call__(self) -> int:
        self.began += 1
        number = self.began
        self.go_on.acquire(timeout=30)
        if self.problem is not None:
            raise self.problem
        return number


# ------------------------------------------------------------------------------------- threads


def test_who_comes_while_it_is_done_shares_the_next_time_with_all_others() -> None:
    work = Work()
    shared = Shared(work)
    with ThreadPoolExecutor(ASKING + 1) as pool:
        first = pool.submit(shared)
        eventually(lambda: work.began == 1)
        others = [pool.submit(shared) for _ in range(ASKING)]
        eventually(lambda: shared._next is not None)
        assert not any(one.done() for one in others)
        work.go_on.release()
        first.result(30)
        work.go_on.release(ASKING)
        for one in others:
            one.result(30)
    # A thread that was slow to ask may have come when the second time had begun.
    assert 2 <= work.began <= 1 + ASKING


def test_each_call_alone_has_the_work_done_anew() -> None:
    times: list[int] = []
    shared = Shared(lambda: times.append(len(times)))
    shared()
    shared()
    assert times == [0, 1]


def test_what_goes_wrong_is_raised_in_all_who_wait_and_not_in_later_ones() -> None:
    work = Work()
    work.problem = ZeroDivisionError()
    shared = Shared(work)
    work.go_on.release()
    with pytest.raises(ZeroDivisionError):
        shared()
    work.problem = None
    work.go_on.release()
    shared()


# ---------------------------------------------------------------------------------- event loop


def body(work: Work) -> Rendered:
    return Rendered(b"%d" % work())


async def until_begun(work: Work, times: int) -> None:
    async with asyncio.timeout(30):
        while work.began < times:
            await asyncio.sleep(0.001)


async def asked(answering: Responder, work: Work, question: str, times: int) -> list[bytes]:
    answers = [answering.answer(question, lambda: body(work)) for _ in range(times)]
    return [bytes(one.body) for one in await asyncio.gather(*answers)]


async def until_forgotten(answering: Responder) -> None:
    async with asyncio.timeout(30):
        while answering._next or answering._last:
            await asyncio.sleep(0.001)


def test_equal_requests_get_one_answer_that_is_made_after_they_came() -> None:
    async def run() -> tuple[list[bytes], list[bytes]]:
        answering, work = Responder(), Work()
        first = asyncio.create_task(asked(answering, work, "a", 2))
        await until_begun(work, 1)
        second = asyncio.create_task(asked(answering, work, "a", ASKING))
        await asyncio.sleep(0)
        work.go_on.release(2)
        return await first, await second

    first, second = asyncio.run(run())
    assert first == [b"1", b"1"]
    assert second == [b"2"] * ASKING


def test_other_requests_do_not_wait() -> None:
    async def run() -> list[bytes]:
        answering, slow, quick = Responder(), Work(), Work()
        waiting = asyncio.create_task(asked(answering, slow, "a", 1))
        await until_begun(slow, 1)
        quick.go_on.release()
        found = await asked(answering, quick, "b", 1)
        assert not waiting.done()
        slow.go_on.release()
        return found + await waiting

    assert asyncio.run(run()) == [b"1", b"1"]


def test_an_error_goes_to_all_who_asked_and_the_next_one_is_answered() -> None:
    async def run() -> list[object]:
        answering, work = Responder(), Work()
        work.problem = ZeroDivisionError()
        work.go_on.release()
        answers = [answering.answer("a", lambda: body(work)) for _ in range(2)]
        found: list[object] = list(await asyncio.gather(*answers, return_exceptions=True))
        work.problem = None
        work.go_on.release()
        return [*found, *await asked(answering, work, "a", 1)]

    *failed, answered = asyncio.run(run())
    assert [type(one) for one in failed] == [ZeroDivisionError] * 2
    assert answered == b"2"


def test_an_answer_is_made_for_the_others_when_who_asked_first_has_gone() -> None:
    async def run() -> bytes:
        answering, work = Responder(), Work()
        first = asyncio.create_task(asked(answering, work, "a", 1))
        second = asyncio.create_task(asked(answering, work, "a", 1))
        await until_begun(work, 1)
        first.cancel()
        work.go_on.release()
        (found,) = await second
        await until_forgotten(answering)
        return found

    assert asyncio.run(run()) == b"1"


@pytest.fixture
def long_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is, who asks again does so within that time."""
    monkeypatch.setattr("api.http.answering.TOGETHER_S", 1.0)


@pytest.mark.usefixtures("long_together")
def test_who_were_answered_together_and_ask_again_one_by_one_are_answered_together() -> None:
    async def run() -> list[bytes]:
        answering, work = Responder(), Work()
        work.go_on.release(2 * ASKING)
        await asked(answering, work, "a", ASKING)
        again = [asyncio.create_task(asked(answering, work, "a", 1))]
        for _ in range(ASKING - 1):
            await asyncio.sleep(0)
            again.append(asyncio.create_task(asked(answering, work, "a", 1)))
        return [body for one in again for body in await one]

    assert asyncio.run(run()) == [b"2"] * ASKING


@pytest.mark.usefixtures("long_together")
def test_who_asks_alone_again_and_again_waits_for_nobody() -> None:
    async def run() -> None:
        answering, work = Responder(), Work()
        work.go_on.release(2)
        await asked(answering, work, "a", 1)
        again = asyncio.create_task(asked(answering, work, "a", 1))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not answering._next
        await again

    asyncio.run(run())
