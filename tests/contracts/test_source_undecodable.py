"""Batches that the client cannot unpack: each offset is delivered as such, and reading goes on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest
from confluent_kafka import Producer

from mars.adapters.kafka import config
from mars.adapters.spark.reading import consumer_of, discard_consumers, read_range
from mars.core.types import UNDECODABLE, Lane, Range, Records, Topic
from tests.contracts.kafka_servers import STEP_S, KafkaCluster, delivered
from tests.contracts.reading import Reading
from tests.contracts.waiting import eventually

pytestmark = pytest.mark.integration

LIMIT = 4_000_000
"""In place of half a gigabyte, so that the poison is small."""

POISON = bytes(20_000_000)
ROWS = [b"%d" % number for number in range(10)]


@pytest.fixture(autouse=True)
def little_is_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "KAFKA_BATCH_BYTES_MAX", LIMIT)
    monkeypatch.setattr(config, "FETCH_ANSWER_BYTES_MAX", LIMIT // 2)


@dataclass
class Sender:
    """Writes the values of each call as one batch of the codec zstd, as far as the client does."""

    producer: Producer

    def send(self, topic: Topic, values: Sequence[bytes]) -> None:
        for value in values:
            self.producer.produce(topic, value, partition=0, on_delivery=delivered)
        assert self.producer.flush(STEP_S) == 0


@pytest.fixture
def sender(kafka_cluster: KafkaCluster) -> Sender:
    return Sender(
        Producer(
            {
                "bootstrap.servers": kafka_cluster.bootstrap,
                "compression.type": "zstd",
                "linger.ms": 2_000,
                "message.max.bytes": 100_000_000,
                "batch.size": 100_000_000,
                "batch.num.messages": 1_000_000,
            }
        )
    )


@pytest.fixture
def topic(kafka_cluster: KafkaCluster, sender: Sender) -> Topic:
    """Three rows, a batch of one, one of 2,500, another of one, which all fail, and seven rows."""
    topic = kafka_cluster.topic(1)
    sender.send(topic, ROWS[:3])
    sender.send(topic, [POISON])
    sender.send(topic, [b"%d" % (number % 7) * 8_000 for number in range(2_500)])
    sender.send(topic, [POISON])
    sender.send(topic, ROWS[3:])
    return topic


EXPECTED = [*ROWS[:3], *[UNDECODABLE] * 2_502, *ROWS[3:]]
IN_THE_MIDDLE = 1_234


@pytest.mark.parametrize("grouped", [True, False])
def test_each_offset_of_such_a_batch_is_delivered_as_one_and_what_is_behind_is_read(
    kafka_cluster: KafkaCluster, topic: Topic, *, grouped: bool
) -> None:
    reading = Reading(kafka_cluster.member() if grouped else kafka_cluster.alone())
    if grouped:
        reading.reader.subscribe([topic])
        reading.until_owned([(topic, 0)])
    for first in (0, IN_THE_MIDDLE, 3):
        reading.seek(topic, 0, first)
        reading.until_end(topic, end=len(EXPECTED))

        assert_same(reading.values(topic), EXPECTED[first:])
        assert reading.offsets(topic) == list(range(first, len(EXPECTED)))


def test_reader_that_is_paused_amid_such_a_batch_goes_on_where_it_was(
    kafka_cluster: KafkaCluster, topic: Topic
) -> None:
    reading = Reading(kafka_cluster.alone())
    reading.seek(topic, 0, 0)
    eventually(lambda: reading.poll(700) and len(reading.values(topic)) > len(ROWS))
    reading.reader.pause(topic, 0)
    before = len(reading.values(topic))
    for _look in range(3):
        reading.poll()
    assert len(reading.values(topic)) == before < len(EXPECTED)

    reading.reader.resume(topic, 0, before)
    reading.until_end(topic, end=len(EXPECTED))

    assert_same(reading.values(topic), EXPECTED)


def test_executors_find_the_same_wherever_a_range_begins_and_ends(
    kafka_cluster: KafkaCluster, topic: Topic
) -> None:
    end = len(EXPECTED)
    for first, next_ in ((0, end), (IN_THE_MIDDLE, end), (3, 4), (2, IN_THE_MIDDLE), (5, 99)):
        found = list(as_read_by_spark(kafka_cluster, topic, first, next_))
        assert_same(found, EXPECTED[first:next_])


def assert_same(found: Sequence[bytes | None], expected: Sequence[bytes]) -> None:
    """What cannot be unpacked is equal to no bytes, but not the same."""
    assert [(type(one), one) for one in found] == [(type(one), one) for one in expected]


def as_read_by_spark(
    cluster: KafkaCluster, topic: Topic, first: int, next_: int
) -> Iterator[bytes | None]:
    try:
        at = first
        for part in read_range(
            consumer_of(cluster.settings), topic, Range(Lane("0"), first, next_), keys=False
        ):
            assert isinstance(part, Records)
            assert part.first == at
            at = part.next
            yield from part.values
        assert at == next_
    finally:
        discard_consumers()
