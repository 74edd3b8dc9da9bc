"""What windows made of panes do with rows: which are late, which windows are due, what goes out.

rows ──▶ panes by start ──close(watermark)──▶ rows of due windows, and revisions of closed ones
             │
             └──▶ how far back rows are still needed
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import ClassVar

import polars as pl

from mars.core.definitions import TaskVersion
from mars.core.plan import Plan, WatermarkScope
from mars.core.types import PaneRows, Partial
from mars.core.windows import Window
from mars.engine.codec.streams import UnreadStates, unread
from mars.engine.finishing import finish
from mars.protocol.ports import Frontier, Head, Progress
from mars.protocol.watermark import level_of
from mars.protocol.windows.by_key.closer import KeyCloser
from mars.protocol.windows.changed import ChangedGroups
from mars.protocol.windows.closers import Arrived, BucketCloser, Closer, PartitionCloser
from mars.protocol.windows.closing import ClosedWindow, WholeSpan, closed_by
from mars.protocol.windows.gaps import Gaps
from mars.protocol.windows.open_panes import Size
from mars.protocol.windows.pane_commits import PaneCommits
from mars.protocol.windows.panes import states_by_pane
from mars.protocol.windows.revising import Revising, numbers_of, owed_of
from mars.protocol.windows.window_panes import WindowPanes


class PaneState:
    """Tumbling and sliding windows of one version in one bucket.

    `frontier` is that of the last commit, `closer` what the task's watermark adds; `revising` knows
    the windows between D and C that got late rows. Windows outside of `bounds` lack rows.
    """

    needs_anchor: ClassVar[bool] = False

    def __init__(self, plan: Plan, gaps: Gaps, frontier: Frontier, record: Progress | None) -> None:
        self.plan = plan
        self.frontier = frontier
        self.bounds = WholeSpan()
        self._gaps = gaps
        self.panes = WindowPanes(plan, self.is_complete)
        self.closer = _closer(self.panes, frontier)
        needs_groups = plan.options.lateness_ms or plan.emits_changed
        self._leaves_unread = not (self.closer.reads_states or needs_groups)
        """Nobody needs to know which groups have come before a window closes."""
        numbers = {} if record is None else numbers_of(plan, record)
        self.revising = Revising(plan, numbers, () if record is None else owed_of(plan, record))
        self.changed: ChangedGroups | None = None
        if plan.emits_changed:
            self.changed = ChangedGroups(plan, owed=record is not None and bool(record.owed))
        self.commits = PaneCommits(self, gaps)

    def update(self, version: TaskVersion, after: TaskVersion | None) -> None:
        """See `WindowState`."""
        self.bounds = WholeSpan.of(version)

    @property
    def is_steady(self) -> bool:
        """True if windows close as a whole, and no revision of a closed one is to come."""
        return self.closer.is_steady and not self.revising.pending

    # ------------------------------------------------------------------------------- absorb

    def judge(self, partial: Partial, *, accounted: bool) -> Arrived:
        """Which rows of an entry come too late. Those below M were judged by who counted them; a
        pane that no window needs any more is passed over all the same.
        """
        late: list[PaneRows] = []
        alive: list[PaneRows] = []
        for pane in partial.panes:
            (late if self._is_late(pane) else alive).append(pane)
        if alive and len(partial.panes) == 1 and self._leaves_unread:
            left = unread(partial.states)
            if left is not None:
                return Arrived((), tuple(alive), {}, left)
        states = states_by_pane(partial) if alive else {}
        if accounted:
            return Arrived(tuple(late), tuple(alive), states)
        apart = self.closer.late_apart(tuple(alive), states)
        return replace(apart, late=(*late, *apart.late))

    def _is_late(self, pane: PaneRows) -> bool:
        gone = self.frontier.forgotten_ms
        return gone is not None and pane.start_ms < self.plan.window.first_needed(gone)

    def late_partly(self, panes: Iterable[PaneRows]) -> int:
        """How many rows of these panes miss windows that are never revised."""
        gone = self.frontier.forgotten_ms
        if gone is None:
            return 0
        first_end = self.plan.window.first_end
        return sum(pane.rows for pane in panes if first_end(pane.start_ms) <= gone)

    def keep(self, arrived: Arrived, *, accounted: bool) -> None:
        """Take rows that are not late. Raises TaskLimit for too many panes, or groups."""
        states: Mapping[int, pl.DataFrame | UnreadStates] = arrived.states
        if arrived.unread is not None:
            states = {arrived.panes[0].start_ms: arrived.unread}
        self.panes.add(arrived.panes, states, self.frontier.forgotten_ms)
        if not accounted:
            for pane in arrived.panes:
                part = arrived.states.get(pane.start_ms)
                self.revising.touch(self._closed_windows_of(pane), part)
                if self.changed is not None and part is not None and self.late_partly([pane]):
                    self.changed.touch(part)
        self.closer.see(arrived.panes, arrived.states)

    def _closed_windows_of(self, pane: PaneRows) -> Iterator[Window]:
        """The windows between D and C that hold a pane: each was emitted, if it had rows."""
        closed_ms, forgotten_ms = self.frontier.closed_ms, self.frontier.forgotten_ms
        if closed_ms is None or closed_ms == forgotten_ms:
            return iter(())
        return self.plan.window.windows_of(
            [pane.start_ms], after_ms=forgotten_ms, upto_ms=closed_ms
        )

    def reached(self, head: Head) -> None:
        """See `WindowState`: offsets say nothing of times."""

    # -------------------------------------------------------------------------------- close

    def level(self, head: Head) -> int | None:
        """See `WindowState`: the watermark."""
        return self.closer.level(head, level_of(head, self.plan))

    def soon(self, watermark_ms: int | None, span_ms: int) -> list[Window]:
        """See `WindowState`."""
        return [] if watermark_ms is None else self.due(self.reach(watermark_ms + span_ms))

    def is_complete(self, window: Window) -> bool:
        """False where a window may lack rows that it should have had."""
        return self._gaps.is_complete(window) and self.bounds.holds(window)

    @property
    def has_waiting(self) -> bool:
        """See `WindowState`: late rows wait for a revision, or groups to be closed ahead."""
        return self.owes or self.closer.has_ahead()

    @property
    def owes(self) -> bool:
        """See `WindowState`."""
        return bool(self.revising.pending)

    @property
    def shows_all(self) -> bool:
        """See `WindowState`."""
        return self.changed is None or not self.changed.pending

    def size_waiting(self) -> Size:
        """See `WindowState`."""
        return self.commits.size_to_revise() + self.closer.size_ahead()

    def due(self, watermark_ms: int | None) -> list[Window]:
        """The windows that the watermark has passed and that have rows, in order."""
        return [] if watermark_ms is None else list(self._ending(watermark_ms))

    def open_windows(self) -> list[Window]:
        """All windows with rows that are not closed, in order."""
        return list(self._ending(None))

    def _ending(self, upto_ms: int | None) -> Iterator[Window]:
        """The windows with rows that are not closed and end by then, in order."""
        closed_ms, forgotten_ms = self.frontier.closed_ms, self.frontier.forgotten_ms
        return self.panes.ending(closed_ms, upto_ms, all_needed=closed_ms == forgotten_ms)

    def reach(self, watermark_ms: int | None) -> int | None:
        """The watermark, or an earlier time up to which one commit can close windows.

        So the task never keeps the others waiting for long: what is left is due at once again.
        """
        if watermark_ms is None:
            return None
        left = self.panes.too_many_from(self._ending(watermark_ms))
        return watermark_ms if left is None else self.plan.window.closed_by(left.end_ms - 1)

    def close(self, windows: Iterable[Window]) -> list[ClosedWindow]:
        """The finished rows of these windows; the panes stay until `committed` is called."""
        closed = []
        for number, window in enumerate(windows):
            states = self.panes.states(window)
            if states is not None and self.changed is not None:
                own = self.panes.of_last_step(window)
                states = self.changed.chosen(states, own, is_next=number == 0)
            if states is not None and states.height:
                closed.append(self.panes.closed(window, finish(self.plan, states, window)))
        return closed

    def owed_step(self, watermark_ms: int | None, closed_ms: int | None) -> list[Window]:
        """The next window, if groups wait for it whose rows M has passed by then, and which no
        window shows that a commit at this watermark closes.
        """
        waits = self.changed is not None and self.changed.pending
        if not waits or closed_ms is None or self.due(watermark_ms):
            return []
        shape = self.plan.window
        return [next(shape.windows_of([shape.panes(closed_ms)], after_ms=closed_ms))]

    def closed_by(self, watermark_ms: int | None) -> int | None:
        """C after everything that the watermark has passed is closed; it never goes back."""
        return closed_by(self.plan.window, self.frontier.closed_ms, watermark_ms)

    def behind(self, level_ms: int | None) -> bool:
        """True if C could go on although no window is due, and nothing else may say so.

        So it is where nothing is left to read but marks, such as those of a lane that is read again
        for other buckets.
        """
        closed_ms, reached_ms = self.frontier.closed_ms, self.closed_by(level_ms)
        if reached_ms is None:
            return False
        return closed_ms is None or closed_ms < self.closer.held(reached_ms)

    # ------------------------------------------------------------------------------- commit

    def committed(self, frontier: Frontier) -> bool:
        """A record with this frontier is durable: forget what it closed for good.

        True if that was anything.
        """
        self.frontier = frontier
        gone = self.panes.gone(frontier.forgotten_ms)
        self.panes.open.drop(gone)
        if frontier.forgotten_ms is not None:
            self.panes.open.carry(frontier.forgotten_ms)  # what all others have in common
        return self.closer.committed(frontier) or bool(gone)


def _closer(panes: WindowPanes, frontier: Frontier) -> Closer:
    """What the watermark of a plan adds."""
    match panes.plan.options.watermark:
        case WatermarkScope.PARTITION:
            return PartitionCloser()
        case WatermarkScope.BUCKET:
            return BucketCloser(panes.plan)
        case WatermarkScope.KEY:
            return KeyCloser(panes, frontier)
