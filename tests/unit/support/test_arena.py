"""The cluster of random runs: blows that strike one process at a time."""

from __future__ import annotations

import threading
from typing import cast

from mars.core.errors import LocalClusterError
from tests.faults.arena import Arena
from tests.support.cluster import MarsCluster
from tests.support.linked import LinkedRole

LONG_S = 30.0


class _Role:
    """What ends and starts, and refuses to start while it runs, as a process does."""

    def __init__(self) -> None:
        self.running = True
        self.at_the_door = threading.Event()

    def stop(self, _within_s: float) -> None:
        self.running = False

    def start(self) -> None:
        if self.running:
            raise LocalClusterError("runs already")
        self.running = True

    def start_again(self) -> None:
        self.running = False
        self.start()


def test_who_is_away_is_killed_once_it_is_back() -> None:
    role = _Role()
    arena = Arena(cast(MarsCluster, None), {"mapper-a": cast(LinkedRole, role)})

    def kill() -> None:
        role.at_the_door.set()
        arena.start_again("mapper-a")

    other = threading.Thread(target=kill)
    with arena.absent("mapper-a"):
        other.start()
        assert role.at_the_door.wait(LONG_S)
        assert not role.running
        other.join(0.05)
        assert not role.running, "it was started while it was to be away"
    other.join(LONG_S)
    assert role.running
