"""Means over the last seconds: figures jump, decisions must not."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Generic, TypeVar

SMOOTHING_S = 10.0
"""Time constant of all load figures: one second is noise, news of half a minute come too late."""


class Smoothed:
    """A mean in which a value's weight fades with time (by 1/e in `time_constant_s`).

    From the first value on it is a mean of what was added; it does not grow from zero.
    """

    def __init__(self, time_constant_s: float = SMOOTHING_S) -> None:
        self._time_constant_s = time_constant_s
        self._sum = 0.0
        self._weight = 0.0

    def add(self, value: float, duration_s: float) -> None:
        """`value` held for the last `duration_s` seconds."""
        keep = math.exp(-max(duration_s, 0.0) / self._time_constant_s)
        self._sum = self._sum * keep + value * (1 - keep)
        self._weight = self._weight * keep + (1 - keep)

    @property
    def value(self) -> float:
        """The mean; 0 before anything was added."""
        return self._sum / self._weight if self._weight else 0.0


Name = TypeVar("Name")


class Growth(Generic[Name]):
    """How fast levels rise together, a second, smoothed.

    A level that was not there before, or is there no more, did not grow by its height: a partition
    or a bucket brings with it what lies unread of it.
    """

    def __init__(self) -> None:
        self._levels: Mapping[Name, float] | None = None
        self._rate = Smoothed()

    def add(self, levels: Mapping[Name, float], duration_s: float) -> None:
        """The levels now, `duration_s` after those before."""
        before, self._levels = self._levels, dict(levels)
        if before is not None and duration_s > 0:
            change = sum(level - before[name] for name, level in levels.items() if name in before)
            self._rate.add(change / duration_s, duration_s)

    @property
    def value(self) -> float:
        """Per second; negative where the level falls."""
        return self._rate.value
