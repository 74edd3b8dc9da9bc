"""What is true for long, or again and again, is told now and then."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable

from mars.process.life import REMIND_S


class Reminders:
    """Says of each thing whether it is to be told: the first time, and then every `REMIND_S`."""

    def __init__(self, clock_s: Callable[[], float] | None = None) -> None:
        self._clock_s = clock_s or time.monotonic
        self._told_s: dict[Hashable, float] = {}

    def due(self, what: Hashable) -> bool:
        """True if it was not told for so long; from now on it was."""
        now_s = self._clock_s()
        self._told_s = {one: at for one, at in self._told_s.items() if now_s - at < REMIND_S}
        if what in self._told_s:
            return False
        self._told_s[what] = now_s
        return True
