"""Open windows with their values as of now: the log folded and finished by the reducers' code."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import polars as pl

from api.services.compiling import TaskCompiler
from api.services.context import BucketCount, Ports
from api.services.inside.naming import said_of
from api.services.inside.progress import ProgressTail
from api.services.operation.logs import (
    LogReader,
    Portion,
    begins_saved,
    check_rebuilt,
    folded,
    holds_something,
)
from api.services.tasks import TaskService
from mars.client.answers import OpenWindow, OpenWindows
from mars.core.definitions import TaskDefinition, TaskVersion
from mars.core.errors import Conflict, Rejected, TaskLimit
from mars.core.plan import Plan
from mars.core.types import Bucket
from mars.core.windows import Counting, Session, Shape, Window
from mars.core.windows.counting import partition_of
from mars.engine.finishing import Finished, finish, group_of
from mars.inspect.verifying_sessions import session_rows
from mars.protocol.ports import Head, WantedNumber, WantedWindow
from mars.protocol.windows.closing import WholeSpan
from mars.protocol.windows.folding import Folding
from mars.protocol.windows.sessions.session_state import SessionState

LIMIT_DEFAULT = 100
"""Rows in an answer that names no limit."""

LIMIT_MAX = 10_000
"""Rows in one answer: some megabytes of JSON."""

WINDOWS_MAX = 20
"""Windows in one answer, the oldest: composing one of thousands of panes takes a while."""

Row = dict[str, Any]

BucketVersion = tuple[Bucket, int]
"""A bucket, and a version of a task."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which rows of a window to show: those whose first keys are `keys`, the first `limit`.

    `order` is the name of an output, None for the order of the results; NULLs come last.
    `partition`: windows of its rows only, where they count rows.
    """

    keys: tuple[object, ...] = ()
    order: str | None = None
    descending: bool = False
    limit: int = LIMIT_DEFAULT
    partition: int | None = None

    def shows(self, shape: Shape, window: Window) -> bool:
        """Whether a window is one of those that are wanted."""
        if self.partition is None:
            return True
        return isinstance(shape, Counting) and partition_of(window.start_ms) == self.partition


@dataclass(frozen=True, slots=True)
class _Version:
    """One version of the task, and its panes in every bucket that has any."""

    version: TaskVersion
    plan: Plan
    foldings: list[Folding]


def select(
    key: str | None, order: str | None, limit: int, partition: int | None = None
) -> Selection:
    """Read the query parameters. Raises Rejected."""
    descending = order is not None and order.startswith("-")
    return Selection(
        keys=() if key is None else _keys(key),
        order=None if order is None else order.removeprefix("-"),
        descending=descending,
        limit=limit,
        partition=partition,
    )


def _keys(text: str) -> tuple[object, ...]:
    if not text.startswith("["):
        return (text,)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise Rejected(
            "key must be the text of the first key, or a JSON array of the first keys"
        ) from None
    return tuple(value)


class WindowService:
    """What the path /v1/tasks/{name}/windows does."""

    def __init__(
        self,
        ports: Ports,
        compiler: TaskCompiler,
        buckets: BucketCount,
        tasks: TaskService,
        progress: ProgressTail,
        logs: LogReader,
    ) -> None:
        self._ports = ports
        self._compiler = compiler
        self._buckets = buckets
        self._tasks = tasks
        self._progress = progress
        self._logs = logs

    def open_windows(self, name: str, selection: Selection) -> OpenWindows:
        """Open windows, oldest first; at most `LIMIT_MAX` rows in all.

        Raises NotFound, Rejected for an unknown order, or a partition where windows go by time,
        Unavailable, and Conflict where they cannot be shown because the task is over a limit.
        """
        try:
            return self._open_windows(name, selection)
        except TaskLimit as problem:
            raise Conflict(f"the open windows cannot be shown: {problem}") from problem

    def _open_windows(self, name: str, selection: Selection) -> OpenWindows:
        definition = self._tasks.show(name)
        plans = self._compiler.plans(definition)
        _check_order(selection, plans.values())
        if selection.partition is not None and not any(one.counts_rows for one in plans.values()):
            raise Rejected(
                "partition is whose rows windows count, and those of this task go by time: leave "
                "it out"
            )
        versions = self._folded(definition, plans)
        found = sorted(
            {
                (window.start_ms, number, window)
                for number, version in versions.items()
                for folding in version.foldings
                for window in folding.state.open_windows()
                if selection.shows(version.plan.window, window)
            }
        )
        windows: list[OpenWindow] = []
        left = LIMIT_MAX
        for _start, number, window in found[:WINDOWS_MAX]:
            windows.append(_rows(versions[number], window, selection, left))
            left -= len(windows[-1].rows)
        return OpenWindows(
            windows=windows,
            truncated=any(window.groups > len(window.rows) for window in windows),
            more=len(found) - len(windows),
        )

    def rows_waiting(
        self,
        definition: TaskDefinition,
        plans: Mapping[int, Plan],
        wanted: WantedWindow | WantedNumber,
    ) -> dict[BucketVersion, int]:
        """How many rows of an open window each bucket and version holds. Raises Unavailable."""
        versions = self._folded(definition, plans)
        return {
            (folding.bucket, number): folding.state.panes.rows(window)
            for number, version in versions.items()
            for folding in version.foldings
            for window in folding.state.open_windows()
            if wanted.is_of(window)
        }

    def open_sessions(
        self, definition: TaskDefinition, plans: Mapping[int, Plan]
    ) -> dict[int, list[tuple[bytes, bytes]]]:
        """Keys and values of open sessions as results would have them, by version.

        Raises Unavailable, and Conflict where they cannot be shown.
        """
        return {
            number: [
                row
                for folding in version.foldings
                if isinstance(folding.state, SessionState)
                for row in session_rows(version.plan, folding.state.sessions())
            ]
            for number, version in self._folded(definition, plans).items()
        }

    def _folded(self, definition: TaskDefinition, plans: Mapping[int, Plan]) -> dict[int, _Version]:
        versions = {
            version.version: _Version(version, plans[version.version], [])
            for version in definition.begun
            if version.version in plans
        }
        head = self._ports.log.head([definition.name]).get(definition.name)
        if head is None:
            return versions
        with self._logs.portions(definition, head, self._buckets()) as portions:
            for portion in portions:
                self._fold(definition, head, portion, versions)
        return versions

    def _fold(
        self,
        definition: TaskDefinition,
        head: Head,
        portion: Portion,
        versions: Mapping[int, _Version],
    ) -> None:
        """Add the panes of some buckets; what they have committed is read after their logs."""
        records = self._progress.records(definition)
        begun = {record.bucket for record in records if begins_saved(record)}
        filled = {
            bucket: piece
            for bucket, piece in portion.items()
            if bucket in begun or holds_something(piece)
        }
        for record in records:
            # Panes of a snapshot may not be back, and the log empty.
            if record.snapshot is not None or record.bucket in filled:
                check_rebuilt(head, record)
        found = {(record.version, record.bucket): record for record in records}
        for bucket, piece in filled.items():
            for number, version in versions.items():
                own = found.get((number, bucket))
                version.foldings.append(
                    folded(definition, version.plan, bucket, piece, own, self._ports.saved)
                )


def _check_order(selection: Selection, plans: Iterable[Plan]) -> None:
    if selection.order is None:
        return
    names = {column.name for plan in plans for column in plan.window_columns}
    names |= {output.name for plan in plans for output in plan.outputs}
    if selection.order not in names:
        raise Rejected(
            f"order {selection.order[:80]!a} is not an item of the query: use one of "
            f"{', '.join(sorted(names))}, with - in front for descending"
        )


def _rows(version: _Version, window: Window, selection: Selection, left: int) -> OpenWindow:
    plan = version.plan
    bounds = WholeSpan.of(version.version)
    states = [
        frame
        for folding in version.foldings
        if (frame := folding.state.panes.states(window)) is not None
    ]
    rows: list[Row] = []
    groups = others = 0
    if states:
        finished = finish(plan, pl.concat(states), window)
        chosen = list(_matching(plan, finished, selection.keys))
        groups, others = len(chosen), finished.others
        rows = _cut(finished, chosen, selection, left)
    shape = plan.window
    return OpenWindow(
        **said_of(shape, window),
        version=plan.version,
        complete=plan.counts_rows
        or bounds.holds(shape.reach(window) if isinstance(shape, Session) else window),
        groups=groups,
        folded=others > 0,
        rows=rows,
    )


def _matching(plan: Plan, finished: Finished, keys: tuple[object, ...]) -> Iterator[int]:
    """The places of the rows whose first keys are these."""
    if not keys:
        yield from range(len(finished.keys))
        return
    for place, raw in enumerate(finished.keys):
        own = group_of(plan, raw)
        if len(own) >= len(keys) and all(map(_same, own, keys)):
            yield place


def _same(own: object, wanted: object) -> bool:
    """Equal as JSON values; text also stands for the number or constant it spells."""
    if isinstance(own, bool) or isinstance(wanted, bool):
        return own is wanted or wanted == json.dumps(own)
    return own == wanted or (not isinstance(own, str) and wanted == json.dumps(own))


def _cut(finished: Finished, chosen: list[int], selection: Selection, left: int) -> list[Row]:
    count = min(selection.limit, left)
    if selection.order is None:
        return [msgspec.json.decode(finished.values[place]) for place in chosen[:count]]
    name = selection.order
    rows = [msgspec.json.decode(finished.values[place]) for place in chosen]
    present = [row for row in rows if row.get(name) is not None]
    absent = [row for row in rows if row.get(name) is None]
    present.sort(key=lambda row: row[name], reverse=selection.descending)
    return (present + absent)[:count]
