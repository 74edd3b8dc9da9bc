"""What each bucket costs a reducer, and how much of each lies unread."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mars.core.types import Bucket, TaskName
from mars.protocol.balance.smoothing import Growth, Smoothed
from mars.protocol.ports import BucketLoad

LOADS_REPORTED_MAX = 64
"""Buckets named in a report, those that cost most: 7 kB a second at the most, and whoever has more
buckets than that has none among the rest whose move would matter."""

NOTHING_USE = 0.0005
"""Of a core: what costs less, and has nothing unread, is not reported."""

SIZE_KEPT = 0.8
"""Of the known size of a batch, at each reading: the mean of about the last five."""

Log = tuple[TaskName, Bucket]

Backlogs = dict[TaskName, dict[Bucket, int]]
"""Unread bytes by task and bucket."""


@dataclass(frozen=True, slots=True)
class ReducerFigures:
    """What is measured of one reducer besides its CPU use.

    `backlog_bytes` is what lies unread of the task that has most; the budget in the store is one
    for each task. `read_bytes_per_second` counts the time of reading only; 0: nothing was read.
    """

    buckets: tuple[BucketLoad, ...] = ()
    backlog_bytes: int = 0
    backlog_growth_bytes_per_second: float = 0.0
    read_bytes_per_second: float = 0.0


@dataclass(slots=True)
class _BucketMeter:
    """One bucket: what came since the last measurement, and the means."""

    cpu_s: float = 0.0
    rows: int = 0
    bytes: int = 0
    use: Smoothed = field(default_factory=Smoothed)
    rows_rate: Smoothed = field(default_factory=Smoothed)
    bytes_rate: Smoothed = field(default_factory=Smoothed)

    def settle(self, duration_s: float) -> None:
        self.use.add(self.cpu_s / duration_s, duration_s)
        self.rows_rate.add(self.rows / duration_s, duration_s)
        self.bytes_rate.add(self.bytes / duration_s, duration_s)
        self.cpu_s, self.rows, self.bytes = 0.0, 0, 0


class LoadMeter:
    """Collects what a reducer does, bucket by bucket. Time comes from outside, in seconds."""

    def __init__(self) -> None:
        self._buckets: dict[Bucket, _BucketMeter] = {}
        self._batch_bytes: dict[Log, float] = {}
        self._unread: dict[Log, int] = {}
        self._growth: dict[TaskName, Growth[Bucket]] = {}
        self._bandwidth = Smoothed()

    def worked(self, bucket: Bucket, cpu_s: float) -> None:
        """So much CPU time went into a bucket."""
        self._meter(bucket).cpu_s += cpu_s

    def read(self, log: Log, batches: int, rows: int, size_bytes: int) -> None:
        """A log was read: `batches` by SEQ (some without anything for the bucket)."""
        meter = self._meter(log[1])
        meter.rows += rows
        meter.bytes += size_bytes
        if batches > 0:
            mean = size_bytes / batches
            known = self._batch_bytes.get(log, mean)
            self._batch_bytes[log] = SIZE_KEPT * known + (1 - SIZE_KEPT) * mean

    def took(self, size_bytes: int, duration_s: float) -> None:
        """So long it took to get so many bytes from the store."""
        if size_bytes > 0 and duration_s > 0:
            self._bandwidth.add(size_bytes / duration_s, duration_s)

    def look(self, unread: Mapping[Log, int]) -> None:
        """At this moment so many batches were there and not read; the highest of each counts."""
        for log, batches in unread.items():
            self._unread[log] = max(batches, self._unread.get(log, 0))

    def measure(self, duration_s: float, owned: frozenset[Bucket]) -> ReducerFigures:
        """The figures of the `duration_s` since the last call; buckets not owned are forgotten."""
        for bucket in [bucket for bucket in self._buckets if bucket not in owned]:
            del self._buckets[bucket]
        for meter in self._buckets.values():
            meter.settle(max(duration_s, 1e-3))
        self._batch_bytes = {log: n for log, n in self._batch_bytes.items() if log[1] in owned}
        backlogs = self._backlogs()
        self._unread = {}
        self._grow(backlogs, duration_s)
        most, growth = self._fullest(backlogs)
        return ReducerFigures(
            buckets=self._loads(_by_bucket(backlogs)),
            backlog_bytes=most,
            backlog_growth_bytes_per_second=round(growth, 1),
            read_bytes_per_second=round(self._bandwidth.value, 1),
        )

    def _backlogs(self) -> Backlogs:
        """Of all logs of which something was read: how large their batches are is known."""
        backlogs: Backlogs = {}
        for (task, bucket), size in self._batch_bytes.items():
            batches = self._unread.get((task, bucket), 0)
            backlogs.setdefault(task, {})[bucket] = int(batches * size)
        return backlogs

    def _grow(self, backlogs: Backlogs, duration_s: float) -> None:
        """By task: as one empties another fills, and either may be the fullest at a look."""
        self._growth = {task: self._growth.get(task, Growth()) for task in backlogs}
        for task, growth in self._growth.items():
            growth.add(backlogs[task], duration_s)

    def _fullest(self, backlogs: Backlogs) -> tuple[int, float]:
        """What lies unread of the task that has most, and how fast that grows."""
        sizes = {task: sum(by_bucket.values()) for task, by_bucket in backlogs.items()}
        if not sizes:
            return 0, 0.0
        fullest = max(sizes, key=lambda task: sizes[task])
        return sizes[fullest], self._growth[fullest].value

    def _loads(self, backlogs: Mapping[Bucket, int]) -> tuple[BucketLoad, ...]:
        loads = [
            BucketLoad(
                bucket,
                round(meter.use.value, 4),
                round(meter.rows_rate.value, 1),
                round(meter.bytes_rate.value, 1),
                backlogs.get(bucket, 0),
            )
            for bucket, meter in self._buckets.items()
            if meter.use.value >= NOTHING_USE or backlogs.get(bucket)
        ]
        loads.sort(key=lambda load: (-load.use, -load.backlog_bytes, load.bucket))
        return tuple(loads[:LOADS_REPORTED_MAX])

    def _meter(self, bucket: Bucket) -> _BucketMeter:
        found = self._buckets.get(bucket)
        if found is None:
            found = self._buckets[bucket] = _BucketMeter()
        return found


def _by_bucket(backlogs: Backlogs) -> dict[Bucket, int]:
    sums: dict[Bucket, int] = {}
    for by_bucket in backlogs.values():
        for bucket, size in by_bucket.items():
            sums[bucket] = sums.get(bucket, 0) + size
    return sums
