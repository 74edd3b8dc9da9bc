"""Means over the last seconds: figures jump, decisions must not."""

from __future__ import annotations

import math

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


class Growth:
    """How fast a level rises, a second, smoothed."""

    def __init__(self) -> None:
        self._level: float | None = None
        self._rate = Smoothed()

    def add(self, level: float, duration_s: float) -> None:
        """The level now, `duration_s` after the one before."""
        if self._level is not None and duration_s > 0:
            self._rate.add((level - self._level) / duration_s, duration_s)
        self._level = level

    @property
    def value(self) -> float:
        """Per second; negative where the level falls."""
        return self._rate.value
