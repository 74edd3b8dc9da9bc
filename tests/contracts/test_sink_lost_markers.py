"""Every case of decision 24, on the twin: a transaction ends without markers in some partitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import combinations, product

import pytest

from mars.adapters.kafka.names import Place
from mars.adapters.kafka.recovery.restoring import Kept
from mars.adapters.memory.broker import MemoryBroker, MemoryPartition, MemoryProducer
from mars.adapters.memory.sink import Crash, MemoryLook, MemorySink
from mars.core.errors import Interrupted, Unavailable
from mars.core.types import Bucket, Topic
from mars.protocol.ports import Claimed, Progress, ResultBatch, Transaction
from tests.contracts.kafka_servers import BUCKETS, MemoryCluster
from tests.contracts.transactions import BUCKET, OTHER_TASK, Rows, claim, own, saving, visible
from tests.contracts.transactions import transaction as emitting

PARTS = (b"part one", b"part two")
PLACES = ("progress", "results", "state", "dead")
SUBSETS = [
    *(frozenset(some) for size in range(len(PLACES) + 1) for some in combinations(PLACES, size)),
    frozenset({"others"}),
    frozenset({"others", "progress"}),
]

CLAIMS_MAX = 5
"""More than may break off in one case."""


class BreakingSink(MemorySink):
    """Something happens at one of the commits and aborts it makes."""

    def __init__(self, broker: MemoryBroker, at: int, what: Callable[[MemorySink], None]) -> None:
        super().__init__(broker)
        self._countdown = at
        self._what = what

    def _commit(self, producer: MemoryProducer, bucket: Bucket) -> None:
        self._count_down()
        super()._commit(producer, bucket)

    def _abort(self, producer: MemoryProducer, bucket: Bucket) -> None:
        self._count_down()
        super()._abort(producer, bucket)

    def _count_down(self) -> None:
        self._countdown -= 1
        if self._countdown == 0:
            self._what(self)


class Case:
    """One bucket with two tasks, rows in two topics, a snapshot and references."""

    def __init__(self) -> None:
        self.twin = MemoryCluster()
        self.twin.admin().ensure_internal(BUCKETS)
        self.output, self.other = self.twin.topic(), self.twin.topic()
        names, broker = self.twin.names, self.twin.broker
        self.dead = BUCKET % len(broker.topics[names.dead].partitions)
        self.partitions = {
            "progress": broker.partition(names.progress, BUCKET),
            "results": broker.partition(self.output, 0),
            "others": broker.partition(self.other, 0),
            "state": broker.partition(names.state, BUCKET),
            "dead": broker.partition(names.dead, self.dead),
        }

    def lose(self, lost: frozenset[str]) -> None:
        """The next transaction that ends has no markers there."""
        chosen = [self.partitions[name] for name in lost]

        def loses(each: MemoryPartition) -> bool:
            return any(each is one for one in chosen)

        self.twin.broker.lose_markers(loses)

    def transaction(self, emit: int) -> Transaction:
        rows = Rows(self.output, [[b"a%d" % emit, b"b%d" % emit]])
        other = Rows(self.other, [[b"c%d" % emit]], task=OTHER_TASK)
        plain = emitting(emit, rows, other, dead=(b"bad%d" % emit,))
        state = saving(emit, PARTS)
        first, second = plain.progress
        return replace(
            plain,
            progress=(replace(first, snapshot=state.progress[0].snapshot), second),
            snapshots=state.snapshots,
        )

    def never(self) -> tuple[ResultBatch, ...]:
        """Rows for a draft that is taken back."""
        rows = Rows(self.output, [[b"never"]])
        return emitting(3, rows, Rows(self.other, [[b"never"]], task=OTHER_TASK)).results

    def emitted(self, records: tuple[object, ...]) -> dict[str, Progress]:
        return {record.task: record for record in records if isinstance(record, Progress)}

    def check(self, emits: list[int]) -> None:
        """Exactly the rows of these transactions are to be seen, once; references at least once."""
        assert Counter(visible(self.twin, self.output)) == Counter(
            [b"%s%d" % (kind, emit) for emit in emits for kind in (b"a", b"b")]
        )
        assert visible(self.twin, self.other) == [b"c%d" % emit for emit in emits]
        dead = visible(self.twin, self.twin.names.dead, self.dead)
        assert set(dead) == {b"bad%d" % emit for emit in emits}

    def settle(self, sink: MemorySink) -> None:
        """The bucket is claimed, checked, and goes on."""
        claimed = claimed_at_last(sink, 5)
        newest = self.emitted(claimed.records)
        emits = [1] if newest else []
        assert len(newest) in (0, 2)
        for record in newest.values():
            assert record.emission is not None
            assert sink.audit(record.emission, BUCKET) is None
            if record.snapshot is not None:
                assert sink.saved(record) == PARTS
        self.check(emits)
        sink.commit(self.transaction(2), claimed.next)
        self.check([*emits, 2])
        for partition in self.partitions.values():
            assert partition.stable_end == partition.end


def claimed_at_last(sink: MemorySink, epoch: int) -> Claimed:
    """Claim until it succeeds, as reducers do."""
    for _attempt in range(CLAIMS_MAX):
        with suppress(Interrupted):
            return sink.claim(claim(epoch))
    pytest.fail("the bucket cannot be claimed")


def aborting(sink: MemorySink) -> None:
    sink.crash_next(Crash.BEFORE_COMMIT)


def unanswered(sink: MemorySink) -> None:
    sink.crash_next(Crash.AFTER_COMMIT)


def losing_all(sink: MemorySink) -> None:
    sink._broker.lose_markers()


def losing_all_unanswered(sink: MemorySink) -> None:
    losing_all(sink)
    unanswered(sink)


def aborting_and_losing_all(sink: MemorySink) -> None:
    """The abort is the coordinator's, at the next init: that it loses its markers, too."""
    aborting(sink)
    losing_all(sink)


