"""Transactions of the reducers: results, references to rejected rows, and progress, at once.

A producer serves one transaction (R8): librdkafka speaks the older transaction protocol (EndTxn
version 1, no epoch per transaction), in which a commit that was delayed on its way can end the
next transaction of the same producer. The next producer is made as soon as the outcome of the last
transaction is known, in the background.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import cast

from mars.adapters.kafka.admin import KafkaTopicAdmin
from mars.adapters.kafka.audit import Row, difference
from mars.adapters.kafka.names import Names
from mars.adapters.kafka.progress import KafkaProgressLog
from mars.adapters.kafka.slices import SliceReader
from mars.adapters.kafka.state import named_snapshot, parts_of
from mars.adapters.kafka.transaction import BucketTransaction, Spans, with_parts, with_span
from mars.errors import Fenced, Interrupted, Unavailable
from mars.ports import (
    Claim,
    Claimed,
    Committed,
    Emission,
    Progress,
    ProgressRecord,
    Transaction,
)
from mars.settings import Settings
from mars.types import AssignmentEpoch, Bucket, MemberId, Topic

PREPARE_THREADS = 4
"""Producers that are made at the same time; they wait for brokers nearly all the time."""

SETTLE_S = 0.05
"""The coordinator completes a transaction some milliseconds after it has answered the commit; an
init that comes sooner is sent away for 500 ms."""

VISIBLE_TIMEOUT_S = 30.0
"""Until what is committed can be read: markers are written after the answer to the commit."""

LOOK_AGAIN_S = 0.005
"""Between two looks at the end of a partition."""


@dataclass(frozen=True, slots=True)
class _Ready:
    """A producer that is initialised, and the progress partition's end after that."""

    producer: BucketTransaction
    end: int


@dataclass(slots=True)
class _Slot:
    """What the sink knows of a bucket that it owns.

    `marker` is the offset behind its own last record, where the commit marker lies. `abandoned` is
    set when the bucket is given back: its producers then stop at the next step.
    """

    epoch: AssignmentEpoch
    marker: int
    ready: Future[_Ready]
    abandoned: threading.Event


