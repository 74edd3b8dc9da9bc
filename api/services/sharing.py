"""One question to a server for all who ask at the same moment."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Lock


class Shared:
    """Runs some work for all who want it done. Safe for threads.

    It returns when the work was done that began after the call: who comes while it is being done
    waits for the next time, together with all others who came meanwhile.

        calls       a   b c       d
        work        ├─a─────┤├─b c───┤├─d──┤
    """

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work
        self._lock = Lock()
        self._turn = Lock()
        self._next: Future[None] | None = None

    def __call__(self) -> None:
        """Have the work done. Raises what it raises."""
        with self._lock:
            own: Future[None] | None = None
            if self._next is None:
                own = self._next = Future()
            waiting = self._next
        if own is not None:
            with self._turn:
                self._run(own)
        waiting.result()

    def _run(self, own: Future[None]) -> None:
        with self._lock:
            self._next = None
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001 -- it is raised in all who wait
            own.set_exception(error)
        else:
            own.set_result(None)
