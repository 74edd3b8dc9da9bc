"""Output topics and `mars.dead`, read from their ends for people.

Everything here reads `read_committed` and assigns partitions by itself: no consumer group, nothing
committed. A topic that does not exist (yet) has no rows.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict, deque
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from mars.adapters.kafka.config import lone_reader_properties, slice_reader_properties
from mars.adapters.kafka.errors import PARTITION_EOF, configured, translated
from mars.adapters.kafka.names import Names
from mars.adapters.kafka.rows import (
    bytes_of,
    committed_row,
    dead_letter,
    headers_of,
    wanted_letter,
)
from mars.errors import Unavailable
from mars.ports import CommittedRow, DeadLetter, DeadPage
from mars.settings import Settings
from mars.types import TaskName, Topic

CALL_TIMEOUT_S = 5.0
"""For metadata and offsets; a healthy broker needs milliseconds."""

READ_TIMEOUT_S = 15.0
"""For everything that one call reads: a full scan of 8 partitions takes about 5 s."""

SCAN_MESSAGES_MAX = 200_000
"""How many of the newest messages of a partition are looked through for a window."""

SCAN_GROWTH = 8
"""Each further look goes back this many times as far: rows of other tasks are rare."""

SCAN_SLACK = 100
"""Offsets that hold no row: markers of transactions, rows of aborted ones."""

BATCH_MAX = 10_000
"""Messages taken in one call to the client library."""

FOLLOW_BATCH_MAX = 1_000
"""Rows handed on in one poll of a follower."""

DEAD_MESSAGES_MAX = 5_000
"""How many of the newest references of a partition are looked at when the process starts."""

PAGE_MESSAGES_MAX = 100_000
"""How many records one page of references looks through: about a second."""

LETTERS_KEPT = 200
"""References kept in memory per task."""

POLL_S = 0.05
"""How long one call to the client library collects messages: the last one always takes so long."""

READER = "reader"
"""What these clients are called in the broker's log."""


