"""What a reducer's machine asks for once and then forgets: the loop sees that it is done."""

from __future__ import annotations

from collections import deque

from mars.core.errors import Unavailable
from mars.core.types import TaskName
from mars.process.life import ServiceHealth
from mars.process.tasks import fail_task
from mars.process.telemetry import logs
from mars.protocol.ports import LogTrim, OwnerLog, Registry
from mars.protocol.reducer.events import CompactLog, FailTask, TrimLog

Chore = TrimLog | CompactLog | FailTask


class Chores:
    """Each is done at once, or in a later round where its server does not answer.

    What concerns the store is done in order, and does not wait for ZooKeeper.
    """

    def __init__(self, log: OwnerLog, registry: Registry, services: ServiceHealth) -> None:
        self._store = log
        self._registry = registry
        self._services = services
        self._log = logs.logger("reducer")
        self._undone: deque[TrimLog | CompactLog] = deque()
        self._failures: dict[TaskName, FailTask] = {}

    def do(self, *chores: Chore) -> bool:
        """True if they are done; behind others that are not they wait for the next round."""
        failures = [self._fail(one) for one in chores if isinstance(one, FailTask)]
        upkeep = [one for one in chores if not isinstance(one, FailTask)]
        return (not upkeep or self._keep_up(upkeep)) and all(failures)

    def _fail(self, failure: FailTask) -> bool:
        logs.error(self._log, "a task failed", task=failure.task, detail=failure.detail)
        waits = bool(self._failures)
        known = self._failures.get(failure.task)
        if known is None or known.run <= failure.run:
            self._failures[failure.task] = failure
        return not waits and self._tell_failures()

    def _keep_up(self, upkeep: list[TrimLog | CompactLog]) -> bool:
        waits = bool(self._undone)
        self._undone += upkeep
        return not waits and self._clean_up()

    def catch_up(self) -> None:
        """Do what was not done so far, as far as servers answer."""
        self._clean_up()
        self._tell_failures()

    def _clean_up(self) -> bool:
        while self._undone:
            try:
                done = self._clean_next()
            except Unavailable as problem:
                self._services.lost(problem)
                return False
            for _one in range(done):
                self._undone.popleft()
        return True

    def _clean_next(self) -> int:
        """Do the first one, and with a trim those that follow it; how many they were."""
        first = self._undone[0]
        if isinstance(first, CompactLog):
            self._store.compact(
                first.task, first.store_epoch, first.born, first.bucket, first.base, first.older
            )
            return 1
        trims: list[LogTrim] = []
        for one in self._undone:
            if not isinstance(one, TrimLog):
                break
            trims.append(LogTrim(one.task, one.store_epoch, one.born, one.bucket, one.seqs))
        self._store.trim_together(trims)
        return len(trims)

    def _tell_failures(self) -> bool:
        for failure in list(self._failures.values()):
            try:
                fail_task(self._registry, failure.task, failure.run, failure.detail)
            except Unavailable as problem:
                self._services.lost(problem)
                return False
            del self._failures[failure.task]
        return True
