"""The abort that is to end what hangs loses its marker, too, on the twin (decision 24)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from mars.adapters.kafka.names import Names
from mars.adapters.kafka.recovery.hanging import SETTLES_MAX, Ends, hanging
from mars.adapters.kafka.recovery.restoring import written_spans
from mars.adapters.kafka.sink.transaction import WrittenSpan, settling_headers
from mars.adapters.memory.broker import MemoryProducer, Outcome
from mars.adapters.memory.sink import Crash, MemoryLook, MemorySink
from mars.core.errors import Interrupted
from mars.core.types import Bucket, Topic
from tests.contracts.kafka_servers import MemoryWriter
from tests.contracts.test_sink_lost_markers import (
    BreakingSink,
    Case,
    claimed_at_last,
    losing_all,
)
from tests.contracts.transactions import BUCKET, Rows, claim, own, visible
from tests.contracts.transactions import transaction as emitting

SHARED = ["results", "others", "dead"]
"""Partitions that other buckets and other programs write to, too."""

WRITTEN = [*SHARED, "state"]


class CountingSink(MemorySink):
    """Counts the aborts it asks for."""

    aborts = 0

    def _abort(self, producer: MemoryProducer, bucket: Bucket) -> None:
        self.aborts += 1
        super()._abort(producer, bucket)


@pytest.fixture
def case() -> Case:
    return Case()


def lose(case: Case, where: str, outcome: Outcome, times: int = 1) -> None:
    """The next transactions that end so have no marker in that partition."""
    lost = case.partitions[where]
    case.twin.broker.lose_markers(lambda each: each is lost, times=times, outcome=outcome)


def broken_off(case: Case) -> None:
    """An owner dies before its commit; the next init aborts what it has written."""
    sink = case.twin.sink()
    position = own(sink).next
    sink.crash_next(Crash.BEFORE_COMMIT)
    with pytest.raises(Interrupted):
        sink.commit(case.transaction(1), position)


def open_in_front(case: Case, where: str) -> MemoryWriter:
    """Some other program has a transaction open there."""
    writer = case.twin.writer()
    place = {
        "results": (case.output, 0),
        "others": (case.other, 0),
        "dead": (case.twin.names.dead, case.dead),
    }[where]
    writer.write(*place, [b"theirs"])
    return writer


@pytest.mark.parametrize("times", [1, 2, SETTLES_MAX])
@pytest.mark.parametrize("where", WRITTEN)
def test_what_a_former_owner_left_is_never_seen(case: Case, where: str, times: int) -> None:
    broken_off(case)
    lose(case, where, Outcome.ABORTED, times)
    sink = case.twin.sink()
    sink.commit(case.transaction(1), sink.claim(claim(2)).next)
    case.check([1])


@pytest.mark.parametrize("times", [1, 2, SETTLES_MAX])
@pytest.mark.parametrize("where", ["results", "others"])
@pytest.mark.parametrize("again", [False, True], ids=["a commit", "a draft and its commit"])
def test_a_draft_that_was_taken_back_is_never_seen(
    case: Case, where: str, times: int, again: bool
) -> None:
    sink = case.twin.sink()
    position = own(sink).next
    sink.draft(BUCKET, case.never(), position)
    lose(case, where, Outcome.ABORTED, times)
    due = case.transaction(1)
    if again:
        sink.draft(BUCKET, due.results, position)
    sink.commit(due, position)
    case.check([1])


@pytest.mark.parametrize("where", WRITTEN)
def test_aborts_without_any_effect_interrupt_and_the_next_claim_goes_on(
    case: Case, where: str
) -> None:
    broken_off(case)
    lose(case, where, Outcome.ABORTED, SETTLES_MAX + 1)
    with pytest.raises(Interrupted, match="an abort had no effect"):
        _claim_and_commit(case)
    _claim_and_commit(case)
    case.check([1])


def _claim_and_commit(case: Case) -> None:
    sink = case.twin.sink()
    sink.commit(case.transaction(1), sink.claim(claim(2)).next)


@pytest.mark.parametrize("where", SHARED)
def test_a_transaction_of_others_that_stays_open_is_met_with_one_abort(
    case: Case, where: str
) -> None:
    hiding = open_in_front(case, where)
    sink = CountingSink(case.twin.broker)
    done = sink.commit(case.transaction(1), own(sink).next)
    sink.commit(case.transaction(2), done.next)
    assert sink.aborts == 1
    hiding.abort()
    case.check([1, 2])


@pytest.mark.parametrize("where", SHARED)
def test_what_hangs_behind_the_open_transaction_of_others_is_never_seen(
    case: Case, where: str
) -> None:
    hiding = open_in_front(case, where)
    broken_off(case)
    lose(case, where, Outcome.ABORTED, 2)
    sink = CountingSink(case.twin.broker)
    sink.commit(case.transaction(1), sink.claim(claim(2)).next)
    assert sink.aborts == 2
    hiding.abort()
    case.check([1])


@pytest.mark.parametrize("where", SHARED)
def test_what_hangs_in_front_of_others_is_seen_although_their_marker_comes(
    case: Case, where: str
) -> None:
    broken_off(case)
    lose(case, where, Outcome.ABORTED, 2)
    sink = MarkedBehind(case, where)
    sink.commit(case.transaction(1), claimed_at_last(sink, 2).next)
    assert sink.aborts == 2
    case.check([1])


class MarkedBehind(CountingSink):
    """While its aborts lose their markers, other transactions end in that partition."""

    def __init__(self, case: Case, where: str) -> None:
        super().__init__(case.twin.broker)
        self._case = case
        self._where = where

    def _abort(self, producer: MemoryProducer, bucket: Bucket) -> None:
        writer = open_in_front(self._case, self._where)
        super()._abort(producer, bucket)
        writer.abort()


@pytest.mark.parametrize("where", SHARED)
def test_a_commit_that_hangs_behind_the_open_transaction_of_others_is_noticed(
    case: Case, where: str
) -> None:
    sink = case.twin.sink()
    position = own(sink).next
    hiding = open_in_front(case, where)
    lose(case, where, Outcome.COMMITTED)
    done = sink.commit(case.transaction(1), position)
    with pytest.raises(Interrupted, match="claimed again"):
        sink.draft(BUCKET, case.never(), done.next)
    hiding.abort()
    case.settle(sink)


def test_rows_of_two_versions_in_one_partition_are_noticed_when_they_hang(case: Case) -> None:
    sink = case.twin.sink()
    position = own(sink).next
    older, newer = Rows(case.output, [[b"a1"]]), Rows(case.output, [[b"b1"]], version=2)
    case.lose(frozenset({"results"}))
    done = sink.commit(emitting(1, older, newer), position)
    with pytest.raises(Interrupted, match="claimed again"):
        sink.commit(emitting(2), done.next)
    own(sink)
    assert visible(case.twin, case.output) == [b"a1", b"b1"]


def test_a_partition_is_watched_for_all_that_a_transaction_wrote_there() -> None:
    names, output = Names("default"), Topic("output")
    older, newer = Rows(output, [[b"a"]]), Rows(output, [[b"b"], [b"c"]], version=2)
    due = emitting(1, newer, older)
    first, second = due.progress
    assert first.emission is not None
    assert second.emission is not None
    written = (
        replace(first, emission=replace(first.emission, first=7, last=9)),
        replace(second, emission=replace(second.emission, first=4, last=5)),
    )
    assert written_spans(due, written, names) == {(output, 0): WrittenSpan(4, 9)}


@pytest.mark.parametrize("where", ["results", "others"])
def test_an_abort_that_was_never_sent_is_known_by_its_record(case: Case, where: str) -> None:
    hiding = open_in_front(case, where)
    first = case.twin.sink()
    position = own(first).next
    first.crash_next(Crash.BEFORE_COMMIT)
    with pytest.raises(Interrupted, match="never sent"):
        first.commit(case.transaction(1), position)
    hiding.abort()
    lose(case, where, Outcome.ABORTED, 2)
    sink = MarkedBehind(case, where)
    sink.commit(case.transaction(1), claimed_at_last(sink, 2).next)
    assert sink.aborts == 2
    case.check([1])


def test_what_is_written_again_and_hangs_is_no_claim(case: Case) -> None:
    first = case.twin.sink()
    position = own(first).next
    lose(case, "results", Outcome.COMMITTED)
    first.commit(case.transaction(1), position)
    restoring = BreakingSink(case.twin.broker, 3, losing_all)
    with pytest.raises(Interrupted, match="claimed again"):
        restoring.claim(claim(2))
    last = case.twin.sink()
    last.commit(case.transaction(2), claimed_at_last(last, 3).next)
    case.check([1, 2])


class MaskedSink(MemorySink):
    """Right after a transaction that it ends so, one of others ends in the same partition."""

    def __init__(self, case: Case, outcome: Outcome) -> None:
        super().__init__(case.twin.broker)
        self._outcome = outcome
        self.masks: list[MemoryWriter] = []

    def _commit(self, producer: MemoryProducer, bucket: Bucket) -> None:
        super()._commit(producer, bucket)
        self._end_theirs(Outcome.COMMITTED)

    def _abort(self, producer: MemoryProducer, bucket: Bucket) -> None:
        super()._abort(producer, bucket)
        self._end_theirs(Outcome.ABORTED)

    def _end_theirs(self, outcome: Outcome) -> None:
        while self.masks and outcome is self._outcome:
            self.masks.pop().abort()


Opened = tuple[MemoryWriter, MemoryWriter]
"""Who stays open in front of ours, and whose marker comes behind ours."""


def front_first(case: Case, where: str) -> Opened:
    return open_in_front(case, where), open_in_front(case, where)


def front_last(case: Case, where: str) -> Opened:
    """Nothing that lies behind the one that stays is of whoever's marker it is."""
    ending, staying = open_in_front(case, where), open_in_front(case, where)
    return staying, ending