class KafkaResultTail:
    """`ResultTail` over Kafka; safe for threads, each call has a consumer of its own."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def recent(
        self, topic: Topic, task: TaskName, rows_max: int, window_start_ms: int | None
    ) -> list[CommittedRow]:
        """The newest rows; a window is looked for in the last `SCAN_MESSAGES_MAX` of a partition.

        Raises Unavailable.
        """
        with _consumer(self._settings) as consumer:
            found = _Scan(consumer, topic, task, window_start_ms).newest(rows_max)
        return [row for partition in sorted(found) for row in found[partition][-rows_max:]]

    def follow(
        self, topic: Topic, task: TaskName, after: Mapping[int, int] | None = None
    ) -> KafkaResultFollower:
        """Rows committed from now on. Raises Unavailable, also if there is no such topic."""
        return KafkaResultFollower(self._settings, topic, task, after or {})


class KafkaResultFollower:
    """`ResultFollower` over Kafka; one thread at a time."""

    def __init__(
        self, settings: Settings, topic: Topic, task: TaskName, after: Mapping[int, int]
    ) -> None:
        self._task = task.encode()
        self.starts: Mapping[int, int] = {}
        with configured():
            self._consumer = Consumer(lone_reader_properties(settings, READER))
        try:
            with translated():
                self._start(topic, after)
        except BaseException:
            self._consumer.close()
            raise

    def _start(self, topic: Topic, after: Mapping[int, int]) -> None:
        starts = {}
        for partition in _partitions(self._consumer, topic):
            low, high = _bounds(self._consumer, topic, partition)
            starts[partition] = min(max(after.get(partition, high), low), high)
        if not starts:
            raise Unavailable("kafka", f"there is no topic {topic}")
        self._consumer.assign([TopicPartition(topic, part, at) for part, at in starts.items()])
        self.starts = starts

    def poll(self, timeout_s: float) -> list[CommittedRow]:
        """What was committed since the last call. Raises Unavailable; call it again then."""
        with translated():
            # The first message ends the wait; without this the client waits for a full batch.
            records = _consume(self._consumer, 1, timeout_s)
            if records:
                records += _consume(self._consumer, FOLLOW_BATCH_MAX, 0)
        return [row for record in records if (row := _row(record, self._task)) is not None]

    def close(self) -> None:
        """Free the consumer."""
        self._consumer.close()


class _Scan:
    """Looks through the newest messages of all partitions, further and further back."""

    def __init__(
        self, consumer: Consumer, topic: Topic, task: TaskName, window_start_ms: int | None
    ) -> None:
        self._consumer = consumer
        self._topic = topic
        self._task = task.encode()
        self._window = window_start_ms
        self._bounds = {
            partition: _bounds(consumer, topic, partition)
            for partition in _partitions(consumer, topic)
        }

    def newest(self, rows_max: int) -> dict[int, list[CommittedRow]]:
        """At least the `rows_max` newest wanted rows of each partition, in offset order."""
        found: dict[int, list[CommittedRow]] = {}
        pending = list(self._bounds)
        span = rows_max + SCAN_SLACK
        while pending:
            rows = self._rows({partition: self._span(partition, span) for partition in pending})
            for partition in pending:
                found[partition] = [row for row in rows[partition] if self._wanted(row)]
            if span >= SCAN_MESSAGES_MAX:
                break
            pending = [
                partition
                for partition in pending
                if not self._enough(partition, span, rows[partition], rows_max)
            ]
            span = min(span * SCAN_GROWTH, SCAN_MESSAGES_MAX)
        return found

    def _span(self, partition: int, span: int) -> tuple[int, int]:
        low, high = self._bounds[partition]
        return max(low, high - span), high

    def _rows(self, spans: Mapping[int, tuple[int, int]]) -> dict[int, list[CommittedRow]]:
        rows: dict[int, list[CommittedRow]] = {partition: [] for partition in spans}
        for record in _read(self._consumer, self._topic, spans):
            row = _row(record, self._task)
            if row is not None:
                rows[record.partition].append(row)
        return rows

    def _wanted(self, row: CommittedRow) -> bool:
        return self._window is None or row.window_start_ms == self._window

    def _enough(self, partition: int, span: int, rows: list[CommittedRow], rows_max: int) -> bool:
        """True if looking further back in the partition would find nothing that is wanted.

        A bucket emits its windows in order: nothing of a window lies before rows of older ones,
        unless several buckets that are far apart share the partition.
        """
        low, high = self._bounds[partition]
        if high - span <= low:
            return True
        if self._window is None:
            return len(rows) >= rows_max
        return any(row.window_start_ms < self._window for row in rows)


class KafkaDeadLetters:
    """`DeadLetters` over Kafka: each call reads on from where the last one was; safe for threads.

    The first call looks at the last `DEAD_MESSAGES_MAX` references of each partition.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._topic = Names(settings.namespace).dead
        self._lock = threading.Lock()
        self._next: dict[int, int] = {}
        self._letters: defaultdict[TaskName, deque[DeadLetter]] = defaultdict(
            lambda: deque(maxlen=LETTERS_KEPT)
        )

    def recent(self, task: TaskName, limit: int) -> list[DeadLetter]:
        """The newest references, newest first. Raises Unavailable."""
        with self._lock:
            with _consumer(self._settings) as consumer:
                self._read_on(consumer)
            letters = self._letters.get(task)
            return list(letters)[::-1][:limit] if letters else []

    def page(
        self, task: TaskName, reason: str | None, after: Mapping[int, int], limit: int
    ) -> DeadPage:
        """References of a task; a call looks through `PAGE_MESSAGES_MAX` records. Raises
        Unavailable.
        """
        with _consumer(self._settings) as consumer:
            return _Pages(consumer, self._topic, after).read(task, reason, limit)

    def _read_on(self, consumer: Consumer) -> None:
        spans = {}
        for partition in _partitions(consumer, self._topic):
            low, high = _bounds(consumer, self._topic, partition)
            newest = max(low, high - DEAD_MESSAGES_MAX)
            spans[partition] = (max(newest, self._next.get(partition, newest)), high)
        records = list(_read(consumer, self._topic, spans))
        self._next = {partition: first for partition, (first, _high) in spans.items()}
        for record in sorted(records, key=lambda each: each.timestamp_ms):
            self._next[record.partition] = max(self._next[record.partition], record.offset + 1)
            letter = dead_letter(record.value)
            if letter is not None:
                self._letters[letter.task].append(letter)


