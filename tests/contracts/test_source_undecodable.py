"""Batches that the client cannot unpack: each offset is delivered as such, and reading goes on."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Producer

from mars.adapters.kafka import config
from mars.adapters.spark.reading import consumer_of, discard_consumers, read_range
from mars.core.types import UNDECODABLE, Lane, Range, Records, Topic
from mars.local.network import HOST, free_port
from mars.local.servers import KafkaServer
from tests.conftest import missing_kafka, need
from tests.contracts.kafka_servers import STEP_S, KafkaCluster, delivered
from tests.contracts.reading import Reading
from tests.contracts.waiting import READY_WITHIN_S, eventually, started

pytestmark = pytest.mark.integration

LIMIT = 4_000_000
"""In place of half a gigabyte, so that the poison is small."""

POISON = bytes(20_000_000)
ROWS = [b"%d" % number for number in range(10)]

LARGE_BATCHES: dict[str, str | int] = {
    "compression.type": "zstd",
    "linger.ms": 2_000,
    "message.max.bytes": 100_000_000,
    "batch.size": 100_000_000,
    "batch.num.messages": 1_000_000,
}


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
    return Sender(Producer({**LARGE_BATCHES, "bootstrap.servers": kafka_cluster.bootstrap}))


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
        found = as_read_by_spark(kafka_cluster, topic, first, next_)
        assert_same(list(found.values()), EXPECTED[first:next_])
        assert list(found) == list(range(first, next_))


# ------------------------------------------------------------- offsets without a message to read


@pytest.mark.parametrize("aborted", [False, True])
def test_of_an_aborted_transaction_the_batch_itself_counts_and_nothing_beside_it(
    kafka_cluster: KafkaCluster, sender: Sender, *, aborted: bool
) -> None:
    """Whether it was aborted the client sees only once it is unpacked.

    0 1 2    3  ┃ 4 5     ┃ 6   7       8 ···
    rows     a  ┃ poison  ┃ b   marker  rows
    """
    topic = kafka_cluster.topic(1)
    sender.send(topic, ROWS[:3])
    theirs = in_transaction(kafka_cluster)
    for values in ([b"a"], [POISON, b"x"], [b"b"]):
        theirs.send(topic, values)
    reading = Reading(kafka_cluster.alone())
    reading.seek(topic, 0, 0)
    reading.until_end(topic, end=3)  # it is still open
    (theirs.producer.abort_transaction if aborted else theirs.producer.commit_transaction)(STEP_S)
    assert kafka_cluster.settled_end(topic, 0) == 8
    sender.send(topic, ROWS[3:])

    rows = dict(enumerate(ROWS[:3])) | dict(enumerate(ROWS[3:], start=8))
    undecodable = {4: UNDECODABLE, 5: UNDECODABLE}
    beside: dict[int, bytes] = {} if aborted else {3: b"a", 6: b"b"}
    assert_read(kafka_cluster, topic, rows | undecodable | beside, end=15)


def test_of_a_compacted_topic_each_offset_within_counts_and_no_gap_beside_it(
    compacting: KafkaCluster,
) -> None:
    """What is left of its messages the client sees only once it is unpacked.

    sent     0 1  ┃ 2  3       4  5  6 ┃ 7 8 ┃ 9  ┃ 10
    left       b  ┃    poison     q    ┃     ┃ a  ┃ row
    """
    config = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.001",
        "segment.ms": "1000",
        "max.message.bytes": "100000000",
    }
    topic = compacting.topic(1, config)
    gone = ("a", b"gone")
    keyed(compacting, topic, [gone, ("b", b"b")])
    keyed(compacting, topic, [gone, ("p", POISON), gone, ("q", b"q"), gone])
    keyed(compacting, topic, [gone, gone])
    keyed(compacting, topic, [("a", b"a")])
    rolled_ms = LONG_AGO_MS + 3_600_000  # only what is behind the newest segment is compacted
    keyed(compacting, topic, [("row", b"row")], timestamp_ms=rolled_ms)

    expected = {1: b"b", **dict.fromkeys(range(2, 7), UNDECODABLE), 9: b"a", 10: b"row"}
    eventually(lambda: list(as_read_by_spark(compacting, topic, 0, 11)) == list(expected))
    assert_read(compacting, topic, expected, end=11)


LONG_AGO_MS = 1_700_000_000_000


@pytest.fixture
def compacting(tmp_path: Path) -> Iterator[KafkaCluster]:
    """A broker that compacts at once, and keeps old rows."""
    need(missing_kafka())
    properties = {"log.cleaner.backoff.ms": "50", "log.retention.ms": "-1"}
    server = started(KafkaServer(tmp_path, free_port(), properties=properties))
    cluster = KafkaCluster(f"{HOST}:{server.port}")
    yield cluster
    cluster.close()
    server.stop(READY_WITHIN_S)


def in_transaction(cluster: KafkaCluster) -> Sender:
    """One that has begun a transaction."""
    properties = {"bootstrap.servers": cluster.bootstrap, "transactional.id": uuid.uuid4().hex}
    sender = Sender(Producer({**LARGE_BATCHES, **properties}))
    sender.producer.init_transactions(STEP_S)
    sender.producer.begin_transaction()
    return sender


def keyed(
    cluster: KafkaCluster,
    topic: Topic,
    messages: Sequence[tuple[str, bytes]],
    timestamp_ms: int = LONG_AGO_MS,
) -> None:
    """Write a batch."""
    producer = Producer({**LARGE_BATCHES, "bootstrap.servers": cluster.bootstrap})
    for key, value in messages:
        producer.produce(
            topic, value, key, partition=0, timestamp=timestamp_ms, on_delivery=delivered
        )
    assert producer.flush(STEP_S) == 0


def assert_read(
    cluster: KafkaCluster, topic: Topic, expected: Mapping[int, bytes], end: int
) -> None:
    """A mapper and an executor find these values at these offsets, and nothing else."""
    values = [expected[offset] for offset in sorted(expected)]
    reading = Reading(cluster.alone())
    reading.seek(topic, 0, 0)
    reading.until_end(topic, end=end)
    assert reading.offsets(topic) == sorted(expected)
    assert_same(reading.values(topic), values)
    by_spark = as_read_by_spark(cluster, topic, 0, end)
    assert list(by_spark) == sorted(expected)
    assert_same(list(by_spark.values()), values)


def assert_same(found: Sequence[bytes | None], expected: Sequence[bytes]) -> None:
    """What cannot be unpacked is equal to no bytes, but not the same."""
    assert [(type(one), one) for one in found] == [(type(one), one) for one in expected]


def as_read_by_spark(
    cluster: KafkaCluster, topic: Topic, first: int, next_: int
) -> dict[int, bytes | None]:
    """The values by their offsets."""
    found: dict[int, bytes | None] = {}
    try:
        at = first
        for part in read_range(
            consumer_of(cluster.settings), topic, Range(Lane("0"), first, next_), keys=False
        ):
            assert isinstance(part, Records)
            assert part.first == at
            at = part.next
            found.update(zip(part.offsets, part.values, strict=True))
        assert at == next_
    finally:
        discard_consumers()
    return found
