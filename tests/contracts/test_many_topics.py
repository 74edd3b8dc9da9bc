"""One consumer reads of many topics in turn: those of all tasks, when a bucket moves."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from mars.adapters.kafka.read.results import KafkaResultTail
from mars.adapters.kafka.source.slices import SliceReader
from mars.core.types import Bucket, TaskName, Topic
from mars.engine.codec.result_headers import result_headers
from tests.contracts.kafka_servers import KafkaCluster

pytestmark = pytest.mark.integration

TASK = TaskName("by_sip")

WITHIN_S = 10.0
"""A consumer that has not heard of a topic finds who leads it within a second: all of these took it
24 s. One that has heard of it needs some milliseconds for each."""


@pytest.fixture
def topics(kafka_cluster: KafkaCluster) -> Sequence[Topic]:
    """Each with one result row."""
    found = [kafka_cluster.topic(1) for _ in range(60)]
    headers = result_headers(TASK, 1, Bucket(0), 1, complete=True, ranges=(), rows=1)
    for topic in found:
        kafka_cluster.append(topic, 0, [b'{"window_start":0}'], key=b"[0]", headers=headers)
    return found


def test_stretches_of_many_topics(kafka_cluster: KafkaCluster, topics: Sequence[Topic]) -> None:
    reader = SliceReader(kafka_cluster.settings, "many")
    began = time.monotonic()
    rows = [message for topic in topics for some in reader.read(topic, 0, 0, 1) for message in some]
    assert [row.topic() for row in rows] == topics
    assert time.monotonic() - began < WITHIN_S
    reader.close()


def test_results_of_many_tasks(kafka_cluster: KafkaCluster, topics: Sequence[Topic]) -> None:
    tail = KafkaResultTail(kafka_cluster.settings)
    began = time.monotonic()
    assert [len(tail.recent(topic, TASK, 1, None).rows) for topic in topics] == [1] * len(topics)
    assert time.monotonic() - began < WITHIN_S
