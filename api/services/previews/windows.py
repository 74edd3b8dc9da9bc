"""The windows that the rows of a trial make, and which of them the trial has all rows of.

by time      the newest
by number    of each partition the newest that are full, and the one that is filled next
by key       the newest that are full, or left over; each is a window of one key
sessions     the newest; each is a window of one group
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import cast

import msgspec
import polars as pl

from mars.core.plan import WINDOW_END, WINDOW_NUMBER, WINDOW_PARTITION, WINDOW_START, Plan
from mars.core.types import Lane, live_lane
from mars.core.windows import Counting, Session, Window
from mars.core.windows.counting import (
    WindowNumber,
    first_place,
    number_of,
    number_of_window,
    partition_of,
)
from mars.core.windows.moments import MINUTE_MS
from mars.engine.aggregates import PANE, columns, key_names, merge_panes, sessions_of
from mars.engine.aggregates.keyed import key_windows
from mars.engine.aggregates.placed import FIRST
from mars.engine.aggregates.scoped import COUNTED
from mars.engine.finishing import EACH_ITS_OWN, Finished, finish
from mars.protocol.ports import window_of_row
from mars.protocol.windows.closing import WholeSpan

WINDOWS_MAX = 20
"""Windows in an answer, the newest."""

_LAST = f"{WINDOW_END}_value"
"""The state column with the highest event time of a group's rows, where windows count rows."""


@dataclass(frozen=True, slots=True)
class TriedWindow:
    """One window: its groups, and the first of its `rows_all` result rows.

    Of one that counts rows the times are the lowest and highest of these, and `name` is its own.
    `complete`: whether all its rows are there; None for windows by time.
    """

    start_ms: int
    end_ms: int
    groups: int
    rows: tuple[dict[str, object], ...]
    rows_all: int
    complete: bool | None = None
    name: WindowNumber | None = None


@dataclass(frozen=True, slots=True)
class TriedSessions:
    """All sessions of a trial, and how many groups have some; `span` is what it knows all rows of,
    up to the newest row of its slowest lane.
    """

    shape: Session
    windows: list[Window]
    groups: int
    span: WholeSpan

    @property
    def longest_ms(self) -> int:
        """From first row to end, of those that are there; parts of some."""
        return max((one.end_ms - one.start_ms for one in self.windows), default=0)

    @property
    def a_minute(self) -> float | None:
        """How many begin; None where the rows span no more than a gap, or nobody knows what was
        before them.
        """
        from_ms, until_ms = self.span.from_ms, self.span.until_ms
        if from_ms is None or until_ms is None:
            return None
        first_ms = from_ms + self.shape.gap_ms - 1
        if until_ms <= first_ms:
            return None
        begun = sum(first_ms <= one.start_ms < until_ms for one in self.windows)
        return begun * MINUTE_MS / (until_ms - first_ms)


@dataclass(frozen=True, slots=True)
class Tried:
    """The windows that are shown, oldest first, and whether there are more.

    `complete` of them all have all their rows; None for windows by time.
    """

    shown: list[TriedWindow]
    more: bool
    complete: int | None = None
    sessions: TriedSessions | None = None
    waiting: int | None = None
    """Rows whose windows are not full, where those of each key are counted."""


def by_time(plan: Plan, states: pl.DataFrame, limit: int) -> Tried:
    """The newest windows."""
    windows = _newest(plan, states)
    newest = sorted(windows)[-WINDOWS_MAX:]
    shown = [_window(plan, states, window, limit) for window in newest]
    return Tried(shown, len(windows) > len(newest))


def _newest(plan: Plan, states: pl.DataFrame) -> set[Window]:
    """At least one more than are shown, if there are so many.

    Of a cycle there are the steps that the newest row has come to: later ones would repeat it.
    """
    windows: set[Window] = set()
    shape, upto_ms = plan.window, None
    panes = states.get_column(PANE).unique().sort(descending=True).to_list()
    if shape.begin_together and panes:
        upto_ms = shape.first_end(panes[0])
    for pane in panes:
        windows.update(shape.windows_of([pane], upto_ms=upto_ms))
        if len(windows) > WINDOWS_MAX:
            break
    return windows


def _window(plan: Plan, states: pl.DataFrame, window: Window, limit: int) -> TriedWindow:
    merged = merge_panes(plan, states, window)
    finished = finish(plan, merged, window)
    return TriedWindow(
        window.start_ms, window.end_ms, merged.height, _rows(finished, limit), len(finished.values)
    )


def _rows(finished: Finished, limit: int) -> tuple[dict[str, object], ...]:
    return tuple(msgspec.json.decode(value) for value in finished.values[:limit])


# ---------------------------------------------------------------------------- by number


