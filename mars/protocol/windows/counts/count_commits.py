"""What a commit says of windows that count rows: up to where they are closed, and all numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from mars.core.types import Bucket, Entry, Lane, Sequence64
from mars.core.windows.counting import first_place, number_of
from mars.protocol.ports import Frontier, Progress, RowsRecord
from mars.protocol.windows.counts.lane_numbers import LaneNumbers, Rows
from mars.protocol.windows.gaps import LaneGaps, RowGaps
from mars.protocol.windows.state import ClosingCommit

if TYPE_CHECKING:
    from mars.protocol.windows.counts.count_state import CountState


class LaneCommits:
    """What commits say whose C is a number of each lane."""

    def __init__(self, gaps: LaneGaps, numbers: LaneNumbers) -> None:
        self._gaps = gaps
        self._numbers = numbers

    def closed_in(self, frontier: Frontier) -> Rows:
        """See `StateCommits`."""
        return frontier.closed_rows

    def told(
        self, record: Progress, closing: ClosingCommit, level: Rows | None, last: Progress | None
    ) -> Progress:
        """See `StateCommits`."""
        saved = {} if record.snapshot is None else record.snapshot.merged
        known = {} if last is None or last.rows is None else last.rows.below
        below = self._numbers.at(record.merged, record.needed, saved, known=known)
        rows = RowsRecord(closing.frontier.closed_rows, below, dict(self._gaps.spans))
        return replace(record, rows=rows)


class CountCommits(LaneCommits):
    """The commits of a `CountState`."""

    def __init__(self, state: CountState, gaps: RowGaps, numbers: LaneNumbers) -> None:
        super().__init__(gaps, numbers)
        self._state = state

    def closing(
        self,
        level: Rows | None,
        merged: Mapping[Lane, int],
        *,
        caught_up: bool,
        none_to_come: bool,
    ) -> ClosingCommit:
        """See `StateCommits`."""
        closed = dict(self._state.frontier.closed_rows)
        for lane, rows in (level or {}).items():
            number = number_of(self._state.plan.window.closed_by(first_place(int(lane)) + rows))
            if number > closed.get(lane, 0):
                closed[lane] = number
        return ClosingCommit(Frontier(merged, closed_rows=closed))

    def rows_after(self, closed: Rows) -> int:
        """See `StateCommits`."""
        return self._state.panes.rows_without(self._state.gone(closed))

    def needed(self, through: Mapping[Lane, int], frontier: Frontier) -> dict[Lane, int]:
        """See `StateCommits`."""
        return self._state.panes.needed(through, self._state.gone(frontier.closed_rows))

    def merged_entry(
        self, bucket: Bucket, seq: Sequence64, through: Mapping[Lane, int], frontier: Frontier
    ) -> Entry:
        """See `StateCommits`; with the numbers of all that it names."""
        gone = self._state.gone(frontier.closed_rows)
        entry = self._state.panes.merged_entry(bucket, seq, through, gone)
        firsts = (pane.first for pane in entry.partial.panes)
        numbers = self._numbers.at(*firsts, known={})
        return replace(entry, partial=replace(entry.partial, numbers=numbers))

    def recorded(self, record: Progress) -> None:
        """See `StateCommits`."""
        self._numbers.keep(record, self._state.panes.open.values())
