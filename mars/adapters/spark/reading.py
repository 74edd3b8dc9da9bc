"""Rows of a topic on an executor: a range of offsets, read with a consumer of its own.

A range is cut into batches by counting messages and bytes from its begin, not by what the broker
happens to deliver at once: whoever reads it again, in whatever task, gets the same batches.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from operator import itemgetter
from typing import cast

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from mars.adapters.kafka.config import lone_reader_properties
from mars.adapters.kafka.errors import (
    OFFSETS_LOST,
    PARTITION_EOF,
    configured,
    translated,
    unavailable,
)
from mars.adapters.kafka.source.undecodable import Halving, is_undecodable, undecodable_records
from mars.core.definitions import REGISTER_AGAIN
from mars.core.errors import PartitionCut, Unavailable
from mars.core.plan import Plan, reads_keys
from mars.core.settings import Settings
from mars.core.types import Lane, Range, Records, lane_partition
from mars.engine.decode.decoded import Decoded
from mars.engine.decode.limits import shortened
from mars.engine.decode.parts import decode_slices

BATCH_ROWS = 50_000
"""Messages of a batch: larger ones leave the processor's cache, smaller ones shrink keys less."""

BATCH_BYTES = 16 * 1024 * 1024
"""Bytes after which a batch ends: with decoding, some 100 MB of memory in each Python process."""

CONSUME_ROWS = 2_000
"""Messages of one call to the client: their objects fit into the processor's cache."""

WAIT_SLICE_S = 0.1
SILENCE_S = 30.0
"""A read that makes no progress for so long is given up; Spark or the caller tries it again."""

WATERMARKS_S = 10.0
"""Longest wait for the answer where a partition begins."""

_time_of = itemgetter(1)


@dataclass(frozen=True, slots=True)
class TopicSource:
    """`Source` of a topic; lanes name its partitions. Of the settings, only Kafka's are read."""

    settings: Settings
    topic: str

    def batches(self, plan: Plan, part: Range) -> Iterator[Decoded | Range]:
        """The committed rows of a range. Raises Unavailable, PartitionCut."""
        for batch in read_here(self.settings, self.topic, part, keys=reads_keys(plan.fields)):
            if isinstance(batch, Range):
                yield batch
            else:
                yield from decode_slices(plan.stream, plan.fields, batch)


_consumers: list[tuple[Settings, Consumer]] = []
"""The consumer of this process: one task at a time runs in it, and connecting takes longer than
reading a thousand rows."""


def consumer_of(settings: Settings) -> Consumer:
    """This process's consumer for these settings; of others it is closed. Raises SettingsError."""
    if _consumers and _consumers[0][0] == settings:
        return _consumers[0][1]
    discard_consumers()
    with configured():
        consumer = Consumer(lone_reader_properties(settings, "bulk"))
    _consumers.append((settings, consumer))
    return consumer


def discard_consumers() -> None:
    """Close this process's consumer; whoever needs one makes another."""
    while _consumers:
        _consumers.pop()[1].close()


def read_here(
    settings: Settings, topic: str, part: Range, *, keys: bool
) -> Iterator[Records | Range]:
    """`read_range` with this process's consumer. Raises SettingsError, too."""
    try:
        yield from read_range(consumer_of(settings), topic, part, keys=keys)
    except Unavailable:
        discard_consumers()  # a client that has gone deaf stays so
        raise


@dataclass(frozen=True, slots=True)
class _Missing:
    """There are no messages `[first, next)`: they are gone, or `undecodable`."""

    first: int
    next: int
    undecodable: bool = False

    def told(self, lane: Lane) -> Iterator[Records | Range]:
        """What stands for them."""
        if not self.undecodable:
            yield Range(lane, self.first, self.next)
            return
        for begin in range(self.first, self.next, BATCH_ROWS):
            yield undecodable_records(lane, begin, min(begin + BATCH_ROWS, self.next))


def read_range(
    consumer: Consumer, topic: str, part: Range, *, keys: bool
) -> Iterator[Records | Range]:
    """The committed records of a range in batches that tile it; a Range stands for lost ones.

    They carry their keys if `keys` says so.
    Raises Unavailable where the broker does not answer, PartitionCut where it has lost the rows.
    """
    position = part.first
    pending: list[Message] = []
    size = 0
    for portion in _portions(consumer, topic, part):
        if isinstance(portion, _Missing):
            if position < portion.first:
                yield _records(part, position, portion.first, pending, keys=keys)
            position, pending, size = portion.next, [], 0
            yield from portion.told(part.lane)
            continue
        pending += portion
        size += sum(map(len, portion))
        while len(pending) >= BATCH_ROWS or size >= BATCH_BYTES:
            batch = pending[: _cut(pending, size)]
            yield _records(part, position, _after(batch), batch, keys=keys)
            position, pending = _after(batch), pending[len(batch) :]
            size -= sum(map(len, batch))
    if position < part.next:
        yield _records(part, position, part.next, pending, keys=keys)


def _cut(messages: list[Message], size: int) -> int:
    """How many messages the next batch takes, whatever portions they came in."""
    if size < BATCH_BYTES:
        return BATCH_ROWS
    return min(BATCH_ROWS, bisect_left(list(accumulate(map(len, messages))), BATCH_BYTES) + 1)


def _before(messages: list[Message], offset: int) -> list[Message]:
    return [message for message in messages if cast(int, message.offset()) < offset]


def _after(messages: list[Message]) -> int:
    return cast(int, messages[-1].offset()) + 1


