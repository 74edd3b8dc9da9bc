"""Reads known stretches of partitions and stops."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Iterator, Mapping
from typing import cast

from confluent_kafka import Consumer, Message

from mars.adapters.kafka.config import slice_reader_properties
from mars.adapters.kafka.errors import PARTITION_EOF, configured, translated, unavailable
from mars.adapters.kafka.read.consumers import SliceConsumer, Spans
from mars.core.errors import Unavailable
from mars.core.settings import Settings
from mars.core.types import Topic

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
        self._consumer: SliceConsumer | None = None
        self._lock = threading.Lock()

    def read(
        self, topic: Topic, partition: int, first: int, end: int
    ) -> Generator[list[Message], None, None]:
        """The records at `[first, end)`, in portions, each in offset order.

        `end` is at most the last stable offset, or the last one of all. Read it to its end or close
        it: others wait.
        """
        return self.read_all(topic, {partition: (first, end)})

    def read_all(self, topic: Topic, spans: Spans) -> Generator[list[Message], None, None]:
        """The same for several partitions at once, which takes hardly longer than for one.

        Each partition's records are in offset order.
        """
        ends = {partition: end for partition, (first, end) in spans.items() if first < end}
        if not ends:
            return
        with self._lock:
            consumer = self._opened()
            try:
                with translated():
                    consumer.read_from(topic, {one: spans[one][0] for one in ends}, SILENCE_S)
                yield from _portions(consumer, ends)
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

    def _opened(self) -> SliceConsumer:
        if self._consumer is None:
            with configured():
                self._consumer = SliceConsumer(self._properties)
        return self._consumer


def _portions(consumer: Consumer, ends: Mapping[int, int]) -> Iterator[list[Message]]:
    """All records below these ends, by partition."""
    left = set(ends)
    deadline = time.monotonic() + SILENCE_S
    while left:
        with translated():
            messages = consumer.consume(CONSUME_ROWS, 0) or consumer.consume(1, WAIT_SLICE_S)
        if any(message.partition() in left for message in messages):
            deadline = time.monotonic() + SILENCE_S
        elif time.monotonic() > deadline:
            raise Unavailable(
                "kafka", f"a read made no progress for {SILENCE_S:.0f} s; check the brokers"
            )
        wanted = []
        for message in messages:
            partition, at_end = cast(int, message.partition()), _is_end(message)
            if not at_end and cast(int, message.offset()) < ends[partition]:
                wanted.append(message)
            if _position_after(message) >= ends[partition]:
                left.discard(partition)
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
