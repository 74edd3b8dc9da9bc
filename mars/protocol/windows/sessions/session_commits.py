"""What a commit says of sessions: up to where they are over, and what is still needed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from mars.core.types import Bucket, Entry, Lane, Sequence64
from mars.protocol.ports import Frontier, Progress
from mars.protocol.windows.gaps import Gaps
from mars.protocol.windows.state import ClosingCommit

if TYPE_CHECKING:
    from mars.protocol.windows.sessions.session_state import SessionState


class SessionCommits:
    """The commits of a `SessionState`."""

    def __init__(self, state: SessionState, gaps: Gaps) -> None:
        self._state = state
        self._gaps = gaps

    def closing(
        self,
        level: int | None,
        merged: Mapping[Lane, int],
        *,
        caught_up: bool,
        none_to_come: bool,
    ) -> ClosingCommit:
        """See `StateCommits`."""
        closed_ms = self._state.closed_by(level)
        return ClosingCommit(Frontier(merged, closed_ms, closed_ms))

    def closed_in(self, frontier: Frontier) -> int | None:
        """See `StateCommits`."""
        return frontier.closed_ms

    def rows_after(self, closed_ms: int | None) -> int:
        """See `StateCommits`."""
        return self._state.sessions().where(~self._state.closed(closed_ms)).rows

    def needed(self, through: Mapping[Lane, int], frontier: Frontier) -> dict[Lane, int]:
        """See `StateCommits`."""
        gone = self._state.panes.open.keys() - self._state.left(frontier.closed_ms).keys()
        return self._state.panes.needed(through, gone)

    def merged_entry(
        self, bucket: Bucket, seq: Sequence64, through: Mapping[Lane, int], frontier: Frontier
    ) -> Entry:
        """See `StateCommits`."""
        left = self._state.left(frontier.closed_ms)
        rows = {start: part.rows for start, part in left.items()}
        parts = [part.states for part in left.values()]
        return self._state.panes.entry_of(bucket, seq, through, rows, parts)

    def told(
        self, record: Progress, closing: ClosingCommit, level: int | None, last: Progress | None
    ) -> Progress:
        """See `StateCommits`."""
        closed_ms = closing.frontier.closed_ms
        return replace(
            record,
            closed_ms=closed_ms,
            forgotten_ms=closed_ms,
            watermark_ms=last.watermark_ms if level is None and last is not None else level,
            incomplete_before_ms=self._gaps.before_ms,
            gaps=dict(self._gaps.lanes),
            anchored=True,
        )

    def recorded(self, record: Progress) -> None:
        """See `StateCommits`."""
