"""The topic `mars.progress` in memory: the twin of Kafka's."""

from __future__ import annotations

from mars.adapters.kafka.names import DEFAULT_NAMESPACE, Names
from mars.adapters.kafka.wire import decode_progress
from mars.adapters.memory.broker import MemoryBroker
from mars.adapters.memory.faults import Faults, fallible
from mars.ports import ProgressRecord, ProgressSlice
from mars.types import Bucket


class MemoryProgressLog:
    """`ProgressLog` in memory; the records are the bytes that Kafka would hold."""

    def __init__(self, broker: MemoryBroker, namespace: str = DEFAULT_NAMESPACE) -> None:
        self.faults = Faults("kafka")
        self._broker = broker
        self._topic = Names(namespace).progress

    def fail_next(self, method: str, *, before: bool = True) -> None:
        """Let the next call of `method` raise `Unavailable`, before or after its effect."""
        self.faults.plan(method, before=before)

    @fallible
    def read(self, bucket: Bucket, first: int) -> ProgressSlice:
        """Everything committed from `first` to the last stable offset."""
        end = self.end(bucket)
        return ProgressSlice(self.between(bucket, first, end), max(first, end))

    def end(self, bucket: Bucket) -> int:
        """The last stable offset of the bucket's partition."""
        return self._broker.partition(self._topic, bucket).stable_end

    def between(self, bucket: Bucket, first: int, end: int) -> tuple[ProgressRecord, ...]:
        """The records at `[first, end)`."""
        return tuple(
            decode_progress(record.value, f"{self._topic}[{bucket}] offset {record.offset}")
            for record in self._broker.partition(self._topic, bucket).committed(first, end)
        )
