"""Results of a task, read by a program of the user's: its consumer group keeps how far it is."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import msgspec
from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from mars.adapters.kafka.admin import KafkaTopicAdmin
from mars.adapters.kafka.config import consumer_properties
from mars.adapters.kafka.errors import (
    AWAY,
    FORBIDDEN,
    MOVED,
    PARTITION_EOF,
    configured,
    kafka_error,
    translated,
    unavailable,
)
from mars.adapters.kafka.names import Place
from mars.adapters.kafka.read.rows import UNREADABLE, bytes_of, committed_row, headers_of
from mars.adapters.kafka.source.deafness import Deafness, Stalled
from mars.core.errors import MarsError, NotFound, Unavailable
from mars.core.settings import Settings
from mars.core.types import TaskName, Topic

if TYPE_CHECKING:
    import polars as pl

POLL_S = 0.2
"""Longest wait in one call: how late Ctrl-C is noticed."""

CALL_TIMEOUT_S = 5.0
"""For a question about the topic; a healthy broker needs milliseconds."""

JOIN_S = 60.0
"""Longest wait for a place in the group; members that have died are given up after 45 s or less."""


class ConsumedRow(msgspec.Struct, frozen=True):
    """A committed result row, and where it lies.

    `key` holds the window's start and the other group keys, `row` the columns by name. `revision`
    is 0 for what came first; of each key the row of the highest one is what holds, and where that
    is `deleted`, the group is no result any more. `complete` is False where the window began before
    the task.
    """

    topic: str
    partition: int
    offset: int
    key: list[Any]
    row: dict[str, Any]
    version: int
    revision: int
    complete: bool
    deleted: bool = False


class KafkaResultConsumer:
    """Iterates over result rows in the order of each partition. One thread at a time.

    A row is *handled* when the next one is asked for, or when the `with` block ends without an
    error. Offsets of handled rows are committed for the group about every second, before a
    partition moves to another member, and at the end. So a program that ends in order, with an
    error or without, handles each row exactly once over all its runs, and so do the members of a
    group together. One that is killed, or takes more than five minutes for a row, gets those again
    which it handled in the last second; it never misses one. Where even that must not be,
    keep `partition` and `offset` + 1 in the same transaction as what you make of a row, and begin
    there: with `begin` nothing is committed to Kafka, and the program alone decides.
    """

    def __init__(
        self,
        settings: Settings,
        topic: Topic,
        task: TaskName,
        group: str,
        *,
        begin: Mapping[int, int] | None = None,
        silence_s: float | None = None,
    ) -> None:
        self._topic = topic
        self._task = task.encode()
        self._silence_s = silence_s
        self._group = group
        self._joined_s: float | None = None
        """When the group, or the program itself, said last which partitions are ours."""
        self._in_hand: list[Message] = []
        self._stopped = False
        self._kept_by_group = begin is None
        self._reached: dict[Place, int] = {}
        self._deafness = Deafness(KafkaTopicAdmin(settings))
        self._cut_off = Stalled()
        with configured():
            self._consumer = Consumer(consumer_properties(settings, group))
        try:
            with translated():
                self._start(begin)
        except BaseException:
            self._consumer.close()
            raise

    def _start(self, begin: Mapping[int, int] | None) -> None:
        partitions = self._consumer.list_topics(self._topic, CALL_TIMEOUT_S).topics[self._topic]
        if partitions.error is not None:
            raise NotFound(f"Kafka has no topic {self._topic}; check the address of Kafka.")
        if begin is None:
            self._consumer.subscribe(
                [self._topic], on_assign=self._assigned, on_revoke=self._revoked
            )
            return
        self._joined_s = time.monotonic()
        self._consumer.assign(
            [
                TopicPartition(self._topic, part, begin.get(part, 0))
                for part in partitions.partitions
            ]
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self._handled()
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ConsumedRow:
        """The next row; ends after `silence_s` without one, once the group has let us in.

        Raises Unavailable, also where the group lets nobody in for a minute.
        """
        self._handled()
        row = self._next()
        if row is None:
            raise StopIteration
        return row

    def _next(self) -> ConsumedRow | None:
        """One more row in hand; None after `silence_s` without one, and once it is stopped."""
        quiet_since_s = time.monotonic()
        while not self._stopped:
            with translated():
                message = self._consumer.poll(0)
            if message is None:  # all that was fetched is read, of any partition
                self._raise_if_deaf()
                with translated():
                    message = self._consumer.poll(POLL_S)
            if message is not None:
                self._cut_off.heard(time.monotonic())
                self._note(message)
            row = None if message is None else self._row(message)
            if message is not None and row is not None:
                self._in_hand.append(message)
                return row
            if self._silence_s is not None and self._is_over(quiet_since_s, self._silence_s):
                return None
        return None

    def _is_over(self, quiet_since_s: float, silence_s: float) -> bool:
        """True after so long without a row; to wait for a place in the group is no silence."""
        now_s = time.monotonic()
        if self._joined_s is not None:
            return now_s - max(quiet_since_s, self._joined_s) >= silence_s
        if now_s - quiet_since_s >= JOIN_S:
            raise Unavailable(
                "kafka",
                f"the group {self._group} has let no consumer in for {JOIN_S:.0f} s: look at its "
                "members and at the brokers, or read with another group",
            )
        return False

    def _note(self, message: Message) -> None:
        """How far its partition has been read."""
        error, topic, offset = message.error(), message.topic(), message.offset()
        if topic is None or offset is None:
            return
        if error is None or error.code() == PARTITION_EOF:
            place = Topic(topic), message.partition() or 0
            self._reached[place] = offset if error is not None else offset + 1

    def _raise_if_deaf(self) -> None:
        now_s = time.monotonic()
        deaf = self._deafness.reason(self._reached, now_s)
        cut_off = self._cut_off.reason(self._consumer, (self._topic,), now_s)
        if (reason := deaf or cut_off) is not None:
            raise _lost(reason)

    def _assigned(self, _consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        """While the client is polled, when no row is in hand."""
        self._joined_s = time.monotonic()

    def _revoked(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """While the client is polled, when no row is in hand."""
        for one in partitions:
            self._reached.pop((Topic(one.topic), one.partition), None)

    def df(self) -> pl.DataFrame:
        """All rows until none came for `silence_s`, as a frame of polars: see `frame_of_stream`.

        Revisions come as rows of their own, so that they can be put to what was read before;
        `mars.engine.frames.holding` leaves those that hold. They are handled when the next row is
        asked for, or when the `with` block ends without an error: for a program that is alone in
        its group. Raises Unavailable, and MarsError where it would never end.
        """
        if self._silence_s is None:
            raise MarsError("df() ends when no row comes: give consume() a silence_s, such as 5")
        # Frames are loaded by who wants them: it takes longer than most programs need to start.
        from mars.engine.frames import frame_of_stream  # noqa: PLC0415

        self._handled()
        rows = []
        while (row := self._next()) is not None:
            rows.append(row)
        return frame_of_stream(rows)

    def _row(self, message: Message) -> ConsumedRow | None:
        error = message.error()
        if error is not None:
            if error.code() in AWAY | FORBIDDEN:
                raise unavailable(error)
            return None  # the client goes on by itself
        found = committed_row(
            message.partition() or 0,
            message.offset() or 0,
            bytes_of(message.key()),
            bytes_of(message.value()),
            headers_of(message),
            self._task,
        )
        if found is None:
            return None  # of another task that writes to the same topic
        try:
            key = msgspec.json.decode(found.key, type=list[Any])
            row = msgspec.json.decode(found.value, type=dict[str, Any])
        except UNREADABLE:
            return None  # somebody else's, which only looks like one of ours
        return ConsumedRow(
            topic=self._topic,
            partition=found.partition,
            offset=found.offset,
            key=key,
            row=row,
            version=found.version,
            revision=found.revision,
            complete=found.complete,
            deleted=found.deleted,
        )

    def _handled(self) -> None:
        """Whoever had the rows in hand is done with them."""
        messages, self._in_hand = self._in_hand, []
        if not self._kept_by_group:
            return
        last = {message.partition(): message for message in messages}
        for message in last.values():
            self._store(message)

    def _store(self, message: Message) -> None:
        try:
            self._consumer.store_offsets(message)
        except KafkaException as error:
            found = kafka_error(error)
            if found is None or found.code() not in MOVED:
                raise unavailable(found or str(error)) from error

    def stop(self) -> None:
        """End another thread's wait for a row, soon; the consumer is to be closed then."""
        self._stopped = True

    def close(self) -> None:
        """Commit what was handled, and leave the group. A row in hand is not handled."""
        self._in_hand = []
        with translated():
            self._consumer.close()


def _lost(why: str) -> Unavailable:
    """For a client that will not go on by itself (`deafness`)."""
    advice = "close this consumer and make another, which goes on where this one was"
    return Unavailable("kafka", f"{why}: {advice}")
