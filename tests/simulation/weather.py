"""What goes wrong in a run: drawn once from its seed, so that runs differ in kind."""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import Enum


class Fate(Enum):
    """What becomes of one call."""

    FINE = "fine"
    LOST = "the request is lost"
    UNANSWERED = "it takes effect, the answer is lost"
    TWICE = "it arrives twice, the second answer comes back"
    FATAL = "it takes effect, and its process dies of it"


@dataclass(frozen=True, slots=True)
class Weather:
    """Shares of calls, and mean pauses (ms) between mishaps; 0: never."""

    lost: float
    unanswered: float
    twice: float
    fatal: float
    commit_lost: float
    commit_unanswered: float
    commit_delayed: float
    kill_ms: int
    freeze_ms: int
    session_ms: int
    group_ms: int
    outage_ms: int
    flush_ms: int
    user_ms: int

    @staticmethod
    def draw(chance: random.Random) -> Weather:
        """About half of the mishaps are possible in any one run."""

        def share(highest: float) -> float:
            return chance.random() * highest if chance.random() < 0.5 else 0.0

        def pause(lowest: int, highest: int) -> int:
            return chance.randint(lowest, highest) if chance.random() < 0.5 else 0

        return Weather(
            lost=share(0.03),
            unanswered=share(0.03),
            twice=share(0.03),
            fatal=share(0.003),
            commit_lost=share(0.2),
            commit_unanswered=share(0.2),
            commit_delayed=share(0.2),
            kill_ms=pause(1_500, 6_000),
            freeze_ms=pause(800, 4_000),
            session_ms=pause(1_500, 6_000),
            group_ms=pause(1_000, 5_000),
            outage_ms=pause(3_000, 9_000),
            flush_ms=pause(2_000, 8_000),
            user_ms=pause(1_500, 5_000),
        )

    @staticmethod
    def calm() -> Weather:
        """Nothing goes wrong, and nobody asks for anything."""
        return Weather(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)

    def fate(self, chance: random.Random) -> Fate:
        """What becomes of the next call."""
        drawn = chance.random()
        for fate, share in (
            (Fate.LOST, self.lost),
            (Fate.UNANSWERED, self.unanswered),
            (Fate.TWICE, self.twice),
            (Fate.FATAL, self.fatal),
        ):
            if drawn < share:
                return fate
            drawn -= share
        return Fate.FINE
