"""What windows that count the rows of each key do with them: which are full, what goes out.

rows ──▶ those that wait, by key ──▶ full windows, and those of keys that have fallen silent
             │
             └──▶ what stays of them

Which rows make a window is a function of the rows of a lane in the order of their offsets, however
they are cut (`engine/aggregates/keyed.py`). So all that rows below M made was emitted with M, but
for keys that C had not found silent: what comes again only rebuilds. What came before a row of its
key is needed to tell; so nothing is judged before all rows below M are back, L waits for a
snapshot, and there is no way to go on without one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import ClassVar, Final

import polars as pl

from mars.core.definitions import TaskVersion
from mars.core.errors import TaskLimit
from mars.core.plan import Plan
from mars.core.types import Lane, Partial, live_lane
from mars.core.windows import Window
from mars.core.windows.counting import LANE_PLACES, CountedAndSeen, first_place, partition_of
from mars.engine.aggregates import COUNTED, FIRST_OFFSET, LAST_OFFSET, PANE, KeyWindows
from mars.engine.codec.states import decode_states
from mars.engine.finishing import finish
from mars.protocol.ports import Frontier, Head
from mars.protocol.windows.closers import Arrived, Closer, PartitionCloser
from mars.protocol.windows.closing import ClosedWindow
from mars.protocol.windows.counts.key_commits import KeyCommits
from mars.protocol.windows.counts.key_panes import SEEN_MAX, KeyPanes
from mars.protocol.windows.counts.lane_numbers import LaneNumbers, Rows
from mars.protocol.windows.gaps import OffsetGaps
from mars.protocol.windows.unrevised import Unrevised
from mars.protocol.windows.window_panes import WindowPanes

EVER: Final = CountedAndSeen(0, SEEN_MAX).number
"""That of a lane in which the version has ended: no key has rows any more."""


class KeysCloser(PartitionCloser):
    """Nothing is judged before all rows below M are back."""

    is_steady: ClassVar[bool] = False
    waits: ClassVar[bool] = True

    def __init__(self, settled: Callable[[], None]) -> None:
        self.settled = False
        self._tell = settled

    def settle(self) -> None:
        """All rows below M are back: what was emitted of them goes."""
        self.settled = True
        self._tell()

    def lacks_rows(self) -> None:
        """Where windows of a key begin cannot be known without what came before."""
        raise TaskLimit(_GONE)


class KeyState(Unrevised):
    """Windows that count the rows of each key of one version in one bucket."""

    def __init__(
        self,
        plan: Plan,
        gaps: OffsetGaps,
        numbers: LaneNumbers,
        frontier: Frontier,
        starts: Mapping[Lane, int],
    ) -> None:
        self.plan = plan
        self.frontier = frontier
        self._own = KeyPanes(plan)
        self.panes: WindowPanes = self._own
        self.closer: Closer = KeysCloser(self._forget)
        self._gaps = gaps
        self._numbers = numbers
        self.commits = KeyCommits(self, self._own, gaps, numbers, starts)

    @property
    def needs_anchor(self) -> bool:
        """See `WindowState`: where it is not known of an entry of the log whether rows that are
        gone were so when they were accounted, it lies below L.
        """
        return self._gaps.are_new

    def update(self, version: TaskVersion, after: TaskVersion | None) -> None:
        """See `WindowState`."""
        self._numbers.update(version, after)

    # ------------------------------------------------------------------------------- absorb

    def judge(self, partial: Partial, *, accounted: bool) -> Arrived:
        """See `WindowState`: no row is late."""
        self._numbers.learn(partial.numbers)
        states = {0: decode_states(partial.states)} if partial.panes else {}
        return Arrived((), partial.panes, states)

    def keep(self, arrived: Arrived, *, accounted: bool) -> None:
        """See `WindowState`."""
        for rows in arrived.states.values():
            self._own.take(rows)

    def reached(self, head: Head) -> None:
        """See `WindowState`."""
        self._numbers.reached(head)

    # ------------------------------------------------------------------------------ windows

    def windows(self, closed: Rows) -> KeyWindows:
        """What there is to close up to C; of keys nothing before all rows below M are back."""
        return self._own.windows(self._seen(closed))

    def _seen(self, closed: Rows) -> dict[int, int]:
        seen = closed if self.closer.settled else {}
        return {_partition(lane): at for lane, at in seen.items()}

    def closed_by(self, level: Rows | None) -> dict[Lane, int]:
        """C at a level; it never goes back."""
        closed = dict(self.frontier.closed_rows)
        for lane, seen in (level or {}).items():
            closed[lane] = max(seen, closed.get(lane, 0))
        return closed

    # -------------------------------------------------------------------------------- close

    def level(self, head: Head) -> Rows:
        """See `WindowState`: what was seen of event time."""
        found = self._numbers.level(head).items()
        return {lane: CountedAndSeen.of(number).seen for lane, number in found}

    def reach(self, level: Rows | None) -> Rows | None:
        """See `WindowState`: one look at all keys finds all that is to be closed."""
        return level

    def due(self, level: Rows | None) -> list[Window]:
        """See `WindowState`: one for each partition; it ends with what was seen there.

        M takes what is full with it, so it is due where no level is known, too.
        """
        if not self.closer.settled:
            return []
        closed = self.closed_by(level)
        found = self.windows(closed)
        partitions = set(_partitions(found.full)) | set(_partitions(found.unfilled))
        return [
            Window(closed.get(live_lane(one), 0), first_place(one)) for one in sorted(partitions)
        ]

    def soon(self, level: Rows | None, span_ms: int) -> list[Window]:
        """See `WindowState`: what is due now, as no time fills a window."""
        return self.due(level)

    def behind(self, level: Rows | None) -> bool:
        """See `WindowState`: where no row waits, nothing has to be closed."""
        return False

    def open_windows(self) -> list[Window]:
        """See `WindowState`: one for each partition in which rows wait."""
        return [Window(first_place(one), first_place(one)) for one in _partitions(self._held)]

    @property
    def _held(self) -> pl.DataFrame:
        return self._own.rows_held

    def close(self, windows: Iterable[Window]) -> list[ClosedWindow]:
        """See `WindowState`."""
        wanted = list(windows)
        if not wanted:
            return []
        closed = {live_lane(partition_of(one.start_ms)): one.end_ms for one in wanted}
        found = self.windows(self.closed_by(closed))
        return [
            closed_window
            for window in wanted
            for states, full in ((found.full, True), (found.unfilled, False))
            for closed_window in self._closed(window, states, full=full)
        ]

    def _closed(
        self, window: Window, states: pl.DataFrame, *, full: bool
    ) -> Iterator[ClosedWindow]:
        """The windows of keys of a partition, whole ones apart from those that may lack rows."""
        partition = partition_of(window.start_ms)
        own = states.filter(pl.col(PANE) // LANE_PLACES == partition)
        low, high = self._gaps.spans.get(live_lane(partition), (0, 0))
        whole = full & ((pl.col(FIRST_OFFSET) >= high) | (pl.col(LAST_OFFSET) < low))
        for complete, part in ((True, own.filter(whole)), (False, own.filter(~whole))):
            if part.height:
                first = {live_lane(partition): _lowest(part, FIRST_OFFSET)}
                rows = int(part.get_column(COUNTED).sum())
                finished = finish(self.plan, part, window).sendable()
                yield ClosedWindow(window, complete, finished, first, rows)

    # ------------------------------------------------------------------------------- commit

    def committed(self, frontier: Frontier) -> bool:
        """See `WindowState`."""
        before = self._own.rows_held.height
        self.frontier = frontier
        self._gaps.are_new = False
        self._forget()
        return self._own.rows_held.height < before

    def _forget(self) -> None:
        """What rows below M made was emitted."""
        left = self._own.forget(self._seen(self.frontier.closed_rows))
        if self.closer.settled:
            self._gaps.closed(self._firsts(left))

    def _firsts(self, left: pl.DataFrame) -> dict[Lane, int]:
        """The lowest offset of a row that waits, or of one to come, for each lane."""
        firsts = dict(self.frontier.merged)
        for partition in _partitions(left):
            own = left.filter(pl.col(PANE) // LANE_PLACES == partition)
            firsts[live_lane(partition)] = _lowest(own, FIRST_OFFSET)
        return firsts


def _lowest(states: pl.DataFrame, name: str) -> int:
    return int(states.get_column(name).to_numpy().min())


def _partitions(states: pl.DataFrame) -> list[int]:
    found: list[int] = (states.get_column(PANE) // LANE_PLACES).unique().sort().to_list()
    return found


def _partition(lane: Lane) -> int:
    """The partition of a lane: no history is counted."""
    return int(lane)


_GONE = (
    "rows of keys that wait for more are gone from Kafka, and without them nobody knows with which "
    "row the next window of a key begins, or which of its results were emitted. Register it again "
    "under another name, and let Kafka keep rows for longer"
)
