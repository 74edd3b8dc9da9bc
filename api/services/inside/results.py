"""Finished windows, read from the output topic: the last ones, or as they come."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from weakref import ref

import anyio
import anyio.to_thread
import msgspec

from api.http.answering import event
from api.http.places import Places
from api.services.compiling import TaskCompiler
from api.services.context import Ports
from api.services.inside.naming import AskedWindow, wanted_of
from api.services.tasks import TaskService
from mars.client.answers import (
    FinishedWindow,
    FinishedWindows,
    MissedResults,
    RevisedWindow,
    WindowSource,
)
from mars.core.definitions import TaskDefinition
from mars.core.errors import Conflict, Rejected, Unavailable
from mars.core.plan import Plan
from mars.core.types import TaskName, Topic
from mars.core.windows import Window
from mars.core.windows.counting import WindowNumber
from mars.protocol.ports import CommittedRow, RecentRows, ResultFollower, ResultGap

FOLLOWERS_MAX = 64
"""Event streams at once: each costs a Kafka consumer (some megabytes) and a thread."""

POLL_S = 0.5
"""Longest wait for rows in one poll: how late a stream notices that its client has gone."""

HEARTBEAT_S = 15.0
"""A comment is sent when nothing else was for so long, because proxies cut silent streams."""

MADE_MAX = 256
"""Answers that are kept for who asks the same again: some megabytes."""

MADE_BYTES_MAX = 64 * 1024
"""Of an answer that is kept."""

Place = Window | WindowNumber
"""A window, or what names one that counts rows."""

Group = tuple[Place, int, bool]
"""Window and version; whether it is complete."""

# Digits of what a 64-bit offset holds; the second half is left out by who knows the place only.
_EVENT_ID = re.compile(
    r"(?:(\d{1,9}):(\d{1,18})|(?=/))(?:/(\d{1,18}(?:,\d{1,18}){0,9999}))?", re.ASCII
)


@dataclass(frozen=True, slots=True)
class _Shown:
    """A row, and its value decoded."""

    row: CommittedRow
    value: dict[str, object]


_Question = tuple[TaskName, int]
"""Task and limit."""


@dataclass(frozen=True, slots=True)
class _Made:
    """An answer as JSON, and all that it was made of. Its rows are kept by the port, or gone."""

    found: ref[RecentRows]
    plan: Plan
    json: bytes


class ResultService:
    """What the path /v1/tasks/{name}/results does."""

    def __init__(self, ports: Ports, compiler: TaskCompiler, tasks: TaskService) -> None:
        self._ports = ports
        self._compiler = compiler
        self._tasks = tasks
        self._made: dict[_Question, _Made] = {}
        self._places = Places(
            FOLLOWERS_MAX,
            f"{FOLLOWERS_MAX} clients follow results already: read the task's output topic with a "
            "Kafka consumer, or try again later",
        )
        self._threads = anyio.CapacityLimiter(FOLLOWERS_MAX)

    def recent(self, name: str, asked: AskedWindow, limit: int) -> bytes:
        """`FinishedWindows` as JSON, newest first: the last ones, or of a window.

        Raises NotFound, Rejected for what names none of its windows, Conflict, Unavailable.

        Made anew only where a row has come or the task is another one.
        """
        definition, plan = self._current(name)
        plans = self._compiler.plans(definition)
        wanted = wanted_of(plans, definition.current.version, asked)
        task, first_version = definition.name, definition.first_version
        topic = Topic(plan.options.output_topic)
        # One more than wanted from each partition tells whether any were left out.
        found = self._ports.results.recent(topic, task, limit + 1, wanted)
        if wanted is not None:
            return _json(_own(found, first_version), plan, limit)
        made = self._made.get((task, limit))
        if made is None or made.found() is not found or made.plan is not plan:
            made = _Made(ref(found), plan, _json(_own(found, first_version), plan, limit))
            self._remember((task, limit), made)
        return made.json

    def _remember(self, question: _Question, made: _Made) -> None:
        self._made.pop(question, None)
        if len(made.json) <= MADE_BYTES_MAX:
            self._made[question] = made
        for oldest in list(self._made)[:-MADE_MAX]:
            self._made.pop(oldest, None)

    def _current(self, name: str) -> tuple[TaskDefinition, Plan]:
        definition = self._tasks.show(name)
        plan = self._compiler.plans(definition).get(definition.current.version)
        if plan is None:
            raise Conflict(
                f"the query of task {name} is of another release and cannot be read by this one"
            )
        return definition, plan

    async def follow(
        self, name: str, gone: Callable[[], Awaitable[bool]], last_event_id: str | None = None
    ) -> AsyncIterator[bytes]:
        """Server-sent events from now on (or behind the one of that id), until `gone` says so.

        What can go wrong goes wrong before the first event. Raises NotFound, Rejected,
        TooMany, Unavailable.
        """
        after, whole = ({}, False) if last_event_id is None else positions_of(last_event_id)
        task, plan = await anyio.to_thread.run_sync(self._current, name)
        topic = Topic(plan.options.output_topic)
        give_back = self._places.take()
        follow = partial(self._ports.results.follow, topic, task.name, after, whole=whole)
        try:
            follower = await anyio.to_thread.run_sync(follow, limiter=self._threads)
        except BaseException:
            give_back()
            raise
        return self._events(follower, gone, task.first_version, give_back)

    async def _events(
        self,
        follower: ResultFollower,
        gone: Callable[[], Awaitable[bool]],
        first_version: int,
        give_back: Callable[[], None],
    ) -> AsyncIterator[bytes]:
        positions = dict(follower.starts)
        sources = _Sources()
        try:
            # An id without data: whoever is cut off before the first row goes on here, too.
            yield b": results as they are committed\nid: %s\n\n" % _identity(positions)
            silent_since = anyio.current_time()
            while not await gone():
                found = await self._poll(follower)
                positions = {**follower.starts, **positions}
                events = b"".join(
                    _gap(one, positions)
                    if isinstance(one, ResultGap)
                    else sources.before(one) + _event(one, positions)
                    for one in found
                    if isinstance(one, ResultGap) or one.version >= first_version
                )
                now = anyio.current_time()
                if not events and now - silent_since >= HEARTBEAT_S:
                    events = b": nothing new\n\n"
                if events:
                    silent_since = now
                    yield events
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(follower.close, limiter=self._threads)
            give_back()

    async def _poll(self, follower: ResultFollower) -> list[CommittedRow | ResultGap]:
        try:
            return await anyio.to_thread.run_sync(follower.poll, POLL_S, limiter=self._threads)
        except Unavailable:
            # The follower goes on by itself; the client sees a pause.
            await anyio.sleep(POLL_S)
            return []


def _own(found: RecentRows, first_version: int) -> RecentRows:
    """Without what an earlier task of the same name has written.

    Of a partition in which a row of that one lies before all others, no row of this one is missing.
    """
    rows = tuple(row for row in found.rows if row.version >= first_version)
    if len(rows) == len(found.rows):
        return found
    oldest = {row.partition: row.version for row in reversed(found.rows)}
    is_cut = any(version >= first_version for version in oldest.values())
    cut = frozenset(one for one in found.cut if oldest.get(one, first_version) >= first_version)
    return replace(found, rows=rows, cut_at_ms=found.cut_at_ms if is_cut else None, cut=cut)


def _json(found: RecentRows, plan: Plan, limit: int) -> bytes:
    return msgspec.json.encode(_finished_windows(found, plan, limit))


def _finished_windows(found: RecentRows, plan: Plan, limit: int) -> FinishedWindows:
    """Whole windows as far as the limit reaches; of the newest the first rows, if it has more.

    What is left of an older window may be its revised rows alone: half a window says something
    wrong, none says nothing.
    """
    windows: list[FinishedWindow] = []
    left, groups = limit, _groups(found, plan)
    cut = found.cut_at_ms is not None
    from_number = found.first_whole_numbers()
    for window, version in sorted({group[:2] for group in groups}, key=_newness, reverse=True):
        places = ((window, version, True), (window, version, False))
        parts = [one for one in places if one in groups]
        if isinstance(window, WindowNumber):
            first = from_number.get((version, window.partition))
            whole = first is not None and window.number >= first
        else:
            whole = found.whole(window.end_ms)
        whole = whole and sum(len(groups[one]) for one in parts) <= left
        if not whole and windows:
            cut = True
            break
        for group in parts:
            shown = groups[group][:left]
            left -= len(shown)
            windows += [_finished(group, shown, cut=not whole)] if shown else []
        cut = cut or not whole
    return FinishedWindows(windows=windows, truncated=cut, revised=_left_out(found, windows))


def _newness(place: tuple[Place, int]) -> tuple[int, Place, int]:
    """Orders windows; each version numbers those that count rows from 0 on."""
    window, version = place
    return (version if isinstance(window, WindowNumber) else 0, window, version)


def _left_out(found: RecentRows, windows: Sequence[FinishedWindow]) -> list[RevisedWindow]:
    """Those not shown of which a later revision was seen, newest first."""
    shown = {(Window(one.window_end, one.window_start), one.version) for one in windows}
    revisions: dict[tuple[Window, int], int] = {}
    for row in found.rows:
        place = (row.window, row.version)
        if row.revision and place not in shown:
            revisions[place] = max(row.revision, revisions.get(place, 0))
    return [
        RevisedWindow(
            window_start=window.start_ms,
            version=version,
            revision=revisions[window, version],
            window_end=window.end_ms,
        )
        for window, version in sorted(revisions, reverse=True)
    ]


def _groups(found: RecentRows, plan: Plan) -> dict[Group, list[_Shown]]:
    """The rows that hold, by window."""
    rows = newest_revisions(found.rows)
    if not plan.single_bucket:
        # Of several partitions; a task with an order of its own has one.
        rows.sort(key=lambda row: row.key)
    groups: dict[Group, list[_Shown]] = {}
    for row in rows:
        try:
            value = msgspec.json.decode(row.value, type=dict[str, object])
        except (ValueError, RecursionError):
            continue  # somebody else's, which only looks like one of ours
        place = (row.numbered or row.window, row.version, row.complete)
        groups.setdefault(place, []).append(_Shown(row, value))
    return groups


def newest_revisions(rows: Sequence[CommittedRow]) -> list[CommittedRow]:
    """The rows that hold: of each group the newest one, unless that says it is deleted."""
    newest: dict[tuple[int, bytes], int] = {}
    for row in rows:
        place = (row.version, row.key)
        newest[place] = max(row.revision, newest.get(place, 0))
    return [row for row in rows if not row.deleted and row.revision == newest[row.version, row.key]]


def _finished(group: Group, shown: list[_Shown], *, cut: bool) -> FinishedWindow:
    window, version, complete = group
    in_order = sorted((one.row for one in shown), key=lambda row: row.revision)
    named = {row.bucket: row for row in in_order if row.ranges}
    numbered = window if isinstance(window, WindowNumber) else None
    return FinishedWindow(
        window_start=min(row.window.start_ms for row in in_order),
        window_end=max(row.window.end_ms for row in in_order),
        partition=None if numbered is None else numbered.partition,
        window_number=None if numbered is None else numbered.number,
        version=version,
        complete=complete,
        revision=in_order[-1].revision,
        rows=[one.value for one in shown],
        truncated=cut,
        sources=[_source(named[bucket]) for bucket in sorted(named)],
    )


def _source(row: CommittedRow) -> WindowSource:
    ranges = {str(part.lane): (part.first, part.next) for part in row.ranges}
    return WindowSource(
        bucket=row.bucket,
        rows=row.rows,
        ranges=ranges,
        revision=row.revision,
        deleted=row.deleted,
    )


class _Sources:
    """What a stream says between rows of different windows or buckets: where they come from."""

    def __init__(self) -> None:
        self._last: tuple[int, ...] | None = None

    def before(self, row: CommittedRow) -> bytes:
        """An event named source, if the row before was of another window or bucket."""
        place = (row.version, row.bucket, row.emit, *row.window, row.deleted)
        if not row.ranges or place == self._last:
            return b""
        self._last = place
        return event("source", _source(row))


def _event(row: CommittedRow, positions: dict[int, int]) -> bytes:
    """An event, whose id says where the row lies and what comes next in all partitions."""
    positions[row.partition] = row.offset + 1
    place = b"%d:%d" % (row.partition, row.offset)
    return b"event: result\nid: %s%s\ndata: %s\n\n" % (place, _identity(positions), row.value)


def _gap(gap: ResultGap, positions: dict[int, int]) -> bytes:
    """An event that says what is gone, whose id goes on behind it."""
    positions[gap.partition] = max(gap.next, positions[gap.partition])
    said = MissedResults(partition=gap.partition, first=gap.first, next=gap.next)
    return b"id: %s\n%s" % (_identity(positions), event("gap", said))


def _identity(positions: Mapping[int, int]) -> bytes:
    """The next offsets of partitions 0, 1, ... as `/7,0,12`."""
    return b"/" + b",".join(b"%d" % positions[partition] for partition in sorted(positions))


def positions_of(event_id: str) -> tuple[dict[int, int], bool]:
    """The next offset per partition after an event, and whether these are all partitions.

    Raises Rejected for what is no id of ours.
    """
    parts = _EVENT_ID.fullmatch(event_id)
    if parts is None:
        raise Rejected(
            f"Last-Event-ID {event_id[:80]!a} is not the id of an event of this path: leave it out "
            "to start with what is committed from now on"
        )
    partition, offset, following = parts.groups()
    if following is not None:
        return dict(enumerate(map(int, following.split(",")))), True
    return {int(partition): int(offset) + 1}, False
