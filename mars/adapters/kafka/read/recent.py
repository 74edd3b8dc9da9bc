"""The newest rows of output topics: scanned once, then read on.

bounds of the topic ──the same──▶ the same answer
        │ only ends have moved
        ▼
read what is new, forget as much at the other side
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from mars.adapters.kafka.admin import KafkaTopicAdmin, TopicBounds
from mars.adapters.kafka.read.consumers import Readers, Record, SliceConsumer, Spans, read
from mars.adapters.kafka.read.rows import committed_row
from mars.adapters.result_rows import answered, firsts_of, lowest_first, newest_rows
from mars.core.types import TaskName, Topic
from mars.protocol.ports import CommittedRow, RecentRows, WantedNumber, WantedWindow

SCAN_MESSAGES_MAX = 200_000
"""How many of the newest messages of a partition are looked through for a window."""

SCAN_GROWTH = 8
"""Each further look goes back this many times as far: rows of other tasks are rare."""

SCAN_SLACK = 100
"""Offsets that hold no row: markers of transactions, rows of aborted ones."""

READ_ON_MAX = 5_000
"""Offsets of a partition that are read on; where more have come it is scanned anew."""

REMEMBERED_BYTES_MAX = 32 * 1024 * 1024
"""Rows that are kept for the next question, of all tasks together; the longest unused go first."""

ROW_OVERHEAD_BYTES = 400
"""Of a row as an object, besides its key and value."""

Question = tuple[Topic, TaskName, int]
"""What is kept: of a topic's task, so many rows."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A partition's rows of the task in `[first, high)`: all, or those of a window."""

    first: int
    high: int
    rows: tuple[CommittedRow, ...]


Parts = Mapping[int, _Part]


@dataclass(frozen=True, slots=True)
class _Kept:
    """An answer, and what it was made of."""

    bounds: TopicBounds
    parts: Parts
    answer: RecentRows
    bytes: int


class NewestResults:
    """Answers `ResultTail.recent`. Safe for threads: at worst two read the same."""

    def __init__(self, admin: KafkaTopicAdmin, readers: Readers) -> None:
        self._admin = admin
        self._readers = readers
        self._lock = threading.Lock()
        self._kept: OrderedDict[Question, _Kept] = OrderedDict()
        self._bytes = 0

    def of_window(
        self, topic: Topic, task: TaskName, rows_max: int, wanted: WantedWindow | WantedNumber
    ) -> RecentRows:
        """The newest rows of a window. Raises Unavailable."""
        bounds = self._admin.bounds(topic)
        if bounds is None:
            return RecentRows()
        with self._readers.one() as consumer:
            scan = _Scan(consumer, topic, task, bounds.spans)
            return scan.of_window(rows_max, wanted)

    def of_all(self, topic: Topic, task: TaskName, rows_max: int) -> RecentRows:
        """The newest rows; the same object where nothing has come. Raises Unavailable."""
        bounds = self._admin.bounds(topic)
        if bounds is None:
            return RecentRows()
        question = (topic, task, rows_max)
        kept = self._found(question)
        if kept is not None and kept.bounds == bounds:
            return kept.answer
        with self._readers.one() as consumer:
            scan = _Scan(consumer, topic, task, bounds.spans)
            if kept is not None and _only_grown(kept.bounds, bounds):
                parts = scan.read_on(kept.parts, rows_max)
            else:
                parts = scan.newest(rows_max)
        answer = _answer(parts, bounds.spans)
        self._keep(question, _Kept(bounds, parts, answer, _bytes(answer)))
        return answer

    def _found(self, question: Question) -> _Kept | None:
        with self._lock:
            kept = self._kept.get(question)
            if kept is not None:
                self._kept.move_to_end(question)
            return kept

    def _keep(self, question: Question, kept: _Kept) -> None:
        with self._lock:
            before = self._kept.pop(question, None)
            self._bytes += kept.bytes - (before.bytes if before else 0)
            self._kept[question] = kept
            while self._bytes > REMEMBERED_BYTES_MAX:
                _question, gone = self._kept.popitem(last=False)
                self._bytes -= gone.bytes


class _Scan:
    """Looks through the newest messages of all partitions, further and further back."""

    def __init__(
        self, consumer: SliceConsumer, topic: Topic, task: TaskName, bounds: Spans
    ) -> None:
        self._consumer = consumer
        self._topic = topic
        self._task = task.encode()
        self._bounds = bounds

    def newest(self, rows_max: int) -> dict[int, _Part]:
        """Of each partition the rows among which `rows_max` are of revision 0."""
        found = self._until(rows_max, lambda rows: firsts_of(rows) >= rows_max)
        return {partition: _shortened(part, rows_max) for partition, part in found.items()}

    def read_on(self, parts: Parts, rows_max: int) -> dict[int, _Part]:
        """The same, from what was found before."""
        fresh = self._rows({place: (parts[place].high, self._bounds[place][1]) for place in parts})
        found = {}
        for partition, part in parts.items():
            low, high = self._bounds[partition]
            rows = tuple(row for row in (*part.rows, *fresh[partition]) if row.offset >= low)
            found[partition] = _shortened(_Part(max(part.first, low), high, rows), rows_max)
        return found

    def of_window(self, rows_max: int, wanted: WantedWindow | WantedNumber) -> RecentRows:
        """A bucket emits its windows in order: nothing of one lies before the first rows of older
        ones, unless several buckets that are far apart share the partition.
        """

        found = self._until(rows_max, wanted.is_behind)
        whole = all(
            part.first <= self._bounds[partition][0] or wanted.is_behind(part.rows)
            for partition, part in found.items()
        )
        parts = (found[partition].rows for partition in sorted(found))
        return answered(wanted, parts, rows_max, whole=whole)

    def _until(
        self, rows_max: int, enough: Callable[[list[CommittedRow]], bool]
    ) -> dict[int, _Part]:
        """All rows of each partition as far back as must be, at most `SCAN_MESSAGES_MAX`."""
        found: dict[int, _Part] = {}
        pending = list(self._bounds)
        span = rows_max + SCAN_SLACK
        while pending:
            spans = {partition: self._span(partition, span) for partition in pending}
            rows = self._rows(spans)
            for partition in pending:
                found[partition] = _Part(*spans[partition], tuple(rows[partition]))
            if span >= SCAN_MESSAGES_MAX:
                break
            pending = [
                partition
                for partition in pending
                if spans[partition][0] > self._bounds[partition][0] and not enough(rows[partition])
            ]
            span = min(span * SCAN_GROWTH, SCAN_MESSAGES_MAX)
        return found

    def _span(self, partition: int, span: int) -> tuple[int, int]:
        low, high = self._bounds[partition]
        return max(low, high - span), high

    def _rows(self, spans: Spans) -> dict[int, list[CommittedRow]]:
        rows: dict[int, list[CommittedRow]] = {partition: [] for partition in spans}
        for record in read(self._consumer, self._topic, spans):
            row = row_of(record, self._task)
            if row is not None:
                rows[record.partition].append(row)
        return rows


def row_of(record: Record, task: bytes) -> CommittedRow | None:
    """A result row of the task; None for anything else."""
    return committed_row(
        record.partition, record.offset, record.key, record.value, record.headers, task
    )


def _shortened(part: _Part, rows_max: int) -> _Part:
    rows = tuple(newest_rows(part.rows, rows_max))
    if len(rows) == len(part.rows):
        return part
    return _Part(rows[0].offset, part.high, rows)


def _only_grown(before: TopicBounds, now: TopicBounds) -> bool:
    """Whether all that is new lies behind what was known, and is not much."""
    return (
        before.topic_id == now.topic_id
        and before.spans.keys() == now.spans.keys()
        and all(
            0 <= high - before.spans[partition][1] <= READ_ON_MAX
            for partition, (_low, high) in now.spans.items()
        )
    )


def _answer(parts: Parts, bounds: Spans) -> RecentRows:
    cut = frozenset(place for place, part in parts.items() if part.first > bounds[place][0])
    cuts = [lowest_first(parts[place].rows) for place in sorted(cut)]
    known = [cut for cut in cuts if cut is not None]
    rows = tuple(row for partition in sorted(parts) for row in parts[partition].rows)
    return RecentRows(rows, max(known, default=None), cut)


def _bytes(answer: RecentRows) -> int:
    return sum(len(row.key) + len(row.value) + ROW_OVERHEAD_BYTES for row in answer.rows)
