"""Lanes with an end: those of backfills, whose batches mostly have a range of each of them."""

from __future__ import annotations

import pytest

from mars.core.types import Lane, StoreEpoch
from mars.protocol.ports import (
    Cut,
    PartialLog,
    Stale,
    TaskPaused,
    WrongEpoch,
    WrongVersion,
)
from tests.contracts.batches import (
    EPOCH,
    LANE,
    LEADER,
    OTHER_TASK,
    TASK,
    applied,
    batch,
    begin,
    both_lanes,
    drop,
    entries,
    head_of,
    start,
)
from tests.contracts.redis_servers import Store

HISTORY, OTHER_HISTORY, FILES = Lane("0@b1"), Lane("1@b1"), Lane("f@b2")
LANES = (HISTORY, OTHER_HISTORY)
ENDS = {HISTORY: 100, OTHER_HISTORY: 60}
OFFSETS = {LANE: 100, HISTORY: 0, OTHER_HISTORY: 20}
NEXT_EPOCH = StoreEpoch(EPOCH + 1)


@pytest.fixture
def log(store: Store) -> PartialLog:
    """A task with a live lane, and two of a backfill that end where live ones begin."""
    log = store.open()
    assert log.initialise(TASK, EPOCH, start(OFFSETS, ends=ENDS))
    return log


# ---------------------------------------------------------------------------------- the ends


def test_head_shows_the_ends_and_which_lanes_are_finished(log: PartialLog) -> None:
    assert head_of(log).ends == ENDS
    assert head_of(log).finished == frozenset()
    log.append(TASK, EPOCH, 1, both_lanes(0, 99, 20, 60, lanes=LANES))
    assert head_of(log).finished == {OTHER_HISTORY}
    log.append(TASK, EPOCH, 1, batch(99, 100, lane=HISTORY))
    assert head_of(log).finished == {HISTORY, OTHER_HISTORY}


def test_task_without_history_has_no_ends(store: Store) -> None:
    log = store.open()
    log.initialise(TASK, EPOCH, start())
    log.initialise(OTHER_TASK, EPOCH, start(OFFSETS, ends=ENDS))
    assert head_of(log).ends == {}


def test_recovery_keeps_the_ends_that_it_is_told_and_no_others(log: PartialLog) -> None:
    again = {LANE: 100, HISTORY: 100, FILES: 7}
    ends = {HISTORY: 100, FILES: 30}
    log.append(TASK, EPOCH, 1, both_lanes(0, 50, 20, 60, lanes=LANES, marks_ms={HISTORY: 5}))
    assert log.initialise(TASK, NEXT_EPOCH, start(again, ends=ends))
    head = head_of(log)
    assert (head.offsets, head.ends, head.marks_ms) == (again, ends, {})
    assert head.finished == {HISTORY}


def test_ends_go_with_the_task(store: Store) -> None:
    log = store.open()
    before = store.dump()
    log.initialise(TASK, EPOCH, start(OFFSETS, ends=ENDS))
    drop(log)
    assert store.dump() == before


def test_pauses_versions_and_new_partitions_leave_the_ends_alone(log: PartialLog) -> None:
    log.set_active(TASK, EPOCH, LEADER, active=False)
    log.set_active(TASK, EPOCH, LEADER, active=True)
    log.add_lanes(TASK, EPOCH, LEADER, {Lane("2"): 0, HISTORY: 77})
    assert begin(log, 2)
    assert head_of(log).ends == ENDS
    assert head_of(log).offsets == {**OFFSETS, Lane("2"): 0}


# --------------------------------------------------------------------------- several ranges


def test_each_range_of_a_batch_leaves_its_own_mark(log: PartialLog) -> None:
    marks = {HISTORY: 500, OTHER_HISTORY: 300}
    log.append(TASK, EPOCH, 1, both_lanes(0, 50, 20, 40, lanes=LANES, marks_ms=marks))
    lower = {HISTORY: 400, OTHER_HISTORY: 350}
    log.append(TASK, EPOCH, 1, both_lanes(50, 60, 40, 50, lanes=LANES, marks_ms=lower))
    log.append(TASK, EPOCH, 1, both_lanes(60, 70, 50, 55, lanes=LANES))
    assert head_of(log).marks_ms == {HISTORY: 500, OTHER_HISTORY: 350}


def test_entry_says_all_ranges_that_its_rows_came_from(log: PartialLog) -> None:
    sent = both_lanes(0, 50, 20, 40, lanes=LANES)
    log.append(TASK, EPOCH, 1, sent)
    (entry,) = entries(log)
    assert entry.ranges == sent.ranges


