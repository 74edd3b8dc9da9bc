"""Waiting for a condition, with a deadline: the only way in which these tests wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Literal, TypeVar

import pytest

from mars.core.errors import LocalClusterError
from mars.local.child import Child

WITHIN_S = 15.0
"""Longer than anything here takes on a busy machine; a test that waits for it all has failed."""

POLL_S = 0.01

READY_WITHIN_S = 30.0
"""A JVM on a busy machine needs some seconds."""

Answer = TypeVar("Answer")


def eventually(
    condition: Callable[[], Answer | Literal[False] | None], within_s: float = WITHIN_S
) -> Answer:
    """The first true answer of `condition`; fails where there is none in time."""
    deadline = time.monotonic() + within_s
    while not (answer := condition()):
        if time.monotonic() > deadline:
            pytest.fail(f"not within {within_s:.0f} s")
        time.sleep(POLL_S)
    return answer


class Changes:
    """Counts the calls of a callback, from whatever thread they come."""

    def __init__(self) -> None:
        self.count = 0
        self._lock = threading.Lock()

    def __call__(self) -> None:
        with self._lock:
            self.count += 1

    def seen(self) -> int:
        """How many there were; to be given to `more_than`."""
        return self.count

    def more_than(self, seen: int) -> None:
        """Wait for a call that came after `seen` was taken."""
        eventually(lambda: self.count > seen)


Server = TypeVar("Server", bound=Child)


def started(server: Server) -> Server:
    """The server, ready for use; whoever asks for it stops it."""
    server.start()
    try:
        server.wait_ready(READY_WITHIN_S)
    except LocalClusterError:
        server.kill()
        raise
    return server
