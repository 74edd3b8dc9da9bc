"""How many rows that count lie below a task's offsets: compared and set with them."""

from __future__ import annotations

from mars.core.types import NOT_KNOWN
from mars.protocol.ports import Begun, PartialLog, Stale
from tests.contracts.batches import (
    EPOCH,
    LANE,
    LEADER,
    OTHER_LANE,
    TASK,
    applied,
    batch,
    begin,
    counted,
    entries,
    head_of,
    start,
)
from tests.contracts.redis_servers import Store


def begun(store: Store, **said: object) -> PartialLog:
    log = store.open()
    assert log.initialise(TASK, EPOCH, start(**said))  # type: ignore[arg-type]
    return log


def test_rows_go_on_with_the_offset_of_their_lane(log: PartialLog) -> None:
    sent = counted(0, 10, 0, 7)
    assert log.append(TASK, EPOCH, 1, sent) == applied(1)
    assert log.append(TASK, EPOCH, 1, counted(0, 4, 0, 4, OTHER_LANE)) == applied(2)
    assert log.append(TASK, EPOCH, 1, counted(10, 20, 7, 7)) == applied(3)

    assert head_of(log).rows == {LANE: 7, OTHER_LANE: 4}
    assert entries(log)[0].partial == sent.partials[0]


def test_batch_that_counts_from_elsewhere_is_refused_with_the_number(
    store: Store, log: PartialLog
) -> None:
    log.append(TASK, EPOCH, 1, counted(0, 10, 0, 7))
    before = store.dump()

    assert log.append(TASK, EPOCH, 1, counted(10, 20, 8, 9)) == Stale(LANE, 10, 7)
    assert log.append(TASK, EPOCH, 1, counted(0, 10, 0, 7)) == Stale(LANE, 10, 7)
    assert store.dump() == before


def test_tasks_that_count_no_rows_have_none(log: PartialLog) -> None:
    log.append(TASK, EPOCH, 1, batch(0, 10))
    assert head_of(log).rows == {}
    assert head_of(log).numbers == {}


def test_a_life_begins_with_what_records_say(store: Store) -> None:
    numbers = {LANE: {30: 12, 50: 20}, OTHER_LANE: {0: 0}}
    log = begun(store, offsets={LANE: 30, OTHER_LANE: 0}, cuts={LANE: (50,)}, numbers=numbers)

    head = head_of(log)
    assert head.rows == {LANE: 12}
    assert head.numbers == numbers
    assert log.append(TASK, EPOCH, 1, counted(30, 40, 12, 17)) == applied(1)


def test_behind_rows_that_are_gone_a_record_knows_how_many_there_were(store: Store) -> None:
    log = begun(store, cuts={LANE: (50,)}, numbers={LANE: {50: 20}})

    log.append(TASK, EPOCH, 1, counted(0, 10, 0, NOT_KNOWN))
    assert head_of(log).rows == {LANE: NOT_KNOWN}
    assert log.append(TASK, EPOCH, 1, counted(10, 20, 0, 9)) == Stale(LANE, 10, NOT_KNOWN)
    log.append(TASK, EPOCH, 1, counted(10, 50, NOT_KNOWN, NOT_KNOWN))
    assert head_of(log).rows == {LANE: 20}


def test_behind_all_that_records_know_rows_go_on_as_if_none_were_gone(store: Store) -> None:
    log = begun(store, numbers={OTHER_LANE: {50: 20}})

    log.append(TASK, EPOCH, 1, counted(0, 10, 0, 6))
    log.append(TASK, EPOCH, 1, counted(10, 30, 6, NOT_KNOWN))
    assert head_of(log).rows == {LANE: 6}


def test_a_version_begins_with_no_row_and_says_what_the_one_before_had(log: PartialLog) -> None:
    log.append(TASK, EPOCH, 1, counted(0, 10, 0, 7))
    first = begin(log, 2)

    assert first == Begun({LANE: 10, OTHER_LANE: 0}, {}, {LANE: 7})
    assert begin(log, 2) == first
    log.set_active(TASK, EPOCH, LEADER, active=True)
    assert log.append(TASK, EPOCH, 2, counted(10, 20, 7, 9)) == Stale(LANE, 10, 0)
    assert log.append(TASK, EPOCH, 2, counted(10, 20, 0, 5)) == applied(2)
    assert begin(log, 2) == first


def test_rows_are_counted_anew_where_a_version_begins_in_a_new_life(store: Store) -> None:
    bounds = {1: {LANE: 0}, 2: {LANE: 20}}
    log = begun(store, version=2, bounds=bounds, cuts={LANE: (20,)}, numbers={LANE: {20: 11}})

    log.append(TASK, EPOCH, 1, counted(0, 20, 0, 9))
    assert head_of(log).rows.get(LANE, 0) == 0
    assert log.append(TASK, EPOCH, 2, counted(20, 30, 0, 5)) == applied(2)
    assert head_of(log).rows == {LANE: 5}
