"""Reads `mars.progress` and `mars.state`: one partition per bucket."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import cast

from confluent_kafka import Message

from mars.adapters.kafka.admin import KafkaTopicAdmin
from mars.adapters.kafka.names import Names
from mars.adapters.kafka.read.rows import bytes_of
from mars.adapters.kafka.source.slices import SliceReader
from mars.adapters.kafka.state import named_snapshot, parts_of
from mars.adapters.kafka.wire import decode_progress
from mars.core.settings import Settings
from mars.core.types import Bucket
from mars.protocol.ports import Progress, ProgressRecord, ProgressSlice


class KafkaProgressLog:
    """`ProgressLog` and `SavedPanes` on Kafka; safe for threads, which read one after the other.

    A record that this release cannot read raises MarsError, naming the place.
    """

    def __init__(self, settings: Settings, admin: KafkaTopicAdmin | None = None) -> None:
        names = Names(settings.namespace)
        self._topic, self._state = names.progress, names.state
        self._admin = admin or KafkaTopicAdmin(settings)
        member = f"{settings.member or 'mars'}-progress"
        self._reader = SliceReader(settings, member)
        self._all_reader = SliceReader(settings, f"{member}-all", committed=False)

    def read(self, bucket: Bucket, first: int) -> ProgressSlice:
        """Everything from `first` to the last stable offset of now."""
        return self.read_all({bucket: first})[bucket]

    def read_all(self, firsts: Mapping[Bucket, int]) -> dict[Bucket, ProgressSlice]:
        """One request for all ends, one read of all that has come."""
        ends = self._admin.ends_of(self._topic, firsts)
        spans = {int(bucket): (first, ends[bucket]) for bucket, first in firsts.items()}
        found: dict[int, list[ProgressRecord]] = {partition: [] for partition in spans}
        times_ms: dict[int, list[int]] = {partition: [] for partition in spans}
        for portion in self._reader.read_all(self._topic, spans):
            for message in portion:
                partition = cast(int, message.partition())
                found[partition].append(self._record(message))
                times_ms[partition].append(message.timestamp()[1])
        return {
            bucket: ProgressSlice(tuple(found[bucket]), max(spans[bucket]), tuple(times_ms[bucket]))
            for bucket in firsts
        }

    def written(self, buckets: Iterable[Bucket]) -> dict[Bucket, int]:
        """The offsets behind the last records, in one request."""
        found = self._admin.written_ends_of(self._topic, buckets)
        return {Bucket(partition): end for partition, end in found.items()}

    def end(self, bucket: Bucket) -> int:
        """The last stable offset of the bucket's partition."""
        return self._admin.end(self._topic, bucket)

    def tail(self, bucket: Bucket, first: int, end: int) -> list[tuple[int, ProgressRecord]]:
        """The records at `[first, end)` with their offsets, committed or not."""
        return list(self._decoded(self._all_reader, bucket, first, end))

    def offsets(self, bucket: Bucket, first: int, end: int) -> set[int]:
        """The offsets of the committed records at `[first, end)`."""
        return {offset for offset, _record in self._decoded(self._reader, bucket, first, end)}

    def written_end(self, bucket: Bucket) -> int:
        """The offset behind the last record of the bucket's partition, committed or not."""
        return self._admin.written_end(self._topic, bucket)

    def between(self, bucket: Bucket, first: int, end: int) -> tuple[ProgressRecord, ...]:
        """The records at `[first, end)`; `end` is at most the last stable offset."""
        found = self._decoded(self._reader, bucket, first, end)
        return tuple(record for _offset, record in found)

    def saved(self, record: Progress) -> tuple[bytes, ...]:
        """The parts of a snapshot at the offsets that the record names. Raises SnapshotLost."""
        snapshot = named_snapshot(record)
        portions = self._reader.read(self._state, record.bucket, snapshot.first, snapshot.last + 1)
        found = (message for portion in portions for message in portion)
        return parts_of(record, {bytes_of(one.key()): bytes_of(one.value()) for one in found})

    def _decoded(
        self, reader: SliceReader, bucket: Bucket, first: int, end: int
    ) -> Iterator[tuple[int, ProgressRecord]]:
        for portion in reader.read(self._topic, bucket, first, end):
            for message in portion:
                yield cast(int, message.offset()), self._record(message)

    def _record(self, message: Message) -> ProgressRecord:
        place = f"{self._topic}[{message.partition()}] offset {message.offset()}"
        return decode_progress(message.value(), place)

    def close(self) -> None:
        """Free the consumers."""
        self._reader.close()
        self._all_reader.close()
