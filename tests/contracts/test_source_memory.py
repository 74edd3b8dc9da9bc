"""What a partition was given up over is given back, though the client goes on unpacking it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial

import pytest

from mars.adapters.kafka.source import reader as reader_module
from mars.adapters.kafka.source.reader import KafkaReader
from mars.core.types import MemberId, Topic
from tests.contracts.kafka_servers import KafkaCluster
from tests.contracts.waiting import eventually
from tests.support.poison import MIB, Poison, PoisonSender, memory_mib

pytestmark = pytest.mark.integration

UNPACKED_MIB = 300
BEGUN_MIB = 10
"""The client has begun to unpack."""

SEEKS_MAX = 10
STATISTICS_MS = 100


@pytest.fixture
def reader(kafka_cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[KafkaReader]:
    monkeypatch.setattr(reader_module, "STATISTICS_MS", STATISTICS_MS)
    reader = KafkaReader.alone(kafka_cluster.settings, MemberId("m"))
    yield reader
    reader.close()


def _memory() -> int:
    return memory_mib(os.getpid())[0]


def _takes_more_than(mib: int) -> bool:
    return _memory() > mib


def _is_idle_below(mib: int, reader: KafkaReader) -> bool:
    return not reader.poll(1, 0.0) and _memory() < mib


def _dropped_while_unpacking(reader: KafkaReader, topic: Topic) -> int:
    """Memory in MiB before; where the drop came too late, it is done again."""
    for _ in range(SEEKS_MAX):
        before = _memory()
        reader.seek(topic, 0, 0)
        eventually(partial(_takes_more_than, before + BEGUN_MIB))
        reader.drop(topic, 0)
        if _memory() < before + UNPACKED_MIB - BEGUN_MIB:
            return before
        eventually(partial(_is_idle_below, before + BEGUN_MIB, reader))
    pytest.fail("it was never caught unpacking")


def test_what_is_unpacked_for_a_partition_that_was_given_up_is_given_back(
    kafka_cluster: KafkaCluster, reader: KafkaReader
) -> None:
    topic = kafka_cluster.topic(1)
    zeros = bytes(UNPACKED_MIB * MIB)
    PoisonSender(kafka_cluster.bootstrap).send(topic, 0, Poison("json", "gzip", zeros, 1))
    before = _dropped_while_unpacking(reader, topic)

    eventually(lambda: _memory() > before + UNPACKED_MIB - BEGUN_MIB)

    eventually(lambda: not reader.poll(10, 0.0) and _memory() < before + UNPACKED_MIB // 4)
