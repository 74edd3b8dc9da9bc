"""Kafka in memory: what the twins of the Kafka ports share.

It keeps what our protocol rests on: offsets that are taken by markers and aborted records too, the
last stable offset, fencing by producer epoch, groups that share partitions, and a commit that is
delayed on its way. Nothing blocks and nothing is safe for threads.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from operator import attrgetter

from mars.core.types import Topic

Headers = Sequence[tuple[str, bytes]]

_offset_of = attrgetter("offset")


class ProducerFenced(Exception):
    """A newer producer of the same transactional id exists."""


class UnknownTopic(Exception):
    """There is no such topic or partition."""


class Outcome(Enum):
    """What became of a transaction."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(slots=True, eq=False)
class MemoryTransaction:
    """What a transactional id wrote to one partition since its last marker there.

    The next marker decides it, even if it belongs to a later transaction: as in Kafka.
    """

    outcome: Outcome = Outcome.OPEN


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """One record of a partition; without a transaction it counts as committed."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int
    transaction: MemoryTransaction | None

    @property
    def committed(self) -> bool:
        """Whether a reader of committed records sees it."""
        return self.transaction is None or self.transaction.outcome is Outcome.COMMITTED


class MemoryPartition:
    """Records in offset order; some offsets hold none."""

    def __init__(self) -> None:
        self.start = 0
        self.end = 0
        self.records: list[StoredRecord] = []
        self._open: dict[str, tuple[MemoryTransaction, int]] = {}

    def append(
        self,
        value: bytes | None,
        key: bytes | None,
        headers: Headers,
        timestamp_ms: int,
        transactional_id: str | None,
    ) -> int:
        """Add a record, outside of transactions or as part of one; its offset."""
        offset, transaction = self.end, None
        if transactional_id is not None:
            fresh = MemoryTransaction(), offset
            transaction, _first = self._open.setdefault(transactional_id, fresh)
        record = StoredRecord(offset, key, value, tuple(headers), timestamp_ms, transaction)
        self.records.append(record)
        self.end += 1
        return offset

    def mark(self, transactional_id: str, outcome: Outcome) -> None:
        """Write a marker: it takes an offset and decides all that is open of the id here."""
        transaction, _first = self._open.pop(transactional_id, (MemoryTransaction(), self.end))
        transaction.outcome = outcome
        self.end += 1

    @property
    def stable_end(self) -> int:
        """The last stable offset: readers of committed records see what lies below."""
        if not self._open:
            return self.end
        return min(first for _transaction, first in self._open.values())

    def committed(self, first: int, end: int) -> list[StoredRecord]:
        """The committed records at `[first, end)`."""
        return [record for record in self.written(first, end) if record.committed]

    def written(self, first: int, end: int) -> list[StoredRecord]:
        """All records at `[first, end)`, committed or not."""
        if first >= end:
            return []  # as of most polls
        low, high = (bisect_left(self.records, at, key=_offset_of) for at in (first, end))
        return self.records[low:high]

    def truncate(self, before: int) -> None:
        """Delete the records below `before`, as retention does."""
        self.start = max(self.start, min(before, self.end))
        self.records = self.records[bisect_left(self.records, self.start, key=_offset_of) :]


@dataclass(slots=True)
class MemoryTopic:
    """A topic, with an id that no topic of the same name had before."""

    topic_id: str
    partitions: list[MemoryPartition]


@dataclass(slots=True)
class _TransactionalId:
    epoch: int = -1
    partitions: list[MemoryPartition] = field(default_factory=list)
    """Those that the transaction under way wrote to."""


@dataclass(frozen=True, slots=True)
class _Loss:
    """Markers that will not be written: in which partitions, and of which transactions."""

    where: Callable[[MemoryPartition], bool]
    outcome: Outcome | None


class MemoryBroker:
    """All topics, transactional ids and consumer groups; `clock` gives epoch ms."""

    def __init__(self, clock: Callable[[], int] = lambda: 0) -> None:
        self.clock = clock
        self.topics: dict[Topic, MemoryTopic] = {}
        self.groups: dict[str, MemoryGroup] = {}
        self._ids: dict[str, _TransactionalId] = {}
        self._delayed: list[tuple[str, int]] = []
        self._losses: list[_Loss] = []
        self._made = itertools.count(1)

    # ----------------------------------------------------------------------------------- topics

    def create_topic(self, topic: Topic, partitions: int) -> MemoryTopic:
        """Make a topic; one that exists stays as it is."""
        if topic not in self.topics:
            fresh = [MemoryPartition() for _number in range(partitions)]
            self.topics[topic] = MemoryTopic(f"id-{next(self._made)}", fresh)
            self.rebalance()
        return self.topics[topic]

    def add_partitions(self, topic: Topic, partitions: int) -> None:
        """Let a topic grow to so many partitions."""
        known = self.topics[topic].partitions
        known += [MemoryPartition() for _number in range(partitions - len(known))]
        self.rebalance()

    def delete_topic(self, topic: Topic) -> None:
        """Delete it with all records."""
        del self.topics[topic]
        self.rebalance()

    def partition(self, topic: Topic, partition: int) -> MemoryPartition:
        """Raises UnknownTopic."""
        found = self.topics.get(topic)
        if found is None or not 0 <= partition < len(found.partitions):
            raise UnknownTopic(f"{topic}[{partition}]")
        return found.partitions[partition]

    def append(  # what any program may write to a topic
        self,
        topic: Topic,
        partition: int,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> int:
        """Add a record outside of transactions; its offset. No time means now."""
        time_ms = self.clock() if timestamp_ms is None else timestamp_ms
        return self.partition(topic, partition).append(value, key, headers, time_ms, None)

    def append_aborted(self, topic: Topic, partition: int, values: Iterable[bytes]) -> None:
        """Leave a gap: records that nobody sees, and their marker."""
        target, nobody = self.partition(topic, partition), f"aborted-{next(self._made)}"
        for value in values:
            target.append(value, None, (), self.clock(), nobody)
        target.mark(nobody, Outcome.ABORTED)

    # ----------------------------------------------------------------------------- transactions

    def producer(self, transactional_id: str) -> MemoryProducer:
        """Init: fence the older producers of this id and abort their open transaction."""
        known = self._ids.setdefault(transactional_id, _TransactionalId())
        self._finish(transactional_id, known, Outcome.ABORTED)
        known.epoch += 1
        return MemoryProducer(self, transactional_id, known.epoch)

    def write(self, transactional_id: str, epoch: int, target: MemoryPartition) -> None:
        """The producer's transaction takes a partition in. Raises ProducerFenced."""
        known = self._current(transactional_id, epoch)
        if target not in known.partitions:
            known.partitions.append(target)

    def lose_markers(
        self,
        where: Callable[[MemoryPartition], bool] = lambda _each: True,
        *,
        times: int = 1,
        outcome: Outcome | None = None,
    ) -> None:
        """Let the next transactions that end do so without markers in some partitions.

        So does a broker that was killed between the decision and the markers, and takes partitions
        without a leader for deleted ones when it is back. It befalls the next `times` that end, by
        whatever decides them (a commit, an abort, the init of a newer producer), with an `outcome`
        only those that are to end so. A further call takes the place of what is left of the last.
        """
        self._losses = [_Loss(where, outcome)] * times

    def finish(self, transactional_id: str, epoch: int, outcome: Outcome) -> None:
        """EndTxn. Raises ProducerFenced."""
        self._finish(transactional_id, self._current(transactional_id, epoch), outcome)

    def delay_commit(self, transactional_id: str, epoch: int) -> None:
        """Let a commit travel slowly: it arrives with `deliver_delayed`."""
        self._delayed.append((transactional_id, epoch))

    def deliver_delayed(self) -> None:
        """Commits arrive: each ends whatever its producer has open by now, or is refused."""
        delayed, self._delayed = self._delayed, []
        for transactional_id, epoch in delayed:
            if self._ids[transactional_id].epoch == epoch:
                self.finish(transactional_id, epoch, Outcome.COMMITTED)

    def _current(self, transactional_id: str, epoch: int) -> _TransactionalId:
        known = self._ids[transactional_id]
        if known.epoch != epoch:
            raise ProducerFenced(f"{transactional_id} has epoch {known.epoch}, not {epoch}")
        return known

    def _finish(self, transactional_id: str, known: _TransactionalId, outcome: Outcome) -> None:
        if not known.partitions:
            return
        loss = self._loss_of(outcome)
        for partition in known.partitions:
            if loss is None or not loss.where(partition):
                partition.mark(transactional_id, outcome)
        known.partitions = []

    def _loss_of(self, outcome: Outcome) -> _Loss | None:
        """What is to be lost of a transaction that ends now, if anything."""
        if not self._losses or self._losses[0].outcome not in (None, outcome):
            return None
        return self._losses.pop(0)

    # ----------------------------------------------------------------------------------- groups

    def group(self, name: str) -> MemoryGroup:
        """The consumer group of that name."""
        return self.groups.setdefault(name, MemoryGroup(self))

    def rebalance(self) -> None:
        """Share the partitions of all groups anew."""
        for group in self.groups.values():
            group.rebalance()


