"""A lock for threads that share one thing, of which some need it for long."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType


class Turn:
    """Like `threading.Lock`, but whoever holds it for long can let those who wait go first.

    Nobody queues: who needs it for a moment only, again and again, would wait each time for all
    that others do (the reducer's loop did, and windows closed a quarter later). Not to be taken
    twice by the same thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._guard = threading.Lock()
        self._waiting = 0
        self._taken: threading.Event | None = None
        """Set by whoever has it next."""

    @property
    def waiting(self) -> int:
        """How many threads wait for it."""
        return self._waiting

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self._wait()
        with self._guard:
            taken, self._taken = self._taken, None
        if taken is not None:
            taken.set()

    def _wait(self) -> None:
        with self._guard:
            self._waiting += 1
        try:
            self._lock.acquire()
        finally:
            with self._guard:
                self._waiting -= 1

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._lock.release()

    @contextmanager
    def released(self) -> Iterator[None]:
        """Whoever holds it does something for which others need not wait."""
        self._lock.release()
        try:
            yield
        finally:
            self.__enter__()

    def give_way(self) -> None:
        """Whoever holds it goes on after one of those who wait, if there is any."""
        with self._guard:
            if not self._waiting:
                return
            self._taken = taken = threading.Event()
        # All who are counted as waiting do wait, because we hold it: one of them will have it.
        with self.released():
            taken.wait()
