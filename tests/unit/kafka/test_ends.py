"""An end of a partition that a broker tells too soon, and errors beside rows, leave no row out.

The client asks a follower, or a broker that has just come to lead: it knows of less than the one
that was asked where the partition ends. Rows behind that end may come in the same answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from mars.adapters.kafka.errors import PARTITION_EOF
from mars.adapters.kafka.read import results
from mars.adapters.kafka.read.consumers import SliceConsumer, read
from mars.adapters.kafka.read.results import KafkaResultFollower
from mars.adapters.spark.reading import read_range
from mars.core.definitions import REGISTER_AGAIN
from mars.core.errors import PartitionCut, Unavailable
from mars.core.settings import Settings
from mars.core.types import Lane, Range, Records, TaskName, Topic
from mars.engine.codec import result_headers
from mars.protocol.ports import CommittedRow, ResultGap

TOPIC = Topic("rows")
TASK = TaskName("sums")


def row(offset: int, partition: int = 0) -> Message:
    """As the client hands on a result of the task."""
    return Message(
        topic=TOPIC,
        partition=partition,
        offset=offset,
        key=b"[0]",
        value=b'{"window_start":0,"window_end":1}',
        headers=[(result_headers.TASK, TASK.encode())],
        timestamp=(1, 1_000),
    )


def error(code: int, offset: int, partition: int = 0) -> Message:
    """As the client hands on an error of a partition."""
    return Message(topic=TOPIC, partition=partition, offset=offset, error=KafkaError(code))


class Answers:
    """A client whose calls bring these messages, and then nothing."""

    def __init__(self, *answers: Sequence[Message]) -> None:
        self._answers = list(answers)
        self.read_at: list[tuple[int, int]] = []

    def consume(self, _count: int, _timeout_s: float) -> list[Message]:
        return list(self._answers.pop(0)) if self._answers else []

    def read_from(self, *_where: object) -> None: ...

    def assign(self, _where: object) -> None: ...

    def unassign(self) -> None: ...

    def incremental_assign(self, where: list[TopicPartition]) -> None:
        self.read_at += [(one.partition, one.offset) for one in where]

    def incremental_unassign(self, _where: object) -> None: ...


def test_a_range_has_the_rows_behind_an_end_in_the_same_answer() -> None:
    client = Answers([row(0), row(1), error(PARTITION_EOF, 2), row(2), row(3)], [row(4), row(5)])

    found = list(read_range(cast(Consumer, client), TOPIC, Range(Lane("0"), 0, 6), keys=False))

    batches = [batch for batch in found if isinstance(batch, Records)]
    assert [offset for batch in batches for offset in batch.offsets] == [0, 1, 2, 3, 4, 5]


def test_an_end_that_comes_last_stands_for_a_gap() -> None:
    client = Answers([row(0), error(PARTITION_EOF, 4)], [row(4), error(PARTITION_EOF, 6)])

    (batch,) = read_range(cast(Consumer, client), TOPIC, Range(Lane("0"), 0, 6), keys=False)

    assert isinstance(batch, Records)
    assert (list(batch.offsets), batch.next) == ([0, 4], 6)


def test_a_range_behind_the_end_of_its_partition_is_cut_and_says_where_that_ends() -> None:
    class Lost(Answers):
        def get_watermark_offsets(self, _place: object, timeout: float) -> tuple[int, int]:
            assert timeout > 0
            return 0, 20

    client = Lost([error(KafkaError.OFFSET_OUT_OF_RANGE, 50)])

    with pytest.raises(PartitionCut, match=REGISTER_AGAIN) as cut:
        list(read_range(cast(Consumer, client), TOPIC, Range(Lane("0"), 50, 51), keys=False))
    assert cut.value.end == 20


def test_a_stretch_for_people_goes_on_behind_an_end_below_its_own() -> None:
    client = Answers([row(0), row(1), error(PARTITION_EOF, 2)], [row(2), error(PARTITION_EOF, 4)])

    found = read(cast(SliceConsumer, client), TOPIC, {0: (0, 4)})

    assert [record.offset for record in found] == [0, 1, 2]


@pytest.fixture
def follower(monkeypatch: pytest.MonkeyPatch) -> KafkaResultFollower:
    """Of two partitions; between rows comes the word that one of them may not be read."""
    refused = error(KafkaError.TOPIC_AUTHORIZATION_FAILED, -1, partition=1)
    client: Any = Answers([row(7)], [row(8), refused, row(9)], [row(10)])
    monkeypatch.setattr(results, "Consumer", lambda _properties: client)
    monkeypatch.setattr(results, "_partitions", lambda *_asked: [0, 1])
    monkeypatch.setattr(results, "_bounds", lambda *_asked: (0, 7))
    return KafkaResultFollower(Settings(), TOPIC, TASK, {}, whole=False)


def test_who_follows_results_gets_the_rows_on_both_sides_of_an_error(
    follower: KafkaResultFollower,
) -> None:
    assert offsets(follower.poll(0)) == [7, 8]
    with pytest.raises(Unavailable):
        follower.poll(0)
    assert offsets(follower.poll(0)) == [9]
    assert offsets(follower.poll(0)) == [10]


def offsets(found: Sequence[CommittedRow | ResultGap]) -> list[int]:
    return [one.offset for one in found if isinstance(one, CommittedRow)]


def test_who_follows_results_goes_on_behind_rows_that_kafka_has_deleted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It got no row of that partition any more, and was not told."""
    lost = error(KafkaError.OFFSET_OUT_OF_RANGE, 9)
    client = Answers([row(7), error(PARTITION_EOF, 9), lost, row(3, partition=1)], [row(20)])
    bounds = iter([(0, 7), (0, 3), (20, 25)])
    monkeypatch.setattr(results, "Consumer", lambda _properties: client)
    monkeypatch.setattr(results, "_partitions", lambda *_asked: [0, 1])
    monkeypatch.setattr(results, "_bounds", lambda *_asked: next(bounds))
    follower = KafkaResultFollower(Settings(), TOPIC, TASK, {}, whole=False)

    assert offsets(follower.poll(0)) == [7]
    assert follower.poll(0) == [ResultGap(0, 9, 20)]
    assert client.read_at == [(0, 7), (1, 3), (0, 20)]
    assert offsets(follower.poll(0)) == [3, 20]


def test_a_broker_that_does_not_say_where_a_partition_begins_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = Answers([error(KafkaError.OFFSET_OUT_OF_RANGE, 7)], [row(20)])

    def away(*_asked: object) -> tuple[int, int]:
        raise Unavailable("kafka", "no answer")

    monkeypatch.setattr(results, "Consumer", lambda _properties: client)
    monkeypatch.setattr(results, "_partitions", lambda *_asked: [0])
    monkeypatch.setattr(results, "_bounds", lambda *_asked: (0, 7))
    follower = KafkaResultFollower(Settings(), TOPIC, TASK, {}, whole=False)
    monkeypatch.setattr(results, "_bounds", away)
    with pytest.raises(Unavailable):
        follower.poll(0)
    monkeypatch.setattr(results, "_bounds", lambda *_asked: (20, 25))

    assert follower.poll(0) == [ResultGap(0, 7, 20)]
    assert offsets(follower.poll(0)) == [20]
