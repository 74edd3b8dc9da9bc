"""What a reducer's machine asks for once and then forgets: the loop sees that it is done."""

from __future__ import annotations

from collections import deque
from typing import assert_never

from mars.core.errors import Unavailable
from mars.core.types import TaskName
from mars.process.life import ServiceHealth
from mars.process.tasks import fail_task
from mars.process.telemetry import logs
from mars.protocol.ports import PartialLog, Registry
from mars.protocol.reducer.events import CompactLog, FailTask, TrimLog


class Chores:
    """Each is done at once, or in a later round where its server does not answer.

    What concerns the store is done in order, and does not wait for ZooKeeper.
    """

    def __init__(self, log: PartialLog, registry: Registry, services: ServiceHealth) -> None:
        self._store = log
        self._registry = registry
        self._services = services
        self._log = logs.logger("reducer")
        self._undone: deque[TrimLog | CompactLog] = deque()
        self._failures: dict[TaskName, FailTask] = {}

    def do(self, chore: TrimLog | CompactLog | FailTask) -> bool:
        """True if it is done; behind others that are not it waits for the next round."""
        if isinstance(chore, FailTask):
            logs.error(self._log, "a task failed", task=chore.task, detail=chore.detail)
            waits = bool(self._failures)
            self._failures[chore.task] = chore
            return not waits and self._tell_failures()
        waits = bool(self._undone)
        self._undone.append(chore)
        return not waits and self._clean_up()

    def catch_up(self) -> None:
        """Do what was not done so far, as far as servers answer."""
        self._clean_up()
        self._tell_failures()

    def _clean_up(self) -> bool:
        while self._undone:
            try:
                self._clean(self._undone[0])
            except Unavailable as problem:
                self._services.lost(problem)
                return False
            self._undone.popleft()
        return True

    def _clean(self, chore: TrimLog | CompactLog) -> None:
        match chore:
            case TrimLog(bucket, task, epoch, born, seqs):
                self._store.trim(task, epoch, born, bucket, seqs)
            case CompactLog(bucket, task, epoch, born, base, older):
                self._store.compact(task, epoch, born, bucket, base, older)
            case _:
                assert_never(chore)

    def _tell_failures(self) -> bool:
        for failure in list(self._failures.values()):
            try:
                fail_task(self._registry, failure.task, failure.version, failure.detail)
            except Unavailable as problem:
                self._services.lost(problem)
                return False
            del self._failures[failure.task]
        return True
