"""Transactions of the reducers: results, references to rejected rows, and progress, at once.

A producer serves one transaction (R8): librdkafka speaks the older transaction protocol (EndTxn
version 1, no epoch per transaction), in which a commit that was delayed on its way can end the
next transaction of the same producer. The next producer is made as soon as the outcome of the last
transaction is known, in the background.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from mars.adapters.kafka.admin import KafkaTopicAdmin
from mars.adapters.kafka.names import Names, Place
from mars.adapters.kafka.progress import KafkaProgressLog
from mars.adapters.kafka.recovery.audit import difference
from mars.adapters.kafka.recovery.hanging import (
    SETTLES_MAX,
    Ends,
    hanging,
    refuse_unsettled,
)
from mars.adapters.kafka.recovery.looking import LOOK_AGAIN_S, VISIBLE_TIMEOUT_S, KafkaLook
from mars.adapters.kafka.recovery.restoring import (
    TAIL_OFFSETS,
    named_places,
    newest,
    restoration,
    result_places,
    told_of,
    undone,
    written_places,
    written_spans,
)
from mars.adapters.kafka.sink.refusals import (
    given_back,
    refuse_hung,
    refuse_made_anew,
    refuse_newer,
    refuse_others,
    refuse_strangers,
    take_slot,
)
from mars.adapters.kafka.sink.transaction import (
    BucketTransaction,
    Spans,
    WrittenSpan,
    with_parts,
    with_references,
    with_span,
)
from mars.adapters.kafka.state import named_snapshot, parts_of
from mars.core.errors import Interrupted, Unavailable
from mars.core.settings import Settings
from mars.core.types import AssignmentEpoch, Bucket, MemberId
from mars.protocol.ports import (
    Claim,
    Claimed,
    Committed,
    Emission,
    Progress,
    ProgressRecord,
    References,
    ResultBatch,
    Transaction,
)

PREPARE_THREADS = 4
"""Producers that are made at the same time; they wait for brokers nearly all the time."""

SETTLE_S = 0.05
"""The coordinator completes a transaction some milliseconds after it has answered the commit; an
init that comes sooner is sent away for 500 ms."""


@dataclass(frozen=True, slots=True)
class _Ready:
    """A producer that is initialised, and what was to be seen after that.

    `end` is the progress partition's; `ends` says where the last transaction has not ended,
    although it is over.
    """

    producer: BucketTransaction
    end: int
    ends: Ends


@dataclass(frozen=True, slots=True)
class _Own:
    """What stays the same while a bucket is owned.

    `abandoned` is set when it is given back: its producers then stop at the next step. `settled`
    are the partitions in which nothing of former owners hangs, `fronts` last stable offsets that
    were seen before the last transaction.
    """

    bucket: Bucket
    epoch: AssignmentEpoch
    abandoned: threading.Event
    settled: set[Place]
    fronts: dict[Place, int]

    def stop_if_asked(self) -> None:
        """Raise Interrupted if the bucket was given back."""
        if self.abandoned.is_set():
            raise given_back(self.bucket)

    def pause(self, seconds: float) -> None:
        """Wait; raise Interrupted if the bucket is given back meanwhile."""
        if self.abandoned.wait(seconds):
            raise given_back(self.bucket)


@dataclass(frozen=True, slots=True)
class _Draft:
    """An open transaction, and the rows that are written in it."""

    ready: _Ready
    results: tuple[ResultBatch, ...]
    spans: Spans


@dataclass(frozen=True, slots=True)
class _Slot:
    """What the sink knows of a bucket that it owns, between two transactions.

    `marker` is the offset behind its own last progress, where the commit marker lies. `written` is
    where the last transaction's records lie. A `draft` has taken the producer out of `ready`.
    """

    own: _Own
    marker: int
    written: Mapping[Place, WrittenSpan]
    ready: Future[_Ready]
    draft: _Draft | None = None


class KafkaSink:
    """`ResultSink` on Kafka; calls for different buckets may come from different threads.

    After any error the bucket's producer is gone: claim again. A foreign record raises Fenced if a
    newer owner wrote it, and Interrupted if it was an older one, which its own claim stops.
    Besides, `draft` and `commit` raise TaskAtFault for a topic that is gone, was made anew or does
    not take a row, and `claim` MarsError for a progress record that this release cannot read.
    """

    def __init__(
        self,
        settings: Settings,
        member: MemberId,
        turn: AbstractContextManager[object] | None = None,
        admin: KafkaTopicAdmin | None = None,
    ) -> None:
        self._settings = settings
        self._member = member
        self._names = Names(settings.namespace)
        self._admin = admin or KafkaTopicAdmin(settings)
        self._progress = KafkaProgressLog(settings, self._admin)
        self._look = KafkaLook.opened(settings, member, self._admin)
        self._sound: dict[Bucket, frozenset[Emission]] = {}
        self._slots: dict[Bucket, _Slot] = {}
        self._abandoned: dict[Bucket, threading.Event] = {}
        self._preparing: dict[Bucket, Future[_Ready]] = {}
        self._pool = ThreadPoolExecutor(PREPARE_THREADS, thread_name_prefix="producer")
        self._dead_partitions: int | None = None
        self._turn = turn or threading.Lock()

    # ------------------------------------------------------------------------------------ claim

    def claim(self, claim: Claim) -> Claimed:
        """R2, R3: fence, commit the claim, read the progress until its nonce is back.

        Progress of a transaction that hangs is committed by that, as is what `undone` finds. Then
        what nobody can see is written again, see `restoring`.
        """
        bucket = claim.bucket
        self.release(bucket)
        self._await_last_producer(bucket)
        abandoned = self._abandoned[bucket] = threading.Event()
        producer = self._new_producer(bucket, abandoned)
        producer.initialise()
        again = self._undone(bucket)
        producer.begin()
        *_others, offset = producer.write_progress(self._names.progress, [*again, claim])
        producer.commit()
        records = self._read_back(claim, offset, abandoned)
        refuse_newer(records, claim.assignment_epoch)
        own = _Own(bucket, claim.assignment_epoch, abandoned, set(), {})
        self._keep(own, offset + 1, {})
        return self._restored(claim, Claimed(records, offset + 1, told_of(again)))

    def _undone(self, bucket: Bucket) -> tuple[Progress, ...]:
        """Progress that fell with a claim that was broken off; ours is initialised."""
        end = self._progress.written_end(bucket)
        first = max(0, end - TAIL_OFFSETS)
        tail = self._progress.tail(bucket, first, end)
        if not undone(tail, ()):
            return ()  # Whatever of it is committed.
        stable = self._progress.end(bucket)
        committed = self._progress.offsets(bucket, first, stable)
        return undone(tail, committed.union(range(stable, end)))

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

    # ---------------------------------------------------------------------------------- restore

    def _restored(self, claim: Claim, claimed: Claimed) -> Claimed:
        """Let what the newest records name be seen."""
        bucket = claim.bucket
        records = claimed.records
        slot = self._slots.pop(bucket, None)
        if slot is None:
            raise given_back(bucket)
        places = named_places(newest(records), bucket, self._names) | {self._dead_place(bucket)}
        self._slots[bucket] = self._settled(slot, places, claimed.next)
        look = self._look.begun(places, slot.own.stop_if_asked, slot.own.pause)
        found = restoration(claim, records, self._names, look)
        self._sound[bucket] = found.sound
        if found.transaction is None:
            return claimed
        done = self.commit(found.transaction, claimed.next)
        self._see_the_end(bucket, done.next)
        again = {record.emission for record in done.progress if record.emission is not None}
        self._sound[bucket] = found.sound | again
        return Claimed((*claimed.records, *done.progress), done.next, claimed.restored + found.told)

    def _see_the_end(self, bucket: Bucket, known: int) -> None:
        """Raise Interrupted if the transaction that was just committed hangs."""
        slot = take_slot(self._slots, bucket)
        self._take(slot, known)
        self._slots[bucket] = slot

    def _settled(self, slot: _Slot, places: Iterable[Place], known: int) -> _Slot:
        """The slot, once nothing of former owners hangs in the partitions.

        What hangs there would be decided by our next marker, whatever was to become of it. Where
        others have transactions open it cannot be told, and to settle changes nothing. The abort
        that settles may hang itself: that it has ended is seen once the next producer is made.
        """
        own = slot.own
        new = set(places) - own.settled
        found = self._admin.unsettled(new, own.stop_if_asked) if new else {}
        own.fronts.update(found)
        hung: Collection[Place] = found
        settling: frozenset[Place] = frozenset()
        for _attempt in range(SETTLES_MAX):
            if not hung:
                break
            written = self._take(slot, known, settling).producer.settle(hung)
            slot = self._slot(own, slot.marker, written)
            hung, settling = self._made(slot).ends.hung, frozenset(hung)
        refuse_unsettled(hung, own.bucket)
        own.settled.update(new)
        return slot

    # ------------------------------------------------------------------------------------ audit

    def audit(self, emission: Emission, bucket: Bucket) -> str | None:
        """R4: count and checksum of the rows, read committed.

        Nothing differs where the topic's own retention has taken rows of the emission. Raises
        Unavailable while somebody's open transaction hides the rows.
        """
        if emission in self._sound.get(bucket, ()):
            return None  # The claim has just seen them.
        place = emission.topic, emission.partition
        start = self._look.start(place)
        if start is None:
            return f"emission {emission.emit}: there is no {place[0]}[{place[1]}]"
        if start > emission.first:
            return None
        shown = self._look.shown(place, emission.first, emission.last)
        return difference(emission, bucket, ((row.headers, row.value) for row in shown))

    # ------------------------------------------------------------------------------------ state

    def saved(self, record: Progress) -> tuple[bytes, ...]:
        """Read the parts at the offsets that the record names. Raises SnapshotLost."""
        snapshot = named_snapshot(record)
        shown = self._look.shown((self._names.state, record.bucket), snapshot.first, snapshot.last)
        return parts_of(record, {row.key: row.value for row in shown})

    # ------------------------------------------------------------------------------------ draft

    def draft(self, bucket: Bucket, results: tuple[ResultBatch, ...], next: int) -> None:
        """Begin a transaction and write the rows; before that, what `commit` looks at."""
        slot = self._taken_back(take_slot(self._slots, bucket))
        if results:
            # All that the commit may write to besides: the producer that settles is taken by then.
            places = {self._dead_place(bucket), self._state_place(bucket)}
            slot = self._settled(slot, places | result_places(results), next)
            slot = replace(slot, draft=self._drafted(slot, results, next))
        self._slots[bucket] = slot

    def _drafted(self, slot: _Slot, results: tuple[ResultBatch, ...], next: int) -> _Draft:
        ready = self._take(slot, next)
        ready.producer.begin()
        return _Draft(ready, results, ready.producer.write_results(results))

    def _taken_back(self, slot: _Slot) -> _Slot:
        """The slot without its draft, and with the next producer.

        Once that is initialised the abort has taken effect, or hangs: so it is looked for anew
        before anything else is written. Our next marker would decide what hangs, and show it.
        """
        draft = slot.draft
        if draft is None:
            return slot
        draft.ready.producer.abort()
        slot.own.settled.difference_update(result_places(draft.results))
        slot = self._slot(slot.own, slot.marker, {})
        wait([slot.ready])
        return slot

    # ----------------------------------------------------------------------------------- commit

    def commit(self, transaction: Transaction, next: int) -> Committed:
        """R7: results first, then progress that names their offsets, then the commit.

        Before that, the look for foreign records (R8). The fast way is exact: `next` is the offset
        behind the last record known, the partition's last stable offset was read after our init,
        and since that init nobody else can write without fencing us. If the end is not above
        `next`, there is no offset that a foreign record could have; if it is one above, there is
        one, and our own commit marker has it, because it lies at or above the offset behind our
        own last record. Otherwise the stretch is read, and our own last record, which may have
        fallen with a claim that was broken off. Last, our own records must begin at that
        end and have no other between them. All of this holds for a draft, too, whose producer was
        initialised before it.
        """
        slot = take_slot(self._slots, transaction.bucket)
        topics = {source.topic for source in transaction.sources}
        refuse_made_anew(transaction.sources, self._admin.infos(topics, slot.own.stop_if_asked))
        if slot.draft is not None and slot.draft.results != transaction.results:
            slot = self._taken_back(slot)
        slot = self._settled(slot, self._places(transaction), next)
        draft = slot.draft or self._drafted(slot, transaction.results, next)
        committed = self._write(transaction, draft, next)
        marker = committed.next if transaction.progress else slot.marker
        written = written_spans(transaction, committed.progress, self._names)
        self._keep(slot.own, marker, written)
        return committed

    def _places(self, transaction: Transaction) -> set[Place]:
        bucket = transaction.bucket
        return written_places(transaction, self._dead_place(bucket), self._state_place(bucket))

    def _dead_place(self, bucket: Bucket) -> Place:
        return self._names.dead, self._dead_partition(bucket)

    def _state_place(self, bucket: Bucket) -> Place:
        return self._names.state, bucket

    def _take(self, slot: _Slot, known: int, settling: Collection[Place] = ()) -> _Ready:
        """The next producer, if nobody else wrote progress from `known` on, and nothing hangs.

        What hangs in `settling` is about to be ended.
        """
        bucket = slot.own.bucket
        ready = self._made(slot)
        refuse_hung([at for at in ready.ends.hung if at not in settling], ready.end, known, bucket)
        refuse_others(self._progress, bucket, slot.own.epoch, ready.end, known, slot.marker)
        return ready

    def _made(self, slot: _Slot) -> _Ready:
        """The producer made in the background, or one made now if that one failed.

        Once it can be told where the last transaction hangs.
        """
        try:
            ready = slot.ready.result()
        except Unavailable:
            ready = self._prepare(slot.own, slot.written)
        except CancelledError as error:
            raise given_back(slot.own.bucket) from error
        own = slot.own
        stop, pause = own.stop_if_asked, own.pause
        ends = self._look.told(ready.ends, own.fronts, own.bucket, stop, pause)
        return replace(ready, ends=ends)

    def _write(self, transaction: Transaction, draft: _Draft, known: int) -> Committed:
        """Write what goes with the rows, and commit."""
        producer, spans, bucket = draft.ready.producer, draft.spans, transaction.bucket
        dead: References | None = None
        if transaction.dead:
            partition = self._dead_partition(bucket)
            dead = producer.write_dead(self._names.dead, partition, transaction.dead)
        parts: Spans = {}
        if transaction.snapshots:
            parts = producer.write_snapshots(self._names.state, transaction.snapshots)
        progress = tuple(
            with_references(with_parts(with_span(record, spans), parts), dead)
            for record in transaction.progress
        )
        offsets = producer.write_progress(self._names.progress, progress)
        refuse_strangers(offsets, draft.ready.end, bucket)
        producer.commit()
        return Committed(progress, offsets[-1] + 1 if offsets else known)

    def _dead_partition(self, bucket: Bucket) -> int:
        if self._dead_partitions is None:
            found = self._admin.describe(self._names.dead)
            if found is None:
                raise Unavailable("kafka", f"there is no topic {self._names.dead}; create it again")
            self._dead_partitions = found.partitions
        return bucket % self._dead_partitions

    # -------------------------------------------------------------------------------- producers

    def _keep(self, own: _Own, marker: int, written: Mapping[Place, WrittenSpan]) -> None:
        """The bucket is ours, and its last transaction is over."""
        self._slots[own.bucket] = self._slot(own, marker, written)

    def _slot(self, own: _Own, marker: int, written: Mapping[Place, WrittenSpan]) -> _Slot:
        """Make the next producer, in the background."""
        ready = self._preparing[own.bucket] = self._pool.submit(self._prepare, own, written)
        return _Slot(own, marker, written, ready)

    def _prepare(self, own: _Own, written: Mapping[Place, WrittenSpan]) -> _Ready:
        """A producer; once it is initialised the last transaction has ended, or hangs."""
        settled = time.monotonic() + SETTLE_S
        producer = self._new_producer(own.bucket, own.abandoned)
        own.abandoned.wait(max(0.0, settled - time.monotonic()))
        producer.initialise()
        progress = self._names.progress, own.bucket
        ends = self._admin.stable_ends([progress, *written], own.stop_if_asked)
        end = ends[progress] if progress in ends else self._progress.end(own.bucket)
        hung = hanging(written, ends, own.fronts, own.bucket, self._look)
        return _Ready(producer, end, hung)

    def _new_producer(self, bucket: Bucket, abandoned: threading.Event) -> BucketTransaction:
        producer = BucketTransaction(self._settings, self._member, bucket, abandoned, self._turn)
        producer.connect(self._names.progress)
        return producer

    def release(self, bucket: Bucket) -> None:
        """Forget the bucket; a transaction that is still open is settled by the next claim."""
        abandoned = self._abandoned.pop(bucket, None)
        if abandoned is not None:
            abandoned.set()
        self._sound.pop(bucket, None)
        slot = self._slots.pop(bucket, None)
        if slot is not None:
            slot.ready.cancel()

    def close(self) -> None:
        """Throw all producers away; waits that are under way end within a second."""
        for bucket in list(self._abandoned):
            self.release(bucket)
        self._pool.shutdown(cancel_futures=True)
        self._look.close()
        self._progress.close()
