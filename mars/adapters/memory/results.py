"""Output topics and `mars.dead` in memory, as people read them: the twins of Kafka's."""

from __future__ import annotations

from collections.abc import Mapping

from mars.adapters.kafka.names import DEFAULT_NAMESPACE, Names
from mars.adapters.kafka.read.rows import committed_row, dead_letter, wanted_letter
from mars.adapters.memory.broker import MemoryBroker, MemoryPartition
from mars.adapters.memory.faults import Faults, fallible
from mars.adapters.result_rows import answered, lowest_first, newest_rows, place_within
from mars.core.errors import Unavailable
from mars.core.types import TaskName, Topic
from mars.protocol.ports import (
    CommittedRow,
    DeadLetter,
    DeadPage,
    RecentRows,
    ResultGap,
    WantedNumber,
    WantedWindow,
)


class MemoryResultTail:
    """`ResultTail` in memory."""

    def __init__(self, broker: MemoryBroker) -> None:
        self.faults = Faults("kafka")
        self._broker = broker

    def fail_next(self, method: str, *, before: bool = True) -> None:
        """Let the next call of `method` raise `Unavailable`, before or after its effect."""
        self.faults.plan(method, before=before)

    @fallible
    def recent(
        self,
        topic: Topic,
        task: TaskName,
        rows_max: int,
        wanted: WantedWindow | WantedNumber | None,
    ) -> RecentRows:
        """The newest rows of a task (of one window), per partition in offset order."""
        numbered = enumerate(_partitions(self._broker, topic))
        parts = [_rows(partition, number, 0, task) for number, partition in numbered]
        if wanted is not None:
            return answered(wanted, parts, rows_max, whole=True)
        kept = [newest_rows(own, rows_max) for own in parts]
        cut = frozenset(number for number, own in enumerate(parts) if len(kept[number]) < len(own))
        cuts = [lowest_first(kept[number]) for number in sorted(cut)]
        known = [cut for cut in cuts if cut is not None]
        found = tuple(row for rows in kept for row in rows)
        return RecentRows(found, max(known, default=None), cut)

    @fallible
    def follow(
        self,
        topic: Topic,
        task: TaskName,
        after: Mapping[int, int] | None = None,
        *,
        whole: bool = False,
    ) -> MemoryResultFollower:
        """Rows that are committed from now on; Unavailable if there is no such topic."""
        if topic not in self._broker.topics:
            raise Unavailable("kafka", f"there is no topic {topic}")
        return MemoryResultFollower(self._broker, topic, task, after or {}, whole=whole)


class MemoryResultFollower:
    """`ResultFollower` in memory; it waits for nothing."""

    def __init__(
        self,
        broker: MemoryBroker,
        topic: Topic,
        task: TaskName,
        after: Mapping[int, int],
        *,
        whole: bool,
    ) -> None:
        self._broker = broker
        self._topic = topic
        self._task = task
        self._next: dict[int, int] = {}
        self._gaps: list[ResultGap] = []
        for number, log in enumerate(_partitions(broker, topic)):
            self._place(number, log, after.get(number, 0 if whole else log.stable_end))
        self.starts: Mapping[int, int] = dict(self._next)

    def _place(self, number: int, log: MemoryPartition, wanted: int) -> None:
        self._next[number], gone = place_within(number, wanted, log.start, log.stable_end)
        self._gaps += gone

    def poll(self, timeout_s: float) -> list[CommittedRow | ResultGap]:
        """What was committed since the last call, and what is gone."""
        rows: list[CommittedRow] = []
        for number, log in enumerate(_partitions(self._broker, self._topic)):
            self._place(number, log, self._next.get(number, 0))
            self.starts = {number: self._next[number], **self.starts}
            rows += _rows(log, number, self._next[number], self._task)
            self._next[number] = log.stable_end
        gaps, self._gaps = self._gaps, []
        return [*gaps, *rows]

    def close(self) -> None:
        """There is nothing to free."""


class MemoryDeadLetters:
    """`DeadLetters` in memory."""

    def __init__(self, broker: MemoryBroker, namespace: str = DEFAULT_NAMESPACE) -> None:
        self.faults = Faults("kafka")
        self._broker = broker
        self._topic = Names(namespace).dead

    def fail_next(self, method: str, *, before: bool = True) -> None:
        """Let the next call of `method` raise `Unavailable`, before or after its effect."""
        self.faults.plan(method, before=before)

    @fallible
    def recent(self, task: TaskName, limit: int) -> list[DeadLetter]:
        """The newest references of a task, newest first."""
        records = [
            record
            for partition in _partitions(self._broker, self._topic)
            for record in partition.committed(0, partition.stable_end)
        ]
        records.sort(key=lambda record: (record.timestamp_ms, record.offset), reverse=True)
        letters = [dead_letter(record.value) for record in records]
        return [letter for letter in letters if letter is not None and letter.task == task][:limit]

    @fallible
    def page(
        self, task: TaskName, reason: str | None, after: Mapping[int, int], limit: int
    ) -> DeadPage:
        """References of a task, by partition and there the oldest first."""
        found: list[DeadLetter] = []
        behind = dict(after)
        for number, partition in enumerate(_partitions(self._broker, self._topic)):
            for record in partition.committed(behind.get(number, 0), partition.stable_end):
                if len(found) == limit:
                    return DeadPage(tuple(found), behind)
                behind[number] = record.offset + 1
                found += wanted_letter(record.value, task, reason)
        return DeadPage(tuple(found), None)


def _partitions(broker: MemoryBroker, topic: Topic) -> list[MemoryPartition]:
    found = broker.topics.get(topic)
    return [] if found is None else found.partitions


def _rows(
    partition: MemoryPartition, number: int, first: int, task: TaskName
) -> list[CommittedRow]:
    records = partition.committed(first, partition.stable_end)
    rows = [
        committed_row(
            number, record.offset, record.key, record.value, dict(record.headers), task.encode()
        )
        for record in records
    ]
    return [row for row in rows if row is not None]
