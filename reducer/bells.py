"""Which tasks a reducer looks at in a round.

it rang ───────────────────────────▶ in this round
it rang, and a bucket commits ─────▶ and once more, after the commit
anything but a commit has happened ▶ all
some time has passed ──────────────▶ all but those that rang a moment ago: bells may be lost
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable

from mars.core.types import TaskName

LOOKS_SHARE = 0.05
"""Most of the time that goes into looks at the heads of all tasks, those that did not ring among
them: with hundreds of tasks they come less often than every `poll_s`."""

LOOKS_PAUSE_S_MAX = 5.0
"""Longest time between two of them: a look that took long may have waited for something else than
the number of tasks, the process having stood still, say."""

RANG_S = 1.0
"""So long after a ring a task is looked at for another one only. Where that one is lost, or a lane
becomes idle, it is noticed so much later."""


class Bells:
    """The tasks that rang, and the time until all are looked at. For one thread."""

    def __init__(self, poll_s: float) -> None:
        self._poll_s = poll_s
        self._rung: set[TaskName] = set()
        self._rang_s: dict[TaskName, float] = {}
        """When tasks that rang were looked at last."""
        self._left: set[TaskName] = set()
        """Tasks with more to read once a commit is over."""
        self._look_at_all_s = 0.0
        self._begun_s = 0.0
        self._at_all = False
        """The look that is under way is one at all tasks."""

    def rang(self, tasks: Iterable[TaskName]) -> None:
        """Look at them in the next round."""
        self._rung |= frozenset(tasks)

    def committed(self) -> None:
        """A commit is over, and what it kept from being read can be read."""
        self._rung |= self._left

    def changed(self) -> None:
        """Anything else has happened: there may be more to read of any task."""
        self._look_at_all_s = 0.0
        self._rang_s.clear()

    def named(self, watched: Iterable[TaskName], clearings: Collection[TaskName]) -> list[TaskName]:
        """The tasks to look at now; `clearings`: those of which something is to be said."""
        self._begun_s = now_s = time.monotonic()
        self._at_all = now_s >= self._look_at_all_s
        self._rang_s |= dict.fromkeys(self._rung, now_s)
        before_s = now_s - RANG_S
        return [
            task
            for task in watched
            if task in self._rung
            or task in clearings
            or (self._at_all and self._rang_s.get(task, before_s) <= before_s)
        ]

    def looked(self, tasks: Iterable[TaskName], left: Iterable[TaskName]) -> None:
        """They were looked at; those that are `left` wait for a commit."""
        self._left = self._left.difference(tasks).union(left)
        self._rung.clear()
        if self._at_all:
            now_s = time.monotonic()
            pause_s = min((now_s - self._begun_s) / LOOKS_SHARE, LOOKS_PAUSE_S_MAX)
            self._look_at_all_s = now_s + max(self._poll_s, pause_s)
