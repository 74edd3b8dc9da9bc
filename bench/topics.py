"""Topics, seen from outside: made, measured and read as committed."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterator, Mapping

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    ConsumerGroupState,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
)

from mars.adapters.kafka.errors import NO_LEADER

ANSWER_S = 20.0
"""Longest answer of the broker; it answers in milliseconds unless it starves."""

READ_MESSAGES = 10_000
"""Messages of one read."""

SILENCE_S = 30.0
"""Longest wait for the next message of a topic that has one."""

# librdkafka writes to standard error when a broker goes away, as each does after its run.
_silent = logging.getLogger("bench.topics.silent")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False


NO_COORDINATOR = frozenset(
    {
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
"""Said of a group while the broker makes the topic in which groups are kept: the first is late."""


class Topics:
    """Asks one broker."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap}, logger=_silent)
        self._asker = reader(bootstrap)

    def make(self, topic: str, partitions: int) -> None:
        """Make a topic that must not be there yet."""
        new = NewTopic(topic, num_partitions=partitions, replication_factor=1)
        self._admin.create_topics([new], operation_timeout=ANSWER_S)[topic].result(ANSWER_S)

    def exists(self, topic: str) -> bool:
        """Whether there is such a topic."""
        return topic in self._admin.list_topics(timeout=ANSWER_S).topics

    def members(self, group: str) -> int:
        """How many consumers have shared partitions out between them; 0 while they are at it."""
        try:
            found = self._admin.describe_consumer_groups([group])[group].result(ANSWER_S)
        except KafkaException as error:
            if error.args[0].code() not in NO_COORDINATOR:
                raise
            return 0
        return len(found.members) if found.state is ConsumerGroupState.STABLE else 0

    def ends(self, topic: str) -> dict[int, int]:
        """The last stable offset of each partition: below it everything is decided.

        Empty for a topic that does not exist (yet). One that is being made is waited for: its
        partitions are told of before their leaders answer.
        """
        deadline = time.monotonic() + ANSWER_S
        while True:
            known = self._admin.list_topics(timeout=ANSWER_S).topics
            if topic not in known:
                return {}
            try:
                return self.ends_of(topic, list(known[topic].partitions))
            except KafkaException as error:
                if error.args[0].code() not in NO_LEADER or time.monotonic() > deadline:
                    raise

    def ends_of(self, topic: str, partitions: list[int]) -> dict[int, int]:
        """The same where the partitions are known: one request."""
        asked = [TopicPartition(topic, number, OFFSET_END) for number in partitions]
        answers = self._asker.offsets_for_times(asked, ANSWER_S)
        for place in answers:
            if place.error is not None:
                raise KafkaException(place.error)
        return {place.partition: place.offset for place in answers}

    def read(self, topic: str, ends: Mapping[int, int]) -> Iterator[list[Message]]:
        """All committed messages from the beginning to `ends`. Raises TimeoutError, KafkaException.

        What lies at `ends` and beyond may come too.
        """
        wanted = {number: end for number, end in ends.items() if end > 0}
        consumer = reader(self._bootstrap)
        try:
            consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in wanted])
            yield from _until(consumer, topic, wanted)
        finally:
            consumer.close()


def _until(consumer: Consumer, topic: str, wanted: Mapping[int, int]) -> Iterator[list[Message]]:
    places = [TopicPartition(topic, number) for number in wanted]
    deadline = time.monotonic() + SILENCE_S
    # The position passes markers of transactions, which are no messages.
    while any(place.offset < wanted[place.partition] for place in consumer.position(places)):
        messages = consumer.consume(READ_MESSAGES, timeout=0.1)
        if messages:
            deadline = time.monotonic() + SILENCE_S
            yield checked(messages)
        elif time.monotonic() > deadline:
            raise TimeoutError(f"{topic} could not be read to its end within {SILENCE_S:.0f} s")


def produce(producer: Producer, topic: str, message: bytes, partition: int) -> None:
    """Hand a message over, once there is room for it."""
    while True:
        try:
            return producer.produce(topic, message, partition=partition)
        except BufferError:
            producer.poll(0.1)  # it waits for the broker, so do we


def checked(messages: list[Message]) -> list[Message]:
    """The same messages. Raises KafkaException for the first that is an error."""
    for message in messages:
        error = message.error()
        if error is not None:
            raise KafkaException(error)
    return messages


def reader(bootstrap: str, wait_max_ms: int = 100) -> Consumer:
    """A consumer that belongs to no one and reads what is committed.

    `wait_max_ms`: how long the broker may hold a request for which it has nothing.
    """
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"bench-{uuid.uuid4().hex}",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": wait_max_ms,
            "fetch.queue.backoff.ms": 2,
        },
        logger=_silent,
    )
