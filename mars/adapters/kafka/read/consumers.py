"""Stretches of topics, read for people by consumers that are kept for the next call.

To make a consumer and to close it takes some ten milliseconds of CPU time: more than most reads.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from mars.adapters.kafka.config import Properties, slice_reader_properties
from mars.adapters.kafka.errors import PARTITION_EOF, configured, translated
from mars.adapters.kafka.read.rows import bytes_of, headers_of
from mars.core.errors import Unavailable
from mars.core.settings import Settings
from mars.core.types import Topic

READ_TIMEOUT_S = 15.0
"""For everything that one call reads: a full scan of 8 partitions takes about 5 s."""

BATCH_MAX = 10_000
"""Messages taken in one call to the client library."""

WAIT_S = 0.1
"""How long one call to the client library waits where nothing has come yet."""

HEARD_S = 300.0
"""How long a consumer has heard of a topic; it forgets it after `metadata.max.age.ms`, 900 s."""

CONSUMERS_KEPT = 4
"""Idle ones; each holds some threads and a connection for each broker."""

READER = "reader"
"""What these clients are called in the broker's log."""

Spans = Mapping[int, tuple[int, int]]
"""By partition: the offsets `[first, high)`."""


@dataclass(frozen=True, slots=True)
class Record:
    """A message, or (`end`) the word that a partition has no more of them at the moment."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Mapping[str, bytes]
    end: bool


class SliceConsumer(Consumer):
    """A consumer that is kept, and reads stretches of one topic after the other."""

    def __init__(self, properties: Properties) -> None:
        super().__init__(properties)
        self._heard_s: dict[str, float] = {}

    def read_from(self, topic: str, firsts: Mapping[int, int], timeout_s: float) -> None:
        """Assign these partitions, from these offsets on. Raises KafkaException.

        The client looks once a second for who leads partitions of a topic that is new to it, but
        at once where it is asked for that topic. A claim reads of the topics of all tasks.
        """
        now_s = time.monotonic()
        if now_s - self._heard_s.get(topic, -HEARD_S) >= HEARD_S:
            self.list_topics(topic, timeout_s)
            lately = {one: at for one, at in self._heard_s.items() if now_s - at < HEARD_S}
            self._heard_s = {**lately, topic: now_s}
        self.assign([TopicPartition(topic, part, first) for part, first in firsts.items()])


class Readers:
    """Consumers outside of any group, of committed records only. Safe for threads."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._idle: list[SliceConsumer] = []

    @contextmanager
    def one(self) -> Iterator[SliceConsumer]:
        """A consumer for one call; after an error it is not used again. Raises Unavailable."""
        consumer = self._taken()
        try:
            with translated():
                yield consumer
        except BaseException:
            consumer.close()
            raise
        self._give_back(consumer)

    def _taken(self) -> SliceConsumer:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        with configured():
            return SliceConsumer(slice_reader_properties(self._settings, READER))

    def _give_back(self, consumer: SliceConsumer) -> None:
        with self._lock:
            if len(self._idle) < CONSUMERS_KEPT:
                self._idle.append(consumer)
                return
        consumer.close()


def read(consumer: SliceConsumer, topic: Topic, spans: Spans) -> Generator[Record, None, None]:
    """The committed messages of each partition in `[first, high)`, until all are read.

    An end below `high` is not the end: a broker that has just come to lead a partition, or follows
    its leader, may know of less than whoever was asked for `high`.
    """
    firsts = {partition: first for partition, (first, high) in spans.items() if first < high}
    if not firsts:
        return
    consumer.read_from(topic, firsts, READ_TIMEOUT_S)
    left = set(firsts)
    deadline = time.monotonic() + READ_TIMEOUT_S
    try:
        while left:
            if time.monotonic() > deadline:
                raise Unavailable("kafka", f"topic {topic} could not be read in {READ_TIMEOUT_S} s")
            for record in _at_hand(consumer):
                high = spans[record.partition][1]
                if not record.end and record.offset < high:
                    yield record
                if (record.offset if record.end else record.offset + 1) >= high:
                    left.discard(record.partition)
    finally:
        consumer.unassign()


def _at_hand(consumer: Consumer) -> list[Record]:
    """What has been fetched, or the first to come: to wait for many takes the whole time."""
    found = consumer.consume(BATCH_MAX, 0) or consumer.consume(1, WAIT_S)
    return [record_of(message) for message in found]


def record_of(message: Message) -> Record:
    """Raises KafkaException for an error in a message's place."""
    error = message.error()
    end = error is not None and error.code() == PARTITION_EOF
    if error is not None and not end:
        raise KafkaException(error)
    return Record(
        partition=message.partition() or 0,
        offset=message.offset() or 0,
        timestamp_ms=message.timestamp()[1],
        key=None if end else bytes_of(message.key()),
        value=None if end else bytes_of(message.value()),
        headers={} if end else headers_of(message),
        end=end,
    )
