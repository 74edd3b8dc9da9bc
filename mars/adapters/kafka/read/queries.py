"""Answers of ad-hoc queries in the topic `mars.queries`."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import closing
from functools import partial
from typing import cast

from confluent_kafka import KafkaError, Message, Producer
from xxhash import xxh3_64_intdigest

from mars.adapters.kafka.admin import KafkaTopicAdmin
from mars.adapters.kafka.config import answer_properties
from mars.adapters.kafka.errors import (
    CALL_FAILED,
    OUTPUT_REFUSALS,
    configured,
    kafka_error,
    translated,
    unavailable,
)
from mars.adapters.kafka.names import Names
from mars.adapters.kafka.read.answers import (
    PART,
    AnswerRecord,
    found,
    gone,
    parts_of,
    rows_of,
    size_of,
)
from mars.adapters.kafka.sink.transaction import INIT_TIMEOUT_S, ROOM_WAIT_S
from mars.adapters.kafka.source.slices import SliceReader
from mars.core.errors import JobFailed, Unavailable
from mars.core.settings import Settings
from mars.core.types import Topic
from mars.protocol.ports.queries import Answer, AnswerPlace, AnswerSlot, QueryId, Written

SETTLE_WAIT_S = 10.0
"""How long the transactions of other queries may hide what lies behind them: they take a second."""

LOOK_AGAIN_S = 0.05

Report = Callable[[KafkaError | None, Message], None]


class KafkaQueryRows:
    """`QueryRows` on Kafka; safe for threads."""

    def __init__(self, settings: Settings, admin: KafkaTopicAdmin | None = None) -> None:
        self._settings = settings
        self._member = settings.member or "mars"
        self._topic = Names(settings.namespace).queries
        self._admin = admin or KafkaTopicAdmin(settings)
        self._reader = SliceReader(settings, f"{self._member}-queries")

    def reserve(self, query: QueryId) -> AnswerSlot:
        """A partition by the hash of the id, and its end as of now."""
        info = self._admin.describe(self._topic)
        if info is None:
            raise Unavailable(
                "kafka",
                f"there is no topic {self._topic}; start a process of the API, which creates it",
            )
        partition = xxh3_64_intdigest(query.encode()) % info.partitions
        return AnswerSlot(partition, self._admin.end(self._topic, partition))

    def recover(self, query: QueryId, slot: AnswerSlot) -> Written | None:
        """The answer if it was committed."""
        self._producer(query)
        return self._found(query, slot)

    def write(self, answer: Answer, slot: AnswerSlot) -> Written:
        """Commit an answer, or find the one that was committed before."""
        producer = self._producer(answer.query)
        before = self._found(answer.query, slot)
        if before is not None:
            return before
        transaction = _Transaction(
            producer, self._settings.reducer.transaction_timeout_ms / 1000, self._topic
        )
        try:
            first, last = transaction.write(answer, slot.partition)
        except BaseException:
            transaction.give_up()
            raise
        size = size_of(answer.rows)
        place = AnswerPlace(slot.partition, first, last + 1, len(answer.rows), size)
        return Written(place, answer.counts)

    def read(self, query: QueryId, place: AnswerPlace) -> list[bytes]:
        """The rows of an answer."""
        partition = place.partition
        info = self._admin.describe(self._topic)
        if info is None or self._admin.start(self._topic, partition) > place.first:
            raise gone(query)
        if self._admin.written_end(self._topic, partition) < place.next:
            raise gone(query)
        self._wait_until_stable(partition, place.next)
        return rows_of(query, place, self._records(partition, place.first, place.next))

    def close(self) -> None:
        """Free the consumer."""
        self._reader.close()

    def _producer(self, query: QueryId) -> Producer:
        """A producer that has fenced all others of the query."""
        with configured():
            producer = Producer(answer_properties(self._settings, self._member, query))
        with translated():
            producer.init_transactions(INIT_TIMEOUT_S)
        return producer

    def _found(self, query: QueryId, slot: AnswerSlot) -> Written | None:
        """Look through all that was ever written for the query, once none of it is open."""
        end = self._admin.written_end(self._topic, slot.partition)
        self._wait_until_stable(slot.partition, end)
        with closing(self._records(slot.partition, slot.first, end)) as records:
            return found(query, slot.partition, records)

    def _wait_until_stable(self, partition: int, end: int) -> None:
        """Until no open transaction hides what lies below `end`.

        Brokers answer a commit a moment before readers see it.
        """
        deadline = time.monotonic() + SETTLE_WAIT_S
        while (stable := self._admin.end(self._topic, partition)) < end:
            if time.monotonic() > deadline:
                raise Unavailable(
                    "kafka",
                    f"an open transaction hides {self._topic}[{partition}] from offset {stable} on;"
                    " it ends by itself within its time-out",
                )
            time.sleep(LOOK_AGAIN_S)

    def _records(self, partition: int, first: int, end: int) -> Generator[AnswerRecord, None, None]:
        """Committed records; read it to its end or close it."""
        with closing(self._reader.read(self._topic, partition, first, end)) as portions:
            for portion in portions:
                yield from map(_record, portion)


class _Transaction:
    """One transaction of one query."""

    def __init__(self, producer: Producer, timeout_s: float, topic: Topic) -> None:
        self._producer = producer
        self._timeout_s = timeout_s
        self._topic = topic
        self._offsets: list[int] = []
        self._errors: list[tuple[Topic, KafkaError]] = []

    def write(self, answer: Answer, partition: int) -> tuple[int, int]:
        """Write and commit everything; the first and the last offset of the answer."""
        with translated():
            self._producer.begin_transaction()
        report = partial(self._reported, self._topic)
        for value, part in parts_of(answer):
            headers = ((PART, part),)
            key = answer.query.encode()
            self._produce(self._topic, partition, key, value, headers, report)
        if answer.output is not None:
            output = answer.output
            report = partial(self._reported, output.topic)
            for row in output.rows:
                self._produce(
                    output.topic, output.partition, row.key, row.value, row.headers, report
                )
        self._commit()
        return min(self._offsets), max(self._offsets)

    def give_up(self) -> None:
        """End the transaction, if it can be reached, so that it hides nothing."""
        try:
            self._producer.abort_transaction(ROOM_WAIT_S)
        except CALL_FAILED:
            pass  # the next attempt, or its time-out, ends it

    def _produce(
        self,
        topic: Topic,
        partition: int,
        key: bytes,
        value: bytes,
        headers: tuple[tuple[str, bytes], ...],
        report: Report,
    ) -> None:
        deadline = time.monotonic() + self._timeout_s
        while True:
            self._raise_refusal()
            try:
                self._producer.produce(topic, value, key, partition, report, headers=[*headers])
            except BufferError as error:
                if time.monotonic() > deadline:
                    raise Unavailable("kafka", f"the brokers do not take rows ({error})") from error
                self._producer.poll(ROOM_WAIT_S)
            except CALL_FAILED as error:
                raise self._failed(topic, kafka_error(error)) from error
            else:
                return

    def _commit(self) -> None:
        try:
            left = self._producer.flush(self._timeout_s)
            self._raise_refusal()
            if left:
                raise Unavailable(
                    "kafka", f"the brokers did not take rows within {self._timeout_s:.0f} s"
                )
            self._producer.commit_transaction(self._timeout_s)
        except CALL_FAILED as error:
            raise self._failed(self._topic, kafka_error(error)) from error

    def _reported(self, topic: Topic, error: KafkaError | None, message: Message) -> None:
        """The client calls it for each record."""
        if error is not None:
            self._errors.append((topic, error))
        elif topic == self._topic:
            self._offsets.append(cast(int, message.offset()))

    def _raise_refusal(self) -> None:
        """A refusal first: other rows fail in its wake."""
        refusals = [one for one in self._errors if one[1].code() in OUTPUT_REFUSALS]
        for topic, error in [*refusals, *self._errors]:
            raise self._failed(topic, error)

    @staticmethod
    def _failed(topic: Topic, error: KafkaError | None) -> JobFailed | Unavailable:
        problem = unavailable(error or "the client gave no reason")
        if error is not None and error.code() in OUTPUT_REFUSALS:
            return JobFailed(f"topic {topic} does not take a row: {problem.detail}")
        return problem


def _record(message: Message) -> AnswerRecord:
    pairs = cast("list[tuple[str, bytes]]", message.headers() or [])
    return AnswerRecord(
        offset=cast(int, message.offset()),
        key=message.key(),
        value=message.value(),
        part=dict(pairs).get(PART),
    )
