"""What sessions do with rows: which are late, which sessions are over, what goes out.

rows ──▶ panes by start ──close(watermark)──▶ sessions whose last row lies a gap behind it
             │
             └──▶ how far back rows are still needed

A row is late if its pane lies below C of the last commit. Which rows of open sessions were late
when they came, nothing tells but that commit: so one that drops some saves all panes that stay, and
its owners begin with these (an anchor). All rows below M that come again without one were in time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import polars as pl

from mars.core.definitions import TaskVersion
from mars.core.errors import TaskLimit
from mars.core.plan import Plan
from mars.core.types import Lane, PaneRows, Partial
from mars.core.windows import Session, Window
from mars.engine.aggregates import PANE, Sessions, sessions_of
from mars.engine.codec.streams import UnreadStates
from mars.engine.finishing import Finished, finish
from mars.protocol.ports import Frontier, Head, window_of_row
from mars.protocol.watermark import level_of
from mars.protocol.windows.closers import Arrived, Closer, PartitionCloser
from mars.protocol.windows.closing import ClosedWindow, WholeSpan, closed_by
from mars.protocol.windows.gaps import Gaps
from mars.protocol.windows.panes import lowest_firsts, states_by_pane
from mars.protocol.windows.sessions.session_commits import SessionCommits
from mars.protocol.windows.unrevised import Unrevised
from mars.protocol.windows.window_panes import WindowPanes


class SessionCloser(PartitionCloser):
    """The lanes' watermark ends sessions; nothing is judged before all rows below M are back."""

    is_steady: ClassVar[bool] = False
    waits: ClassVar[bool] = True

    def __init__(self, drop_closed: Callable[[], bool]) -> None:
        self.settled = False
        self._drop_closed = drop_closed

    def settle(self) -> None:
        """All rows below M are back: what was emitted of them goes."""
        self.settled = True
        self._drop_closed()

    def lacks_rows(self) -> None:
        """A session that lacks rows may seem to have been over, and emitted. Raises TaskLimit."""
        raise TaskLimit(_GONE)


