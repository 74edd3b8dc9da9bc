"""What goes wrong in a run: drawn once from its seed, so that runs differ in kind."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from enum import Enum


class Fate(Enum):
    """What becomes of one call."""

    FINE = "fine"
    LOST = "the request is lost"
    UNANSWERED = "it takes effect, the answer is lost"
    TWICE = "it arrives twice, the second answer comes back"
    FATAL = "it takes effect, and its process dies of it"
    FROZEN = "its process stands still just before it"
    EMPTIED = "the store loses everything just before it"


TOUCHY = (
    "redis.read_many",
    "redis.compact",
    "redis.merge",
    "redis.initialise",
    "redis.seal",
    "kafka.end",
)
"""Calls before which a process stands still, or the store is lost, more often than before others:
what was looked at a moment ago is relied upon here."""

TOUCHY_TIMES = 10

FAILOVER_SHARE = 0.3
"""How many runs have fail-overs of the store."""

RARE_SHARE = 0.12
"""How many runs have any one of the mishaps that come by themselves or in a front."""

FRONT_SHARE = 0.5
"""How many runs have a front."""

Shares = Mapping[str, float]

FRONTS: tuple[Shares, ...] = (
    {"user_ms": 600, "changes": 1.0, "behind_ms": 800, "flush_ms": 3_000, "group_ms": 500},
    {"user_ms": 400, "held": 0.4, "session_ms": 2_500},
    {"user_ms": 400, "changes": 0.4, "held": 0.4, "flush_ms": 3_000, "session_ms": 4_000},
    {"markers_lost": 0.2, "aborts_lost": 0.5, "kill_ms": 2_500, "commit_lost": 0.1},
)
"""Mishaps that are worse together: mappers that are behind by some versions, each with rows of its
own, while the store is lost and lanes come to them; leaders that stand still while others lead;
markers that are lost again and again."""


@dataclass(frozen=True, slots=True)
class Weather:
    """Shares of calls, and mean pauses (ms) between mishaps; 0: never."""

    lost: float
    unanswered: float
    twice: float
    fatal: float
    frozen: float
    emptied: float
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
    wipe_ms: int
    leave_ms: int = 0
    """Reducers are asked to stop: only where a test wants it, so that seeds stay what they were."""

    markers_lost: float = 0.0
    """Commits that Kafka does not write into about half of their partitions."""
    vanish_ms: int = 0
    """Entries vanish from logs: never drawn, because a store is trusted in this."""
    vanish_noted: bool = False
    """The store still has its own note of an entry that vanishes."""
    failover_ms: int = 0
    """A second server takes the store's place, with what it held when it last followed."""
    commit_twice: float = 0.0
    """Commits that arrive once more, later; where transactions share a producer, in the next."""
    aborts_lost: float = 0.0
    """Aborts that Kafka does not write into about half of their partitions. In such a run what has
    lost one marker loses the next one in half of all cases."""
    deaf_ms: int = 0
    """A process hears nothing of one server for seconds, and that server nothing of it."""
    behind_ms: int = 0
    """A mapper hears nothing of ZooKeeper for most of the storm."""
    watches_late: float = 0.0
    """Changes of tasks that a process is told of seconds later, or never."""
    held: float = 0.0
    """Actions of a leader before which it stands still until others have led and acted."""
    retention_ms: int = 0
    """Kafka deletes rows from the front of a partition."""
    silence_ms: int = 0
    """A partition gets no rows for so long that it counts as idle, and then some again."""
    changes: float = 0.0
    """Of what users ask for, this share is a change of a query; else anything, as it comes."""
    copies_late: float = 0.0
    """Changes of tasks that reach mars.control some time after ZooKeeper has them."""

    @staticmethod
    def draw(chance: random.Random, seed: int) -> Weather:
        """About half of the usual mishaps are possible in any one run, and some of the rare ones.

        The newest mishaps are drawn apart, so that runs without them are what they were.
        """
        apart = random.Random(f"apart {seed}")
        usual = Weather._usual(chance, apart)
        rare = _rare(apart)
        front = apart.choice(FRONTS) if apart.random() < FRONT_SHARE else {}
        return replace(usual, **rare)._joined(front)  # type: ignore[arg-type]

    @staticmethod
    def _usual(chance: random.Random, apart: random.Random) -> Weather:
        def share(highest: float) -> float:
            return chance.random() * highest if chance.random() < 0.5 else 0.0

        def pause(lowest: int, highest: int) -> int:
            return chance.randint(lowest, highest) if chance.random() < 0.5 else 0

        return Weather(
            lost=share(0.03),
            unanswered=share(0.03),
            twice=share(0.03),
            fatal=share(0.003),
            frozen=share(0.004),
            emptied=share(0.002),
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
            wipe_ms=pause(4_000, 16_000),
            failover_ms=apart.randint(1_500, 8_000) if apart.random() < FAILOVER_SHARE else 0,
            commit_twice=0.1,
        )

    def _joined(self, front: Shares) -> Weather:
        """With the mishaps of a front, unless they are more frequent already."""
        worse = {
            name: least if not (now := getattr(self, name)) else _worse(name, now, least)
            for name, least in front.items()
        }
        return replace(self, **worse)  # type: ignore[arg-type]

    @staticmethod
    def calm() -> Weather:
        """Nothing goes wrong, and nobody asks for anything."""
        return Weather(*[False for _ in fields(Weather)])  # which is 0, too

    def whole(self) -> Weather:
        """The same, with all rows there, and in time."""
        return replace(self, retention_ms=0, silence_ms=0)

    def fate(self, chance: random.Random, call: str) -> Fate:
        """What becomes of the next call."""
        drawn = chance.random()
        if drawn > self._highest:
            return Fate.FINE
        times = TOUCHY_TIMES if call.startswith(TOUCHY) else 1
        for fate, share in (
            (Fate.LOST, self.lost),
            (Fate.UNANSWERED, self.unanswered),
            (Fate.TWICE, self.twice),
            (Fate.FATAL, self.fatal),
            (Fate.FROZEN, self.frozen * times),
            (Fate.EMPTIED, self.emptied * times),
        ):
            if drawn < share:
                return fate
            drawn -= share
        return Fate.FINE

    @property
    def _highest(self) -> float:
        """What is drawn above this is fine for sure, and most of it is."""
        touchy = TOUCHY_TIMES * (self.frozen + self.emptied)
        return 1.01 * (self.lost + self.unanswered + self.twice + self.fatal + touchy)


def _worse(name: str, one: float, other: float) -> float:
    """The shorter of two pauses, the larger of two shares."""
    return min(one, other) if name.endswith("_ms") else max(one, other)


def _rare(apart: random.Random) -> dict[str, float]:
    """Rows that are gone and lanes that fall silent have checks of their own: one or the other."""

    def share(highest: float) -> float:
        return apart.random() * highest if apart.random() < RARE_SHARE else 0.0

    def pause(lowest: int, highest: int) -> int:
        return apart.randint(lowest, highest) if apart.random() < RARE_SHARE else 0

    drawn = {
        "markers_lost": share(0.3),
        "aborts_lost": share(0.6),
        "deaf_ms": pause(1_500, 5_000),
        "watches_late": share(0.5),
        "held": share(0.3),
        "copies_late": share(0.6),
        "retention_ms": pause(1_000, 4_000),
        "silence_ms": pause(500, 3_000),
    }
    if drawn["retention_ms"]:
        drawn["silence_ms"] = 0
    return drawn
