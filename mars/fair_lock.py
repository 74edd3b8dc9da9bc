"""A lock for threads that share one thing for long: first come, first served."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType


class FairLock:
    """Goes to whoever has waited longest, which `threading.Lock` does not promise.

    So whoever holds it for long can let others in between (`give_way`). Not to be taken twice by
    the same thread.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._held = False
        self._waiting: deque[threading.Lock] = deque()

    @property
    def waiting(self) -> int:
        """How many threads wait for it."""
        return len(self._waiting)

    def __enter__(self) -> None:
        with self._guard:
            if not self._held:
                self._held = True
                return
            handed_over = threading.Lock()
            handed_over.acquire()
            self._waiting.append(handed_over)
        handed_over.acquire()

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        with self._guard:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._held = False

    @contextmanager
    def released(self) -> Iterator[None]:
        """Whoever holds it does something for which others need not wait."""
        self.__exit__(None, None, None)
        try:
            yield
        finally:
            self.__enter__()

    def give_way(self) -> None:
        """Whoever holds it lets those who wait go first."""
        if self._waiting:
            with self.released():
                pass
