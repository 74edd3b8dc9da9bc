"""What the buckets have committed: a tail of `mars.progress`, for ledgers and closed windows."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from threading import Lock

from mars.definitions import TaskDefinition
from mars.errors import Unavailable
from mars.machines.evidence import total_ledger
from mars.ports import Ledger, Progress, ProgressLog
from mars.types import Bucket, Lane, TaskName

FRESH_S = 0.2
"""A reading younger than this is used again."""

AWAY_S = 1.0
"""A server that did not answer is not asked again for so long: requests wait for each other here,
and each would wait for the whole time-out."""

Key = tuple[int, Bucket]


class ProgressTail:
    """The newest progress record per task, version and bucket; read on demand, safe for threads."""

    def __init__(
        self,
        log: ProgressLog,
        buckets: Callable[[], int],
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = log
        self._buckets = buckets
        self._monotonic_s = monotonic_s
        self._lock = Lock()
        self._next: dict[Bucket, int] = {}
        self._records: dict[TaskName, dict[Key, Progress]] = {}
        self._fresh_until_s = float("-inf")
        self._away: Unavailable | None = None
        self._away_until_s = float("-inf")

    def records(self, task: TaskDefinition, *, fresh: bool = False) -> tuple[Progress, ...]:
        """The newest records of all versions of a task, by version and bucket.

        Versions that are left out of the definition by now count too, those of an earlier task of
        that name do not. With `fresh` nothing older than the call is used.
        """
        with self._lock:
            if fresh:
                self._fresh_until_s = float("-inf")
            self._refresh()
            records = self._records.get(task.name, {})
            return tuple(records[key] for key in sorted(records) if key[0] >= task.first_version)

    def of_bucket(self, task: TaskName, bucket: Bucket) -> dict[int, Progress]:
        """The newest records of a task in one bucket by version, read just now."""
        with self._lock:
            self._read(bucket)
            records = self._records.get(task, {})
            return {
                version: record for (version, owned), record in records.items() if owned == bucket
            }

    def ledger(self, task: TaskDefinition) -> Ledger:
        """Where the task's rows went, over all its versions; it balances at any moment."""
        return total_ledger(self.records(task))

    def finished(
        self, task: TaskDefinition, version: int, ends: Mapping[Lane, int], buckets: int
    ) -> bool:
        """True once every bucket has read a version up to `ends` and emitted all its windows."""
        done = {
            record.bucket
            for record in self.records(task)
            if record.version == version
            and record.ledger.open == 0
            and all(record.merged.get(lane, 0) >= end for lane, end in ends.items())
        }
        return len(done) == buckets

    def _refresh(self) -> None:
        if self._monotonic_s() < self._fresh_until_s:
            return
        for number in range(self._buckets()):
            self._read(Bucket(number))
        self._fresh_until_s = self._monotonic_s() + FRESH_S

    def _read(self, bucket: Bucket) -> None:
        if self._away is not None and self._monotonic_s() < self._away_until_s:
            raise Unavailable(self._away.service, self._away.detail)
        try:
            piece = self._log.read(bucket, self._next.get(bucket, 0))
        except Unavailable as error:
            self._away, self._away_until_s = error, self._monotonic_s() + AWAY_S
            raise
        self._away = None
        self._next[bucket] = piece.next
        for record in piece.records:
            if isinstance(record, Progress):
                own = self._records.setdefault(record.task, {})
                own[record.version, record.bucket] = record
