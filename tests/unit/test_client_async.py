"""Following and consuming results from an event loop: what cancelling loses, and what waits."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from types import TracebackType
from typing import cast

import httpx
import polars as pl
import pytest

from mars.adapters.kafka.read.groups import ConsumedRow, KafkaResultConsumer
from mars.aio import AsyncClient, AsyncResultConsumer
from mars.core.errors import MarsError, NotFound, Unavailable

SOON_S = 5.0
"""Far less than the 15 s between two comments of an event stream."""

LONG_S = 60.0


def row(number: int) -> ConsumedRow:
    return ConsumedRow("t", 0, number, [], {"number": number}, 1, 0, complete=True)


class Consumer:
    """Gives numbers when they are there; knows which were handled, as the real one does."""

    def __init__(self) -> None:
        self.handled: list[int] = []
        self.closed = 0
        self.threads: set[str] = set()
        self.failure: Exception | None = None
        self._there: list[int] = []
        self._in_hand: list[int] = []
        self._changed = threading.Condition()
        self._stopped = False

    def write(self, *numbers: int) -> None:
        with self._changed:
            self._there += numbers
            self._changed.notify_all()

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def __next__(self) -> ConsumedRow:
        self._handle()
        with self._changed:
            self._changed.wait_for(
                lambda: self._there or self._stopped or self.failure is not None, LONG_S
            )
            if self.failure is not None:
                raise self.failure
            if not self._there:
                raise StopIteration
            self._in_hand = [self._there.pop(0)]
        return row(self._in_hand[0])

    def df(self) -> pl.DataFrame:
        self._handle()
        with self._changed:
            self._changed.wait_for(lambda: self._there or self._stopped, LONG_S)
            self._in_hand, self._there = self._there, []
        return pl.DataFrame({"number": self._in_hand})

    def __exit__(
        self,
        kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        assert kind is None
        self._handle()
        self.close()

    def close(self) -> None:
        self.threads.add(threading.current_thread().name)
        self._in_hand = []
        self.closed += 1

    def _handle(self) -> None:
        self.threads.add(threading.current_thread().name)
        self.handled += self._in_hand
        self._in_hand = []


@pytest.fixture
def consumer() -> Consumer:
    return Consumer()


@pytest.fixture
def rows(consumer: Consumer) -> AsyncResultConsumer:
    return AsyncResultConsumer(lambda: cast("KafkaResultConsumer", consumer))


async def times_out(awaited: object) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(awaited, 0.05)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------ consuming


def test_rows_come_in_order_and_all_are_handled_by_one_thread_of_its_own(
    rows: AsyncResultConsumer, consumer: Consumer
) -> None:
    async def run() -> list[object]:
        found = []
        async with rows:
            async for one in rows:
                found.append(one.row["number"])
                if len(found) == 3:
                    break
                assert consumer.handled == found[:-1]
        return found

    consumer.write(1, 2, 3, 4)
    assert asyncio.run(run()) == [1, 2, 3] == consumer.handled
    assert consumer.closed == 1
    assert consumer.threads == {"consume"}


def test_row_in_hand_is_not_handled_where_the_block_ends_with_an_error(
    rows: AsyncResultConsumer, consumer: Consumer
) -> None:
    async def run() -> None:
        async with rows:
            await anext(rows)
            await anext(rows)
            raise ZeroDivisionError

    consumer.write(1, 2)
    with pytest.raises(ZeroDivisionError):
        asyncio.run(run())
    assert (consumer.handled, consumer.closed) == ([1], 1)


def test_row_that_comes_after_its_wait_was_given_up_is_the_next_one(
    rows: AsyncResultConsumer, consumer: Consumer
) -> None:
    async def run() -> None:
        async with rows:
            await times_out(anext(rows))
            consumer.write(1, 2)
            assert (await anext(rows)).row == {"number": 1}
            assert consumer.handled == []
            assert (await anext(rows)).row == {"number": 2}

    asyncio.run(run())
    assert consumer.handled == [1, 2]


def test_row_that_nobody_was_given_is_not_handled_at_the_end(
    rows: AsyncResultConsumer, consumer: Consumer
) -> None:
    async def run() -> None:
        async with rows:
            await anext(rows)
            await times_out(anext(rows))
            consumer.write(2)

    consumer.write(1)
    asyncio.run(run())
    assert (consumer.handled, consumer.closed) == ([1], 1)


def test_frame_that_nobody_was_given_is_asked_for_again_before_anything_else(
    rows: AsyncResultConsumer, consumer: Consumer
) -> None:
    async def run() -> None:
        async with rows:
            await times_out(rows.df())
            consumer.write(1, 2)
            with pytest.raises(MarsError, match="cancelled call"):
                await anext(rows)
            assert consumer.handled == []
            assert (await rows.df())["number"].to_list() == [1, 2]

    asyncio.run(run())
    assert consumer.handled == [1, 2]


def test_two_who_ask_at_once_get_a_row_each(rows: AsyncResultConsumer, consumer: Consumer) -> None:
    async def run() -> list[object]:
        async with rows:
            both = asyncio.gather(anext(rows), anext(rows))
            consumer.write(1, 2)
            return [one.row["number"] for one in await both]

    assert asyncio.run(run()) == [1, 2]


def test_wait_that_is_cancelled_ends_the_program_at_once(
    rows: AsyncResultConsumer, consumer: Consumer
) -> None:
    async def consume() -> None:
        async with rows:
            await anext(rows)

    async def run() -> None:
        waiting = asyncio.create_task(consume())
        await asyncio.sleep(0.05)
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            await waiting

    begun_s = time.monotonic()
    asyncio.run(run())
    assert time.monotonic() - begun_s < SOON_S
    assert consumer.closed == 1


def test_errors_are_raised_where_they_are_waited_for_and_the_next_call_is_a_new_one(
    rows: AsyncResultConsumer, consumer: Consumer
) -> None:
    async def run() -> None:
        async with rows:
            consumer.failure = Unavailable("kafka", "of a test")
            with pytest.raises(Unavailable, match="of a test"):
                await anext(rows)
            consumer.failure = None
            consumer.write(1)
            assert (await anext(rows)).row == {"number": 1}

    asyncio.run(run())


def test_what_is_closed_says_so_and_may_be_closed_again(
    rows: AsyncResultConsumer, consumer: Consumer
) -> None:
    async def run() -> None:
        async with rows:
            await rows.close()
            with pytest.raises(MarsError, match="closed"):
                await anext(rows)
        await rows.close()

    asyncio.run(run())
    assert consumer.closed == 1


def test_client_makes_the_consumer_when_it_is_first_used() -> None:
    async def run() -> None:
        transport = httpx.MockTransport(
            lambda _request: httpx.Response(404, json={"status": 404, "detail": "no such task"})
        )
        async with AsyncClient("http://mars", transport=transport) as client:
            made = client.consume("none", group="g")
            with pytest.raises(NotFound):
                await anext(made)
            with pytest.raises(NotFound):
                async with client.consume("none", group="g"):
                    raise AssertionError

    asyncio.run(run())


# ------------------------------------------------------------------------------ following


class Silent(httpx.SyncByteStream):
    """One row, and then nothing for long, as between two windows."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.closed = threading.Event()

    def __iter__(self) -> Iterator[bytes]:
        yield b"event: result\nid: 0:1\ndata: {}\n\n"
        self.over.wait(LONG_S)

    def close(self) -> None:
        self.closed.set()


@pytest.fixture
def silent() -> Iterator[Silent]:
    made = Silent()
    yield made
    made.over.set()


def follow(silent: Silent) -> float:
    """Follow results in a task that is cancelled after the first row; how long all of it took."""
    transport = httpx.MockTransport(lambda _request: httpx.Response(200, stream=silent))

    async def run() -> None:
        came = asyncio.Event()

        async def following() -> None:
            async with AsyncClient("http://mars", transport=transport) as client:
                async for _event in client.tail("by_sip"):
                    came.set()

        task = asyncio.create_task(following())
        await came.wait()
        await asyncio.sleep(0.05)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    begun_s = time.monotonic()
    asyncio.run(run())
    return time.monotonic() - begun_s


def test_tail_that_is_cancelled_ends_the_program_at_once(silent: Silent) -> None:
    assert follow(silent) < SOON_S


def test_connection_of_a_cancelled_tail_is_closed_by_the_next_thing_that_comes(
    silent: Silent,
) -> None:
    follow(silent)
    silent.over.set()
    assert silent.closed.wait(SOON_S)
