"""One transaction of one bucket: a producer that is used once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import cast

from confluent_kafka import KafkaError, Message, Producer

from mars.adapters.kafka.config import transaction_properties
from mars.adapters.kafka.errors import (
    CALL_FAILED,
    OUTPUT_REFUSALS,
    configured,
    kafka_error,
    translated,
    unavailable,
)
from mars.adapters.kafka.names import Place
from mars.adapters.kafka.wire import encode_progress, progress_key, state_key
from mars.core.errors import Interrupted, OutputRefused
from mars.core.settings import Settings
from mars.core.types import Bucket, TaskName, Topic
from mars.engine.codec.result_headers import BUCKET, number
from mars.protocol.ports import Progress, ProgressRecord, References, ResultBatch, SnapshotParts

INIT_TIMEOUT_S = 30.0
"""Until the coordinator has fenced the older producer and settled its transaction."""

CONNECT_TIMEOUT_S = 10.0
"""For the first connection."""

STEP_S = 1.0
"""Long waits are cut into pieces of this, so that a bucket can be given back meanwhile."""

REQUEST_BYTES = 900_000
"""Rows handed over at a time, then waited for: the client sends up to 1 MB in one request. Whatever
it holds beside a request that is on its way, of the same partition, it looks at without a pause
until that is answered: eight buckets did so for up to 60 ms of processor each."""

ROW_BYTES, HEADER_BYTES = 40, 10
"""What a row takes in a request besides its key, value and headers, and a header besides itself, at
the most."""

PROBE_BYTES = 100_000
"""How much is written between two rows whose delivery is reported, which takes a third of the time
to hand a row over. What is sent at once shares its fate: so each refusal is heard of by a row that
names its batch. One that was not would still fail the commit."""

ROOM_WAIT_S = 0.1
"""Between two looks whether the queue of the producer has room again."""

SETTLING_KEY = b"settle"
"""Of records that are written to be aborted: a compacted topic takes none without a key."""

Headers = list[tuple[str, str | bytes | None]]
Report = Callable[[KafkaError | None, Message], None]


@dataclass(frozen=True, slots=True)
class WrittenSpan:
    """Where records of one transaction lie: offsets, inclusive."""

    first: int
    last: int


Spans = Mapping[tuple[TaskName, int], WrittenSpan]


class _Delivery:
    """Where one record went; the client calls it."""

    def __init__(self) -> None:
        self.offset = -1
        self.error: KafkaError | None = None

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        self.error = error
        self.offset = -1 if error is not None else cast(int, message.offset())


class _Written:
    """A batch under way: what is reported of its first and last row, and of some between."""

    def __init__(self, batch: ResultBatch) -> None:
        self.batch = batch
        self.headers: Headers = [*batch.headers]
        self.first = _Delivery()
        self.last = self.first if len(batch.values) == 1 else _Delivery()
        self.between: dict[KafkaError | None, Message] = {}
        """One message for each outcome: filled by `setdefault`, so without a line of Python."""
        self.row_bytes = _row_bytes(batch)

    def reports(self, rows: range) -> list[tuple[int, Report]]:
        """Those of these rows whose delivery is reported, the last one among them, and to whom."""
        every = max(1, PROBE_BYTES // self.row_bytes)
        ends: dict[int, Report] = {0: self.first, len(self.batch.values) - 1: self.last}
        between = cast(Report, self.between.setdefault)
        return [(row, ends.get(row, between)) for row in sorted({*rows[::every], rows[-1]})]

    def failure(self) -> KafkaError | None:
        """The first refusal known, else any error: other rows fail in its wake."""
        errors = [self.first.error, self.last.error, *self.between]
        failed = [error for error in errors if error is not None]
        refused = [error for error in failed if error.code() in OUTPUT_REFUSALS]
        return next(iter(refused + failed), None)


class BucketTransaction:
    """A producer with the bucket's transactional id, for one transaction.

    Whatever a method raises: the transaction is not known to be committed, and the object is
    spent. Each may raise Interrupted, also because `abandoned` was set. `turn` is held while rows
    are handed to the client, which lets go of the interpreter and takes it again for each: where
    another thread wants it too, a row takes ten times as long. Others have it after REQUEST_BYTES,
    while the brokers take them.
    """

    def __init__(
        self,
        settings: Settings,
        member: str,
        bucket: Bucket,
        abandoned: threading.Event,
        turn: AbstractContextManager[object],
    ) -> None:
        self._bucket = bucket
        self._abandoned = abandoned
        self._turn = turn
        self._timeout_s = settings.reducer.transaction_timeout_ms / 1000
        with configured():
            self._producer = Producer(transaction_properties(settings, member, bucket))

    # ------------------------------------------------------------------------------------ start

    def connect(self, topic: Topic) -> None:
        """Meet the brokers, which touches no other producer. Raises Unavailable."""
        with translated():
            self._producer.list_topics(topic, timeout=CONNECT_TIMEOUT_S)

    def initialise(self) -> None:
        """R2: fence the older producer of the bucket and settle its transaction.

        Raises Unavailable: nothing of this transaction has happened.
        """
        with translated():
            self._in_steps(self._producer.init_transactions, INIT_TIMEOUT_S)

    def begin(self) -> None:
        """Begin to write."""
        try:
            self._producer.begin_transaction()
        except CALL_FAILED as error:
            raise self._interrupted(kafka_error(error)) from error

    # ------------------------------------------------------------------------------------ write

    def write_results(self, results: Sequence[ResultBatch]) -> Spans:
        """Write all rows, each task version's together, and wait for the brokers.

        Raises OutputRefused if a topic is gone or does not take a row.
        """
        order = {key: at for at, key in enumerate(dict.fromkeys(map(_version_of, results)))}
        batches = sorted(results, key=lambda batch: order[_version_of(batch)])
        written = [_Written(batch) for batch in batches if batch.values]
        for request in _requests(written):
            with self._turn:
                for part, rows in request:
                    self._hand_over(part, rows)
            self._wait_for_brokers(lambda: self._raise_failure(written))
            self._raise_failure(written)
        return _spans(written)

    def _hand_over(self, part: _Written, rows: range) -> None:
        batch, headers = part.batch, part.headers
        produce, topic, partition = self._producer.produce, batch.topic, batch.partition
        first = rows.start
        try:
            for row, report in part.reports(rows):
                before = slice(first, row)
                for key, value in zip(batch.keys[before], batch.values[before], strict=True):
                    try:
                        produce(topic, value, key, partition, headers=headers)
                    except BufferError:
                        self._produce(topic, partition, key, value, headers)
                self._produce(topic, partition, batch.keys[row], batch.values[row], headers, report)
                first = row + 1
        except CALL_FAILED as error:
            raise self._refused(batch, kafka_error(error)) from error

    def write_dead(self, topic: Topic, partition: int, records: Sequence[bytes]) -> References:
        """Write references to rows that were not counted, and wait for the brokers.

        Progress that is there means that they are, whatever became of the transaction.
        """
        headers: Headers = [(BUCKET, number(self._bucket))]
        reports = [_Delivery() for _record in records]
        try:
            for record, report in zip(records, reports, strict=True):
                self._produce(topic, partition, None, record, headers, report)
        except CALL_FAILED as error:
            raise self._interrupted(kafka_error(error)) from error
        self._await_delivery(reports)
        return References(partition, reports[0].offset, reports[-1].offset, len(reports))

    def write_snapshots(self, topic: Topic, snapshots: Sequence[SnapshotParts]) -> Spans:
        """Write the parts, take away those of longer ones before, and wait for the brokers."""
        reports: dict[tuple[TaskName, int], list[_Delivery]] = {}
        try:
            for one in snapshots:
                written = reports.setdefault((one.task, one.version), [])
                for number, value in enumerate(with_tombstones(one)):
                    key = state_key(one.task, one.version, self._bucket, number)
                    written.append(_Delivery())
                    self._produce(topic, self._bucket, key, value, report=written[-1])
        except CALL_FAILED as error:
            raise self._interrupted(kafka_error(error)) from error
        every = [report for written in reports.values() for report in written]
        self._await_delivery(every)
        return part_spans(
            snapshots, {name: [one.offset for one in got] for name, got in reports.items()}
        )

    def write_progress(self, topic: Topic, records: Sequence[ProgressRecord]) -> list[int]:
        """Write progress and wait for the brokers; the offsets of the records."""
        reports = [_Delivery() for _record in records]
        try:
            for record, report in zip(records, reports, strict=True):
                key, value = progress_key(record), encode_progress(record)
                self._produce(topic, self._bucket, key, value, report=report)
        except CALL_FAILED as error:
            raise self._interrupted(kafka_error(error)) from error
        self._await_delivery(reports)
        return [report.offset for report in reports]

    def settle(self, places: Iterable[Place]) -> dict[Place, WrittenSpan]:
        """End as aborted whatever of the bucket hangs in these partitions; where that was written.

        One record in each, which nobody sees, and an abort: its markers end what lies before, too,
        if they come, see `hanging`. Where nothing hangs it changes nothing. Afterwards the object
        is spent.
        """
        self.begin()
        reports: dict[Place, _Delivery] = {}
        try:
            for topic, partition in places:
                report = reports[topic, partition] = _Delivery()
                headers: Headers = [*settling_headers(self._bucket)]
                self._produce(topic, partition, SETTLING_KEY, b"", headers, report)
            self._await_delivery(list(reports.values()))
        except CALL_FAILED as error:
            raise self._interrupted(kafka_error(error)) from error
        self.abort()
        return {place: WrittenSpan(one.offset, one.offset) for place, one in reports.items()}

    # ------------------------------------------------------------------------------------ commit

    def abort(self) -> None:
        """Take back all that was written. Afterwards the object is spent."""
        try:
            self._in_steps(self._producer.abort_transaction, INIT_TIMEOUT_S)
        except CALL_FAILED as error:
            raise self._interrupted(kafka_error(error)) from error

    def commit(self) -> None:
        """Commit, however long it takes."""
        try:
            self._in_steps(self._producer.commit_transaction, None)
        except CALL_FAILED as error:
            raise self._interrupted(kafka_error(error)) from error

    # ---------------------------------------------------------------------------------- waiting

    def _produce(
        self,
        topic: Topic,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers | None = None,
        report: Report | None = None,
    ) -> None:
        """Hand one record to the client; waits while its queue is full."""
        while True:
            try:
                self._producer.produce(topic, value, key, partition, report, headers=headers)
            except BufferError:
                self._stop_if_asked()
                self._producer.poll(ROOM_WAIT_S)
            else:
                return

    def _await_delivery(self, reports: Sequence[_Delivery]) -> None:
        self._wait_for_brokers(lambda: self._raise_undelivered(reports))
        self._raise_undelivered(reports)

    def _wait_for_brokers(self, look: Callable[[], None]) -> None:
        """Until each record is delivered, or has failed; `look` may end it by raising.

        The client gives records up by itself after the time-out of the transaction.
        """
        deadline = time.monotonic() + 2 * self._timeout_s
        while self._flush() > 0:
            self._stop_if_asked()
            look()
            if time.monotonic() > deadline:
                raise Interrupted(
                    f"Bucket {self._bucket}: the brokers did not take the rows of a transaction "
                    f"within {2 * self._timeout_s:.0f} s; check them."
                )

    def _flush(self) -> int:
        """How many records are still on their way after a while."""
        try:
            return self._producer.flush(STEP_S)
        except CALL_FAILED as error:
            raise self._interrupted(kafka_error(error)) from error

    def _in_steps(self, call: Callable[[float], None], within_s: float | None) -> None:
        """A call that the client lets us repeat until it is done; None: no time limit."""
        deadline = None if within_s is None else time.monotonic() + within_s
        while True:
            self._stop_if_asked()
            try:
                return call(STEP_S)
            except CALL_FAILED as error:
                problem = kafka_error(error)
                again = problem is not None and problem.retriable()
                if not again or (deadline is not None and time.monotonic() > deadline):
                    raise

    def _stop_if_asked(self) -> None:
        if self._abandoned.is_set():
            raise Interrupted(
                f"Bucket {self._bucket} was given back: whether its transaction is committed is "
                "for the next owner to find out."
            )

    # ----------------------------------------------------------------------------------- errors

    def _raise_failure(self, written: Iterable[_Written]) -> None:
        for part in written:
            failure = part.failure()
            if failure is not None:
                raise self._refused(part.batch, failure)

    def _raise_undelivered(self, reports: Iterable[_Delivery]) -> None:
        for report in reports:
            if report.error is not None:
                raise self._interrupted(report.error)

    def _refused(self, batch: ResultBatch, error: KafkaError | None) -> Exception:
        if error is None or error.code() not in OUTPUT_REFUSALS:
            return self._interrupted(error)
        return OutputRefused(batch.task, batch.topic, unavailable(error).detail)

    def _interrupted(self, error: KafkaError | None) -> Interrupted:
        detail = unavailable(error or "the client gave no reason").detail
        return Interrupted(
            f"Bucket {self._bucket}: a transaction is not known to be committed: {detail}."
        )


def _row_bytes(batch: ResultBatch) -> int:
    """What a row of a batch takes in a request, on average."""
    texts = sum(map(len, batch.keys)) + sum(map(len, batch.values))
    headers = sum(len(name) + len(value) + HEADER_BYTES for name, value in batch.headers)
    return ROW_BYTES + headers + texts // len(batch.values)


def _requests(written: Iterable[_Written]) -> Iterator[list[tuple[_Written, range]]]:
    """All rows in order, in pieces of about REQUEST_BYTES, of one batch or of several."""
    request: list[tuple[_Written, range]] = []
    room = REQUEST_BYTES
    for part in written:
        first, end = 0, len(part.batch.values)
        while first < end:
            rows = range(first, min(end, first + max(1, room // part.row_bytes)))
            request.append((part, rows))
            first, room = rows.stop, room - len(rows) * part.row_bytes
            if room < part.row_bytes:
                yield request
                request, room = [], REQUEST_BYTES
    if request:
        yield request


def _version_of(batch: ResultBatch) -> tuple[TaskName, int]:
    return batch.task, batch.version


def _spans(written: Iterable[_Written]) -> Spans:
    spans: dict[tuple[TaskName, int], WrittenSpan] = {}
    for part in written:
        key = _version_of(part.batch)
        first = spans[key].first if key in spans else part.first.offset
        spans[key] = WrittenSpan(first, part.last.offset)
    return spans


def settling_headers(bucket: Bucket) -> list[tuple[str, bytes]]:
    """Whoever reads a settling record that hangs must know whose it is."""
    return [(BUCKET, number(bucket))]


def with_tombstones(one: SnapshotParts) -> tuple[bytes | None, ...]:
    """The values of all parts; None for those that the snapshot before had besides."""
    return one.parts + (None,) * max(0, one.replaced - len(one.parts))


def part_spans(
    snapshots: Iterable[SnapshotParts], offsets: Mapping[tuple[TaskName, int], Sequence[int]]
) -> Spans:
    """Where the parts of each new snapshot lie, tombstones aside."""
    return {
        (one.task, one.version): WrittenSpan(at[0], at[len(one.parts) - 1])
        for one in snapshots
        if one.parts
        for at in (offsets[one.task, one.version],)
    }


def with_references(record: Progress, references: References | None) -> Progress:
    """The record with where its transaction's references lie; without any, older ones stay."""
    return record if references is None else replace(record, references=references)


def with_parts(record: Progress, spans: Spans) -> Progress:
    """The record with the offsets of the parts of its new snapshot; an older one stays as it is."""
    span = spans.get((record.task, record.version))
    if record.snapshot is None or span is None:
        return record
    return replace(record, snapshot=replace(record.snapshot, first=span.first, last=span.last))


def with_span(record: Progress, spans: Spans) -> Progress:
    """The record with the offsets of its rows; an earlier emission without rows stays as it is.

    Raises ValueError if the record names rows that the transaction does not have.
    """
    emission = record.emission
    if emission is None:
        return record
    span = spans.get((record.task, record.version))
    if span is None:
        if emission.emit == record.emit:
            raise ValueError(f"emission without rows: {emission}")
        return record
    return replace(record, emission=replace(emission, first=span.first, last=span.last))
