"""Which queues of a client are emptied."""

from __future__ import annotations

from typing import cast

import msgspec
from confluent_kafka import Consumer, TopicPartition

from mars.adapters.kafka.source.leftovers import Leftovers
from mars.core.types import Topic

TOPIC = Topic("flows")


class _Client:
    """Notes what is assigned, with offsets, and what is unassigned."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int, int]] = []

    def get_watermark_offsets(self, one: TopicPartition, *, cached: bool) -> tuple[int, int]:
        assert cached, "it must not wait for the broker"
        return {1: (0, 40), 2: (-1001, -1001)}[one.partition]

    def incremental_assign(self, places: list[TopicPartition]) -> None:
        self.calls += [("assign", one.partition, one.offset) for one in places]

    def incremental_unassign(self, places: list[TopicPartition]) -> None:
        self.calls += [("unassign", one.partition, one.offset) for one in places]


def _statistics(**bytes_of: int) -> str:
    queues = {
        partition[1:]: {"partition": int(partition[1:]), "fetchq_size": size, "fetchq_cnt": 1}
        for partition, size in bytes_of.items()
    }
    topics = {TOPIC: {"topic": TOPIC, "partitions": queues}}
    return msgspec.json.encode({"name": "client", "topics": topics}).decode()


def test_queues_of_partitions_that_are_read_or_empty_are_left_alone() -> None:
    client, leftovers = _Client(), Leftovers()
    leftovers.heard(_statistics(p0=1, p1=300_000_000, p2=7, p3=0))

    leftovers.drop(cast(Consumer, client), lambda: {(TOPIC, 0)})

    assert [(what, partition) for what, partition, _offset in client.calls] == [
        ("assign", 1),
        ("unassign", 1),
        ("assign", 2),
        ("unassign", 2),
    ]
    offsets = [offset for what, _partition, offset in client.calls if what == "assign"]
    assert offsets == [40, 0], "only a definite one"


def test_each_word_of_the_client_is_heeded_once() -> None:
    client, leftovers = _Client(), Leftovers()
    leftovers.heard(_statistics(p1=1))
    leftovers.drop(cast(Consumer, client), set)
    leftovers.drop(cast(Consumer, client), set)

    assert len(client.calls) == 2
