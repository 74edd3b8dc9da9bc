"""What a mapper takes in, and what it leaves lying."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from mars.core.types import Topic
from mars.protocol.balance.smoothing import Growth, Smoothed
from mars.protocol.mapper.events import CATCH_UP, LIVE, ReaderLane, ReaderName
from mars.protocol.ports import PartitionReading

Lags = Mapping[tuple[Topic, int], int]
"""Messages ahead of one reader, by partition."""


class MapperMeter:
    """Messages taken and messages ahead, smoothed. Time comes from outside, in seconds."""

    def __init__(self) -> None:
        self._taken = Smoothed()
        self._growth: Growth[ReaderLane] = Growth()
        self._held_back = Smoothed()

    def measure(
        self,
        duration_s: float,
        messages: int,
        lags: Mapping[ReaderLane, int],
        standing: Collection[ReaderLane] = (),
        *,
        held_back: bool = False,
    ) -> dict[str, float]:
        """The figures of a report: `messages` were taken since the last one, `lags` lie ahead.

        `standing` are those that were not read all the time since then: how many lie ahead of them
        is only known from before, and all that has come meanwhile shows at once when they are read
        again. Neither is growth. `held_back`: some stood because the store would not take more; the
        figure is the share of the last seconds in which that was so.
        """
        read = {lane: lag for lane, lag in lags.items() if lane not in standing}
        self._taken.add(messages / max(duration_s, 1e-3), duration_s)
        self._growth.add(read, duration_s)
        self._held_back.add(float(held_back), duration_s)
        return {
            "messages_per_second": round(self._taken.value, 1),
            "lag_messages": sum(lags.values()),
            "lag_read_messages": sum(read.values()),
            "lag_growth_messages_per_second": round(self._growth.value, 1),
            "held_back": round(self._held_back.value, 3),
        }


def ahead(lags: Mapping[ReaderName, Lags]) -> dict[ReaderLane, int]:
    """The messages that lie ahead of a mapper, none of them twice.

    The reader that catches up stops where the other one began: only what lies between is its own.
    """
    live = lags.get(LIVE, {})
    found = {(LIVE, *place): lag for place, lag in live.items()}
    for place, lag in lags.get(CATCH_UP, {}).items():
        found[CATCH_UP, *place] = max(0, lag - live.get(place, 0))
    return found


def with_lags(readings: Sequence[PartitionReading], lags: Lags) -> tuple[PartitionReading, ...]:
    """The readings, with the lag of each partition where it is known."""
    return tuple(
        replace(reading, lag=lags.get((reading.topic, reading.partition))) for reading in readings
    )
