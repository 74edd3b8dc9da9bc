"""What a client has unpacked for partitions that it no longer reads.

A partition that is given up while librdkafka (seen with 2.16.0) unpacks its messages gets them all
the same, into a queue from which nobody takes any more. They stay for as long as the client lives:
300 MB of zeros, which are 300 KB on the wire, in each mapper that had the partition. Statistics
tell of such queues. To assign the partition once more, for a moment, empties its queue into that of
the client, which throws away what was asked for before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import msgspec
from confluent_kafka import Consumer, TopicPartition

from mars.adapters.kafka.names import Place
from mars.core.types import Topic

STATISTICS_MS = 5_000
"""How often the client tells of its queues: memory is to be given back within ten seconds."""


class _Queue(msgspec.Struct, frozen=True):
    """`fetchq_size`: bytes."""

    partition: int
    fetchq_size: int = 0


class _Topic(msgspec.Struct, frozen=True):
    topic: str
    partitions: dict[str, _Queue]


class _Statistics(msgspec.Struct, frozen=True):
    """The part of them that is needed; librdkafka's STATISTICS.md has all."""

    topics: dict[str, _Topic] = {}


_decoder = msgspec.json.Decoder(_Statistics)


class Leftovers:
    """Hears what a client has in its queues, and empties those of partitions it does not read."""

    def __init__(self) -> None:
        self._filled: set[Place] = set()

    def heard(self, statistics: str) -> None:
        """Take what the client tells of itself (`stats_cb`)."""
        self._filled = {
            (Topic(one.topic), queue.partition)
            for one in _decoder.decode(statistics).topics.values()
            for queue in one.partitions.values()
            if queue.fetchq_size > 0
        }

    def drop(self, client: Consumer, read: Callable[[], Collection[Place]]) -> None:
        """Empty the queues that were heard of, but for those of partitions that are `read`."""
        if not self._filled:
            return
        filled, self._filled = self._filled, set()
        for place in sorted(filled.difference(read())):
            _low, high = client.get_watermark_offsets(TopicPartition(*place), cached=True)
            # At a definite offset: one that were asked for first, such as the end, would outlive
            # the second call, and the partition would be fetched on, for nobody.
            client.incremental_assign([TopicPartition(*place, max(0, high))])
            client.incremental_unassign([TopicPartition(*place)])
