"""What a reader has found is told, whatever its client refuses meanwhile."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from mars.adapters.kafka.errors import OFFSETS_LOST
from mars.adapters.kafka.names import Place
from mars.adapters.kafka.source import reader
from mars.adapters.kafka.source.reader import KafkaReader
from mars.core.errors import Unavailable
from mars.core.settings import Settings
from mars.core.types import MemberId, Topic
from mars.protocol.ports import OffsetGone

TOPIC = Topic("flows")
REFUSED = 1
UNDECODABLE = KafkaError(
    KafkaError._BAD_COMPRESSION,
    "Decompression (codec 0x1) of message at 7 of 9 bytes failed",
)


def trouble(error: KafkaError, partition: int) -> Message:
    return Message(topic=TOPIC, partition=partition, offset=7, error=error)


class _Client:
    """One partition is gone, the other cannot be unpacked, and the client does not give it up."""

    def __init__(self, _properties: object) -> None:
        self._answers = [
            [trouble(KafkaError(min(OFFSETS_LOST)), 0), trouble(UNDECODABLE, REFUSED)],
        ]

    def consume(self, _count: int, _timeout_s: float) -> list[Message]:
        return self._answers.pop() if self._answers else []

    def incremental_assign(self, _places: list[TopicPartition]) -> None: ...

    def incremental_unassign(self, places: list[TopicPartition]) -> None:
        if places[0].partition == REFUSED:
            raise KafkaException(KafkaError(KafkaError._STATE))


class _Admin:
    def start(self, _topic: Topic, _partition: int) -> int:
        return 40

    def end(self, _topic: Topic, _partition: int) -> int:
        return 60

    def stable_ends(self, places: object, _stop: object) -> dict[Place, int]:
        return {}


def test_an_offset_that_is_gone_is_told_of_though_another_partition_is_not_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reader, "Consumer", _Client)
    admin: Any = _Admin()
    lone = KafkaReader.alone(Settings(), MemberId("mapper-1"), admin)
    for partition in (0, REFUSED):
        lone.seek(TOPIC, partition, 7)

    events = lone.poll(100, 0)

    assert events == [OffsetGone(TOPIC, 0, 7, 40)]
    with pytest.raises(Unavailable):
        lone.poll(100, 0)