def _records(
    part: Range, first: int, after: int, messages: list[Message], *, keys: bool
) -> Records:
    offsets: range | list[int] = range(0)
    if messages:
        low, high = cast(int, messages[0].offset()), cast(int, messages[-1].offset())
        contiguous = high - low == len(messages) - 1
        each = map(Message.offset, messages)
        offsets = range(low, high + 1) if contiguous else cast(list[int], list(each))
    return Records(
        lane=part.lane,
        first=first,
        next=after,
        values=shortened(list(map(Message.value, messages))),
        offsets=offsets,
        timestamps_ms=list(map(_time_of, map(Message.timestamp, messages))),
        keys=cast(list[bytes | None], list(map(Message.key, messages))) if keys else None,
    )


def _portions(consumer: Consumer, topic: str, part: Range) -> Iterator[list[Message] | _Missing]:
    """What the client delivers of a range, at once or after a loss, until its end is reached."""
    partition = _partition(part)
    position = part.first
    deadline = time.monotonic() + SILENCE_S
    with translated():
        consumer.assign([TopicPartition(topic, partition, position)])
    try:
        while position < part.next:
            with translated():
                found = consumer.consume(CONSUME_ROWS, 0) or consumer.consume(1, WAIT_SLICE_S)
            rows, error, at = _sorted_out(found, topic, partition)
            if rows:
                position = max(position, _after(rows))
                yield rows if position <= part.next else _before(rows, part.next)
            if error is not None and error.code() == PARTITION_EOF:
                position = max(position, at)
            elif error is not None and error.code() in OFFSETS_LOST:
                left = min(part.next, _first_left(consumer, topic, partition, position))
                if left > position:
                    yield _Missing(position, left)
                    position = left
                _go_to(consumer, topic, part, position)
            elif error is not None and is_undecodable(error):
                first = min(part.next, max(position, at))
                position = _first_behind(consumer, topic, part, at, first)
                if position > first:
                    yield _Missing(first, position, undecodable=True)
                _go_to(consumer, topic, part, position)
            elif error is not None:
                raise unavailable(error)
            deadline = _next_deadline(deadline, topic, part, moved=bool(found) and error is None)
    finally:
        with translated():
            consumer.unassign()


def _partition(part: Range) -> int:
    partition = lane_partition(part.lane)
    if partition is None:
        raise ValueError(f"lane {part.lane} reads no partition")
    return partition


def _go_to(consumer: Consumer, topic: str, part: Range, position: int) -> None:
    if position < part.next:
        with translated():
            consumer.assign([TopicPartition(topic, _partition(part), position)])


def _first_behind(consumer: Consumer, topic: str, part: Range, base: int, within: int) -> int:
    """The first offset behind a batch that cannot be unpacked, as far as the range goes.

    It begins at `base`, and `within` lies in it, or ends the range.
    """
    halving = Halving(base, part.next, within)
    while (end := halving.end) is None:
        offset = halving.asks()
        _go_to(consumer, topic, part, offset)
        halving.answered(offset, _begin_at(consumer, topic, part))
    return end


def _begin_at(consumer: Consumer, topic: str, part: Range) -> int | None:
    """The begin of the batch that cannot be unpacked where the consumer stands; None: it can."""
    deadline = time.monotonic() + SILENCE_S
    while True:
        with translated():
            found = consumer.consume(1, WAIT_SLICE_S)
        rows, error, at = _sorted_out(found, topic, _partition(part))
        if rows or (error is not None and error.code() == PARTITION_EOF):
            return None
        if error is not None:
            if not is_undecodable(error):
                raise unavailable(error)
            return at
        _next_deadline(deadline, topic, part, moved=False)


def _next_deadline(deadline: float, topic: str, part: Range, *, moved: bool) -> float:
    if moved:
        return time.monotonic() + SILENCE_S
    if time.monotonic() > deadline:
        raise Unavailable(
            "kafka",
            f"topic {topic}, lane {part.lane}: no row up to offset {part.next} came for "
            f"{SILENCE_S:.0f} s; check the brokers and whether a transaction stays open",
        )
    return deadline


def _sorted_out(
    found: list[Message], topic: str, partition: int
) -> tuple[list[Message], KafkaError | None, int]:
    """The rows before the first error, that error, and the offset that it names.

    Errors of what this consumer read before may still be on their way, and are left out. An end of
    the partition is an error only where it comes last: the client had come to the end that a broker
    knew of, a follower's may lie behind, and has gone on.
    """
    errors = list(map(Message.error, found))
    if any(errors):
        found = [one for one in found if one.topic() == topic and one.partition() == partition]
        found = [*(one for one in found[:-1] if not _is_end(one)), *found[-1:]]
        errors = list(map(Message.error, found))
    if not any(errors):
        return found, None, -1
    at = next(number for number, error in enumerate(errors) if error is not None)
    offset = found[at].offset()
    return found[:at], errors[at], -1 if offset is None else offset


def _is_end(message: Message) -> bool:
    error = message.error()
    return error is not None and error.code() == PARTITION_EOF


def _first_left(consumer: Consumer, topic: str, partition: int, position: int) -> int:
    """The lowest offset at or above `position` that is left.

    It is `position` itself where an earlier read's complaint came late.
    """
    with translated():
        answer = consumer.get_watermark_offsets(
            TopicPartition(topic, partition), timeout=WATERMARKS_S
        )
    if answer is None:
        raise unavailable("")
    low, high = answer
    if position > high:
        raise PartitionCut(
            f"Topic {topic} partition {partition} ends at offset {high}, before {position}, which "
            f"it once had: Kafka has lost rows, or the topic was made anew: {REGISTER_AGAIN}.",
            high,
        )
    return max(int(low), position)
