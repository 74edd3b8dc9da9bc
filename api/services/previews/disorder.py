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

While no lane gets a row for longer than `idle_after`, event time goes on as the clock does: rows
that come after such a pause lie behind what it has come to by then, too. By the times of Kafka's
records, with an `idle_after` of 5 s:

    came at       0     1     ····pause of 8 s····    9
    event time    10    11                            12        behind: 11 + 8 - 5 - 12 = 2
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from mars.core.types import Lane
from mars.core.windows import Shape

DELAYS_MS = (0, 1_000, 5_000, 30_000, 60_000)
"""The delays that are tried."""

LATE_SHARE_MAX = 0.001
"""A delay is good enough if at most this share of the rows is late."""

_LANE, _TIME, _STAMP, _PACED = "lane", "time", "stamp", "paced"
_TURN = "turn"

_NEVER_MS = -(2**62)


@dataclass(frozen=True, slots=True)
class Lateness:
    """How late rows are: the furthest that one is behind newer ones of its lane, and the share of
    late rows by delay, 0 to 1, the shortest delay first.

    `pause_ms`: the longest pause of all lanes after which rows lie behind what event time has come
    to meanwhile; 0: there is none. `by_key`: the same where windows close key by key; empty where
    they cannot. Without rows both are empty.
    """

    max_ms: int
    pause_ms: int
    by_partition: Mapping[int, float]
    by_key: Mapping[int, float]


class Disorder:
    """Collects event times and keys, lane by lane in the order of offsets.

    `key_lag_ms`: how far keys may lag behind others; None where windows cannot close key by key.
    """

    def __init__(
        self,
        window: Shape,
        delays_ms: Iterable[int],
        key_lag_ms: int | None,
        idle_after_ms: int,
    ) -> None:
        self._window = window
        self._delays_ms = sorted(delays_ms)
        self._key_lag_ms = key_lag_ms
        self._idle_after_ms = idle_after_ms
        self._frames: list[pl.DataFrame] = []
        self.rows = 0

    def add(
        self, lane: Lane, times_ms: pl.Series, keys: pl.DataFrame, stamps_ms: pl.Series
    ) -> None:
        """Take event times (Int64, without NULLs) and keys of further rows of a lane, and when
        Kafka got them (Int64; -1: not known).
        """
        columns = [times_ms.alias(_TIME), stamps_ms.alias(_STAMP), *keys.get_columns()]
        placed = pl.DataFrame(columns)
        self._frames.append(placed.with_columns(pl.lit(lane).alias(_LANE)))
        self.rows += len(times_ms)

    def late(self) -> Lateness:
        """What all rows so far show."""
        if not self.rows:
            return Lateness(0, 0, {}, {})
        frame = pl.concat(self._frames)
        disorder, times = _behind(frame, []), frame.get_column(_TIME).to_numpy()
        paced, pause_ms = _paced(frame, self._idle_after_ms)
        behind = np.maximum(disorder, paced - times)
        by_partition = {delay: self._share(behind, delay) for delay in self._delays_ms}
        by_key: dict[int, float] = {}
        if self._key_lag_ms is not None:
            own = {_TIME, _LANE, _STAMP}
            in_key = _behind(frame, [name for name in frame.columns if name not in own])
            # What exceeds the lag of keys is late for the lane, whatever its key.
            worst = np.maximum(in_key, behind - self._key_lag_ms)
            by_key = {delay: self._share(worst, delay) for delay in self._delays_ms}
        worse = bool((behind > disorder).any())
        return Lateness(int(disorder.max()), pause_ms if worse else 0, by_partition, by_key)

    def _share(self, behind: npt.NDArray[np.int64], delay_ms: int) -> float:
        return float(self._window.missed_share(behind - delay_ms).sum()) / self.rows


def _behind(frame: pl.DataFrame, keys: Sequence[str]) -> npt.NDArray[np.int64]:
    """Milliseconds that each row is behind the newest before it, of its lane and these keys."""
    newest = pl.col(_TIME).cum_max().over([_LANE, *keys])
    return frame.select(newest - pl.col(_TIME)).to_series().to_numpy()


def _paced(frame: pl.DataFrame, idle_after_ms: int) -> tuple[npt.NDArray[np.int64], int]:
    """How far event time has come in pauses before each row, and the longest of them."""
    came = (
        frame.select(_LANE, _TIME, _STAMP)
        .with_row_index("row")
        .filter(pl.col(_STAMP) >= 0)
        .sort(_STAMP, maintain_order=True)
        .with_row_index(_TURN)
    )
    pauses = _pauses(came, idle_after_ms)
    paced = np.full(frame.height, _NEVER_MS, dtype=np.int64)
    if pauses.is_empty():
        return paced, 0
    known = came.join_asof(pauses, on=_TURN).drop_nulls(_PACED)
    paced[known.get_column("row").to_numpy()] = known.get_column(_PACED).to_numpy()
    return paced, int(pauses.get_column("length").to_numpy().max())


def _pauses(came: pl.DataFrame, idle_after_ms: int) -> pl.DataFrame:
    """The turn of the first row after each pause, and how far event time has come by then.

    It goes on from the highest time so far, from when its lane last got a row.
    """
    highest = pl.col(_TIME).cum_max()
    leading = pl.when(pl.col(_TIME) == highest).then(pl.col(_LANE)).forward_fill()
    again = pl.col(_STAMP).shift(-1)
    pauses = came.select(
        _TURN,
        highest.alias("highest"),
        leading.alias(_LANE),
        again.alias("again"),
        (again - pl.col(_STAMP)).alias("length"),
    ).filter(pl.col("length") > idle_after_ms)
    taken = came.select(_TURN, _LANE, pl.col(_STAMP).alias("taken"))
    gone_on = pl.col("highest") + pl.col("again") - pl.col("taken")
    paced = pl.min_horizontal(gone_on, pl.col("again")) - idle_after_ms
    return pauses.join_asof(taken, on=_TURN, by=_LANE, check_sortedness=False).select(
        pl.col(_TURN) + 1, paced.cum_max().alias(_PACED), "length"
    )


def suggested_ms(shares: Mapping[int, float]) -> int | None:
    """The shortest delay that is good enough; None if none is."""
    return next((delay for delay, share in shares.items() if share <= LATE_SHARE_MAX), None)
