"""How far rows lie behind newer ones of their lane, and how many would therefore be late.

    offsets       0    1    2    3    4
    event time    10   13   11   14   9  s
    key           a    b    a    b    a
    behind        0    0    2    0    5  s
    within keys   0    0    0    0    2  s

A row that is `behind` by no more than the task's delay is never late. One that is further behind is
late if the end of its last window lies in between. Where window borders fall in the few seconds of
a preview is chance, so each row counts with the share of all positions of the borders for which it
would be late:

    share = clip((behind - delay - (size - slide)) / slide, 0, 1)

Where windows close key by key, what counts is how far a row lies behind newer ones of its key, and
that it is behind those of the lane by no more than the lag of keys besides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from mars.plan import WindowShape
from mars.types import Lane

DELAYS_MS = (0, 1_000, 5_000, 30_000, 60_000)
"""The delays that are tried."""

LATE_SHARE_MAX = 0.001
"""A delay is good enough if at most this share of the rows is late."""

_LANE, _TIME = "lane", "time"


class Disorder:
    """Collects event times and keys, lane by lane in the order of offsets.

    `key_lag_ms`: how far keys may lag behind others; None where windows cannot close key by key.
    """

    def __init__(
        self, window: WindowShape, delays_ms: Sequence[int], key_lag_ms: int | None
    ) -> None:
        self._window = window
        self._delays_ms = sorted(delays_ms)
        self._key_lag_ms = key_lag_ms
        self._frames: list[pl.DataFrame] = []
        self.rows = 0

    def add(self, lane: Lane, times_ms: pl.Series, keys: pl.DataFrame) -> None:
        """Take event times (Int64, without NULLs) and keys of further rows of a lane."""
        placed = pl.DataFrame([times_ms.alias(_TIME), *keys.get_columns()])
        self._frames.append(placed.with_columns(pl.lit(lane).alias(_LANE)))
        self.rows += len(times_ms)

    @property
    def max_ms(self) -> int:
        """The furthest that a row is behind newer ones of its lane."""
        return int(self._behind([]).max(initial=0))

    @property
    def shares(self) -> Mapping[int, float]:
        """The share of late rows by delay, 0 to 1, the shortest delay first."""
        behind = self._behind([])
        return {delay: self._mean(self._late(behind, delay)) for delay in self._delays_ms}

    @property
    def shares_by_key(self) -> Mapping[int, float]:
        """The same where windows close key by key; empty where they cannot."""
        if self._key_lag_ms is None or not self._frames:
            return {}
        keys = [name for name in self._frames[0].columns if name not in {_TIME, _LANE}]
        behind, in_key = self._behind([]), self._behind(keys)
        found = {}
        for delay in self._delays_ms:
            lagging = self._late(behind, delay + self._key_lag_ms)
            found[delay] = self._mean(np.maximum(self._late(in_key, delay), lagging))
        return found

    def _behind(self, keys: Sequence[str]) -> npt.NDArray[np.int64]:
        """Milliseconds that each row is behind the newest before it, of its lane and these keys."""
        if not self._frames:
            return np.zeros(0, np.int64)
        self._frames = [pl.concat(self._frames)]
        newest = pl.col(_TIME).cum_max().over([_LANE, *keys])
        return self._frames[0].select(newest - pl.col(_TIME)).to_series().to_numpy()

    def _late(self, behind: npt.NDArray[np.int64], delay_ms: int) -> npt.NDArray[np.float64]:
        missed = self._window.size_ms - self._window.slide_ms
        parts = (behind - delay_ms - missed) / self._window.slide_ms
        return np.clip(parts, 0, 1)

    def _mean(self, late: npt.NDArray[np.float64]) -> float:
        return float(late.sum()) / max(self.rows, 1)


def suggested_ms(shares: Mapping[int, float]) -> int | None:
    """The shortest delay that is good enough; None if none is."""
    return next((delay for delay, share in shares.items() if share <= LATE_SHARE_MAX), None)
