"""The client for programs with an event loop: the same calls, each to be awaited."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import wraps
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

import httpx

from mars.answers import ResultEvent
from mars.client import TIMEOUT_S, Client

P = ParamSpec("P")
R = TypeVar("R")


def _in_thread(call: Callable[P, R]) -> Callable[P, Coroutine[Any, Any, R]]:
    """The same call from a thread, with its signature and its description."""

    @wraps(call)
    async def called(*args: P.args, **kwargs: P.kwargs) -> R:
        return await asyncio.to_thread(call, *args, **kwargs)

    return called


class AsyncClient:
    """`Client` for `async with` and `await`; errors and answers are the same.

    Each call waits in a thread of the loop's pool, so that one list of calls serves both clients.
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
        self.ask = _in_thread(client.ask)
        self.create_query = _in_thread(client.create_query)
        self.queries = _in_thread(client.queries)
        self.query = _in_thread(client.query)
        self.query_rows = _in_thread(client.query_rows)
        self.query_arrow = _in_thread(client.query_arrow)
        self.cancel_query = _in_thread(client.cancel_query)
        self.wait_for_query = _in_thread(client.wait_for_query)
        self.wait_until_read = _in_thread(client.wait_until_read)
        self.wait_until_ready = _in_thread(client.wait_until_ready)
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

    async def tail(self, name: str, *, after: str | None = None) -> AsyncIterator[ResultEvent]:
        """Result rows as they are committed, see `Client.tail`."""
        events = self._client.tail(name, after=after)
        while (event := await asyncio.to_thread(_next, events)) is not None:
            yield event


def _next(events: Iterator[ResultEvent]) -> ResultEvent | None:
    return next(events, None)
