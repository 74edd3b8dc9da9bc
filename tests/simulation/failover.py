"""A second server for the store, which follows the first at some distance.

It takes the other's place as it is by then: what was written since it last followed is gone, and
nobody is told. The other one keeps what it has, and may come back with that, unless it follows by
then. Each has a run id of its own, and another one each time it is promoted, as in Redis.
"""

from __future__ import annotations

from mars.adapters.memory.store import MemoryStore, StoreSnapshot
from tests.simulation.watching import Watch

STANDBY_STARTS = 1_000
"""Run ids of the second server are counted from here, those of the first from 1."""


class Standby:
    """The server that nobody is connected to."""

    def __init__(self, store: MemoryStore, watch: Watch) -> None:
        self._store = store
        self._watch = watch
        self._starts = STANDBY_STARTS
        self._held = StoreSnapshot({}, None)
        self._follows = False

    def follow(self) -> None:
        """Take over all that the other one holds now."""
        self._held, self._follows = self._copy(), True

    def take_over(self) -> None:
        """Change places with the other one."""
        store, held = self._store, self._held
        self._starts += self._follows
        self._held, self._follows = self._copy(), False
        store.tasks = {name: task.copy() for name, task in held.tasks.items()}
        store.sealed = held.sealed
        self._starts, store.starts = store.starts, self._starts
        for name, task in store.tasks.items():
            self._watch.initialised(name, task.epoch, task.offsets)

    def _copy(self) -> StoreSnapshot:
        tasks = {name: task.copy() for name, task in self._store.tasks.items()}
        return StoreSnapshot(tasks, self._store.sealed)
