"""What a commit says of windows made of panes: what is revised or owed, and where C and D go."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from mars.core.types import Bucket, Entry, Lane, Sequence64
from mars.core.windows import Window
from mars.engine.finishing import finish, retractions
from mars.protocol.ports import Frontier, Progress
from mars.protocol.windows.closing import Ahead, ClosedWindow
from mars.protocol.windows.gaps import Gaps
from mars.protocol.windows.open_panes import Size
from mars.protocol.windows.state import ClosingCommit

if TYPE_CHECKING:
    from mars.protocol.windows.pane_state import PaneState


class PaneCommits:
    """The commits of a `PaneState`."""

    def __init__(self, state: PaneState, gaps: Gaps) -> None:
        self._state = state
        self._gaps = gaps

    def revisable(self) -> list[Window]:
        """The closed windows that one commit is to revise: the first of those that are pending."""
        pending = self._state.revising.pending
        left = self._state.panes.too_many_from(pending)
        return [window for window in pending if left is None or window < left]

    def revise(self, windows: Iterable[Window]) -> list[ClosedWindow]:
        """New revisions of these windows; all rows below M must have been read again."""
        return [revised for window in windows for revised in self._revised(window)]

    def _revised(self, window: Window) -> Iterator[ClosedWindow]:
        """The groups that late rows have changed; apart those that are no longer among the results:
        HAVING lets them pass no more, or they are withheld.
        """
        whole = self._state.panes.states(window)
        if whole is None:
            return
        states, number = (
            self._state.revising.chosen(window, whole),
            self._state.revising.next_number(window),
        )
        revised = self._state.panes.closed(window, finish(self._state.plan, states, window))
        yield replace(revised, revision=number)
        withheld = revised.finished.withheld
        if self._state.plan.having is not None:
            refused = finish(self._state.plan, states, window, refused=True).sendable()
            withheld += refused.withheld
            gone = replace(refused, withheld=())
            yield replace(revised, finished=gone, revision=number, deleted=True)
        if withheld:
            gone = retractions(self._state.plan, window, withheld)
            yield replace(revised, finished=gone, revision=number, deleted=True)

    def size_to_revise(self) -> Size:
        """What all revisions that are to come take; of their groups those alone that change."""
        pending = self._state.revising.pending
        return sum(
            (
                one
                if (touched := self._state.revising.rows(window)) is None
                else replace(one, rows=touched)
                for window, one in zip(pending, self._state.panes.open.sizes(pending), strict=True)
            ),
            Size(),
        )

    def forgotten_by(
        self, watermark_ms: int | None, owed: Collection[Window], *, none_to_come: bool
    ) -> int | None:
        """D after a commit at this watermark; it never goes back, nor over a window that is owed.

        `none_to_come`: no further row of this version will be read, so none can be late.
        """
        closed, shape = self._state.closed_by(watermark_ms), self._state.plan.window
        forgotten_ms, lateness_ms = (
            self._state.frontier.forgotten_ms,
            self._state.plan.options.lateness_ms,
        )
        if closed is None or not lateness_ms:
            return closed
        wanted = closed
        if not none_to_come:
            if watermark_ms is None:
                return forgotten_ms
            wanted = min(closed, shape.closed_by(watermark_ms - lateness_ms))
        if owed:
            wanted = min(wanted, shape.closed_by(min(owed).end_ms - 1))
        return wanted if forgotten_ms is None else max(wanted, forgotten_ms)

    def closing(
        self,
        watermark_ms: int | None,
        merged: Mapping[Lane, int],
        *,
        caught_up: bool,
        none_to_come: bool,
    ) -> ClosingCommit:
        """See `StateCommits`."""
        closed_ms = self._state.closed_by(watermark_ms)
        ahead, revisable = Ahead(self._state.frontier.ahead_ms), list[Window]()
        if caught_up:
            ahead, revisable = self._state.closer.close_ahead(closed_ms), self.revisable()
        owed = tuple(self._state.revising.pending[len(revisable) :])
        forgotten_ms = self.forgotten_by(watermark_ms, owed, none_to_come=none_to_come)
        frontier = Frontier(merged, closed_ms, forgotten_ms, ahead.upto_ms)
        if not none_to_come or self.rows_after(closed_ms):  # else no window shows what waits
            owed += tuple(self._state.owed_step(watermark_ms, closed_ms))
        return ClosingCommit(frontier, tuple(self.revise(revisable)), ahead, owed)

    def closed_in(self, frontier: Frontier) -> int | None:
        """See `StateCommits`."""
        return frontier.closed_ms

    def rows_after(self, closed_ms: int | None) -> int:
        """See `StateCommits`."""
        return self._state.panes.rows_after(closed_ms)

    def needed(self, through: Mapping[Lane, int], frontier: Frontier) -> dict[Lane, int]:
        """See `StateCommits`."""
        return self._state.panes.needed(through, self._state.panes.gone(frontier.forgotten_ms))

    def merged_entry(
        self, bucket: Bucket, seq: Sequence64, through: Mapping[Lane, int], frontier: Frontier
    ) -> Entry:
        """See `StateCommits`."""
        gone = self._state.panes.gone(frontier.forgotten_ms)
        return self._state.panes.merged_entry(bucket, seq, through, gone)

    def told(
        self, record: Progress, closing: ClosingCommit, level_ms: int | None, last: Progress | None
    ) -> Progress:
        """See `StateCommits`."""
        frontier, name_of = closing.frontier, self._state.plan.window.name_of
        revised = sorted({one.window for one in closing.revised})
        numbers = self._state.revising.numbers_with(revised, frontier.forgotten_ms)
        return replace(
            record,
            closed_ms=frontier.closed_ms,
            watermark_ms=last.watermark_ms if level_ms is None and last is not None else level_ms,
            incomplete_before_ms=self._gaps.before_ms,
            gaps=dict(self._gaps.lanes),
            forgotten_ms=frontier.forgotten_ms,
            revisions={name_of(window): number for window, number in numbers.items()},
            owed=tuple(map(name_of, closing.owed)),
            ahead_ms=frontier.ahead_ms,
        )

    def recorded(self, record: Progress) -> None:
        """See `StateCommits`."""
        self._state.revising.committed(record)
        if self._state.changed is not None:
            self._state.changed.committed(owed=bool(record.owed))
