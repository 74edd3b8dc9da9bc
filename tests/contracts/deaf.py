"""A Kafka client that goes deaf, as that of librdkafka may (`kafka.source.deafness`)."""

from __future__ import annotations

from typing import ClassVar

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka.admin import ClusterMetadata

from mars.adapters.kafka.config import Properties
from mars.adapters.kafka.read import groups as consuming
from mars.adapters.kafka.read.consumers import SliceConsumer
from mars.adapters.kafka.source import deafness, slices
from mars.adapters.kafka.source import reader as source


class GoesDeaf(Consumer):
    """Hears nothing more once its number is in `deaf`; those that are made later hear."""

    deaf: ClassVar[set[int]] = set()
    cut_off: ClassVar[set[int]] = set()
    """Those that have no broker any more, besides."""
    made: ClassVar[list[int]] = []

    def __init__(self, properties: Properties) -> None:
        super().__init__(properties)
        self._number = len(self.made)
        self.made.append(self._number)

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        heard = super().consume(num_messages, timeout)
        return [] if self._number in self.deaf else heard

    def poll(self, timeout: float = -1) -> Message | None:
        heard = super().poll(timeout)
        return None if self._number in self.deaf else heard

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        if self._number in self.cut_off:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        found: ClusterMetadata = super().list_topics(topic, timeout)
        return found


class _SlicesGoDeaf(GoesDeaf, SliceConsumer):
    """The same of those that read stretches."""


@pytest.fixture
def goes_deaf(monkeypatch: pytest.MonkeyPatch) -> type[GoesDeaf]:
    """In the place of all consumers that notice it, which they do within some seconds."""
    monkeypatch.setattr(GoesDeaf, "deaf", set())
    monkeypatch.setattr(GoesDeaf, "cut_off", set())
    monkeypatch.setattr(GoesDeaf, "made", [])
    for module in (consuming, source):
        monkeypatch.setattr(module, "Consumer", GoesDeaf)
    monkeypatch.setattr(slices, "SliceConsumer", _SlicesGoDeaf)
    monkeypatch.setattr(deafness, "DEAF_S", 1.0)
    monkeypatch.setattr(slices, "SILENCE_S", 1.0)
    return GoesDeaf