@dataclass(frozen=True, slots=True)
class MemoryProducer:
    """One life of a transactional id."""

    broker: MemoryBroker
    transactional_id: str
    epoch: int

    def produce(
        self,
        topic: Topic,
        partition: int,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
    ) -> int:
        """Add a record to the open transaction; its offset. Raises ProducerFenced, UnknownTopic."""
        target = self.broker.partition(topic, partition)
        self.broker.write(self.transactional_id, self.epoch, target)
        time_ms = self.broker.clock()
        return target.append(value, key, headers, time_ms, self.transactional_id)

    def commit(self) -> None:
        """Raises ProducerFenced."""
        self.broker.finish(self.transactional_id, self.epoch, Outcome.COMMITTED)

    def commit_late(self) -> None:
        """Send a commit that arrives with `MemoryBroker.deliver_delayed`."""
        self.broker.delay_commit(self.transactional_id, self.epoch)

    def abort(self) -> None:
        """Raises ProducerFenced."""
        self.broker.finish(self.transactional_id, self.epoch, Outcome.ABORTED)


Place = tuple[Topic, int]


@dataclass(slots=True, eq=False)
class MemoryMember:
    """One member of a group; `changes` are (gained, lost) that it has not yet been told."""

    topics: tuple[Topic, ...] = ()
    owned: set[Place] = field(default_factory=set)
    changes: list[tuple[tuple[Place, ...], tuple[Place, ...]]] = field(default_factory=list)