@pytest.mark.parametrize("opened", [front_first, front_last])
@pytest.mark.parametrize("where", SHARED)
def test_where_the_marker_of_others_may_be_taken_for_ours_no_rows_of_a_former_owner_are_seen(
    case: Case, where: str, opened: Callable[[Case, str], Opened]
) -> None:
    first, sink = case.twin.sink(), MaskedSink(case, Outcome.ABORTED)
    position = first.commit(case.transaction(1), own(first).next).next
    staying, ending = opened(case, where)
    first.crash_next(Crash.BEFORE_COMMIT)
    with pytest.raises(Interrupted, match="never sent"):
        first.commit(case.transaction(2), position)
    sink.masks.append(ending)
    lose(case, where, Outcome.ABORTED, 2)
    with pytest.raises(Interrupted, match="cannot be told"):
        sink.claim(claim(2))
    staying.abort()
    sink.commit(case.transaction(2), claimed_at_last(sink, 3).next)
    case.check([1, 2])


@pytest.mark.parametrize("opened", [front_first, front_last])
@pytest.mark.parametrize("where", SHARED)
def test_where_the_marker_of_others_may_be_taken_for_ours_nothing_committed_is_taken_back(
    case: Case, where: str, opened: Callable[[Case, str], Opened]
) -> None:
    sink = MaskedSink(case, Outcome.COMMITTED)
    position = sink.commit(case.transaction(1), own(sink).next).next
    staying, ending = opened(case, where)
    sink.masks.append(ending)
    lose(case, where, Outcome.COMMITTED)
    done = sink.commit(case.transaction(2), position)
    with pytest.raises(Interrupted, match="cannot be told"):
        sink.draft(BUCKET, case.never(), done.next)
    staying.abort()
    sink.commit(case.transaction(3), claimed_at_last(sink, 2).next)
    case.check([1, 2, 3])


def test_who_was_in_front_may_have_ended_since_the_last_stable_offset_was_asked_for(
    case: Case,
) -> None:
    broker, place, span = case.twin.broker, (case.output, 0), WrittenSpan(1, 1)
    staying = open_in_front(case, "results")
    ours = broker.producer(case.twin.names.transactional_id(BUCKET))
    ours.produce(*place, b"", headers=settling_headers(BUCKET))
    lose(case, "results", Outcome.ABORTED)
    ours.abort()
    look, fronts = MemoryLook(broker), {place: 0}
    asked = look.stable_ends([place])
    staying.abort()
    assert hanging({place: span}, asked, fronts, BUCKET, look) == Ends((), {place: span})
    assert fronts == {place: 0}
    asked = look.stable_ends([place])
    assert hanging({place: span}, asked, fronts, BUCKET, look) == Ends((place,))
    assert fronts == {place: 1}