def test_stale_second_range_changes_nothing(store: Store, log: PartialLog) -> None:
    log.append(TASK, EPOCH, 1, batch(20, 30, lane=OTHER_HISTORY))
    before = store.dump()
    marks = {HISTORY: 1, OTHER_HISTORY: 2}
    wrong = both_lanes(0, 50, 20, 40, lanes=LANES, marks_ms=marks)
    assert log.append(TASK, EPOCH, 1, wrong) == Stale(OTHER_HISTORY, 30)
    assert store.dump() == before


def test_same_chunk_a_second_time_changes_nothing(store: Store, log: PartialLog) -> None:
    chunk = both_lanes(0, 50, 20, 40, lanes=LANES)
    log.append(TASK, EPOCH, 1, chunk)
    before = store.dump()
    assert log.append(TASK, EPOCH, 1, chunk) == Stale(HISTORY, 50)
    assert store.dump() == before


# --------------------------------------------------------------------------- beyond the end


@pytest.mark.parametrize("first", [0, 40, 60])
def test_range_that_goes_beyond_its_lanes_end_is_cut_there(store: Store, first: int) -> None:
    log = store.open()
    log.initialise(TASK, EPOCH, start({**OFFSETS, OTHER_HISTORY: first}, ends=ENDS))
    before = store.dump()
    beyond = both_lanes(0, 50, first, 61, lanes=LANES)
    assert log.append(TASK, EPOCH, 1, beyond) == Cut(OTHER_HISTORY, 60)
    assert store.dump() == before


def test_live_lane_goes_on_where_its_history_ends(log: PartialLog) -> None:
    assert log.append(TASK, EPOCH, 1, batch(100, 500)) == applied(1)


def test_lowest_of_cuts_and_end_is_told(store: Store) -> None:
    log = store.open()
    cuts = {HISTORY: (30, 100), OTHER_HISTORY: (60,)}
    log.initialise(TASK, EPOCH, start(OFFSETS, ends=ENDS, cuts=cuts))
    assert log.append(TASK, EPOCH, 1, batch(0, 200, lane=HISTORY)) == Cut(HISTORY, 30)
    assert log.append(TASK, EPOCH, 1, batch(0, 30, lane=HISTORY)) == applied(1)
    assert log.append(TASK, EPOCH, 1, batch(30, 200, lane=HISTORY)) == Cut(HISTORY, 100)
    assert log.append(TASK, EPOCH, 1, batch(20, 61, lane=OTHER_HISTORY)) == Cut(OTHER_HISTORY, 60)


def test_cut_of_a_second_range_is_found(store: Store) -> None:
    log = store.open()
    log.initialise(TASK, EPOCH, start(OFFSETS, ends=ENDS, cuts={OTHER_HISTORY: (33,)}))
    both = both_lanes(0, 50, 20, 40, lanes=LANES)
    assert log.append(TASK, EPOCH, 1, both) == Cut(OTHER_HISTORY, 33)


def test_everything_else_is_wrong_before_the_end_is(log: PartialLog) -> None:
    beyond = batch(0, 200, lane=HISTORY)
    assert log.append(TASK, NEXT_EPOCH, 2, beyond) == WrongEpoch(EPOCH)
    log.set_active(TASK, EPOCH, LEADER, active=False)
    assert log.append(TASK, EPOCH, 2, beyond) == TaskPaused()
    log.set_active(TASK, EPOCH, LEADER, active=True)
    assert log.append(TASK, EPOCH, 2, batch(1, 200, lane=HISTORY)) == Stale(HISTORY, 0)
    assert log.append(TASK, EPOCH, 2, beyond) == WrongVersion(1)
    assert log.append(TASK, EPOCH, 1, beyond) == Cut(HISTORY, 100)


def test_version_bound_splits_a_backfill_like_any_lane(store: Store) -> None:
    log = store.open()
    bounds = {1: OFFSETS, 2: {LANE: 100, HISTORY: 50, OTHER_HISTORY: 40}}
    log.initialise(TASK, EPOCH, start(OFFSETS, ends=ENDS, version=2, bounds=bounds))
    assert log.append(TASK, EPOCH, 2, both_lanes(0, 50, 20, 40, lanes=LANES)) == WrongVersion(2)
    assert log.append(TASK, EPOCH, 1, both_lanes(0, 50, 20, 40, lanes=LANES)) == applied(1)
    assert log.append(TASK, EPOCH, 1, both_lanes(50, 60, 40, 50, lanes=LANES)) == WrongVersion(2)
    assert log.append(TASK, EPOCH, 2, both_lanes(50, 60, 40, 50, lanes=LANES)) == applied(2)