def losing_all_twice(sink: MemorySink) -> None:
    sink._broker.lose_markers(times=2)


BLOWS = [
    None,
    aborting,
    unanswered,
    losing_all,
    losing_all_unanswered,
    losing_all_twice,
    aborting_and_losing_all,
]


@pytest.mark.parametrize("lost", SUBSETS, ids=lambda lost: "-".join(sorted(lost)))
@pytest.mark.parametrize("committing", [True, False], ids=["committed", "aborted"])
def test_whatever_markers_are_lost_and_whatever_breaks_then_all_or_nothing_is_seen_once(
    lost: frozenset[str], committing: bool
) -> None:
    # The blows fall on the claim (1), on the abort that settles there, on what restores, and on the
    # abort that settles before a draft, or on the claim after a broken one and the same again.
    for blow, at in product(BLOWS, (1, 2, 3, 4)):
        case = Case()
        first = case.twin.sink()
        position = own(first).next
        if committing:
            case.lose(lost)
            first.commit(case.transaction(1), position)
        else:
            first.crash_next(Crash.BEFORE_COMMIT)
            with pytest.raises(Interrupted):
                first.commit(case.transaction(1), position)
            case.lose(lost)
        breaking = BreakingSink(case.twin.broker, at, blow or (lambda _sink: None))
        claimed = claimed_at_last(breaking, 2)
        with suppress(Interrupted):
            breaking.draft(BUCKET, case.never(), claimed.next)
        case.settle(case.twin.sink())


@pytest.mark.parametrize("lost", SUBSETS[1:], ids=lambda lost: "-".join(sorted(lost)))
def test_an_owner_that_stays_notices_before_it_writes_again(lost: frozenset[str]) -> None:
    case = Case()
    sink = case.twin.sink()
    position = own(sink).next
    case.lose(lost)
    done = sink.commit(case.transaction(1), position)
    with pytest.raises(Interrupted, match="claimed again"):
        sink.commit(case.transaction(2), done.next)
    case.settle(sink)


def test_a_partition_that_is_only_hidden_by_others_holds_nobody_up() -> None:
    case = Case()
    hiding = case.twin.writer()
    hiding.write(Topic(case.output), 0, [b"hides what follows"])
    sink = case.twin.sink()
    done = sink.commit(case.transaction(1), own(sink).next)
    sink.commit(case.transaction(2), done.next)
    hiding.abort()
    case.check([1, 2])


def test_a_claim_waits_for_no_rows_that_retention_has_begun_to_take() -> None:
    """Somebody's open transaction hides the rest of them, for as long as it stays open."""
    case = Case()
    hiding = case.twin.writer()
    hiding.write(Topic(case.output), 0, [b"hides what follows"])
    sink = case.twin.sink()
    record, _other = sink.commit(case.transaction(1), own(sink).next).progress
    assert record.emission is not None
    assert record.emission.first < record.emission.last
    with pytest.raises(Unavailable, match="hides"):
        own(case.twin.sink(), epoch=2)

    case.twin.truncate(case.output, 0, record.emission.first + 1)

    assert own(case.twin.sink(), epoch=3).restored == ()


@pytest.mark.parametrize("followed", [False, True])
def test_what_two_records_name_is_not_looked_for_again(
    followed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case()
    sink = case.twin.sink()
    done = sink.commit(case.transaction(1), own(sink).next)
    if followed:
        later = tuple(replace(record, emit=record.emit + 1) for record in done.progress)
        sink.commit(Transaction(BUCKET, (), (), later), done.next)
    looked: set[str] = set()
    shown = MemoryLook.shown

    def noting(self: MemoryLook, place: Place, first: int, last: int) -> Iterator[Kept]:
        looked.add(place[0])
        return shown(self, place, first, last)

    monkeypatch.setattr(MemoryLook, "shown", noting)
    assert own(case.twin.sink(), epoch=2).restored == ()
    names = case.twin.names
    rows = {case.output, case.other}
    assert looked == (rows if followed else {*rows, names.state, names.dead})
