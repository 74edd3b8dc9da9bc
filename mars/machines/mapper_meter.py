"""What a mapper takes in, and what it leaves lying."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from mars.machines.smoothing import Growth, Smoothed
from mars.ports import PartitionReading
from mars.types import Topic


class MapperMeter:
    """Messages taken and messages ahead, smoothed. Time comes from outside, in seconds."""

    def __init__(self) -> None:
        self._taken = Smoothed()
        self._growth = Growth()

    def measure(self, duration_s: float, messages: int, lag: int) -> dict[str, float]:
        """The figures of a report: `messages` were taken since the last one, `lag` lie ahead."""
        self._taken.add(messages / max(duration_s, 1e-3), duration_s)
        self._growth.add(lag, duration_s)
        return {
            "messages_per_second": round(self._taken.value, 1),
            "lag_messages": lag,
            "lag_growth_messages_per_second": round(self._growth.value, 1),
        }


def with_lags(
    readings: Sequence[PartitionReading], lags: Mapping[tuple[Topic, int], int]
) -> tuple[PartitionReading, ...]:
    """The readings, with the lag of each partition where it is known."""
    return tuple(
        replace(reading, lag=lags.get((reading.topic, reading.partition))) for reading in readings
    )
