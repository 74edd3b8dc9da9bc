"""Reads a known stretch of a partition and stops."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Iterator
from typing import cast

from confluent_kafka import Consumer, Message, TopicPartition

from mars.adapters.kafka.config import slice_reader_properties
from mars.adapters.kafka.errors import PARTITION_EOF, configured, translated, unavailable
from mars.errors import Unavailable
from mars.settings import Settings
from mars.types import Topic

SILENCE_S = 10.0
"""A read that makes no progress for so long is given up."""

CONSUME_ROWS = 2_000
WAIT_SLICE_S = 0.1


class SliceReader:
    """One consumer, made when it is first needed; one read at a time, others wait.

    It reads committed records only, or with `committed` False all of them.
    """

    def __init__(self, settings: Settings, member: str, *, committed: bool = True) -> None:
        self._properties = slice_reader_properties(settings, member, committed=committed)
        self._consumer: Consumer | None = None
        self._lock = threading.Lock()

    def read(
        self, topic: Topic, partition: int, first: int, end: int
    ) -> Generator[list[Message], None, None]:
        """The records at `[first, end)`, in portions, each in offset order.

        `end` is at most the last stable offset, or the last one of all. Read it to its end or close
        it: others wait.
        """
        if first >= end:
            return
        with self._lock:
            consumer = self._opened()
            try:
                with translated():
                    consumer.assign([TopicPartition(topic, partition, first)])
                yield from _portions(consumer, end)
            except Unavailable:
                self._discard()
                raise
            finally:
                if self._consumer is not None:
                    with translated():
                        consumer.unassign()

    def close(self) -> None:
        """Free the consumer, after a read under way."""
        with self._lock:
            self._discard()

    def _discard(self) -> None:
        """The next read has a new one: this one may have gone deaf (`deafness`)."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            with translated():
                consumer.close()

    def _opened(self) -> Consumer:
        if self._consumer is None:
            with configured():
                self._consumer = Consumer(self._properties)
        return self._consumer


def _portions(consumer: Consumer, end: int) -> Iterator[list[Message]]:
    position = -1
    deadline = time.monotonic() + SILENCE_S
    while position < end:
        with translated():
            messages = consumer.consume(CONSUME_ROWS, 0) or consumer.consume(1, WAIT_SLICE_S)
        if messages:
            deadline = time.monotonic() + SILENCE_S
        elif time.monotonic() > deadline:
            raise Unavailable(
                "kafka", f"a read made no progress for {SILENCE_S:.0f} s, check the brokers"
            )
        rows = [message for message in messages if not _is_end(message)]
        if messages:
            position = max(position, _position_after(messages[-1]))
        wanted = [row for row in rows if cast(int, row.offset()) < end]
        if wanted:
            yield wanted


def _is_end(message: Message) -> bool:
    """Whether it tells the end of the partition instead of being a record."""
    error = message.error()
    if error is None:
        return False
    if error.code() == PARTITION_EOF:
        return True
    raise unavailable(error)


def _position_after(message: Message) -> int:
    offset = cast(int, message.offset())
    return offset if message.error() is not None else offset + 1
