"""Measures what a reducer does for each of its buckets: CPU time of whichever thread does it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence

from mars.core.types import Bucket
from mars.engine.codec.states import states_bytes
from mars.protocol.balance.load_meter import LoadMeter, Log, ReducerFigures
from mars.protocol.reducer.events import LogRead


class Stopwatch:
    """Says what was done within it took: of the clock, and of the thread's CPU time."""

    def __init__(self) -> None:
        self.duration_s = self.cpu_s = 0.0

    def __enter__(self) -> Stopwatch:
        self.duration_s, self.cpu_s = -time.monotonic(), -time.thread_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.duration_s += time.monotonic()
        self.cpu_s += time.thread_time()


class Busy:
    """Notes the CPU time that this thread needs for a bucket.

    It is entered for each bucket in each round: a generator would take three times as long.
    """

    __slots__ = ("_begun_s", "_bucket", "_done")

    def __init__(self, bucket: Bucket, done: deque[tuple[Bucket, float]]) -> None:
        self._bucket, self._done = bucket, done

    def __enter__(self) -> None:
        self._begun_s = time.thread_time()

    def __exit__(self, *_: object) -> None:
        self._done.append((self._bucket, time.thread_time() - self._begun_s))


class Metering:
    """A `LoadMeter` with a clock. `busy` may be used by any thread, the rest by the loop's only."""

    def __init__(self) -> None:
        self._meter = LoadMeter()
        self._done: deque[tuple[Bucket, float]] = deque()
        self._measured_s = time.monotonic()

    def busy(self, bucket: Bucket) -> Busy:
        """What this thread does meanwhile is for the bucket."""
        return Busy(bucket, self._done)

    def worked(self, bucket: Bucket, cpu_s: float) -> None:
        """So much CPU time of another thread went into a bucket."""
        self._done.append((bucket, cpu_s))

    def read(self, took: Stopwatch, found: Sequence[LogRead]) -> None:
        """Logs were read; the CPU time that it took is shared out by what was read of each."""
        sizes = [
            sum(states_bytes(entry.partial.states) for entry in one.slice.entries) for one in found
        ]
        whole = sum(sizes)
        self._meter.took(whole, took.duration_s)
        for one, size in zip(found, sizes, strict=True):
            read = one.request
            rows = sum(entry.partial.counts.read for entry in one.slice.entries)
            batches = 0 if read.after == 0 else read.upto - read.after
            self._meter.read((read.task, read.bucket), batches, rows, size)
            if size:
                self._meter.worked(read.bucket, took.cpu_s * size / whole)

    def look(self, unread: dict[Log, int]) -> None:
        """So many batches of each log are there and not read."""
        self._meter.look(unread)

    def measure(self, owned: frozenset[Bucket]) -> ReducerFigures:
        """The figures since the last call."""
        while self._done:
            self._meter.worked(*self._done.popleft())
        now_s = time.monotonic()
        duration_s, self._measured_s = now_s - self._measured_s, now_s
        return self._meter.measure(duration_s, owned)
