"""Feeds synthetic records into a topic: for the demo and for trials, never part of the service."""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from mars.adapters.probe import silent
from mars.core.errors import Unavailable

CALL_TIMEOUT_S = 10.0
"""For making a topic, and for the last records to be delivered."""


class Feed:
    """Writes messages to one topic, spread over its partitions; makes a missing topic."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._topic = topic
        self._partitions = partitions
        self._next = 0
        self._make_topic(AdminClient({"bootstrap.servers": bootstrap}, logger=silent))
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "linger.ms": 20,
                "compression.type": "lz4",
                "queue.buffering.max.messages": 1_000_000,
            },
            logger=silent,
        )

    def _make_topic(self, admin: AdminClient) -> None:
        made = admin.create_topics([NewTopic(self._topic, self._partitions, 1)])
        try:
            made[self._topic].result(CALL_TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise Unavailable("kafka", str(error.args[0].str())) from error
        except TimeoutError as error:
            raise Unavailable("kafka", "the topic could not be created in time") from error

    def send(self, messages: Sequence[bytes]) -> int:
        """Queue messages, round robin; how many the queue took."""
        sent = 0
        for message in messages:
            try:
                self._producer.produce(self._topic, message, partition=self._next)
            except BufferError:
                break
            self._next = (self._next + 1) % self._partitions
            sent += 1
        self._producer.poll(0)
        return sent

    def deliver(self) -> None:
        """Wait until what is queued has arrived."""
        self._producer.flush(CALL_TIMEOUT_S)
