"""Finished windows, read from the output topic: the last ones, or as they come."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from threading import BoundedSemaphore

import anyio
import anyio.to_thread
import msgspec

from api.errors import TooManyFollowers
from api.schemas import FinishedWindow, FinishedWindows
from api.services.compiling import Compiler
from api.services.context import Ports
from api.services.tasks import TaskService
from mars.errors import Conflict, Unavailable
from mars.plan import WINDOW_END, WINDOW_START, Plan
from mars.ports import CommittedRow, ResultFollower
from mars.types import TaskName, Topic

FOLLOWERS_MAX = 64
"""Event streams at once: each costs a Kafka consumer (some megabytes) and a thread."""

POLL_S = 0.5
"""Longest wait for rows in one poll: how late a stream notices that its client has gone."""

HEARTBEAT_S = 15.0
"""A comment is sent when nothing else was for so long, because proxies cut silent streams."""

Group = tuple[int, int, int, bool]


class ResultService:
    """What the path /v1/tasks/{name}/results does."""

    def __init__(self, ports: Ports, compiler: Compiler, tasks: TaskService) -> None:
        self._ports = ports
        self._compiler = compiler
        self._tasks = tasks
        self._places = BoundedSemaphore(FOLLOWERS_MAX)
        self._threads = anyio.CapacityLimiter(FOLLOWERS_MAX)

    def recent(self, name: str, window_start_ms: int | None, limit: int) -> FinishedWindows:
        """The last finished windows, newest first. Raises NotFound, Unavailable."""
        task, plan = self._current(name)
        topic = Topic(plan.options.output_topic)
        # One more than wanted from each partition tells whether any were left out.
        rows = self._ports.results.recent(topic, task, limit + 1, window_start_ms)
        if not plan.single_bucket:
            # Of several partitions; a task with an order of its own has one.
            rows.sort(key=lambda row: row.key)
        groups: dict[Group, list[dict[str, object]]] = {}
        for row in rows:
            value = msgspec.json.decode(row.value, type=dict[str, object])
            groups.setdefault(_group(row, value), []).append(value)
        windows: list[FinishedWindow] = []
        left = limit
        for group in sorted(groups, reverse=True):
            if left == 0:
                break
            shown = groups[group][:left]
            left -= len(shown)
            windows.append(_finished(group, shown))
        return FinishedWindows(windows=windows, truncated=len(rows) > limit)

    def _current(self, name: str) -> tuple[TaskName, Plan]:
        definition = self._tasks.show(name)
        plan = self._compiler.plans(definition).get(definition.current.version)
        if plan is None:
            raise Conflict(
                f"the query of task {name} is of another release and cannot be read by this one"
            )
        return definition.name, plan

    async def follow(self, name: str, gone: Callable[[], Awaitable[bool]]) -> AsyncIterator[bytes]:
        """Server-sent events from now on, until `gone` says so.

        What can go wrong goes wrong before the first event. Raises NotFound, TooManyFollowers,
        Unavailable.
        """
        task, plan = await anyio.to_thread.run_sync(self._current, name)
        topic = Topic(plan.options.output_topic)
        if not self._places.acquire(blocking=False):
            raise TooManyFollowers(
                f"{FOLLOWERS_MAX} clients follow results already: read topic {topic} with a "
                "Kafka consumer, or try again later"
            )
        try:
            follower = await anyio.to_thread.run_sync(
                self._ports.results.follow, topic, task, limiter=self._threads
            )
        except BaseException:
            self._places.release()
            raise
        return self._events(follower, gone)

    async def _events(
        self, follower: ResultFollower, gone: Callable[[], Awaitable[bool]]
    ) -> AsyncIterator[bytes]:
        try:
            yield b": results as they are committed\n\n"
            silent_since = anyio.current_time()
            while not await gone():
                events = await self._poll(follower)
                now = anyio.current_time()
                if not events and now - silent_since >= HEARTBEAT_S:
                    events = b": nothing new\n\n"
                if events:
                    silent_since = now
                    yield events
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(follower.close, limiter=self._threads)
            self._places.release()

    async def _poll(self, follower: ResultFollower) -> bytes:
        try:
            rows = await anyio.to_thread.run_sync(follower.poll, POLL_S, limiter=self._threads)
        except Unavailable:
            # The follower goes on by itself; the client sees a pause.
            await anyio.sleep(POLL_S)
            return b""
        return b"".join(map(_event, rows))


def _group(row: CommittedRow, value: dict[str, object]) -> Group:
    start = value.get(WINDOW_START)
    return start if isinstance(start, int) else 0, row.version, row.revision, row.complete


def _finished(group: Group, rows: list[dict[str, object]]) -> FinishedWindow:
    start, version, revision, complete = group
    end = rows[0].get(WINDOW_END)
    return FinishedWindow(
        window_start=start,
        window_end=end if isinstance(end, int) else start,
        version=version,
        complete=complete,
        revision=revision,
        rows=rows,
    )


def _event(row: CommittedRow) -> bytes:
    return b"event: result\nid: %d:%d\ndata: %s\n\n" % (row.partition, row.offset, row.value)
