"""What must be likely in a run of the simulation for something to show there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tests.simulation.users import Keys
from tests.simulation.weather import Weather
from tests.simulation.world import World

SAVING = {"flush_ms": 2_000, "kill_ms": 4_000}
"""The store is lost while reducers come and go, so that buckets save at different times."""

LEADERLESS = {"failover_ms": 1_500, "kill_ms": 2_000, "session_ms": 700}
"""The store's place is taken by a stale one while processes come and go, and often nobody leads who
would begin a recovery."""

CHANGING = {"user_ms": 250, "outage_ms": 1_200, "freeze_ms": 1_500}
"""Tasks change while mappers do not hear of it."""

TWICE = {"commit_twice": 0.5, "commit_lost": 0.2}
"""Some commits come once more, others never."""

REIGNS = {"frozen": 0.02, "session_ms": 800, "freeze_ms": 800}
"""Leaders change, and stand still while they lead."""


SILENT = {"silence_ms": 800, "kill_ms": 4_000}
"""Partitions get no rows for a while, one of them or all."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """Of a run; without `mishaps` it has the usual weather.

    `revising`: in half of the runs tasks revise closed windows. `split`: buckets have assistants.
    `wide`: there are many lanes, and batches of several of them.
    """

    mishaps: Mapping[str, float] | None = None
    revising: bool = False
    keys: Keys = Keys.ANY
    split: bool = False
    wide: bool = False

    def problem(self, seed: int) -> str | None:
        """What is wrong with a run, without its trace; None if all invariants hold."""
        try:
            self._run(seed)
        except AssertionError as problem:
            return str(problem).splitlines()[0].removeprefix(f"seed {seed}: ")
        return None

    def _run(self, seed: int) -> None:
        World(
            seed,
            tune=self._weather,
            revising=self.revising,
            tracked=False,
            keys=self.keys,
            split=self.split,
            wide=self.wide,
        ).run()

    def _weather(self, drawn: Weather) -> Weather:
        if self.mishaps is None:
            return drawn
        return replace(Weather.calm(), **self.mishaps)  # type: ignore[arg-type]


USUAL = Conditions()
