"""How far rows lie behind newer ones of their lane, and how many would therefore be late.

    offsets      0    1    2    3    4
    event time   10   13   11   14   9  s
    behind       0    0    2    0    5  s

A row that is `behind` by no more than the task's delay is never late. One that is further behind is
late if the end of its last window lies in between. Where window borders fall in the few seconds of
a preview is chance, so each row counts with the share of all positions of the borders for which it
would be late:

    share = clip((behind - delay - (size - slide)) / slide, 0, 1)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from mars.plan import WindowShape
from mars.types import Lane

DELAYS_MS = (0, 1_000, 5_000, 30_000, 60_000)
"""The delays that are tried."""

LATE_SHARE_MAX = 0.001
"""A delay is good enough if at most this share of the rows is late."""


class Disorder:
    """Collects event times, lane by lane in the order of offsets."""

    def __init__(self, window: WindowShape, delays_ms: Sequence[int]) -> None:
        self._window = window
        self._late = dict.fromkeys(sorted(delays_ms), 0.0)
        self._highest: dict[Lane, int] = {}
        self.rows = 0
        self.max_ms = 0

    def add(self, lane: Lane, times_ms: pl.Series) -> None:
        """Take the event times (Int64, without NULLs) of further rows of a lane."""
        if times_ms.is_empty():
            return
        times = times_ms.to_numpy()
        newest = np.maximum.accumulate(times)
        if lane in self._highest:
            newest = np.maximum(newest, self._highest[lane])
        behind = newest - times
        self._highest[lane] = int(newest[-1])
        self.rows += len(times)
        self.max_ms = max(self.max_ms, int(behind.max()))
        missed = self._window.size_ms - self._window.slide_ms
        for delay_ms in self._late:
            parts = (behind - delay_ms - missed) / self._window.slide_ms
            self._late[delay_ms] += float(np.clip(parts, 0, 1).sum())

    @property
    def shares(self) -> Mapping[int, float]:
        """The share of late rows by delay, 0 to 1, the shortest delay first."""
        return {delay: late / max(self.rows, 1) for delay, late in self._late.items()}

    @property
    def suggested_ms(self) -> int | None:
        """The shortest delay that is good enough; None if none is, or there are no rows."""
        if not self.rows:
            return None
        good = (delay for delay, share in self.shares.items() if share <= LATE_SHARE_MAX)
        return next(good, None)