class MemoryGroup:
    """Shares the partitions of the subscribed topics; a member keeps what it has if it can."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker
        self._members: list[MemoryMember] = []
        self.offsets: dict[Place, int] = {}

    def update(self, member: MemoryMember) -> None:
        """A member comes, or has changed what it wants; one that wants nothing goes."""
        if not member.topics:
            self.remove(member)
        elif member not in self._members:
            self._members.append(member)
        self.rebalance()

    def rejoin(self, member: MemoryMember) -> None:
        """A member polls: it comes again, if the group had given it up."""
        if member not in self._members:
            self.update(member)

    def remove(self, member: MemoryMember) -> None:
        """A member goes, or the group gives it up: it hears of that when it polls again."""
        if member in self._members:
            self._members.remove(member)
            member.changes.append(((), tuple(sorted(member.owned))))
            member.owned = set()
            self.rebalance()

    def rebalance(self) -> None:
        """Let each member own nearly the same number of partitions, and move few."""
        targets = self._targets()
        for member, target in zip(self._members, targets, strict=True):
            gained, lost = target - member.owned, member.owned - target
            if gained or lost:
                member.owned = target
                member.changes.append((tuple(sorted(gained)), tuple(sorted(lost))))

    def _targets(self) -> list[set[Place]]:
        targets: list[set[Place]] = [set() for _member in self._members]
        for place in sorted(self._places()):
            candidates = [at for at, one in enumerate(self._members) if place[0] in one.topics]
            fewest = min(len(targets[at]) for at in candidates)
            share = -(-len(self._places()) // len(candidates))
            keeper = [
                at
                for at in candidates
                if place in self._members[at].owned and len(targets[at]) < share
            ]
            chosen = keeper or [at for at in candidates if len(targets[at]) == fewest]
            targets[chosen[0]].add(place)
        return targets

    def _places(self) -> set[Place]:
        wanted = {topic for member in self._members for topic in member.topics}
        return {
            (topic, number)
            for topic in wanted
            if topic in self._broker.topics
            for number in range(len(self._broker.topics[topic].partitions))
        }
