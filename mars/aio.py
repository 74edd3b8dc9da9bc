"""The client for programs with an event loop: the same calls, each to be awaited."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import suppress
from contextvars import copy_context
from functools import partial, wraps
from queue import SimpleQueue
from threading import Event, Thread
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

from mars.client.answers import MissedResults, ResultEvent
from mars.client.blocking import TIMEOUT_S, Client
from mars.client.calls.waiting import GIVEN_UP
from mars.core.errors import MarsError

if TYPE_CHECKING:
    import httpx
    import polars as pl

    from mars.adapters.kafka.read.groups import ConsumedRow, KafkaResultConsumer

P = ParamSpec("P")
R = TypeVar("R")


def _in_thread(call: Callable[P, R]) -> Callable[P, Coroutine[Any, Any, R]]:
    """The same call from a thread, with its signature and its description."""

    @wraps(call)
    async def called(*args: P.args, **kwargs: P.kwargs) -> R:
        return await asyncio.to_thread(call, *args, **kwargs)

    return called


def _waiting_in_thread(call: Callable[P, R]) -> Callable[P, Coroutine[Any, Any, R]]:
    """The same for a call that waits: cancelled, it stops to, and ends what it has begun."""

    @wraps(call)
    async def called(*args: P.args, **kwargs: P.kwargs) -> R:
        given_up = Event()

        def waiting() -> R:
            GIVEN_UP.set(given_up)  # in the context of this call alone
            return call(*args, **kwargs)

        loop = asyncio.get_running_loop()
        outcome = loop.run_in_executor(None, partial(copy_context().run, waiting))
        try:
            return await asyncio.shield(outcome)
        except asyncio.CancelledError:
            given_up.set()
            await asyncio.wait((outcome,))
            outcome.exception()  # nobody waits for it any more
            raise

    return called


class AsyncClient:
    """`Client` for `async with` and `await`; errors and answers are the same.

    Each call waits in a thread of the loop's pool, so that one list of calls serves both clients.
    `ask`, cancelled, cancels its query; so ends every call that waits, once its last request does.
    """

    def __init__(  # noqa: PLR0915 -- a line for each call
        self,
        url: str | None = None,
        *,
        key: str | None = None,
        timeout_s: float = TIMEOUT_S,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """Defaults are those of `Client`."""
        client = Client(url, key=key, timeout_s=timeout_s, transport=transport)
        self._client = client
        self.put_stream = _in_thread(client.put_stream)
        self.streams = _in_thread(client.streams)
        self.stream = _in_thread(client.stream)
        self.delete_stream = _in_thread(client.delete_stream)
        self.create_task = _in_thread(client.create_task)
        self.apply_tasks = _in_thread(client.apply_tasks)
        self.tasks = _in_thread(client.tasks)
        self.task = _in_thread(client.task)
        self.change_task = _in_thread(client.change_task)
        self.delete_task = _in_thread(client.delete_task)
        self.pause_task = _in_thread(client.pause_task)
        self.resume_task = _in_thread(client.resume_task)
        self.validate = _in_thread(client.validate)
        self.windows = _in_thread(client.windows)
        self.why = _in_thread(client.why)
        self.ledger = _in_thread(client.ledger)
        self.window_ledger = _in_thread(client.window_ledger)
        self.verify = _in_thread(client.verify)
        self.dead = _in_thread(client.dead)
        self.incidents = _in_thread(client.incidents)
        self.preview = _in_thread(client.preview)
        self.figures = _in_thread(client.figures)
        self.all_figures = _in_thread(client.all_figures)
        self.results = _in_thread(client.results)
        self.ask = _waiting_in_thread(client.ask)
        self.create_query = _in_thread(client.create_query)
        self.queries = _in_thread(client.queries)
        self.query = _in_thread(client.query)
        self.query_rows = _in_thread(client.query_rows)
        self.query_arrow = _in_thread(client.query_arrow)
        self.cancel_query = _in_thread(client.cancel_query)
        self.wait_for_query = _waiting_in_thread(client.wait_for_query)
        self.wait_until_read = _waiting_in_thread(client.wait_until_read)
        self.wait_until_ready = _waiting_in_thread(client.wait_until_ready)
        self.create_key = _in_thread(client.create_key)
        self.keys = _in_thread(client.keys)
        self.delete_key = _in_thread(client.delete_key)
        self.cluster = _in_thread(client.cluster)
        self.readiness = _in_thread(client.readiness)
        self.close = _in_thread(client.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def tail(
        self,
        name: str,
        *,
        after: str | None = None,
        reached: Callable[[str], None] | None = None,
        missed: Callable[[MissedResults], None] | None = None,
    ) -> AsyncIterator[ResultEvent]:
        """Result rows as they are committed, see `Client.tail`; may be cancelled at any time.

        `reached` and `missed` are called in the thread that reads them.
        """
        events = self._client.tail(name, after=after, reached=reached, missed=missed)
        thread = _OwnThread(f"tail-{name}")
        try:
            while (event := await thread.ask(partial(next, events, None))) is not None:
                yield event
        finally:
            # Not waited for: the thread may be reading, and up to 15 s pass between two comments.
            thread.end(events.close)

    def consume(
        self,
        name: str,
        *,
        group: str,
        kafka: str | None = None,
        begin: Mapping[int, int] | None = None,
        silence_s: float | None = None,
    ) -> AsyncResultConsumer:
        """Iterate over all result rows with `async for`, see `Client.consume`.

        The first call, or `async with`, makes the consumer: that is where NotFound and Unavailable
        are raised.
        """
        client = self._client
        return AsyncResultConsumer(
            lambda: client.consume(name, group=group, kafka=kafka, begin=begin, silence_s=silence_s)
        )


class AsyncResultConsumer:
    """`KafkaResultConsumer` for `async with` and `async for`: a thread of its own asks Kafka.

    A row is *handled* when the next one is asked for, or when the `async with` block ends without
    an error; what follows from that is said there. To cancel a wait, or to give it a time limit,
    loses nothing: what it was for comes with the next call of the same kind. One task at a time.
    """

    def __init__(self, make: Callable[[], KafkaResultConsumer]) -> None:
        self._make = make
        self._thread = _OwnThread("consume")
        self._consumer: KafkaResultConsumer | None = None
        self._turn = asyncio.Lock()
        self._under_way: tuple[Callable[[], Any], asyncio.Future[Any]] | None = None
        """A call whose outcome nobody has been given yet."""

    async def __aenter__(self) -> Self:
        try:
            await self._thread.ask(self._opened)
        except BaseException:
            self._thread.end(self._close)
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        await self._leave(in_order=kind is None)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumedRow:
        """The next row; ends after `silence_s` without one. Raises Unavailable."""
        row = await self._told(self._next)
        if row is None:
            raise StopAsyncIteration
        return row

    async def df(self) -> pl.DataFrame:
        """All rows until none came for `silence_s`, see `KafkaResultConsumer.df`."""
        return await self._told(self._frame)

    async def close(self) -> None:
        """Commit what was handled, and leave the group. A row in hand is not handled."""
        await self._leave(in_order=False)

    async def _told(self, call: Callable[[], R]) -> R:
        """What a call gives; one whose wait was cancelled has gone on, and is not made again."""
        async with self._turn:
            if self._under_way is None:
                self._under_way = call, self._thread.ask(call)
            begun, outcome = self._under_way
            if begun != call:
                raise MarsError("a cancelled call is under way: repeat it before you make another")
            await asyncio.wait((outcome,))
            self._under_way = None
        found: R = outcome.result()
        return found

    async def _leave(self, *, in_order: bool) -> None:
        """Close; rows that were given to somebody are handled if it is in order."""
        if self._thread.ended:
            return
        left, self._under_way = self._under_way, None
        if self._consumer is not None:
            self._consumer.stop()
        closed = self._thread.ask(self._close_in_order if in_order and not left else self._close)
        self._thread.end()
        await asyncio.wait((closed,))
        if left is not None:
            left[1].exception()  # nobody waits for it any more
        closed.result()

    # ----------------------------------------------------------------------- in the thread

    def _opened(self) -> KafkaResultConsumer:
        if self._consumer is None:
            self._consumer = self._make()
        return self._consumer

    def _next(self) -> ConsumedRow | None:
        return next(self._opened(), None)

    def _frame(self) -> pl.DataFrame:
        return self._opened().df()

    def _close_in_order(self) -> None:
        if self._consumer is not None:
            self._consumer.__exit__(None, None, None)

    def _close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()


class _OwnThread:
    """Makes calls one after another in a thread of its own.

    Neither the end of an event loop nor that of the program waits for it, as both do for threads
    of a pool.
    """

    def __init__(self, name: str) -> None:
        self.ended = False
        self._calls: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._thread = Thread(target=_make_calls, args=(self._calls,), name=name, daemon=True)

    def ask(self, call: Callable[[], R]) -> asyncio.Future[R]:
        """What the call gives, once it is its turn; it is made even if nobody waits any more.

        Raises MarsError after the end.
        """
        if self.ended:
            raise MarsError("it is closed: make another")
        if self._thread.ident is None:
            self._thread.start()
        future: concurrent.futures.Future[R] = concurrent.futures.Future()
        future.set_running_or_notify_cancel()
        self._calls.put(partial(_settle, future, call))
        return asyncio.wrap_future(future)

    def end(self, last: Callable[[], object] | None = None) -> None:
        """End it after the calls so far, and a last one."""
        self.ended = True
        if last is not None:
            self._calls.put(last)
        self._calls.put(None)


def _make_calls(calls: SimpleQueue[Callable[[], object] | None]) -> None:
    while (call := calls.get()) is not None:
        # Whoever waits for a call is told by its future; nobody waits for the last one.
        with suppress(Exception):
            call()


def _settle(future: concurrent.futures.Future[R], call: Callable[[], R]) -> None:
    try:
        found = call()
    except Exception as error:  # noqa: BLE001 -- whatever it is, it is for who waits
        future.set_exception(error)
    else:
        future.set_result(found)
