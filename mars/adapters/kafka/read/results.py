"""Output topics and `mars.dead`, read from their ends for people.

Everything here reads `read_committed` and assigns partitions by itself: no consumer group, nothing
committed. A topic that does not exist (yet) has no rows.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict, deque
from collections.abc import Mapping
from contextlib import closing

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from mars.adapters.kafka.admin import KafkaTopicAdmin, TopicBounds
from mars.adapters.kafka.config import lone_reader_properties
from mars.adapters.kafka.errors import OFFSETS_LOST, configured, translated
from mars.adapters.kafka.names import Names
from mars.adapters.kafka.read.consumers import (
    READER,
    Readers,
    Record,
    SliceConsumer,
    read,
    record_of,
)
from mars.adapters.kafka.read.recent import NewestResults, row_of
from mars.adapters.kafka.read.rows import dead_letter, wanted_letter
from mars.adapters.result_rows import place_within
from mars.core.errors import Unavailable
from mars.core.settings import Settings
from mars.core.types import TaskName, Topic
from mars.protocol.ports import (
    CommittedRow,
    DeadLetter,
    DeadPage,
    RecentRows,
    ResultGap,
    WantedNumber,
    WantedWindow,
)

CALL_TIMEOUT_S = 5.0
"""For metadata and offsets; a healthy broker needs milliseconds."""

LOOK_S = 10.0
"""How often a follower looks whether partitions were added."""

FOLLOW_BATCH_MAX = 1_000
"""Rows handed on in one poll of a follower."""

DEAD_MESSAGES_MAX = 5_000
"""How many of the newest references of a partition are looked at when the process starts."""

PAGE_MESSAGES_MAX = 100_000
"""How many records one page of references looks through: about a second."""

LETTERS_KEPT = 200
"""References kept in memory per task."""


class KafkaResultTail:
    """`ResultTail` over Kafka; safe for threads."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._newest = NewestResults(KafkaTopicAdmin(settings, CALL_TIMEOUT_S), Readers(settings))

    def recent(
        self,
        topic: Topic,
        task: TaskName,
        rows_max: int,
        wanted: WantedWindow | WantedNumber | None,
    ) -> RecentRows:
        """The newest rows; a window is looked for in the last 200,000 messages of a partition.

        Raises Unavailable.
        """
        if wanted is None:
            return self._newest.of_all(topic, task, rows_max)
        return self._newest.of_window(topic, task, rows_max, wanted)

    def follow(
        self,
        topic: Topic,
        task: TaskName,
        after: Mapping[int, int] | None = None,
        *,
        whole: bool = False,
    ) -> KafkaResultFollower:
        """Rows committed from now on. Raises Unavailable, also if there is no such topic."""
        return KafkaResultFollower(self._settings, topic, task, after or {}, whole=whole)


class KafkaResultFollower:
    """`ResultFollower` over Kafka; one thread at a time."""

    def __init__(
        self,
        settings: Settings,
        topic: Topic,
        task: TaskName,
        after: Mapping[int, int],
        *,
        whole: bool,
    ) -> None:
        self._topic = topic
        self._task = task.encode()
        self._pending: deque[Message] = deque()
        self._next: dict[int, int] = {}
        self._gaps: list[ResultGap] = []
        self.starts: Mapping[int, int] = {}
        with configured():
            self._consumer = Consumer(lone_reader_properties(settings, READER))
        try:
            with translated():
                self._take_in(after, 0 if whole else None)
            if not self.starts:
                raise Unavailable("kafka", f"there is no topic {topic}")
        except BaseException:
            self._consumer.close()
            raise

    def _take_in(self, after: Mapping[int, int], others: int | None) -> None:
        """Read partitions that are not read yet: from `after` on, or `others`; None: from now."""
        self._looked_s = time.monotonic()
        for partition in _partitions(self._consumer, self._topic):
            if partition not in self._next:
                low, high = _bounds(self._consumer, self._topic, partition)
                wanted = after.get(partition, others)
                self._read_from(partition, high if wanted is None else wanted, low, high)
                self.starts = {**self.starts, partition: self._next[partition]}

    def _read_from(self, partition: int, wanted: int, low: int, high: int) -> None:
        at, gone = place_within(partition, wanted, low, high)
        self._consumer.incremental_assign([TopicPartition(self._topic, partition, at)])
        self._next[partition] = at
        self._gaps += gone

    def poll(self, timeout_s: float) -> list[CommittedRow | ResultGap]:
        """What was committed since the last call. Raises Unavailable; call it again then.

        An error is raised once the rows before it have been handed on, and hides none behind it.
        """
        with translated():
            if time.monotonic() - self._looked_s >= LOOK_S:
                self._take_in({}, 0)
            if not self._pending:
                # The first message ends the wait; without it the client waits for a full batch.
                self._pending += self._consumer.consume(1, timeout_s)
                if self._pending:
                    self._pending += self._consumer.consume(FOLLOW_BATCH_MAX, 0)
            records = self._records()
        rows = [row for record in records if (row := row_of(record, self._task)) is not None]
        gaps, self._gaps = self._gaps, []
        return [*gaps, *rows]

    def _records(self) -> list[Record]:
        """Those at hand before the next error. Raises it, as KafkaException, if none is."""
        records: list[Record] = []
        while self._pending:
            message = self._pending[0]
            try:
                record = record_of(message)
            except KafkaException:
                if records:
                    break  # the next call deals with it
                passed_over = self._passed_over(message)
                self._pending.popleft()
                if passed_over:
                    break
                raise
            records.append(record)
            self._next[record.partition] = record.offset + (not record.end)
            self._pending.popleft()
        return records

    def _passed_over(self, message: Message) -> bool:
        """Go on behind rows that Kafka has deleted, if that is what an error says."""
        partition, error = message.partition(), message.error()
        if error is None or error.code() not in OFFSETS_LOST or partition not in self._next:
            return False
        low, high = _bounds(self._consumer, self._topic, partition)
        self._consumer.incremental_unassign([TopicPartition(self._topic, partition)])
        self._read_from(partition, self._next[partition], low, high)
        return True

    def close(self) -> None:
        """Free the consumer."""
        self._consumer.close()


