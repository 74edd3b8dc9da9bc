"""The life of a process: it stops when asked, and waits for servers that are not there.

`ServiceHealth` remembers which server does not answer at the moment, logs each change once, and is
what the member's report and `/readyz` say.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from mars.core.errors import Unavailable
from mars.core.stopping import at_signals
from mars.process.telemetry import logs

Answer = TypeVar("Answer")

RETRY_S = 0.5
"""Between two attempts to reach a server: a start of a few seconds is noticed soon."""

REMIND_S = 30.0
"""A server that stays away is named in the log again this often."""


class Life:
    """Set at a signal or from another thread; everything that waits, waits for it too."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._asked = False
        self._over = False

    def stop_on_signals(self) -> None:
        """Stop at SIGTERM and SIGINT. Call it from the main thread."""
        at_signals((signal.SIGTERM, signal.SIGINT), self.stop)

    def stop(self) -> None:
        """Ask the process to stop, for good."""
        self._asked = True
        self._stop.set()

    def start_over(self) -> None:
        """Ask it to stop, and to begin again unless somebody else has asked it to stop."""
        self._over = True
        self._stop.set()

    @property
    def to_start_over(self) -> bool:
        """True if a process that has stopped is to begin again."""
        return self._over and not self._asked

    @property
    def stopping(self) -> bool:
        """True once the process was asked to stop."""
        return self._stop.is_set()

    def wait(self, timeout_s: float) -> bool:
        """Wait; True if the process is to stop."""
        return self._stop.wait(timeout_s)


class ServiceHealth:
    """Which servers are missing, told apart by name."""

    def __init__(self, log_name: str) -> None:
        self._log = logs.logger(log_name)
        self._lock = threading.Lock()
        self._missing: dict[str, tuple[str, float]] = {}

    @property
    def missing(self) -> tuple[str, ...]:
        """The names of the servers that did not answer last time."""
        with self._lock:
            return tuple(sorted(self._missing))

    def lost(self, problem: Unavailable) -> None:
        """A call failed."""
        now = time.monotonic()
        with self._lock:
            _detail, said = self._missing.get(problem.service, ("", -REMIND_S))
            remind = now - said >= REMIND_S
            self._missing[problem.service] = (problem.detail, now if remind else said)
        if remind:
            logs.warning(self._log, f"waiting for {problem.service}", detail=problem.detail)

    def found(self, service: str) -> None:
        """A call succeeded."""
        if service not in self._missing:
            return
        with self._lock:
            was_missing = self._missing.pop(service, None)
        if was_missing:
            logs.info(self._log, f"{service} answers again")

    def attempt(self, service: str, call: Callable[[], Answer]) -> Answer | None:
        """The call's answer, or None if the server does not answer."""
        try:
            answer = call()
        except Unavailable as problem:
            self.lost(problem)
            return None
        self.found(service)
        return answer

    def insist(self, life: Life, service: str, call: Callable[[], Answer]) -> Answer | None:
        """Call until the server answers; None only if the process is to stop."""
        while not life.stopping:
            try:
                answer = call()
            except Unavailable as problem:
                self.lost(problem)
                life.wait(RETRY_S)
                continue
            self.found(service)
            return answer
        return None
