"""What windows that count rows do with them: which are full, what goes out, what is still needed.

rows ──▶ panes by place ──close(rows in the store)──▶ rows of full windows
             │
             └──▶ how far back rows are still needed, and the number of the first of them

The number of a row is a function of its offset, so no row is ever late, and no watermark, delay or
idleness says when a window is full: the numbers up to which the lanes have come do. A version that
has ended in a lane closes what is open there, full or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import ClassVar

from mars.core.definitions import TaskVersion
from mars.core.plan import Plan
from mars.core.types import Lane, PaneRows, Partial, live_lane
from mars.core.windows import Window
from mars.core.windows.counting import first_place, number_of, partition_of
from mars.engine.finishing import finish
from mars.protocol.ports import Frontier, Head
from mars.protocol.windows.closers import Arrived, Closer, PartitionCloser
from mars.protocol.windows.closing import ClosedWindow
from mars.protocol.windows.counts.count_commits import CountCommits
from mars.protocol.windows.counts.lane_numbers import LaneNumbers, Rows
from mars.protocol.windows.gaps import RowGaps
from mars.protocol.windows.panes import states_by_pane
from mars.protocol.windows.unrevised import Unrevised
from mars.protocol.windows.window_panes import WindowPanes


class CountState(Unrevised):
    """Windows that count the rows of one version in one bucket."""

    needs_anchor: ClassVar[bool] = False

    def __init__(self, plan: Plan, gaps: RowGaps, numbers: LaneNumbers, frontier: Frontier) -> None:
        self.plan = plan
        self.frontier = frontier
        self.panes = WindowPanes(plan, self._is_complete)
        self.closer: Closer = PartitionCloser()
        self._gaps = gaps
        self._numbers = numbers
        self.commits = CountCommits(self, gaps, numbers)

    def update(self, version: TaskVersion, after: TaskVersion | None) -> None:
        """See `WindowState`."""
        self._numbers.update(version, after)

    # ------------------------------------------------------------------------------- absorb

    def judge(self, partial: Partial, *, accounted: bool) -> Arrived:
        """See `WindowState`: what is closed was emitted, and is read again for other windows."""
        self._numbers.learn(partial.numbers)
        gone: list[PaneRows] = []
        alive: list[PaneRows] = []
        for pane in partial.panes:
            (gone if self._is_closed(pane) else alive).append(pane)
        states = states_by_pane(partial) if alive else {}
        return Arrived(tuple(gone), tuple(alive), states)

    def _is_closed(self, pane: PaneRows) -> bool:
        closed = self.frontier.closed_rows.get(live_lane(partition_of(pane.start_ms)), 0)
        return number_of(self.plan.window.last_end(pane.start_ms)) <= closed

    def keep(self, arrived: Arrived, *, accounted: bool) -> None:
        """See `WindowState`."""
        self.panes.add(arrived.panes, arrived.states, None)

    def reached(self, head: Head) -> None:
        """See `WindowState`."""
        self._numbers.reached(head)

    # -------------------------------------------------------------------------------- close

    def level(self, head: Head) -> Rows:
        """See `WindowState`."""
        return self._numbers.level(head)

    def reach(self, level: Rows | None) -> Rows | None:
        """See `WindowState`: in the lanes one after the other."""
        if level is None:
            return None
        left = self.panes.too_many_from(self._ending(level))
        if left is None:
            return level
        last = partition_of(left.start_ms)
        before = number_of(self.plan.window.closed_by(left.end_ms - 1))
        reached = {lane: rows for lane, rows in level.items() if _partition(lane) < last}
        return reached | {live_lane(last): before}

    def due(self, level: Rows | None) -> list[Window]:
        """See `WindowState`."""
        return [] if level is None else list(self._ending(level))

    def soon(self, level: Rows | None, span_ms: int) -> list[Window]:
        """See `WindowState`: what is due now, as no time fills a window."""
        return self.due(self.reach(level))

    def behind(self, level: Rows | None) -> bool:
        """See `WindowState`: where no row is, nothing has to be closed."""
        return False

    def open_windows(self) -> list[Window]:
        """See `WindowState`."""
        return list(self._ending(None))

    def _ending(self, level: Rows | None) -> Iterator[Window]:
        """The windows with rows that are not closed and full by then, lane by lane."""
        shape = self.plan.window
        for partition, panes in groupby(self.panes.open, partition_of):
            lane, begin = live_lane(partition), first_place(partition)
            closed = begin + self.frontier.closed_rows.get(lane, 0)
            upto = None if level is None else begin + level.get(lane, 0)
            yield from shape.windows_of(panes, after_ms=closed, upto_ms=upto)

    def close(self, windows: Iterable[Window]) -> list[ClosedWindow]:
        """See `WindowState`."""
        closed = []
        for window in windows:
            states = self.panes.states(window)
            if states is not None:
                closed.append(self.panes.closed(window, finish(self.plan, states, window)))
        return closed

    def _is_complete(self, window: Window) -> bool:
        """False where rows are gone, or the version has ended before the window was full."""
        lane, end = live_lane(partition_of(window.start_ms)), number_of(window.end_ms)
        return not self._numbers.ends_before(lane, end) and self._gaps.is_complete(window)

    # ------------------------------------------------------------------------------- commit

    def gone(self, closed: Rows) -> list[int]:
        """The panes that no window needs which is not closed."""
        shape, gone = self.plan.window, list[int]()
        for partition, panes in groupby(self.panes.open, partition_of):
            place = first_place(partition) + closed.get(live_lane(partition), 0)
            needed = shape.first_needed(place)
            gone += [pane for pane in panes if pane < needed]
        return gone

    def committed(self, frontier: Frontier) -> bool:
        """See `WindowState`."""
        self.frontier = frontier
        gone = self.gone(frontier.closed_rows)
        self.panes.open.drop(gone)
        shape = self.plan.window
        self._gaps.closed(
            {
                lane: number_of(shape.first_needed(first_place(_partition(lane)) + rows))
                for lane, rows in frontier.closed_rows.items()
            }
        )
        return bool(gone)


def _partition(lane: Lane) -> int:
    """The partition of a lane: no history is counted."""
    return int(lane)
