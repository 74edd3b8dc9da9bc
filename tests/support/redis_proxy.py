"""A proxy between a process and Redis: it notices answers to one kind of command, or holds it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from enum import Enum

from tests.support.proxy import Connection, Link, Way

RELEASE_S = 60.0
"""A command is not held for longer, whatever happens."""


class Fate(Enum):
    """What becomes of an answer."""

    PASSED = "the process gets it"
    LOST = "the server did it, the process never hears of it"


class RedisLink(Link):
    """Calls `answered` for each answer to a command that holds `marker`, before it is passed on.

    A client of ours waits for each answer before it sends the next command, so the next piece of a
    connection is the answer.
    """

    def __init__(self, target: int) -> None:
        super().__init__(target)
        self._watch: tuple[bytes, Callable[[], Fate]] | None = None
        self._waiting: set[Connection] = set()
        self._deciding = threading.Lock()
        self._hold: tuple[bytes, ...] = ()
        self._released = threading.Event()
        self.held = 0

    def watch(self, marker: bytes, answered: Callable[[], Fate]) -> None:
        """Ask `answered` what becomes of answers to commands with this marker, such as a digest."""
        self._watch = (marker, answered)

    def unwatch(self) -> None:
        """Let everything pass again."""
        self._watch = None

    def hold(self, *markers: bytes) -> None:
        """Keep commands with all of these markers until `release`; `held` counts them."""
        self._released.clear()
        self._hold, self.held = markers, 0

    def release(self) -> None:
        """What is held arrives, late."""
        self._hold = ()
        self._released.set()

    def close(self) -> None:
        """End everything."""
        self.release()
        super().close()

    def treat(self, connection: Connection, way: Way, piece: bytes) -> bytes | None:
        """Remember commands, decide about answers."""
        watch = self._watch
        if way is Way.UP:
            if self._hold and all(marker in piece for marker in self._hold):
                self.held += 1
                self._released.wait(RELEASE_S)
            if watch is not None and watch[0] in piece:
                self._waiting.add(connection)
            return piece
        if connection not in self._waiting or watch is None:
            return piece
        self._waiting.discard(connection)
        with self._deciding:
            fate = watch[1]()
        if fate is Fate.PASSED:
            return piece
        connection.close()
        return None
