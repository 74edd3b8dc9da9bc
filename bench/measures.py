"""The arithmetic of the benchmarks: pure functions over samples."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

STEADY_FROM = 0.2
STEADY_TO = 0.9
"""Shares of the rows between which a rate is steady: machines are warm, and nothing runs out."""

PERCENTILES = (50.0, 90.0, 99.0)


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at a running contestant, `at_s` seconds after its query was submitted.

    `rows`: input rows taken so far; `cpu_s`: CPU seconds used so far, by process; `rss_bytes`:
    memory held now, by process; `committed`: last stable offsets of the output, by partition.
    """

    at_s: float
    rows: int
    cpu_s: Mapping[str, float]
    rss_bytes: Mapping[str, int]
    committed: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Steady:
    """The part of a run between STEADY_FROM and STEADY_TO of its rows."""

    first_s: float
    last_s: float
    rows: float

    @property
    def rows_per_s(self) -> float:
        """Rows of the part by its duration."""
        return self.rows / (self.last_s - self.first_s)


@dataclass(frozen=True, slots=True)
class Spread:
    """Percentiles of a quantity, in its own unit."""

    count: int
    p50: float
    p90: float
    p99: float
    highest: float


def crossing_s(samples: Sequence[Sample], rows: float) -> float:
    """When `rows` had been taken, on straight lines between samples.

    Raises ValueError when they never were.
    """
    for before, after in itertools.pairwise(samples):
        if before.rows < rows <= after.rows:
            share = (rows - before.rows) / (after.rows - before.rows)
            return before.at_s + share * (after.at_s - before.at_s)
    if samples and samples[0].rows >= rows:
        return samples[0].at_s
    raise ValueError(f"{rows:.0f} rows were never taken")


def steady(samples: Sequence[Sample], rows_total: int) -> Steady:
    """The steady part of a run over `rows_total` rows. Raises ValueError for too few samples."""
    first = crossing_s(samples, STEADY_FROM * rows_total)
    last = crossing_s(samples, STEADY_TO * rows_total)
    if last <= first:
        raise ValueError("the rows went by between two samples: take more rows")
    return Steady(first, last, (STEADY_TO - STEADY_FROM) * rows_total)


def value_at(samples: Sequence[Sample], at_s: float, value_of: Callable[[Sample], float]) -> float:
    """A growing quantity at a time, on straight lines between samples; flat beyond them."""
    times = [sample.at_s for sample in samples]
    return float(np.interp(at_s, times, [value_of(sample) for sample in samples]))


def cpu_between(samples: Sequence[Sample], name: str, first_s: float, last_s: float) -> float:
    """CPU seconds of one process between two times."""

    def used(sample: Sample) -> float:
        return sample.cpu_s.get(name, 0.0)

    return value_at(samples, last_s, used) - value_at(samples, first_s, used)


def started_s(samples: Sequence[Sample]) -> float:
    """The last look at which no row had been taken: the start-up ends here."""
    nothing = [sample.at_s for sample in samples if sample.rows == 0]
    return max(nothing, default=samples[0].at_s)


def committed_s(samples: Sequence[Sample], offsets: Mapping[int, int]) -> float:
    """The first look at which every one of `offsets` (by partition) could be read as committed.

    Raises ValueError when some never could.
    """
    for sample in samples:
        if all(sample.committed.get(p, 0) > offset for p, offset in offsets.items()):
            return sample.at_s
    raise ValueError("the last results were not committed while it was looked at")


def committed_rate(windows: Sequence[tuple[float, int]]) -> float | None:
    """Rows per second by when windows were committed: (second, rows of the window) of each.

    From the first commit to the last, so the windows of the first commit are not counted. None
    when there is but one commit.
    """
    times = [at_s for at_s, _ in windows]
    if not times or max(times) == min(times):
        return None
    rows = sum(rows for at_s, rows in windows if at_s > min(times))
    return rows / (max(times) - min(times))


def rss_total_peak(samples: Sequence[Sample], names: Sequence[str]) -> int:
    """The most memory that the named processes held together at any look."""
    return max(
        (sum(sample.rss_bytes.get(name, 0) for name in names) for sample in samples), default=0
    )


def spread_of(values: Sequence[float]) -> Spread:
    """Percentiles of values that count once each."""
    return spread(np.array(values, dtype=np.float64), np.ones(len(values), dtype=np.int64))


def spread(values: npt.NDArray[np.float64], weights: npt.NDArray[np.int64]) -> Spread:
    """Percentiles of values that each count `weights` times: the nearest-rank ones.

    The p-th is the smallest value with at least p % of all at or below it.
    """
    if len(values) == 0:
        return Spread(0, math.nan, math.nan, math.nan, math.nan)
    order = np.argsort(values, kind="stable")
    ranked = np.cumsum(weights[order])
    total = int(ranked[-1])
    places = [np.searchsorted(ranked, math.ceil(total * p / 100)) for p in PERCENTILES]
    p50, p90, p99 = (float(values[order[place]]) for place in places)
    return Spread(total, p50, p90, p99, float(values[order[-1]]))
