"""A stream with known results: what the test produces, and what must come out for it."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

TOPIC = "flows"
PARTITIONS = 4
WINDOW_MS = 10_000
WINDOWS = 10
"""Of one round of rows."""

SIPS = 50
ANSWER_S = 30.0

Group = tuple[int, str]
"""Start of the window, sip."""

Sums = tuple[int, int]
"""Rows, bytes."""


@dataclass(frozen=True, slots=True)
class Flow:
    """One row and where it goes."""

    partition: int
    timestamp: int
    sip: str
    bytes: int


def flows(seed: int, start_ms: int, rows: int) -> list[Flow]:
    """Rows of `WINDOWS` windows from `start_ms`, in order of time in each partition."""
    chance = random.Random(seed)
    step = WINDOWS * WINDOW_MS / rows
    return [
        Flow(
            partition=chance.randrange(PARTITIONS),
            timestamp=start_ms + int(row * step),
            sip=f"10.0.0.{int(chance.paretovariate(1)) % SIPS}",
            bytes=chance.randrange(40, 1_500),
        )
        for row in range(rows)
    ]


def last_flows(timestamp: int) -> list[Flow]:
    """One row in every partition, which closes all windows before `timestamp`."""
    return [Flow(partition, timestamp, "last", 0) for partition in range(PARTITIONS)]


def expected(rows: list[Flow]) -> dict[Group, Sums]:
    """What the query must answer."""
    groups: dict[Group, Sums] = defaultdict(lambda: (0, 0))
    for row in rows:
        group = (row.timestamp - row.timestamp % WINDOW_MS, row.sip)
        count, total = groups[group]
        groups[group] = (count + 1, total + row.bytes)
    return dict(groups)


def make_topic(bootstrap: str, topic: str = TOPIC) -> None:
    """A source topic."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    made = admin.create_topics([NewTopic(topic, PARTITIONS, 1)], request_timeout=ANSWER_S)
    made[topic].result(ANSWER_S)


def produce(bootstrap: str, rows: list[Flow], topic: str = TOPIC) -> None:
    """Write rows; all are in Kafka when this returns."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    for row in rows:
        value = {"timestamp": row.timestamp, "sip": row.sip, "bytes": row.bytes}
        producer.produce(topic, msgspec.json.encode(value), partition=row.partition)
        producer.poll(0)
    assert producer.flush(ANSWER_S) == 0


class _Row(msgspec.Struct, frozen=True):
    """One result, without what the test does not look at."""

    window_start: int
    sip: str
    count: int
    sum_bytes: int


def results(bootstrap: str, topic: str) -> list[tuple[Group, Sums]]:
    """All committed results there are, as often as they are there."""
    rows = _committed(bootstrap, topic)
    return [((row.window_start, row.sip), (row.count, row.sum_bytes)) for row in rows]


def _committed(bootstrap: str, topic: str) -> Iterator[_Row]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "acceptance",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    try:
        partitions = consumer.list_topics(topic, ANSWER_S).topics[topic].partitions
        consumer.assign([TopicPartition(topic, each, 0) for each in partitions])
        unread = set(partitions)
        deadline = time.monotonic() + ANSWER_S
        while unread:
            assert time.monotonic() < deadline, f"{topic} cannot be read to its end"
            message = consumer.poll(1.0)
            if message is None:
                continue
            error = message.error()
            if error is None:
                yield msgspec.json.decode(message.value() or b"", type=_Row)
            elif error.code() == KafkaError._PARTITION_EOF:
                unread.discard(message.partition())
    finally:
        consumer.close()