class KafkaSink:
    """`ResultSink` on Kafka; calls for different buckets may come from different threads.

    After any error the bucket's producer is gone: claim again. A foreign record raises Fenced if a
    newer owner wrote it, and Interrupted if it was an older one, which its own claim stops.
    Besides, `commit` raises OutputRefused for a topic that is gone or does not take a row, and
    `claim` MarsError for a progress record that this release cannot read.
    """

    def __init__(
        self, settings: Settings, member: MemberId, turn: threading.Lock | None = None
    ) -> None:
        self._settings = settings
        self._member = member
        self._names = Names(settings.namespace)
        self._admin = KafkaTopicAdmin(settings)
        self._progress = KafkaProgressLog(settings)
        self._results = SliceReader(settings, f"{member}-audit")
        self._slots: dict[Bucket, _Slot] = {}
        self._abandoned: dict[Bucket, threading.Event] = {}
        self._preparing: dict[Bucket, Future[_Ready]] = {}
        self._pool = ThreadPoolExecutor(PREPARE_THREADS, thread_name_prefix="producer")
        self._dead_partitions: int | None = None
        self._turn = turn or threading.Lock()

    # ------------------------------------------------------------------------------------ claim

    def claim(self, claim: Claim) -> Claimed:
        """R2, R3: fence, commit the claim, read the progress until its nonce is back."""
        bucket = claim.bucket
        self.release(bucket)
        self._await_last_producer(bucket)
        abandoned = self._abandoned[bucket] = threading.Event()
        producer = self._new_producer(bucket, abandoned)
        producer.initialise()
        producer.begin()
        (offset,) = producer.write_progress(self._names.progress, [claim])
        producer.commit()
        records = self._read_back(claim, offset, abandoned)
        refuse_newer(records, claim.assignment_epoch)
        self._keep(bucket, claim.assignment_epoch, offset + 1, abandoned)
        return Claimed(records, offset + 1)

    def _await_last_producer(self, bucket: Bucket) -> None:
        """One that is still being made would fence the claim."""
        last = self._preparing.pop(bucket, None)
        if last is not None:
            wait([last])

    def _read_back(
        self, claim: Claim, offset: int, abandoned: threading.Event
    ) -> tuple[ProgressRecord, ...]:
        """Everything up to the claim. The end of the partition proves nothing: it may lag."""
        deadline = time.monotonic() + VISIBLE_TIMEOUT_S
        while self._progress.end(claim.bucket) <= offset:
            if abandoned.wait(LOOK_AGAIN_S) or time.monotonic() > deadline:
                raise Interrupted(
                    f"Bucket {claim.bucket}: a committed claim cannot be read after "
                    f"{VISIBLE_TIMEOUT_S:.0f} s; check the brokers."
                )
        records = self._progress.between(claim.bucket, 0, offset + 1)
        if claim not in records:
            raise Interrupted(
                f"Bucket {claim.bucket}: the claim committed at offset {offset} is not there; "
                f"look at topic {self._names.progress}."
            )
        return records

    # ------------------------------------------------------------------------------------ audit

    def audit(self, emission: Emission, bucket: Bucket) -> str | None:
        """R4: count and checksum of the rows, read committed.

        Nothing differs where the topic's own retention has taken rows of the emission. Raises
        Unavailable while somebody's open transaction hides the rows.
        """
        topic, partition = emission.topic, emission.partition
        start = self._admin.starts(topic).get(partition)
        if start is None:
            return f"emission {emission.emit}: there is no {topic}[{partition}]"
        if start > emission.first:
            return None
        end = min(emission.last + 1, self._stable_end(topic, partition, emission.last))
        portions = self._results.read(topic, partition, emission.first, end)
        rows = ((row.headers() or [], row.value()) for portion in portions for row in portion)
        return difference(emission, bucket, cast(Iterator[Row], rows))

    def _stable_end(self, topic: Topic, partition: int, last: int) -> int:
        """The last stable offset, once it is behind `last` or nothing is hidden any more.

        A commit is answered before all its markers are written: for a moment rows are hidden.
        """
        deadline = time.monotonic() + VISIBLE_TIMEOUT_S
        while (end := self._admin.end(topic, partition)) <= last:
            if self._admin.written_end(topic, partition) <= end:
                return end
            if time.monotonic() > deadline:
                raise hidden(topic, partition, end)
            time.sleep(LOOK_AGAIN_S)
        return end

    # ------------------------------------------------------------------------------------ state

    def saved(self, record: Progress) -> tuple[bytes, ...]:
        """Read the parts at the offsets that the record names. Raises SnapshotLost."""
        snapshot = named_snapshot(record)
        topic, bucket = self._names.state, record.bucket
        end = min(snapshot.last + 1, self._stable_end(topic, bucket, snapshot.last))
        portions = self._results.read(topic, bucket, snapshot.first, end)
        found = {row.key(): row.value() for portion in portions for row in portion}
        return parts_of(record, cast(Mapping[bytes | None, bytes | None], found))

    # ----------------------------------------------------------------------------------- commit

    def commit(self, transaction: Transaction, next: int) -> Committed:
        """R7: results first, then progress that names their offsets, then the commit.

        Before that, the look for foreign records (R8). The fast way is exact: `next` is the offset
        behind the last record known, the partition's last stable offset was read after our init,
        and since that init nobody else can write without fencing us. If the end is not above
        `next`, there is no offset that a foreign record could have; if it is one above, there is
        one, and our own commit marker has it, because it lies at or above the offset behind our
        own last record. Otherwise the stretch is read. Last, our own records must begin at that
        end and have no other between them.
        """
        bucket = transaction.bucket
        slot = self._slots.pop(bucket, None)
        if slot is None:
            raise Interrupted(f"Bucket {bucket}: there is no producer; claim the bucket again.")
        ready = self._take(bucket, slot)
        self._refuse_foreign(bucket, slot, ready.end, next)
        committed = self._write(transaction, ready, next)
        marker = committed.next if transaction.progress else slot.marker
        self._keep(bucket, slot.epoch, marker, slot.abandoned)
        return committed

    def _take(self, bucket: Bucket, slot: _Slot) -> _Ready:
        """The producer made in the background, or one made now if that one failed."""
        try:
            return slot.ready.result()
        except Unavailable:
            return self._prepare(bucket, slot.abandoned)
        except CancelledError as error:
            raise Interrupted(f"Bucket {bucket} was given back.") from error

    def _refuse_foreign(self, bucket: Bucket, slot: _Slot, end: int, known: int) -> None:
        if may_hold_foreign(end, known, slot.marker):
            refuse_foreign(self._progress.between(bucket, known, end), bucket, slot.epoch)

    def _write(self, transaction: Transaction, ready: _Ready, known: int) -> Committed:
        producer, bucket = ready.producer, transaction.bucket
        producer.begin()
        spans = producer.write_results(transaction.results)
        if transaction.dead:
            producer.write_dead(self._names.dead, self._dead_partition(bucket), transaction.dead)
        parts: Spans = {}
        if transaction.snapshots:
            parts = producer.write_snapshots(self._names.state, transaction.snapshots)
        progress = tuple(
            with_parts(with_span(record, spans), parts) for record in transaction.progress
        )
        offsets = producer.write_progress(self._names.progress, progress)
        refuse_strangers(offsets, ready.end, bucket)
        producer.commit()
        return Committed(progress, offsets[-1] + 1 if offsets else known)

    def _dead_partition(self, bucket: Bucket) -> int:
        if self._dead_partitions is None:
            found = self._admin.describe(self._names.dead)
            if found is None:
                raise Unavailable("kafka", f"there is no topic {self._names.dead}, make it again")
            self._dead_partitions = found.partitions
        return bucket % self._dead_partitions

    # -------------------------------------------------------------------------------- producers

    def _keep(
        self, bucket: Bucket, epoch: AssignmentEpoch, marker: int, abandoned: threading.Event
    ) -> None:
        """The bucket is ours: make its next producer in the background."""
        ready = self._pool.submit(self._prepare, bucket, abandoned)
        self._preparing[bucket] = ready
        self._slots[bucket] = _Slot(epoch, marker, ready, abandoned)

    def _prepare(self, bucket: Bucket, abandoned: threading.Event) -> _Ready:
        settled = time.monotonic() + SETTLE_S
        producer = self._new_producer(bucket, abandoned)
        abandoned.wait(max(0.0, settled - time.monotonic()))
        producer.initialise()
        return _Ready(producer, self._progress.end(bucket))

    def _new_producer(self, bucket: Bucket, abandoned: threading.Event) -> BucketTransaction:
        producer = BucketTransaction(self._settings, self._member, bucket, abandoned, self._turn)
        producer.connect(self._names.progress)
        return producer

    def release(self, bucket: Bucket) -> None:
        """Forget the bucket; a transaction that is still open is settled by the next claim."""
        abandoned = self._abandoned.pop(bucket, None)
        if abandoned is not None:
            abandoned.set()
        slot = self._slots.pop(bucket, None)
        if slot is not None:
            slot.ready.cancel()

    def close(self) -> None:
        """Throw all producers away; waits that are under way end within a second."""
        for bucket in list(self._abandoned):
            self.release(bucket)
        self._pool.shutdown(cancel_futures=True)
        self._results.close()
        self._progress.close()


