"""The open panes of a plan, and the windows made of them: states, sizes, and what is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, tee

import polars as pl

from mars.core.errors import TaskLimit
from mars.core.plan import Plan
from mars.core.types import Bucket, Entry, Lane, PaneRows, Partial, Range, RowCounts, Sequence64
from mars.core.windows import OPEN_PANES_MAX, Window
from mars.core.windows.telling import too_many_open
from mars.engine.aggregates import in_pane, limited, limited_window, stacked
from mars.engine.codec.states import encode_states
from mars.engine.codec.streams import UnreadStates, read
from mars.engine.finishing import Finished
from mars.protocol.windows.closing import ClosedWindow, Contents
from mars.protocol.windows.open_panes import OpenPanes, Size
from mars.protocol.windows.panes import lowest_firsts
from mars.protocol.windows.turns import turns

States = Mapping[int, pl.DataFrame]
"""States by the start of their pane."""


class WindowPanes:
    """The panes of one version in one bucket; `is_complete` knows whether a window has all rows
    that it should have had.
    """

    def __init__(self, plan: Plan, is_complete: Callable[[Window], bool]) -> None:
        self.plan = plan
        self.open = OpenPanes(plan.window)
        self._is_complete = is_complete

    def add(
        self,
        panes: Sequence[PaneRows],
        states: Mapping[int, pl.DataFrame | UnreadStates],
        behind_ms: int | None,
    ) -> None:
        """Take rows into these panes, or into those that have become of them once all windows up
        to `behind_ms` are forgotten. Raises TaskLimit if too many would be open.
        """
        starts = [pane.start_ms for pane in panes]
        carried = {} if behind_ms is None else self.plan.window.carried(starts, behind_ms)
        if len(self.open) + len(panes) > OPEN_PANES_MAX:
            self._check_open(carried.get(start, start) for start in starts)
        for pane in panes:
            part = states.get(pane.start_ms)
            into = carried.get(pane.start_ms, pane.start_ms)
            if part is not None and into != pane.start_ms:
                part = in_pane(next(read([part])), into)
            self.open.at(into).add(self.plan, pane, part)

    def _check_open(self, panes: Iterable[int]) -> None:
        starts = {*self.open, *panes}
        if len(starts) <= OPEN_PANES_MAX:
            return
        raise TaskLimit(too_many_open(self.plan.window, sorted(starts), OPEN_PANES_MAX))

    # ------------------------------------------------------------------------------ windows

    def ending(
        self, after_ms: int | None, upto_ms: int | None, *, all_needed: bool
    ) -> Iterator[Window]:
        """The windows with rows that end after one time and by another, in order.

        `all_needed`: no pane is kept for windows alone that end by `after_ms`.
        """
        shape = self.plan.window
        panes: Iterable[int] = self.open
        if after_ms is not None and not all_needed:
            panes = self.open.since(shape.first_needed(after_ms))
        return shape.windows_of(panes, after_ms=after_ms, upto_ms=upto_ms)

    def too_many_from(self, windows: Iterable[Window]) -> Window | None:
        """The first of these windows that is to be left to the next commit; None: none is."""
        rest = iter(windows)
        begin = list(islice(rest, 2))
        if len(begin) < 2:
            return None
        all_windows, counted = tee(chain(begin, rest))
        size = Size()
        for window, one in zip(all_windows, self.open.sizes(counted), strict=True):
            size += one
            if size.windows > 1 and turns(size) > 1:
                return window
        return None

    def size(self, windows: Iterable[Window]) -> Size:
        """What closing these windows takes; they are in order."""
        return sum(self.open.sizes(windows), Size())

    def states(self, window: Window) -> pl.DataFrame | None:
        """The states of a window, one row per key; None if it has no rows."""
        pieces = self.open.within(window)
        parts = [states for piece in pieces for states in piece.frames(self.plan)]
        if not parts:
            return None
        self.open.has_merged(window, len(parts), sum(part.height for part in parts))
        if len(parts) > 1:
            return limited_window(self.plan, window, parts)
        return limited(self.plan, parts[0])

    def of_last_step(self, window: Window) -> pl.DataFrame | None:
        """The states of the rows of its last pane alone; None if it has none."""
        pane = self.open.get(self.plan.window.panes(window.end_ms - 1))
        return None if pane is None else pane.states(self.plan)

    def closed(self, window: Window, finished: Finished) -> ClosedWindow:
        """A window whose rows are finished; what is withheld of them aside."""
        complete, firsts = self._is_complete(window), lowest_firsts(self.open.within(window))
        return ClosedWindow(window, complete, finished.sendable(), firsts, self.rows(window))

    def rows(self, window: Window) -> int:
        """How many rows a window has counted so far."""
        return sum(piece.rows for piece in self.open.within(window))

    def contents(self, windows: Iterable[Window]) -> tuple[Contents, ...]:
        """What tells that what closing makes of these windows is still the same: a window gains
        rows, and loses none.
        """
        complete = self._is_complete
        return tuple(Contents(one, self.rows(one), complete(one)) for one in windows)

    # ------------------------------------------------------------------------------- commit

    def gone(self, upto_ms: int | None) -> list[int]:
        """The panes that no window needs which ends after this time."""
        if upto_ms is None:
            return []
        return self.open.before(self.plan.window.first_needed(upto_ms))

    def rows_after(self, upto_ms: int | None) -> int:
        """The rows of panes for whose sake windows end after this time."""
        waiting = self.open if upto_ms is None else self._waiting(upto_ms)
        return sum(self.open[start].rows for start in waiting)

    def _waiting(self, upto_ms: int) -> list[int]:
        return self.open.since(self.plan.window.first_waiting(upto_ms))

    def rows_without(self, gone: Iterable[int]) -> int:
        """The rows of the panes that stay."""
        left = set(gone)
        return sum(pane.rows for start, pane in self.open.items() if start not in left)

    def needed(self, through: Mapping[Lane, int], gone: Iterable[int]) -> dict[Lane, int]:
        """Below these offsets nothing is needed by the panes that stay."""
        left = set(gone)
        needed = dict(through)
        for start, pane in self.open.items():
            if start in left:
                continue
            for lane, first in pane.first.items():
                needed[lane] = min(first, needed.get(lane, first))
        return needed

    def ends_ms(self, panes: Iterable[PaneRows]) -> int:
        """The end of the last window for whose sake any of these panes is there: those that hold
        one of them begin before it.
        """
        return max(self.plan.window.last_end(pane.start_ms) for pane in panes)

    def merged_entry(
        self, bucket: Bucket, seq: Sequence64, through: Mapping[Lane, int], gone: Iterable[int]
    ) -> Entry:
        """One entry that stands for all rows below `through` of the panes that stay."""
        left = set(gone)
        staying = {start: pane for start, pane in self.open.items() if start not in left}
        parts = [
            states for pane in staying.values() if (states := pane.states(self.plan)) is not None
        ]
        rows = {start: pane.rows for start, pane in staying.items()}
        return self.entry_of(bucket, seq, through, rows, parts)

    def entry_of(
        self,
        bucket: Bucket,
        seq: Sequence64,
        through: Mapping[Lane, int],
        rows: Mapping[int, int],
        parts: Sequence[pl.DataFrame],
    ) -> Entry:
        """The same of so many rows of each of these panes, of which `parts` are the states."""
        panes = tuple(
            PaneRows(start, count, dict(self.open[start].first)) for start, count in rows.items()
        )
        needed = self.needed(through, self.open.keys() - rows.keys())
        ranges = tuple(Range(lane, min(needed[lane], at), at) for lane, at in through.items())
        encoded = encode_states(stacked(parts)) if parts else b""
        partial = Partial(bucket, RowCounts(), panes, encoded)
        return Entry(seq, self.plan.version, ranges, partial)