class KafkaDeadLetters:
    """`DeadLetters` over Kafka: each call reads on from where the last one was; safe for threads.

    The first call looks at the last `DEAD_MESSAGES_MAX` references of each partition.
    """

    def __init__(self, settings: Settings) -> None:
        self._topic = Names(settings.namespace).dead
        self._admin = KafkaTopicAdmin(settings, CALL_TIMEOUT_S)
        self._readers = Readers(settings)
        self._lock = threading.Lock()
        self._next: dict[int, int] = {}
        self._letters: defaultdict[TaskName, deque[DeadLetter]] = defaultdict(
            lambda: deque(maxlen=LETTERS_KEPT)
        )

    def recent(self, task: TaskName, limit: int) -> list[DeadLetter]:
        """The newest references, newest first. Raises Unavailable."""
        with self._lock:
            self._read_on(self._admin.ends(self._topic))
            letters = self._letters.get(task)
            return list(letters)[::-1][:limit] if letters else []

    def page(
        self, task: TaskName, reason: str | None, after: Mapping[int, int], limit: int
    ) -> DeadPage:
        """References of a task; a call looks through `PAGE_MESSAGES_MAX` records. Raises
        Unavailable.
        """
        bounds = self._admin.bounds(self._topic)
        if bounds is None:
            return DeadPage((), None)
        with self._readers.one() as consumer:
            return _Pages(consumer, self._topic, bounds, after).read(task, reason, limit)

    def _read_on(self, ends: Mapping[int, int]) -> None:
        spans = {}
        for partition, high in ends.items():
            newest = max(0, high - DEAD_MESSAGES_MAX)
            spans[partition] = (max(newest, self._next.get(partition, newest)), high)
        if all(first >= high for first, high in spans.values()):
            return
        with self._readers.one() as consumer:
            records = list(read(consumer, self._topic, spans))
        self._next = {partition: max(span) for partition, span in spans.items()}
        for record in sorted(records, key=lambda each: each.timestamp_ms):
            letter = dead_letter(record.value)
            if letter is not None:
                self._letters[letter.task].append(letter)


class _Pages:
    """Reads `mars.dead` one partition after the other."""

    def __init__(
        self, consumer: SliceConsumer, topic: Topic, bounds: TopicBounds, after: Mapping[int, int]
    ) -> None:
        self._consumer = consumer
        self._topic = topic
        self._bounds = bounds
        self._next = dict(after)

    def read(self, task: TaskName, reason: str | None, limit: int) -> DeadPage:
        found: list[DeadLetter] = []
        left = PAGE_MESSAGES_MAX
        for partition, (low, high) in sorted(self._bounds.spans.items()):
            first = max(low, self._next.get(partition, low))
            span = {partition: (first, min(high, first + left))}
            with closing(read(self._consumer, self._topic, span)) as records:
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