class SessionPanes(WindowPanes):
    """The panes of one version in one bucket, and the sessions that they make."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan, lambda _window: True)
        self._found: Sessions | None = None

    def add(
        self,
        panes: Sequence[PaneRows],
        states: Mapping[int, pl.DataFrame | UnreadStates],
        behind_ms: int | None,
    ) -> None:
        """See `WindowPanes`."""
        super().add(panes, states, behind_ms)
        self._found = None

    def sessions(self) -> Sessions:
        """All that are there, over or not."""
        if self._found is None:
            frames = [one for pane in self.open.values() for one in pane.frames(self.plan)]
            self._found = sessions_of(self.plan, frames)
        return self._found

    def keep(self, left: Mapping[int, Sessions]) -> None:
        """Only this is left of each pane."""
        for start in self.open:
            if start in left and left[start].states.height < self.open[start].groups:
                self.open.at(start).keep(left[start].states, left[start].rows)
        self.open.drop([start for start in self.open if start not in left])
        self._found = None

    def states(self, window: Window) -> pl.DataFrame | None:
        """See `WindowPanes`: of the sessions that begin and end then."""
        own = self._of(window)
        return own.merged(self.plan) if len(own.starts) else None

    def rows(self, window: Window) -> int:
        """See `WindowPanes`."""
        return self._of(window).rows

    def _of(self, window: Window) -> Sessions:
        found = self.sessions()
        return found.where((found.starts == window.start_ms) & (found.ends == window.end_ms))


class SessionState(Unrevised):
    """Sessions of one version in one bucket; `frontier` is that of the last commit."""

    def __init__(self, plan: Plan, shape: Session, gaps: Gaps, frontier: Frontier) -> None:
        self.plan = plan
        self.shape = shape
        self.frontier = frontier
        self._own = SessionPanes(plan)
        self.panes: WindowPanes = self._own
        self.closer: Closer = SessionCloser(self._drop_closed)
        self.commits = SessionCommits(self, gaps)
        self.needs_anchor = False
        self._bounds = WholeSpan()
        self._gaps = gaps
        self._soonest_ms: int | None = None
        """No session ends earlier; None: it is not known."""

    def update(self, version: TaskVersion, after: TaskVersion | None) -> None:
        """See `WindowState`."""
        self._bounds = WholeSpan.of(version)

    # ------------------------------------------------------------------------------- absorb

    def judge(self, partial: Partial, *, accounted: bool) -> Arrived:
        """See `WindowState`: all that comes again was in time."""
        late: list[PaneRows] = []
        alive: list[PaneRows] = []
        closed_ms = None if accounted else self.frontier.closed_ms
        for pane in partial.panes:
            is_late = closed_ms is not None and pane.start_ms < closed_ms
            (late if is_late else alive).append(pane)
        self.needs_anchor |= bool(late)
        states = states_by_pane(partial) if alive else {}
        return Arrived(tuple(late), tuple(alive), states)

    def keep(self, arrived: Arrived, *, accounted: bool) -> None:
        """See `WindowState`."""
        self.panes.add(arrived.panes, arrived.states, None)
        if self._soonest_ms is not None:
            ends = (self.shape.shortest_end(pane.start_ms) for pane in arrived.panes)
            self._soonest_ms = min((self._soonest_ms, *ends))

    def reached(self, head: Head) -> None:
        """See `WindowState`: offsets say nothing of times."""

    # ------------------------------------------------------------------------------ sessions

    def sessions(self) -> Sessions:
        """All that are there, over or not."""
        return self._own.sessions()

    def closed(self, closed_ms: int | None) -> npt.NDArray[np.bool_]:
        """Which rows of the states are of sessions that are over by then; none is before all rows
        below M are back, for what is there may be a part of one that is open.
        """
        ends = self.sessions().ends
        if closed_ms is None or not self.closer.settled:
            return np.zeros(len(ends), np.bool_)
        return ends <= closed_ms

    def closed_by(self, watermark_ms: int | None) -> int | None:
        """C after everything that the watermark has passed is closed; it never goes back."""
        return closed_by(self.shape, self.frontier.closed_ms, watermark_ms)

    # -------------------------------------------------------------------------------- close

    def level(self, head: Head) -> int | None:
        """See `WindowState`: the watermark."""
        return level_of(head, self.plan)

    def reach(self, level: int | None) -> int | None:
        """See `WindowState`: one look at all groups finds all that is over."""
        return level

    def due(self, level: int | None) -> list[Window]:
        """See `WindowState`: one for all sessions that are over by then."""
        closed_ms = self.closed_by(level)
        if level is None or closed_ms is None or not len(self.panes.open):
            return []
        if self._soonest_ms is not None and closed_ms < self._soonest_ms:
            return []
        ends = self.sessions().ends
        self._soonest_ms = int(ends.min())
        if closed_ms < self._soonest_ms:
            return []
        return [Window(closed_ms, min(closed_ms, next(iter(self.panes.open))))]

    def soon(self, level: int | None, span_ms: int) -> list[Window]:
        """See `WindowState`."""
        return [] if level is None else self.due(level + span_ms)

    def behind(self, level: int | None) -> bool:
        """See `WindowState`: where no row is, nothing has to be closed."""
        closed_ms, reached_ms = self.frontier.closed_ms, self.closed_by(level)
        if reached_ms is None or not len(self.panes.open):
            return False
        return closed_ms is None or closed_ms < reached_ms

    def open_windows(self) -> list[Window]:
        """See `WindowState`."""
        found = self.sessions()
        return sorted(set(map(Window, found.ends.tolist(), found.starts.tolist())))

    def close(self, windows: Iterable[Window]) -> list[ClosedWindow]:
        """See `WindowState`: whole sessions apart from those that may lack rows."""
        return [
            closed
            for window in windows
            for complete, part in self._parts(window)
            for closed in self._finished(window, part, complete=complete)
        ]

    def _parts(self, window: Window) -> Iterator[tuple[bool, Sessions]]:
        over = self.sessions().where(self.closed(window.end_ms))
        complete = self._are_complete(over)
        for chosen, is_complete in ((complete, True), (~complete, False)):
            if chosen.any():
                yield is_complete, over.where(chosen)

    def _are_complete(self, over: Sessions) -> npt.NDArray[np.bool_]:
        """False where a session may lack rows: at its ends, too, less than a gap before it."""
        known = np.full(len(over.starts), not self._gaps.lanes)
        before_ms = over.starts - self.shape.gap_ms + 1
        for from_ms in (self._gaps.before_ms, self._bounds.from_ms):
            if from_ms is not None:
                known &= before_ms >= from_ms
        until_ms = self._bounds.until_ms
        return known if until_ms is None else known & (over.ends <= until_ms)

    def _finished(
        self, window: Window, part: Sessions, *, complete: bool
    ) -> Iterator[ClosedWindow]:
        """All that are sent, together, and each that is withheld with its own bounds."""
        finished = finish(self.plan, part.merged(self.plan), window).sendable()
        sent = replace(finished, withheld=())
        yield ClosedWindow(window, complete, sent, self._firsts(part), part.rows)
        for one in finished.withheld:
            own = window_of_row(one.key, one.begin)
            alike = part.where((part.starts == own.start_ms) & (part.ends == own.end_ms))
            withheld = Finished(own, [], [], withheld=(one,))
            yield ClosedWindow(own, complete, withheld, self._firsts(alike), 0)

    def _firsts(self, part: Sessions) -> dict[Lane, int]:
        panes = part.states.get_column(PANE).unique()
        return lowest_firsts([self.panes.open[start] for start in panes])

    # ------------------------------------------------------------------------------- commit

    def left(self, closed_ms: int | None) -> Mapping[int, Sessions]:
        """What stays of each pane once all is closed that is over by then."""
        return self.sessions().where(~self.closed(closed_ms)).by_pane()

    def committed(self, frontier: Frontier) -> bool:
        """See `WindowState`."""
        self.frontier, self.needs_anchor = frontier, False
        return self.closer.settled and self._drop_closed()

    def _drop_closed(self) -> bool:
        closed_ms = self.frontier.closed_ms
        if not self.closed(closed_ms).any():
            return False
        self._own.keep(self.left(closed_ms))
        self._soonest_ms = None
        return True


_GONE = (
    "rows that its open sessions need are gone from Kafka, and a session that lacks some may seem "
    "to be over: which of its results were emitted cannot be known any more. Register it again "
    "under another name, and let Kafka keep rows for longer"
)