def by_number(
    plan: Plan, shape: Counting, states: pl.DataFrame, counted: Mapping[Lane, int], limit: int
) -> Tried:
    """Windows of rows of which each lane has so many: the newest of every lane, side by side."""
    panes: defaultdict[int, list[int]] = defaultdict(list)
    for pane in states.get_column(PANE).unique().sort(descending=True).to_list():
        panes[partition_of(pane)].append(pane)
    ends = {one: first_place(one) + counted[live_lane(one)] for one in panes}
    newest = {
        one: list(islice(_newest_first(shape, panes[one], ends[one]), WINDOWS_MAX + 1))
        for one in panes
    }
    ranked = sorted((rank, one) for own in newest.values() for rank, one in enumerate(own))
    windows = sorted(window for _rank, window in ranked[:WINDOWS_MAX])
    shown = [
        _numbered(plan, shape, states, window, limit, ends[partition_of(window.start_ms)])
        for window in windows
    ]
    full = sum(number_of(shape.end_after(end)) - shape.size for end in ends.values())
    return Tried(shown, len(ranked) > len(windows), full // shape.slide)


def _newest_first(shape: Counting, panes: Iterable[int], end: int) -> Iterator[Window]:
    """The windows of a lane that are full, and the one that is filled next, the newest first."""
    before = shape.end_after(end) + 1
    for pane in panes:
        for window in reversed(list(shape.windows_of([pane]))):
            if window.end_ms < before:
                before = window.end_ms
                yield window


def _numbered(
    plan: Plan, shape: Counting, states: pl.DataFrame, window: Window, limit: int, end: int
) -> TriedWindow:
    merged = merge_panes(plan, states, window)
    finished = finish(plan, merged, window)
    first_ms, last_ms = (merged.get_column(name).to_numpy() for name in (FIRST, _LAST))
    return TriedWindow(
        int(first_ms.min()),
        int(last_ms.max()),
        merged.height,
        _rows(finished, limit),
        len(finished.values),
        window.end_ms <= end,
        number_of_window(shape, window),
    )


# ------------------------------------------------------------------------------- by key


def by_key(plan: Plan, states: pl.DataFrame, seen: Mapping[int, int]) -> Tried:
    """Windows of the rows of each key, where event time of partitions has come so far: the newest
    of those that are full, and of those that will not be, as their key has fallen silent.
    """
    found = key_windows(plan, states, seen)
    rows = [
        (msgspec.json.decode(value), full)
        for own, full in ((found.full, True), (found.unfilled, False))
        for value in finish(plan, own, EACH_ITS_OWN).values
    ]
    rows.sort(key=lambda row: row[0][WINDOW_END])
    return Tried(
        [_of_key(value, full=full) for value, full in rows[-WINDOWS_MAX:]],
        len(rows) > WINDOWS_MAX,
        found.full.height,
        waiting=int(found.open.get_column(COUNTED).sum()),
    )


def _of_key(value: dict[str, object], *, full: bool) -> TriedWindow:
    start_ms, end_ms, number, partition = (
        cast(int, value[name])
        for name in (WINDOW_START, WINDOW_END, WINDOW_NUMBER, WINDOW_PARTITION)
    )
    return TriedWindow(start_ms, end_ms, 1, (value,), 1, full, WindowNumber(number, partition))


# ----------------------------------------------------------------------------- sessions


def sessions(
    plan: Plan, shape: Session, states: pl.DataFrame, span: WholeSpan, delay_ms: int
) -> Tried:
    """The newest sessions that HAVING lets pass. One is complete where the task would close it by
    now, and no row before those of the trial can be of it.
    """
    merged = sessions_of(plan, [states] if states.height else []).merged(plan)
    passed = finish(plan, merged, EACH_ITS_OWN)
    windows = _windows_of(passed)
    rows = sorted(zip(windows, passed.values, strict=True), key=lambda row: row[0])
    newest = rows[-WINDOWS_MAX:]
    if plan.having is not None:
        windows += _windows_of(finish(plan, merged, EACH_ITS_OWN, refused=True))
    level_ms = None if span.until_ms is None else shape.closed_by(span.until_ms - delay_ms)
    known = WholeSpan(span.from_ms, level_ms)
    whole = {window for window in windows if known.holds(shape.reach(window))}
    return Tried(
        [_session(window, value, complete=window in whole) for window, value in newest],
        len(rows) > len(newest),
        sum(window in whole for window in windows),
        TriedSessions(shape, windows, _groups(plan, states), span),
    )


def _groups(plan: Plan, states: pl.DataFrame) -> int:
    return columns(states, key_names(plan)).n_unique() if plan.keys else min(states.height, 1)


def _windows_of(finished: Finished) -> list[Window]:
    return [
        window_of_row(key, value) for key, value in zip(finished.keys, finished.values, strict=True)
    ]


def _session(window: Window, value: bytes, *, complete: bool) -> TriedWindow:
    rows = (msgspec.json.decode(value),)
    return TriedWindow(window.start_ms, window.end_ms, 1, rows, 1, complete)
