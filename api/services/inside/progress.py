"""What the buckets have committed: a tail of `mars.progress`, for ledgers and closed windows."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Lock

from api.services.sharing import Shared
from mars.core.definitions import TaskDefinition
from mars.core.errors import Unavailable
from mars.core.types import Bucket, TaskName
from mars.inspect.evidence import total_ledger
from mars.protocol.outlived import done_versions
from mars.protocol.ports import Ledger, Progress, ProgressLog, ProgressSlice

AWAY_S = 1.0
"""A server that did not answer is not asked again for so long: requests wait for each other here,
and each would wait for the whole time-out."""

SETTLE_PAUSE_S = 0.02
"""Between two looks whether a transaction has ended."""

SETTLE_LOOKS_MAX = 50
"""How often one looks: for a second. A transaction ends some ten milliseconds after its progress is
written, unless the brokers or its reducer have trouble."""

Key = tuple[int, Bucket]


@dataclass(frozen=True, slots=True)
class Closing:
    """The end of a window, and when its rows were committed, those of the last bucket so far."""

    end_ms: int
    at_ms: int


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
        self._closings: dict[TaskName, Closing] = {}
        self._reading = Shared(self._read_on)
        self._away: Unavailable | None = None
        self._away_until_s = float("-inf")

    def look(self) -> None:
        """Take everything that can be read as committed now. Raises Unavailable."""
        self._reading()

    def known(self, task: TaskDefinition) -> tuple[Progress, ...]:
        """The newest records of all versions of a task, by version and bucket, as last looked at.

        Versions that are left out of the definition by now count too, those of an earlier task of
        that name do not.
        """
        with self._lock:
            records = self._records.get(task.name, {})
            return tuple(records[key] for key in sorted(records) if key[0] >= task.first_version)

    def closing(self, task: TaskName) -> Closing | None:
        """The newest window that was seen to close, as last looked at.

        None until one closes: of those before it is not known which commit closed them.
        """
        with self._lock:
            return self._closings.get(task)

    def records(self, task: TaskDefinition) -> tuple[Progress, ...]:
        """The same as of now. Raises Unavailable."""
        self.look()
        return self.known(task)

    def settle(self, sleep: Callable[[float], None]) -> bool:
        """Wait until all that was written before this call is committed, or is not, and is read.

        A commit is answered some time before it can be read: meanwhile a reducer may have taken
        rows out of the log that no record here counts. False if that is so for too long. Raises
        Unavailable.
        """
        written = self._log.written(self._all())
        looks = 0
        while not self._has_read(written):
            if looks == SETTLE_LOOKS_MAX:
                return False
            if looks:
                sleep(SETTLE_PAUSE_S)
            self.look()
            looks += 1
        return True

    def _has_read(self, ends: Mapping[Bucket, int]) -> bool:
        return all(self._next.get(bucket, 0) >= end for bucket, end in ends.items())

    def ledger(self, task: TaskDefinition) -> Ledger:
        """Where the task's rows went, over all its versions; it balances at any moment."""
        return total_ledger(self.records(task))

    def done(self, task: TaskDefinition) -> frozenset[int]:
        """The versions that are done in all buckets by now. Raises Unavailable."""
        if len(task.versions) < 2:
            return frozenset()
        return done_versions(task, self.records(task), self._all())

    def _all(self) -> list[Bucket]:
        return [Bucket(number) for number in range(self._buckets())]

    def _read_on(self) -> None:
        if self._away is not None and self._monotonic_s() < self._away_until_s:
            raise Unavailable(self._away.service, self._away.detail)
        try:
            found = self._log.read_all({each: self._next.get(each, 0) for each in self._all()})
        except Unavailable as error:
            self._away, self._away_until_s = error, self._monotonic_s() + AWAY_S
            raise
        self._away = None
        for bucket, piece in found.items():
            self._take(bucket, piece)

    def _take(self, bucket: Bucket, piece: ProgressSlice) -> None:
        with self._lock:
            for record, at_ms in zip(piece.records, piece.times_ms, strict=True):
                if isinstance(record, Progress):
                    own = self._records.setdefault(record.task, {})
                    key = record.version, record.bucket
                    self._note_closing(own.get(key), record, at_ms)
                    own[key] = record
            self._next[bucket] = piece.next

    def _note_closing(self, before: Progress | None, record: Progress, at_ms: int) -> None:
        """Only rows show that a window has closed, and only if C went on with them: a revision's do
        not, nor does progress without any, which comes when it is time for it.
        """
        if record.deleted:
            self._closings.pop(record.task, None)
        emission, end_ms = record.emission, record.closed_ms
        known_before = before is not None or record.emit == 1
        if emission is None or emission.emit != record.emit or end_ms is None or not known_before:
            return
        if before is not None and before.closed_ms is not None and end_ms <= before.closed_ms:
            return
        newest = self._closings.get(record.task)
        if newest is None or end_ms > newest.end_ms:
            self._closings[record.task] = Closing(end_ms, at_ms)
        elif end_ms == newest.end_ms:
            self._closings[record.task] = Closing(end_ms, max(at_ms, newest.at_ms))
