"""Transactions of the reducers in memory: the twin of Kafka's, which can crash at each step."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, replace
from enum import Enum

from mars.adapters.kafka.names import DEFAULT_NAMESPACE, Names, Place
from mars.adapters.kafka.recovery.audit import difference
from mars.adapters.kafka.recovery.hanging import (
    SETTLES_MAX,
    Ends,
    hanging,
    refuse_unsettled,
    refuse_untold,
    told,
)
from mars.adapters.kafka.recovery.looking import hidden
from mars.adapters.kafka.recovery.restoring import (
    Kept,
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
    refuse_hung,
    refuse_made_anew,
    refuse_newer,
    refuse_others,
    refuse_strangers,
    take_slot,
)
from mars.adapters.kafka.sink.transaction import (
    Spans,
    WrittenSpan,
    part_spans,
    settling_headers,
    with_parts,
    with_references,
    with_span,
    with_tombstones,
)
from mars.adapters.kafka.wire import encode_progress, progress_key, state_key
from mars.adapters.memory.broker import (
    MemoryBroker,
    MemoryProducer,
    ProducerFenced,
    StoredRecord,
    UnknownTopic,
)
from mars.adapters.memory.faults import Faults, fallible
from mars.adapters.memory.progress import MemoryProgressLog
from mars.core.errors import Interrupted, OutputRefused
from mars.core.types import AssignmentEpoch, Bucket, TaskName, Topic
from mars.engine.codec.result_headers import BUCKET, number
from mars.protocol.ports import (
    Claim,
    Claimed,
    Committed,
    Emission,
    Progress,
    ProgressRecord,
    References,
    ResultBatch,
    SourceTopic,
    TopicInfo,
    Transaction,
)


class Crash(Enum):
    """Where a claim, a commit or an abort breaks off; the caller sees Interrupted each time.

    An abort that is delayed is never sent: whoever goes on does so with a newer producer.
    """

    BEFORE_COMMIT = "everything is written, the commit was never sent"
    COMMIT_DELAYED = "the commit is still on its way, see `MemoryBroker.deliver_delayed`"
    AFTER_COMMIT = "the commit took effect, the answer was lost"


@dataclass(frozen=True, slots=True)
class _Draft:
    results: tuple[ResultBatch, ...]
    spans: Spans


@dataclass(frozen=True, slots=True)
class _Own:
    """What stays the same while a bucket is owned, as in `KafkaSink`."""

    bucket: Bucket
    epoch: AssignmentEpoch
    settled: set[Place]
    fronts: dict[Place, int]


@dataclass(frozen=True, slots=True)
class _Slot:
    own: _Own
    producer: MemoryProducer
    end: int
    marker: int
    ends: Ends
    draft: _Draft | None = None


class MemoryLook:
    """`Look` in memory: nothing that is hidden is waited for."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker

    def start(self, place: Place) -> int | None:
        """The lowest offset that is still there; None if there is no such partition."""
        try:
            return self._broker.partition(*place).start
        except UnknownTopic:
            return None

    def shown(self, place: Place, first: int, last: int) -> Iterator[Kept]:
        """What readers see there. Raises Unavailable while it is hidden."""
        log = self._broker.partition(*place)
        end = log.stable_end
        if end <= last < log.end:
            raise hidden(*place, end)
        return map(_kept, log.committed(first, min(last + 1, end)))

    def written(self, place: Place, first: int, last: int) -> Iterator[Kept]:
        """All that was written there, committed or not."""
        return map(_kept, self._broker.partition(*place).written(first, last + 1))

    def end(self, place: Place) -> int:
        """The offset behind the last record, committed or not."""
        return self._broker.partition(*place).end

    def stable_ends(self, places: Iterable[Place]) -> dict[Place, int]:
        """The last stable offset of each place, without topics that are gone."""
        there = [place for place in places if self.start(place) is not None]
        return {place: self._broker.partition(*place).stable_end for place in there}

    def stable_end(self, place: Place) -> int:
        """The last stable offset."""
        return self._broker.partition(*place).stable_end

    def unsettled(self, places: Iterable[Place]) -> dict[Place, int]:
        """Where some transaction is open, or hangs: the last stable offsets."""
        stable = self.stable_ends(sorted(places))
        return {place: offset for place, offset in stable.items() if offset < self.end(place)}

    def told(self, ends: Ends, fronts: MutableMapping[Place, int], bucket: Bucket) -> Ends:
        """Where the bucket's last transaction hangs. Raises Interrupted where it cannot be told."""
        found = told(ends, self.stable_ends(ends.untold), fronts, bucket, self)
        refuse_untold(found.untold, bucket)
        return found


