"""Which windows may lack rows because Kafka no longer had them when they were to be read.

Of windows by time it is known only from the next row of a lane up to when its lost rows lay. Rows
that are counted have numbers, and so have the ends of a gap: windows between them lack rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from mars.core.plan import Plan
from mars.core.types import Entry, Lane, Numbers, PaneRows, Reason, RejectedRange, live_lane
from mars.core.windows import Window
from mars.core.windows.counting import number_of, partition_of
from mars.protocol.ports import Head, Progress, Snapshot


class Gaps(Protocol):
    """What a version of a task knows of its lost rows in a bucket."""

    @property
    def lanes(self) -> Mapping[Lane, int]:
        """Lanes that have lost rows and of which no row has come since, and the offsets behind."""

    @property
    def before_ms(self) -> int | None:
        """Windows that begin before this may lack rows."""

    def look(self, entry: Entry) -> None:
        """Whether rows of lanes that have lost some have come, and which of them are lost now."""

    def reached(self, head: Head) -> None:
        """What the store says that was absorbed up to there."""

    def snapshot_lost(self, snapshot: Snapshot) -> None:
        """What lies in it cannot be read any more."""

    def is_complete(self, window: Window) -> bool:
        """False where a window may lack rows that it should have had."""


class TimeGaps:
    """Gaps of windows by time: the next row of a lane tells how far they may reach."""

    def __init__(self, plan: Plan, record: Progress | None) -> None:
        self._plan = plan
        self._lanes: dict[Lane, int] = {} if record is None else dict(record.gaps)
        self._behind: dict[Lane, int] = {}
        """Those of them whose next row has just been absorbed, and a time that it is not after."""
        self._before_ms = None if record is None else record.incomplete_before_ms

    @property
    def lanes(self) -> Mapping[Lane, int]:
        """See `Gaps`."""
        return self._lanes

    @property
    def before_ms(self) -> int | None:
        """See `Gaps`."""
        return self._before_ms

    def look(self, entry: Entry) -> None:
        """See `Gaps`."""
        for lane, behind in self._lanes.items():
            starts = [pane.start_ms for pane in entry.partial.panes if _after(pane, lane, behind)]
            if starts and lane not in self._behind:
                # Of merged entries it is not known which rows came next: it may be any of them.
                pane_ms = max(starts) if entry.merged else min(starts)
                self._behind[lane] = self._plan.window.pane_end(pane_ms) - 1
        ends = {one.lane: one.next for one in gone_of(entry)}
        self._end({lane: at for lane, at in self._behind.items() if lane in ends})
        self._lanes |= ends

    def reached(self, head: Head) -> None:
        """See `Gaps`: the next row of a lane is not after its mark, either."""
        self._end({lane: min(at, head.marks_ms.get(lane, at)) for lane, at in self._behind.items()})

    def _end(self, next_ms: Mapping[Lane, int]) -> None:
        """Rows that are gone belong to windows up to those of the next row of their lane, and
        as far beyond as that row may be out of order.
        """
        options = self._plan.options
        disorder_ms = options.delay_ms + options.key_lag_ms + options.lateness_ms
        for lane, at in next_ms.items():
            del self._lanes[lane], self._behind[lane]
            self._until(at + disorder_ms + 1)

    def snapshot_lost(self, snapshot: Snapshot) -> None:
        """See `Gaps`."""
        self._until(snapshot.until_ms)

    def _until(self, before_ms: int) -> None:
        self._before_ms = max(before_ms, self._before_ms or before_ms)

    def is_complete(self, window: Window) -> bool:
        """See `Gaps`."""
        return not self._lanes and (self._before_ms is None or window.start_ms >= self._before_ms)


class LaneGaps:
    """Gaps of windows that count rows: `spans` are between two places of a lane."""

    def __init__(self, record: Progress | None) -> None:
        rows = None if record is None else record.rows
        self.spans: dict[Lane, tuple[int, int]] = {} if rows is None else dict(rows.gaps)

    @property
    def lanes(self) -> Mapping[Lane, int]:
        """See `Gaps`: it is known at once where they end."""
        return {}

    @property
    def before_ms(self) -> int | None:
        """See `Gaps`: nothing is said of times."""
        return None

    def _widen(self, lane: Lane, low: int, high: int) -> None:
        known = self.spans.get(lane, (low, high))
        self.spans[lane] = min(low, known[0]), max(high, known[1])

    def closed(self, needed: Mapping[Lane, int]) -> None:
        """No window begins any more before these places."""
        self.spans = {
            lane: span for lane, span in self.spans.items() if needed.get(lane, 0) < span[1]
        }


class RowGaps(LaneGaps):
    """Of windows that count rows of a partition: between two numbers, which may be the same."""

    def __init__(self, record: Progress | None) -> None:
        super().__init__(record)
        rows = None if record is None else record.rows
        self._below: Numbers = {} if rows is None else rows.below
        self._behind: dict[Lane, int] = {}
        """Offsets behind rows that are gone, of which the store knows how many there were."""

    def look(self, entry: Entry) -> None:
        """See `Gaps`."""
        for one in gone_of(entry):
            numbers = entry.partial.numbers.get(one.lane, {}).values()
            begun = self.spans.get(one.lane, (0, 0))[0]
            self._widen(one.lane, min(numbers, default=begun), max(numbers, default=begun))
            self._behind[one.lane] = max(one.next, self._behind.get(one.lane, one.next))

    def reached(self, head: Head) -> None:
        """See `Gaps`: a gap reaches as far as no record says how many rows there were."""
        for lane, behind in self._behind.items():
            known = head.numbers.get(lane, {})
            offset = min((at for at in known if at >= behind), default=None)
            if offset is not None:
                self._widen(lane, known[offset], known[offset])
        self._behind = {}

    def snapshot_lost(self, snapshot: Snapshot) -> None:
        """See `Gaps`: all windows up to the last that has rows in it."""
        for lane, offset in snapshot.merged.items():
            self._widen(lane, 0, self._below.get(lane, {}).get(offset, 0))

    def is_complete(self, window: Window) -> bool:
        """See `Gaps`."""
        span = self.spans.get(live_lane(partition_of(window.start_ms)))
        if span is None:
            return True
        begin = number_of(window.start_ms)
        return begin >= span[1] or begin + window.end_ms - window.start_ms <= span[0]


class OffsetGaps(LaneGaps):
    """Of windows that count the rows of each key: between two offsets."""

    def __init__(self, record: Progress | None) -> None:
        super().__init__(record)
        self.are_new = False
        """Some came since the last commit."""

    def look(self, entry: Entry) -> None:
        """See `Gaps`."""
        for one in gone_of(entry):
            self._widen(one.lane, one.first, one.next)
            self.are_new = True

    def reached(self, head: Head) -> None:
        """See `Gaps`."""

    def snapshot_lost(self, snapshot: Snapshot) -> None:
        """See `Gaps`: the task cannot go on without."""

    def is_complete(self, window: Window) -> bool:
        """See `Gaps`: where a window lies its rows say."""
        return True


def gone_of(entry: Entry) -> tuple[RejectedRange, ...]:
    """The ranges of an entry whose rows Kafka no longer had."""
    return tuple(one for one in entry.partial.rejections.ranges if one.reason is Reason.GONE)


def _after(pane: PaneRows, lane: Lane, offset: int) -> bool:
    """Whether rows of a pane lie in a lane, and all of them at or above an offset."""
    first = pane.first.get(lane)
    return first is not None and first >= offset
