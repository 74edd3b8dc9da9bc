"""Transactions of the reducers in memory: the twin of Kafka's, which can crash at each step."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum

from mars.adapters.kafka.audit import difference
from mars.adapters.kafka.names import DEFAULT_NAMESPACE, Names
from mars.adapters.kafka.sink import (
    hidden,
    may_hold_foreign,
    refuse_foreign,
    refuse_newer,
    refuse_strangers,
)
from mars.adapters.kafka.state import named_snapshot, parts_of
from mars.adapters.kafka.transaction import (
    Span,
    Spans,
    part_spans,
    with_parts,
    with_span,
    with_tombstones,
)
from mars.adapters.kafka.wire import encode_progress, progress_key, state_key
from mars.adapters.memory.broker import (
    MemoryBroker,
    MemoryProducer,
    ProducerFenced,
    UnknownTopic,
)
from mars.adapters.memory.faults import Faults, fallible
from mars.adapters.memory.progress import MemoryProgressLog
from mars.errors import Interrupted, OutputRefused
from mars.ports import (
    Claim,
    Claimed,
    Committed,
    Emission,
    Progress,
    ProgressRecord,
    ResultBatch,
    Transaction,
)
from mars.types import AssignmentEpoch, Bucket, TaskName


class Crash(Enum):
    """Where a claim or a commit breaks off; the caller sees Interrupted each time."""

    BEFORE_COMMIT = "everything is written, the commit was never sent"
    COMMIT_DELAYED = "the commit is still on its way, see `MemoryBroker.deliver_delayed`"
    AFTER_COMMIT = "the commit took effect, the answer was lost"


@dataclass(frozen=True, slots=True)
class _Slot:
    epoch: AssignmentEpoch
    producer: MemoryProducer
    end: int
    marker: int


class MemorySink:
    """`ResultSink` in memory; one of them per process, all on one broker.

    The next producer is made before a call returns, not in the background.
    """

    def __init__(self, broker: MemoryBroker, namespace: str = DEFAULT_NAMESPACE) -> None:
        self.faults = Faults("kafka")
        self._broker = broker
        self._names = Names(namespace)
        self._progress = MemoryProgressLog(broker, namespace)
        self._slots: dict[Bucket, _Slot] = {}
        self._crashes: deque[Crash] = deque()

    # ------------------------------------------------------------------- what tests do to it

    def fail_next(self, method: str, *, before: bool = True) -> None:
        """Let the next call of `method` raise `Unavailable`, before or after its effect."""
        self.faults.plan(method, before=before)

    def crash_next(self, crash: Crash) -> None:
        """Let the next transaction that is not yet planned for break off there."""
        self._crashes.append(crash)

    # ------------------------------------------------------------------------------------ claim

    @fallible
    def claim(self, claim: Claim) -> Claimed:
        """R2, R3: fence, commit the claim, read the progress until its nonce is back."""
        bucket = claim.bucket
        self.release(bucket)
        producer = self._producer(bucket)
        try:
            offset = self._put_progress(producer, bucket, claim)
            self._commit(producer, bucket)
        except ProducerFenced as error:
            raise _unknown(bucket, error) from error
        records = self._progress.between(bucket, 0, offset + 1)
        refuse_newer(records, claim.assignment_epoch)
        self._keep(bucket, claim.assignment_epoch, offset + 1)
        return Claimed(records, offset + 1)

    @fallible
    def audit(self, emission: Emission, bucket: Bucket) -> str | None:
        """R4: count and checksum of the rows; none where retention has taken some."""
        try:
            log = self._broker.partition(emission.topic, emission.partition)
        except UnknownTopic:
            return f"emission {emission.emit}: there is no {emission.topic}[{emission.partition}]"
        if log.start > emission.first:
            return None
        end = log.stable_end
        if end <= emission.last < log.end:
            raise hidden(emission.topic, emission.partition, end)
        records = log.committed(emission.first, min(emission.last + 1, end))
        return difference(emission, bucket, [(one.headers, one.value) for one in records])

    @fallible
    def saved(self, record: Progress) -> tuple[bytes, ...]:
        """Read the parts at the offsets that the record names. Raises SnapshotLost."""
        snapshot = named_snapshot(record)
        log = self._broker.partition(self._names.state, record.bucket)
        found = log.committed(snapshot.first, snapshot.last + 1)
        return parts_of(record, {one.key: one.value for one in found})

    # ----------------------------------------------------------------------------------- commit

    @fallible
    def commit(self, transaction: Transaction, next: int) -> Committed:
        """R7, R8: look for foreign records, write, commit."""
        bucket = transaction.bucket
        slot = self._slots.pop(bucket, None)
        if slot is None:
            raise Interrupted(f"Bucket {bucket}: there is no producer; claim the bucket again.")
        if may_hold_foreign(slot.end, next, slot.marker):
            foreign = self._progress.between(bucket, next, slot.end)
            refuse_foreign(foreign, bucket, slot.epoch)
        try:
            progress, offsets = self._write(transaction, slot)
            self._commit(slot.producer, bucket)
        except ProducerFenced as error:
            raise _unknown(bucket, error) from error
        after = offsets[-1] + 1 if offsets else next
        self._keep(bucket, slot.epoch, offsets[-1] + 1 if offsets else slot.marker)
        return Committed(progress, after)

    def _write(
        self, transaction: Transaction, slot: _Slot
    ) -> tuple[tuple[Progress, ...], list[int]]:
        producer, bucket = slot.producer, transaction.bucket
        spans = self._write_results(producer, transaction.results)
        dead = self._broker.topics[self._names.dead].partitions
        for record in transaction.dead:
            producer.produce(self._names.dead, bucket % len(dead), record)
        parts = self._write_snapshots(producer, transaction)
        progress = tuple(
            with_parts(with_span(record, spans), parts) for record in transaction.progress
        )
        offsets = [self._put_progress(producer, bucket, record) for record in progress]
        refuse_strangers(offsets, slot.end, bucket)
        return progress, offsets

    def _write_results(self, producer: MemoryProducer, results: tuple[ResultBatch, ...]) -> Spans:
        """Each task version's rows together, in the order in which the versions come first."""
        offsets: dict[tuple[TaskName, int], list[int]] = {}
        for version in dict.fromkeys((batch.task, batch.version) for batch in results):
            for batch in results:
                if (batch.task, batch.version) == version:
                    offsets.setdefault(version, []).extend(_write_batch(producer, batch))
        return {
            version: Span(written[0], written[-1])
            for version, written in offsets.items()
            if written
        }

    def _write_snapshots(self, producer: MemoryProducer, transaction: Transaction) -> Spans:
        bucket, topic = transaction.bucket, self._names.state
        offsets = {
            (one.task, one.version): [
                producer.produce(
                    topic, bucket, value, key=state_key(one.task, one.version, bucket, number)
                )
                for number, value in enumerate(with_tombstones(one))
            ]
            for one in transaction.snapshots
        }
        return part_spans(transaction.snapshots, offsets)

    def _put_progress(
        self, producer: MemoryProducer, bucket: Bucket, record: ProgressRecord
    ) -> int:
        key, value = progress_key(record), encode_progress(record)
        return producer.produce(self._names.progress, bucket, value, key=key)

    def _commit(self, producer: MemoryProducer, bucket: Bucket) -> None:
        crash = self._crashes.popleft() if self._crashes else None
        if crash is Crash.COMMIT_DELAYED:
            producer.commit_late()
        elif crash is not Crash.BEFORE_COMMIT:
            producer.commit()
        if crash is not None:
            raise _unknown(bucket, crash.value)

    # -------------------------------------------------------------------------------- producers

    def _producer(self, bucket: Bucket) -> MemoryProducer:
        return self._broker.producer(self._names.transactional_id(bucket))

    def _keep(self, bucket: Bucket, epoch: AssignmentEpoch, marker: int) -> None:
        producer = self._producer(bucket)
        self._slots[bucket] = _Slot(epoch, producer, self._progress.end(bucket), marker)

    def release(self, bucket: Bucket) -> None:
        """Forget the bucket; a transaction that is still open is settled by the next claim."""
        self._slots.pop(bucket, None)

    def close(self) -> None:
        """Forget all buckets."""
        self._slots.clear()


def _write_batch(producer: MemoryProducer, batch: ResultBatch) -> list[int]:
    try:
        return [
            producer.produce(batch.topic, batch.partition, value, key=key, headers=batch.headers)
            for key, value in zip(batch.keys, batch.values, strict=True)
        ]
    except UnknownTopic as error:
        raise OutputRefused(batch.task, batch.topic, "there is no such topic") from error


def _unknown(bucket: Bucket, detail: object) -> Interrupted:
    return Interrupted(f"Bucket {bucket}: a transaction is not known to be committed: {detail}.")
