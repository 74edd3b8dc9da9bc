"""Reads `mars.progress`: one partition per bucket."""

from __future__ import annotations

from mars.adapters.kafka.admin import KafkaTopicAdmin
from mars.adapters.kafka.names import Names
from mars.adapters.kafka.slices import SliceReader
from mars.adapters.kafka.wire import decode_progress
from mars.ports import ProgressRecord, ProgressSlice
from mars.settings import Settings
from mars.types import Bucket


class KafkaProgressLog:
    """`ProgressLog` on Kafka; safe for threads, which read one after the other.

    A record that this release cannot read raises MarsError, naming the place.
    """

    def __init__(self, settings: Settings) -> None:
        self._topic = Names(settings.namespace).progress
        self._admin = KafkaTopicAdmin(settings)
        self._reader = SliceReader(settings, f"{settings.member or 'mars'}-progress")

    def read(self, bucket: Bucket, first: int) -> ProgressSlice:
        """Everything from `first` to the last stable offset of now."""
        end = self.end(bucket)
        return ProgressSlice(self.between(bucket, first, end), max(first, end))

    def end(self, bucket: Bucket) -> int:
        """The last stable offset of the bucket's partition."""
        return self._admin.end(self._topic, bucket)

    def between(self, bucket: Bucket, first: int, end: int) -> tuple[ProgressRecord, ...]:
        """The records at `[first, end)`; `end` is at most the last stable offset."""
        return tuple(
            decode_progress(message.value(), f"{self._topic}[{bucket}] offset {message.offset()}")
            for portion in self._reader.read(self._topic, bucket, first, end)
            for message in portion
        )

    def close(self) -> None:
        """Free the consumer."""
        self._reader.close()
