"""Why a window that counts rows has not come: how many of its rows are there, and whose turn it is.

No time closes it. It waits for the first of: the task to run, its buckets to have reducers, the
rows of its partition that it lacks, the bucket's reducer to commit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mars.core.plan import Plan
from mars.core.types import Bucket, Lane, live_lane
from mars.core.windows import Counting, Window
from mars.core.windows.counting import number_of, partition_of
from mars.inspect.evidence import Evidence, LoggedRows


@dataclass(frozen=True, slots=True)
class CountedWindow:
    """A window that counts rows: its number in its partition, and how many of `size` are there."""

    partition: int
    number: int
    rows: int
    size: int

    @property
    def lane(self) -> Lane:
        """The lane of its rows."""
        return live_lane(self.partition)

    @property
    def is_full(self) -> bool:
        """True if no row of its partition is missing."""
        return self.rows >= self.size


def counted_window(evidence: Evidence, plan: Plan, window: Window) -> CountedWindow | None:
    """What is to be said of a window of a plan; None where it goes by time."""
    shape = plan.window
    if not isinstance(shape, Counting):
        return None
    partition = partition_of(window.start_ms)
    passed = 0 if evidence.head is None else evidence.head.rows.get(live_lane(partition), 0)
    rows = min(max(0, passed - number_of(window.start_ms)), shape.size)
    return CountedWindow(partition, shape.number(window), rows, shape.size)


def open_counted(
    evidence: Evidence, version: int, plan: Plan
) -> Iterator[tuple[Window, Bucket, int]]:
    """The windows of a version that are not closed in a bucket, and the rows that it has there."""
    records = {one.bucket: one for one in evidence.progress if one.version == version}
    for logged in evidence.logged:
        if logged.version != version:
            continue
        record = records.get(logged.bucket)
        closed = {} if record is None or record.rows is None else record.rows.closed
        for window in plan.window.windows_of(logged.panes):
            lane = live_lane(partition_of(window.start_ms))
            if number_of(window.end_ms) > closed.get(lane, 0):
                yield window, logged.bucket, _rows(logged, window)


def _rows(logged: LoggedRows, window: Window) -> int:
    panes = logged.panes.items()
    return sum(rows for pane, rows in panes if window.start_ms <= pane < window.end_ms)
