"""Which rows may be late in a run whose lanes fall silent: those that came when their lane was idle
and the others had gone on without it. No other row ever is.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from mars.core.types import Lane, TaskName, lane_partition, live_lane
from tests.simulation.feeding import Appended
from tests.simulation.rows import Place, Row, Span, Values, Written
from tests.simulation.watching import Leased, Watch

NEVER_MS = -(2**62)


class Lateness:
    """`appended` are all rows that can be read, in the order in which they came."""

    def __init__(self, watch: Watch, appended: Sequence[Appended]) -> None:
        self._watch = watch
        self._appended = appended

    def sure(self, span: Span, written: Written) -> dict[Place, Values]:
        """Count and sum of the rows of each group that cannot be late."""
        reached = _Reached(self._watch.leases.get(TaskName(span.task), ()), self._appended, span)
        found: dict[Place, Values] = {}
        for lane, offset, row in _rows_of(span, written):
            (window,) = span.query.windows(row.time_ms)
            known = row.key and span.query.takes(row.value, row.time_ms)
            if not known or window.end_ms <= reached.by(lane, offset):
                continue
            place = (span.task, span.version, window, row.key)
            count, total = found.get(place, (0, 0))
            found[place] = (count + 1, total + row.value)
        return found


class _Reached:
    """How far the watermark of a task may have come before a row of a lane was taken.

    That is: while the lane was idle at an offset no higher than the row's. The others' newest rows
    drive it then; where all lanes were idle it went on from the newest row of all, as the clock
    does.
    """

    def __init__(self, leases: Iterable[Leased], appended: Sequence[Appended], span: Span) -> None:
        self._query = span.query
        self._came: defaultdict[Lane, list[int]] = defaultdict(list)
        self._newest: defaultdict[Lane, list[int]] = defaultdict(list)
        for one in appended:
            lane = live_lane(one.lane)
            self._came[lane].append(one.now_ms)
            newest = self._newest[lane]
            newest.append(max([one.time_ms, *newest[-1:]]))
        by_lane: defaultdict[Lane, dict[int, int]] = defaultdict(dict)
        for leased in leases:
            for lane, reached_ms in self._reached_by(leased):
                at = leased.offsets[lane]
                by_lane[lane][at] = max(reached_ms, by_lane[lane].get(at, NEVER_MS))
        self._offsets = {lane: sorted(known) for lane, known in by_lane.items()}
        self._reached = {
            lane: list(accumulate((by_lane[lane][at] for at in offsets), max))
            for lane, offsets in self._offsets.items()
        }

    def _reached_by(self, leased: Leased) -> Iterator[tuple[Lane, int]]:
        """As far as it may come while the lease holds: by the other lanes, which may come back, and
        for all of them by itself.
        """
        others = (lane for lane in self._came if lane != leased.lane)
        yield leased.lane, max((self._by(lane, leased.end_ms) for lane in others), default=NEVER_MS)
        if leased.alone:
            paced_ms = self._paced_ms(leased)
            yield from ((lane, paced_ms) for lane in leased.offsets)

    def _paced_ms(self, leased: Leased) -> int:
        """The rule for tasks all of whose lanes are idle: at the pace of the clock from the newest
        row that was taken, and never beyond the clock.
        """
        newest = leased.newest
        if newest is None or newest.taken_ms is None:
            return NEVER_MS
        passed_ms = leased.end_ms - newest.taken_ms
        time_ms = min(leased.end_ms, newest.time_ms + passed_ms)
        return time_ms - self._query.idle_after_ms - self._query.delay_ms

    def _by(self, lane: Lane, now_ms: int) -> int:
        """As far as a lane could bring the watermark by then."""
        place = bisect_right(self._came[lane], now_ms)
        return self._newest[lane][place - 1] - self._query.delay_ms if place else NEVER_MS

    def by(self, lane: Lane, offset: int) -> int:
        """Before the row at this offset was taken."""
        place = bisect_right(self._offsets.get(lane, []), offset)
        return self._reached[lane][place - 1] if place else NEVER_MS


def _rows_of(span: Span, written: Written) -> Iterator[tuple[Lane, int, Row]]:
    """The rows of a version, with the lanes in which they are read."""
    for partition, rows in written.items():
        lanes = [live_lane(partition)]
        lanes += [lane for lane in span.fences if lane_partition(lane) == partition]
        for offset, row in rows.items():
            yield from ((lane, offset, row) for lane in lanes if span.holds(lane, offset))