class _Pages:
    """Reads `mars.dead` one partition after the other."""

    def __init__(self, consumer: Consumer, topic: Topic, after: Mapping[int, int]) -> None:
        self._consumer = consumer
        self._topic = topic
        self._next = dict(after)

    def read(self, task: TaskName, reason: str | None, limit: int) -> DeadPage:
        found: list[DeadLetter] = []
        left = PAGE_MESSAGES_MAX
        for partition in _partitions(self._consumer, self._topic):
            low, high = _bounds(self._consumer, self._topic, partition)
            first = max(low, self._next.get(partition, low))
            span = {partition: (first, min(high, first + left))}
            with closing(_read(self._consumer, self._topic, span)) as records:
                for record in records:
                    if len(found) == limit:
                        return DeadPage(tuple(found), self._next)
                    self._next[partition] = record.offset + 1
                    found += wanted_letter(record.value, task, reason)
            self._next[partition] = max(first, span[partition][1])
            left -= span[partition][1] - first
            if span[partition][1] < high:
                return DeadPage(tuple(found), self._next)
        return DeadPage(tuple(found), None)


# ----------------------------------------------------------------------------------- records


@dataclass(frozen=True, slots=True)
class _Record:
    """A message, or (`end`) the word that a partition has no more of them at the moment."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Mapping[str, bytes]
    end: bool


def _record(message: Message) -> _Record:
    """Raises KafkaException for an error in a message's place."""
    error = message.error()
    end = error is not None and error.code() == PARTITION_EOF
    if error is not None and not end:
        raise KafkaException(error)
    return _Record(
        partition=message.partition() or 0,
        offset=message.offset() or 0,
        timestamp_ms=message.timestamp()[1],
        key=None if end else bytes_of(message.key()),
        value=None if end else bytes_of(message.value()),
        headers=headers_of(message),
        end=end,
    )


def _row(record: _Record, task: bytes) -> CommittedRow | None:
    return committed_row(
        record.partition, record.offset, record.key, record.value, record.headers, task
    )


# ------------------------------------------------------------------------------------ reading


@contextmanager
def _consumer(settings: Settings) -> Iterator[Consumer]:
    """A consumer for one call."""
    with configured():
        consumer = Consumer(slice_reader_properties(settings, READER))
    try:
        with translated():
            yield consumer
    finally:
        consumer.close()


def _partitions(consumer: Consumer, topic: Topic) -> list[int]:
    """The partitions of a topic; none if there is no such topic."""
    found = consumer.list_topics(topic, timeout=CALL_TIMEOUT_S).topics.get(topic)
    if found is None or found.error is not None:
        return []
    return sorted(found.partitions)


def _bounds(consumer: Consumer, topic: Topic, partition: int) -> tuple[int, int]:
    """The lowest offset and the one behind the last."""
    where = TopicPartition(topic, partition)
    bounds = consumer.get_watermark_offsets(where, timeout=CALL_TIMEOUT_S)
    if bounds is None:
        raise Unavailable("kafka", f"no offsets of {topic} within {CALL_TIMEOUT_S} s")
    return bounds


def _consume(consumer: Consumer, count: int, timeout_s: float) -> list[_Record]:
    return [_record(message) for message in consumer.consume(count, timeout_s)]


def _read(
    consumer: Consumer, topic: Topic, spans: Mapping[int, tuple[int, int]]
) -> Generator[_Record, None, None]:
    """The committed messages of each partition in `[first, high)`, until all are read."""
    left = {partition for partition, (first, high) in spans.items() if first < high}
    consumer.assign([TopicPartition(topic, partition, spans[partition][0]) for partition in left])
    deadline = time.monotonic() + READ_TIMEOUT_S
    while left:
        if time.monotonic() > deadline:
            raise Unavailable("kafka", f"topic {topic} could not be read in {READ_TIMEOUT_S} s")
        for record in _consume(consumer, BATCH_MAX, POLL_S):
            high = spans[record.partition][1]
            if not record.end and record.offset < high:
                yield record
            if record.end or record.offset >= high - 1:
                left.discard(record.partition)
    consumer.unassign()
