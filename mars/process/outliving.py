"""Rounds of background loops: none of them ends because something unexpected happened in one.

A thread that died would be missed by nobody: the process answers, reports and looks healthy without
it. So whatever a round raises is logged, with its trace, and the next round comes all the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from mars.process.life import REMIND_S, RETRY_S, Life
from mars.process.telemetry import logs


class Outliving:
    """Goes through the rounds of one loop, which is called `what` in the log.

    After an error it waits a moment, so that a lasting one neither fills the log nor a processor.
    """

    def __init__(
        self,
        what: str,
        wait: Callable[[float], object] = time.sleep,
        clock_s: Callable[[], float] | None = None,
    ) -> None:
        self._what = what
        self._wait = wait
        self._clock_s = clock_s or time.monotonic
        self._told_s = -REMIND_S

    def round(self, work: Callable[[], object]) -> bool:
        """Do the work of one round; False if it failed."""
        try:
            work()
        except Exception:  # noqa: BLE001 -- that is what it is for
            self._tell()
            self._wait(RETRY_S)
            return False
        return True

    def until(self, life: Life, pause_s: float, work: Callable[[], object]) -> None:
        """Round after round, with pauses, until the process is to stop."""
        self.paced(life, lambda: pause_s, work)

    def paced(self, life: Life, pause_s: Callable[[], float], work: Callable[[], object]) -> None:
        """The same, where each pause is another one."""
        while not life.wait(pause_s()):
            self.round(work)

    def _tell(self) -> None:
        if self._clock_s() - self._told_s < REMIND_S:
            return
        self._told_s = self._clock_s()
        logs.error(
            logs.logger("background"),
            f"{self._what} failed, and goes on with its next round: this is a bug, unless the "
            "machine lacks something (files, memory, disk)",
            trace=True,
        )