class MemorySink:
    """`ResultSink` in memory; one of them per process, all on one broker.

    The next producer is made before a call returns, not in the background.
    """

    def __init__(self, broker: MemoryBroker, namespace: str = DEFAULT_NAMESPACE) -> None:
        self.faults = Faults("kafka")
        self._broker = broker
        self._names = Names(namespace)
        self._progress = MemoryProgressLog(broker, namespace)
        self._look = MemoryLook(broker)
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
            again = self._undone(bucket)
            wanted: list[ProgressRecord] = [*again, claim]
            *_others, offset = [self._put_progress(producer, bucket, each) for each in wanted]
            self._commit(producer, bucket)
        except ProducerFenced as error:
            raise _unknown(bucket, error) from error
        records = self._progress.between(bucket, 0, offset + 1)
        refuse_newer(records, claim.assignment_epoch)
        if claim not in records:
            raise _unknown(bucket, "the claim cannot be read")
        own = _Own(bucket, claim.assignment_epoch, set(), {})
        slot = self._slot(own, offset + 1, {})
        return self._restored(claim, Claimed(records, offset + 1, told_of(again)), slot)

    def _undone(self, bucket: Bucket) -> tuple[Progress, ...]:
        """Progress that fell with a claim that was broken off."""
        stable, end = self._progress.end(bucket), self._progress.written_end(bucket)
        committed = self._progress.offsets(bucket, 0, stable)
        return undone(self._progress.tail(bucket, 0, end), committed.union(range(stable, end)))

    def _restored(self, claim: Claim, claimed: Claimed, slot: _Slot) -> Claimed:
        """Let what the newest records name be seen."""
        bucket = claim.bucket
        records = claimed.records
        places = named_places(newest(records), bucket, self._names) | {self._dead_place(bucket)}
        self._slots[bucket] = self._settled(slot, places, claimed.next)
        found = restoration(claim, records, self._names, self._look)
        if found.transaction is None:
            return claimed
        done = self.commit(found.transaction, claimed.next)
        self._refuse(self._slots[bucket], done.next)
        return Claimed((*claimed.records, *done.progress), done.next, claimed.restored + found.told)

    def _settled(self, slot: _Slot, places: Iterable[Place], known: int) -> _Slot:
        """The slot, once nothing of former owners hangs in the partitions."""
        own = slot.own
        new = set(places) - own.settled
        found = self._look.unsettled(new)
        own.fronts.update(found)
        hung: Collection[Place] = found
        settling: frozenset[Place] = frozenset()
        for _attempt in range(SETTLES_MAX):
            if not hung:
                break
            self._refuse(slot, known, settling)
            written = self._settle(own.bucket, slot.producer, hung)
            slot = self._slot(own, slot.marker, written)
            ends = self._look.told(slot.ends, own.fronts, own.bucket)
            hung, settling = ends.hung, frozenset(hung)
        refuse_unsettled(hung, own.bucket)
        own.settled.update(new)
        return slot

    def _settle(
        self, bucket: Bucket, producer: MemoryProducer, places: Iterable[Place]
    ) -> dict[Place, WrittenSpan]:
        """End as aborted whatever of the bucket hangs there; where that was written."""
        headers = settling_headers(bucket)
        try:
            offsets = {place: producer.produce(*place, b"", headers=headers) for place in places}
            self._abort(producer, bucket)
        except ProducerFenced as error:
            raise _unknown(bucket, error) from error
        return {place: WrittenSpan(offset, offset) for place, offset in offsets.items()}

    def _refuse(self, slot: _Slot, known: int, settling: Collection[Place] = ()) -> None:
        own, bucket = slot.own, slot.own.bucket
        ends = self._look.told(slot.ends, own.fronts, bucket)
        hung = [at for at in ends.hung if at not in settling]
        refuse_hung(hung, slot.end, known, bucket)
        refuse_others(self._progress, bucket, own.epoch, slot.end, known, slot.marker)

    @fallible
    def audit(self, emission: Emission, bucket: Bucket) -> str | None:
        """R4: count and checksum of the rows; none where retention has taken some."""
        place = emission.topic, emission.partition
        start = self._look.start(place)
        if start is None:
            return f"emission {emission.emit}: there is no {place[0]}[{place[1]}]"
        if start > emission.first:
            return None
        shown = self._look.shown(place, emission.first, emission.last)
        return difference(emission, bucket, [(one.headers, one.value) for one in shown])

    @fallible
    def saved(self, record: Progress) -> tuple[bytes, ...]:
        """Read the parts at the offsets that the record names. Raises SnapshotLost."""
        return self._progress.saved(record)

    # ------------------------------------------------------------------------------------ draft

    @fallible
    def draft(self, bucket: Bucket, results: tuple[ResultBatch, ...], next: int) -> None:
        """Look for foreign records, write the rows."""
        slot = self._taken_back(take_slot(self._slots, bucket))
        if results:
            places = {self._dead_place(bucket), (self._names.state, bucket)}
            slot = self._settled(slot, places | result_places(results), next)
            slot = replace(slot, draft=self._drafted(slot, results, next))
        self._slots[bucket] = slot

    def _drafted(self, slot: _Slot, results: tuple[ResultBatch, ...], next: int) -> _Draft:
        self._refuse(slot, next)
        try:
            return _Draft(results, self._write_results(slot.producer, results))
        except ProducerFenced as error:
            raise _unknown(slot.own.bucket, error) from error

    def _taken_back(self, slot: _Slot) -> _Slot:
        """The slot without its draft, and with the next producer."""
        own = slot.own
        if slot.draft is None:
            return slot
        try:
            self._abort(slot.producer, own.bucket)
        except ProducerFenced as error:
            raise _unknown(own.bucket, error) from error
        own.settled.difference_update(result_places(slot.draft.results))
        return self._slot(own, slot.marker, {})

    # ----------------------------------------------------------------------------------- commit

    @fallible
    def commit(self, transaction: Transaction, next: int) -> Committed:
        """R7, R8: look for foreign records, write, commit."""
        bucket = transaction.bucket
        slot = take_slot(self._slots, bucket)
        refuse_made_anew(transaction.sources, _infos(self._broker, transaction.sources))
        if slot.draft is not None and slot.draft.results != transaction.results:
            slot = self._taken_back(slot)
        places = written_places(transaction, self._dead_place(bucket), (self._names.state, bucket))
        slot = self._settled(slot, places, next)
        draft = slot.draft or self._drafted(slot, transaction.results, next)
        try:
            progress, offsets = self._write(transaction, slot, draft.spans)
            self._commit(slot.producer, bucket)
        except ProducerFenced as error:
            raise _unknown(bucket, error) from error
        marker = offsets[-1] + 1 if offsets else slot.marker
        written = written_spans(transaction, progress, self._names)
        self._slots[bucket] = self._slot(slot.own, marker, written)
        return Committed(progress, offsets[-1] + 1 if offsets else next)

    def _dead_place(self, bucket: Bucket) -> Place:
        dead = self._names.dead
        return dead, bucket % len(self._broker.topics[dead].partitions)

    def _write(
        self, transaction: Transaction, slot: _Slot, spans: Spans
    ) -> tuple[tuple[Progress, ...], list[int]]:
        producer, bucket = slot.producer, transaction.bucket
        dead = self._write_dead(producer, transaction)
        parts = self._write_snapshots(producer, transaction)
        progress = tuple(
            with_references(with_parts(with_span(record, spans), parts), dead)
            for record in transaction.progress
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
            version: WrittenSpan(written[0], written[-1])
            for version, written in offsets.items()
            if written
        }

    def _write_dead(self, producer: MemoryProducer, transaction: Transaction) -> References | None:
        topic, partition = self._dead_place(transaction.bucket)
        headers = [(BUCKET, number(transaction.bucket))]
        offsets = [
            producer.produce(topic, partition, record, headers=headers)
            for record in transaction.dead
        ]
        return References(partition, offsets[0], offsets[-1], len(offsets)) if offsets else None

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

    def _abort(self, producer: MemoryProducer, bucket: Bucket) -> None:
        crash = self._crashes.popleft() if self._crashes else None
        if crash in (None, Crash.AFTER_COMMIT):
            producer.abort()
        if crash is not None:
            raise _unknown(bucket, crash.value)

    # -------------------------------------------------------------------------------- producers

    def _producer(self, bucket: Bucket) -> MemoryProducer:
        return self._broker.producer(self._names.transactional_id(bucket))

    def _slot(self, own: _Own, marker: int, written: Mapping[Place, WrittenSpan]) -> _Slot:
        """Make the next producer; then the last transaction has ended, or hangs."""
        producer = self._producer(own.bucket)
        stable = self._look.stable_ends(written)
        ends = hanging(written, stable, own.fronts, own.bucket, self._look)
        return _Slot(own, producer, self._progress.end(own.bucket), marker, ends)

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


def _infos(broker: MemoryBroker, sources: Iterable[SourceTopic]) -> dict[Topic, TopicInfo]:
    there = {source.topic: broker.topics.get(source.topic) for source in sources}
    return {
        topic: TopicInfo(found.topic_id, len(found.partitions))
        for topic, found in there.items()
        if found is not None
    }


def _kept(record: StoredRecord) -> Kept:
    return Kept(record.offset, record.key, record.value, record.headers)


def _unknown(bucket: Bucket, detail: object) -> Interrupted:
    return Interrupted(f"Bucket {bucket}: a transaction is not known to be committed: {detail}.")
