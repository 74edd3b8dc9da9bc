"""What a commit says of windows that count the rows of each key: how far event time had come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from mars.core.types import Bucket, Entry, Lane, Sequence64
from mars.protocol.ports import Frontier, Progress
from mars.protocol.windows.counts.count_commits import LaneCommits
from mars.protocol.windows.counts.key_panes import KeyPanes
from mars.protocol.windows.counts.lane_numbers import LaneNumbers, Rows
from mars.protocol.windows.gaps import OffsetGaps
from mars.protocol.windows.state import ClosingCommit

if TYPE_CHECKING:
    from mars.protocol.windows.counts.key_state import KeyState


class KeyCommits(LaneCommits):
    """The commits of a `KeyState`. C is what was seen of event time in each lane.

    `starts` are the offsets at which the version begins.
    """

    def __init__(
        self,
        state: KeyState,
        panes: KeyPanes,
        gaps: OffsetGaps,
        numbers: LaneNumbers,
        starts: Mapping[Lane, int],
    ) -> None:
        super().__init__(gaps, numbers)
        self._state = state
        self._panes = panes
        self._starts = starts

    def closing(
        self,
        level: Rows | None,
        merged: Mapping[Lane, int],
        *,
        caught_up: bool,
        none_to_come: bool,
    ) -> ClosingCommit:
        """See `StateCommits`; what is full is closed whatever the level."""
        return ClosingCommit(Frontier(merged, closed_rows=self._state.closed_by(level)))

    def rows_after(self, closed: Rows) -> int:
        """See `StateCommits`."""
        return self._panes.rows_of(self._state.windows(closed).open)

    def needed(self, through: Mapping[Lane, int], frontier: Frontier) -> dict[Lane, int]:
        """See `StateCommits`: where rows wait, all from the start of the version on, for what
        lies before them says with which rows of a key a window begins.
        """
        if not self._left(frontier).height:
            return dict(through)
        starts = self._starts
        return {lane: min(at, starts.get(lane, 0)) for lane, at in through.items()}

    def _left(self, frontier: Frontier) -> pl.DataFrame:
        """What is left once a frontier is committed; nothing has gone of what came after it."""
        if frontier == self._state.frontier:
            return self._panes.rows_held
        return self._state.windows(frontier.closed_rows).open

    def merged_entry(
        self, bucket: Bucket, seq: Sequence64, through: Mapping[Lane, int], frontier: Frontier
    ) -> Entry:
        """See `StateCommits`."""
        left = self._state.windows(frontier.closed_rows).open
        needed = self.needed(through, frontier)
        return self._panes.entry_with(bucket, seq, through, needed, left)

    def told(
        self, record: Progress, closing: ClosingCommit, level: Rows | None, last: Progress | None
    ) -> Progress:
        """See `StateCommits`: whoever begins with it takes what it saved, and no row below L."""
        return replace(super().told(record, closing, level, last), anchored=True)

    def recorded(self, record: Progress) -> None:
        """See `StateCommits`."""
        self._numbers.keep(record, ())
