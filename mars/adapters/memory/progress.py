"""The topic `mars.progress` in memory: the twin of Kafka's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mars.adapters.kafka.names import DEFAULT_NAMESPACE, Names
from mars.adapters.kafka.state import named_snapshot, parts_of
from mars.adapters.kafka.wire import decode_progress
from mars.adapters.memory.broker import MemoryBroker, StoredRecord
from mars.adapters.memory.faults import Faults, fallible
from mars.core.types import Bucket
from mars.protocol.ports import Progress, ProgressRecord, ProgressSlice


class MemoryProgressLog:
    """`ProgressLog` and `SavedPanes` in memory; the records are the bytes that Kafka would hold."""

    def __init__(self, broker: MemoryBroker, namespace: str = DEFAULT_NAMESPACE) -> None:
        self.faults = Faults("kafka")
        self._broker = broker
        names = Names(namespace)
        self._topic, self._state = names.progress, names.state

    def fail_next(self, method: str, *, before: bool = True) -> None:
        """Let the next call of `method` raise `Unavailable`, before or after its effect."""
        self.faults.plan(method, before=before)

    @fallible
    def read(self, bucket: Bucket, first: int) -> ProgressSlice:
        """Everything committed from `first` to the last stable offset."""
        return self._slice(bucket, first)

    @fallible
    def read_all(self, firsts: Mapping[Bucket, int]) -> dict[Bucket, ProgressSlice]:
        """The same of several buckets."""
        return {bucket: self._slice(bucket, first) for bucket, first in firsts.items()}

    def _slice(self, bucket: Bucket, first: int) -> ProgressSlice:
        end = self.end(bucket)
        written = self._broker.partition(self._topic, bucket).committed(first, end)
        records = tuple(self._decoded(bucket, record) for record in written)
        times_ms = tuple(record.timestamp_ms for record in written)
        return ProgressSlice(records, max(first, end), times_ms)

    @fallible
    def written(self, buckets: Iterable[Bucket]) -> dict[Bucket, int]:
        """The offsets behind the last records, committed or not."""
        return {bucket: self.written_end(bucket) for bucket in buckets}

    def saved(self, record: Progress) -> tuple[bytes, ...]:
        """The parts of a snapshot at the offsets that the record names. Raises SnapshotLost."""
        snapshot = named_snapshot(record)
        log = self._broker.partition(self._state, record.bucket)
        found = log.committed(snapshot.first, snapshot.last + 1)
        return parts_of(record, {one.key: one.value for one in found})

    def end(self, bucket: Bucket) -> int:
        """The last stable offset of the bucket's partition."""
        return self._broker.partition(self._topic, bucket).stable_end

    def tail(self, bucket: Bucket, first: int, end: int) -> list[tuple[int, ProgressRecord]]:
        """The records at `[first, end)` with their offsets, committed or not."""
        records = self._broker.partition(self._topic, bucket).written(first, end)
        return [(record.offset, self._decoded(bucket, record)) for record in records]

    def offsets(self, bucket: Bucket, first: int, end: int) -> set[int]:
        """The offsets of the committed records at `[first, end)`."""
        committed = self._broker.partition(self._topic, bucket).committed(first, end)
        return {record.offset for record in committed}

    def written_end(self, bucket: Bucket) -> int:
        """The offset behind the last record of the bucket's partition, committed or not."""
        return self._broker.partition(self._topic, bucket).end

    def between(self, bucket: Bucket, first: int, end: int) -> tuple[ProgressRecord, ...]:
        """The records at `[first, end)`."""
        committed = self._broker.partition(self._topic, bucket).committed(first, end)
        return tuple(self._decoded(bucket, record) for record in committed)

    def _decoded(self, bucket: Bucket, record: StoredRecord) -> ProgressRecord:
        return decode_progress(record.value, f"{self._topic}[{bucket}] offset {record.offset}")