def hidden(topic: Topic, partition: int, end: int) -> Unavailable:
    """Somebody's transaction stays open."""
    return Unavailable(
        "kafka",
        f"an open transaction hides {topic}[{partition}] from offset {end} on; it ends "
        "when its owner is back, or by its time-out",
    )


def may_hold_foreign(end: int, known: int, marker: int) -> bool:
    """Whether a foreign record may lie in `[known, end)` of a progress partition.

    `end` is the last stable offset, read after our own init; `marker` is the offset behind our
    own last record. See `KafkaSink.commit`.
    """
    return end > known and not (end == known + 1 and marker == known)


def refuse_foreign(records: Sequence[ProgressRecord], bucket: Bucket, own: AssignmentEpoch) -> None:
    """Raise Fenced if a newer owner wrote one of them, Interrupted if an older one did."""
    refuse_newer(records, own)
    if records:
        raise Interrupted(
            f"Bucket {bucket}: an older owner wrote {len(records)} progress records; the bucket is "
            "claimed again."
        )


def refuse_newer(records: Sequence[ProgressRecord], own: AssignmentEpoch) -> None:
    """Raise Fenced if a newer owner wrote one of them."""
    newest = max((record.assignment_epoch for record in records), default=own)
    if newest > own:
        raise Fenced(
            f"A newer owner of the bucket has assignment epoch {newest}, this one has {own}."
        )


def refuse_strangers(offsets: Sequence[int], end: int, bucket: Bucket) -> None:
    """Raise Interrupted if our records are not the next ones behind `end`, side by side."""
    if list(offsets) != list(range(end, end + len(offsets))):
        raise Interrupted(
            f"Bucket {bucket}: somebody wrote progress beside its owner, at an offset from {end} "
            "on; the bucket is claimed again."
        )
