"""A reader notices a partition of which nothing comes any more, whatever comes of others."""

from __future__ import annotations

from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Message, TopicPartition

from mars.adapters.kafka.names import Place
from mars.adapters.kafka.source import reader
from mars.adapters.kafka.source.deafness import DEAF_S
from mars.adapters.kafka.source.reader import KafkaReader
from mars.core.errors import Unavailable
from mars.core.settings import Settings
from mars.core.types import MemberId, Topic
from mars.protocol.ports import Fetched, SourceEvent

TOPIC = Topic("flows")
DEAF, LIVELY = 0, 1


class _Client:
    """A row of one partition at each turn, and none of the other, although it has some."""

    made = 0

    def __init__(self, _properties: object) -> None:
        type(self).made += 1
        self._rows: dict[int, int] = {}
        self._is_drained = False

    def consume(self, _count: int, _timeout_s: float) -> list[Message]:
        self._is_drained = not self._is_drained
        if LIVELY not in self._rows or not self._is_drained:
            return []
        self._rows[LIVELY] += 1
        return [Message(topic=TOPIC, partition=LIVELY, offset=self._rows[LIVELY] - 1, value=b"{}")]

    def incremental_assign(self, places: list[TopicPartition]) -> None:
        self._rows |= {place.partition: place.offset for place in places}

    def incremental_unassign(self, places: list[TopicPartition]) -> None:
        for place in places:
            self._rows.pop(place.partition)

    def list_topics(self, *_asked: object) -> None: ...

    def close(self) -> None: ...


class _Full(_Client):
    """More has been fetched than is ever taken at once."""

    def consume(self, count: int, timeout_s: float) -> list[Message]:
        self._is_drained = False
        return super().consume(count, timeout_s)


class _Admin:
    def stable_ends(self, places: Collection[Place], _stop: object) -> dict[Place, int]:
        return dict.fromkeys(places, 1_000)


def reading(
    partitions: Collection[int], client: type[_Client], monkeypatch: pytest.MonkeyPatch
) -> tuple[KafkaReader, SimpleNamespace]:
    """A reader of these partitions, by such a client, and its clock."""
    clock = SimpleNamespace(now_s=100.0)
    monkeypatch.setattr(reader, "time", SimpleNamespace(monotonic=lambda: clock.now_s))
    monkeypatch.setattr(reader, "Consumer", client)
    monkeypatch.setattr(client, "made", 0)
    admin: Any = _Admin()
    lone = KafkaReader.alone(Settings(), MemberId("mapper-1"), admin)
    for partition in partitions:
        lone.seek(TOPIC, partition, 7)
    return lone, clock


def polled(lone: KafkaReader) -> list[SourceEvent]:
    try:
        return lone.poll(100, 0)
    except Unavailable as problem:
        assert "a new client was made" in str(problem)  # noqa: PT017 -- it is told once
        return []


@pytest.mark.parametrize("lively", [True, False])
def test_a_partition_of_which_nothing_comes_is_noticed_by_a_reader_that_never_waits(
    monkeypatch: pytest.MonkeyPatch, *, lively: bool
) -> None:
    partitions = (DEAF, LIVELY) if lively else (DEAF,)
    lone, clock = reading(partitions, _Client, monkeypatch)

    read = 0
    for _turn in range(2):
        assert _Client.made == 1
        read += sum(isinstance(event, Fetched) for event in polled(lone))
        clock.now_s += DEAF_S + 1

    assert bool(read) is lively
    assert _Client.made == 2


def test_a_partition_whose_rows_may_wait_behind_those_of_others_is_not_taken_for_deaf(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lone, clock = reading((DEAF, LIVELY), _Full, monkeypatch)

    for _turn in range(6):
        assert polled(lone)
        clock.now_s += DEAF_S + 1

    assert _Full.made == 1
