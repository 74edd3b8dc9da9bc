"""Writes single records outside of any transaction: to topics of Mars that see a few an hour."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from confluent_kafka import KafkaError, KafkaException, Producer

from mars.adapters.kafka.config import control_properties
from mars.adapters.kafka.errors import TIMED_OUT, configured, translated
from mars.core.settings import Settings
from mars.core.types import Topic

WRITE_TIMEOUT_S = 15.0
"""Longer than the producer's own time-out for a record, which it reports by then."""


class RecordWriter:
    """Writes to one partition; safe for threads. Its producer is made when first needed."""

    def __init__(self, settings: Settings, topic: Topic, partition: int) -> None:
        self._settings = settings
        self._topic = topic
        self._partition = partition
        self._producer: Producer | None = None
        self._lock = threading.Lock()

    def put(self, key: bytes, value: bytes | None) -> None:
        """Write a record, or a tombstone; returns once the brokers have it. Raises Unavailable."""
        self.put_all([(key, value)])

    def put_all(self, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Write records, in order; returns once the brokers have all. Raises Unavailable.

        The producer's own queue bounds how many: by default 100,000.
        """
        outcomes: list[KafkaError | None] = []
        with self._lock, translated():
            producer = self._opened()
            for key, value in records:
                producer.produce(
                    self._topic,
                    value,
                    key,
                    self._partition,
                    on_delivery=lambda error, _message: outcomes.append(error),
                )
            producer.flush(WRITE_TIMEOUT_S)
            failed = next((one for one in outcomes if one is not None), None)
            if len(outcomes) < len(records):
                failed = failed or KafkaError(TIMED_OUT)
            if failed is not None:
                # A producer with a failed record may be unusable; the next call makes another.
                self._producer = None
                raise KafkaException(failed)

    def _opened(self) -> Producer:
        if self._producer is None:
            with configured():
                member = self._settings.member or "mars"
                self._producer = Producer(control_properties(self._settings, member))
        return self._producer
