"""What the leader does with a store: begin, pause, change, drop, seal; and the doorbell."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mars.core.types import Bucket, Lane, LeaderEpoch, Sequence64, StoreEpoch, TaskName
from mars.protocol.ports import (
    Begun,
    IdleLease,
    NoTask,
    PartialLog,
    Stale,
    StoreIdentity,
    TaskPaused,
    WrongVersion,
)
from tests.contracts.batches import (
    EPOCH,
    FORMER,
    LANE,
    LEADER,
    NEXT,
    OTHER_LANE,
    OTHER_TASK,
    TASK,
    applied,
    base,
    batch,
    begin,
    born,
    entries,
    gap,
    head_of,
    server_of,
    start,
)
from tests.contracts.redis_servers import Store
from tests.contracts.waiting import eventually

NEXT_EPOCH = StoreEpoch(EPOCH + 1)
PAST_EPOCH = StoreEpoch(EPOCH - 1)


# ------------------------------------------------------------------------------- initialise


def test_new_life_leaves_nothing_of_the_one_before(store: Store, log: PartialLog) -> None:
    log.append(TASK, EPOCH, 1, batch(0, 10, mark_ms=5, buckets=(0, 1, 2, 3)))
    log.append(TASK, EPOCH, 1, batch(10, 20, buckets=(0, 1)))
    log.compact(TASK, EPOCH, born(log), Bucket(0), base(1))
    log.renew_idle([IdleLease(TASK, EPOCH, OTHER_LANE, 0, 1)])
    again = start({LANE: 4}, version=2, bounds={1: {}, 2: {LANE: 4}})
    assert log.initialise(TASK, NEXT_EPOCH, again)
    after = store.dump()

    assert log.drop(TASK, NEXT_EPOCH, LEADER, 2)
    assert log.initialise(TASK, NEXT_EPOCH, again)
    assert store.dump() == after
    head = head_of(log)
    assert (head.seq, head.log_bytes, head.offsets) == (0, 0, {LANE: 4})
    assert log.append(TASK, NEXT_EPOCH, 2, batch(4, 10)) == applied(1)


def test_two_lives_of_one_epoch_are_told_apart(store: Store, log: PartialLog) -> None:
    """A leader that stood still in a recovery begins a task again in a store emptied meanwhile."""
    first = head_of(log)
    store.lose_all()
    store.let_time_pass()
    assert log.initialise(TASK, EPOCH, start())
    second = head_of(log)
    assert (first.epoch, first.run_id) == (second.epoch, second.run_id)
    assert first.born
    assert first.born != second.born


@pytest.mark.parametrize(
    "late",
    [
        lambda log, life: log.trim(TASK, EPOCH, life, Bucket(0), [Sequence64(1)]),
        lambda log, life: log.compact(TASK, EPOCH, life, Bucket(0), base(1)),
        lambda log, life: log.put_base(TASK, EPOCH, life, Bucket(0), (base(0),)),
    ],
    ids=["trim", "compact", "put_base"],
)
def test_what_an_owner_does_late_to_the_log_of_a_deleted_task_is_refused_by_its_namesake(
    store: Store, log: PartialLog, late: Callable[[PartialLog, str], bool]
) -> None:
    former = born(log)
    log.drop(TASK, EPOCH, LEADER, 1)
    store.let_time_pass()
    assert log.initialise(TASK, EPOCH, start(version=2))
    log.append(TASK, EPOCH, 2, batch(0, 10))
    before = store.dump()
    assert not late(log, former)
    assert store.dump() == before
    assert late(log, born(log))


def test_life_says_on_which_server_it_was_begun(log: PartialLog) -> None:
    head = head_of(log)
    assert head.begun_on == head.run_id != ""


def test_task_of_this_or_a_later_epoch_is_left_as_it_is(store: Store, log: PartialLog) -> None:
    log.append(TASK, EPOCH, 1, batch(0, 10))
    before = store.dump()
    assert not log.initialise(TASK, EPOCH, start())
    assert not log.initialise(TASK, PAST_EPOCH, start())
    assert store.dump() == before


def test_epochs_are_compared_as_numbers(log: PartialLog) -> None:
    assert log.initialise(TASK, StoreEpoch(10), start())
    assert not log.initialise(TASK, StoreEpoch(9), start())
    assert head_of(log).epoch == 10


def test_beginning_one_task_leaves_the_others_alone(log: PartialLog) -> None:
    log.append(TASK, EPOCH, 1, batch(0, 10))
    log.initialise(OTHER_TASK, NEXT_EPOCH, start())
    assert len(entries(log)) == 1


# --------------------------------------------------------------------------- pause, resume


def test_pause_keeps_everything_and_resume_goes_on(log: PartialLog) -> None:
    log.append(TASK, EPOCH, 1, batch(0, 10))
    assert log.set_active(TASK, EPOCH, LEADER, active=False)
    assert not head_of(log).active
    assert log.append(TASK, EPOCH, 1, batch(10, 20)) == TaskPaused()
    assert log.set_active(TASK, EPOCH, LEADER, active=True)
    assert log.append(TASK, EPOCH, 1, batch(10, 20)) == applied(2)


def test_resume_clears_the_idle_leases_and_a_pause_does_not(log: PartialLog) -> None:
    log.renew_idle([IdleLease(TASK, EPOCH, LANE, 0, 1)])
    log.set_active(TASK, EPOCH, LEADER, active=False)
    assert head_of(log).idle == {LANE}
    log.set_active(TASK, EPOCH, LEADER, active=True)
    assert head_of(log).idle == frozenset()


def test_pause_of_another_epoch_is_refused(store: Store, log: PartialLog) -> None:
    before = store.dump()
    assert not log.set_active(TASK, PAST_EPOCH, LEADER, active=False)
    assert not log.set_active(OTHER_TASK, EPOCH, LEADER, active=False)
    assert store.dump() == before


# ------------------------------------------------------------------------------- versions


def test_version_begins_where_the_lanes_stand_and_the_task_stops(log: PartialLog) -> None:
    log.append(TASK, EPOCH, 1, batch(0, 10, mark_ms=500))
    assert begin(log, 2) == Begun({LANE: 10, OTHER_LANE: 0}, {LANE: 500})
    head = head_of(log)
    assert (head.version, head.active, head.seq) == (2, False, 1)
    assert log.append(TASK, EPOCH, 2, batch(10, 20)) == TaskPaused()


def test_from_where_a_version_begins_rows_are_its_own_whoever_sends_them(log: PartialLog) -> None:
    log.append(TASK, EPOCH, 1, batch(0, 10))
    begin(log, 2)
    log.set_active(TASK, EPOCH, LEADER, active=True)
    assert log.append(TASK, EPOCH, 1, batch(10, 15)) == WrongVersion(2)
    assert log.append(TASK, EPOCH, 2, batch(10, 15)) == applied(2)


def test_version_that_has_begun_answers_the_same_again_and_stops_nothing(
    store: Store, log: PartialLog
) -> None:
    log.append(TASK, EPOCH, 1, batch(0, 10))
    begun = begin(log, 2)
    log.set_active(TASK, EPOCH, LEADER, active=True)
    log.append(TASK, EPOCH, 2, batch(10, 20))
    before = store.dump()
    assert begun == Begun({LANE: 10, OTHER_LANE: 0}, {})
    assert begin(log, 2) == begun
    assert store.dump() == before


def test_next_leader_gets_the_offsets_that_the_one_before_it_got(log: PartialLog) -> None:
    log.append(TASK, EPOCH, 1, batch(0, 10))
    assert begin(log, 2) == begin(log, 2, leader=NEXT)


def test_version_follows_the_one_before_it_alone(store: Store, log: PartialLog) -> None:
    before = store.dump()
    assert begin(log, 3) is None
    assert store.dump() == before
    begin(log, 2)
    assert begin(log, 3) is not None
    before = store.dump()
    assert begin(log, 2) is None
    assert store.dump() == before


def test_version_begins_on_no_other_server_than_the_leader_looked_at(
    store: Store, log: PartialLog
) -> None:
    before = store.dump()
    assert log.begin_version(TASK, EPOCH, LEADER, "another", 2, after=1) is None
    assert store.dump() == before


def test_version_of_another_epoch_or_task_is_refused(store: Store, log: PartialLog) -> None:
    before, run_id = store.dump(), server_of(log)
    assert log.begin_version(TASK, PAST_EPOCH, LEADER, run_id, 2, after=1) is None
    assert log.begin_version(OTHER_TASK, EPOCH, LEADER, run_id, 2, after=1) is None
    assert store.dump() == before


def test_version_numbers_are_compared_as_numbers(log: PartialLog) -> None:
    for version in range(2, 12):
        assert begin(log, version) is not None
    assert head_of(log).version == 11
    log.set_active(TASK, EPOCH, LEADER, active=True)
    assert log.append(TASK, EPOCH, 9, batch(0, 5)) == WrongVersion(11)
    assert log.append(TASK, EPOCH, 11, batch(0, 5)) == applied(1)


# ----------------------------------------------------------------------- a leader of before


def late(log: PartialLog) -> list[object]:
    """All that a former leader may still ask for, and what it is told."""
    return [
        log.set_active(TASK, EPOCH, FORMER, active=False),
        log.set_active(TASK, EPOCH, FORMER, active=True),
        begin(log, 2, leader=FORMER),
        log.add_lanes(TASK, EPOCH, FORMER, {Lane("2"): 0}),
        log.drop(TASK, EPOCH, FORMER, 9),
        log.initialise(TASK, EPOCH, start(leader=FORMER)),
    ]


REFUSED = [False, False, None, False, False, False]


def test_life_that_a_leader_began_refuses_those_before_it(store: Store, log: PartialLog) -> None:
    before = store.dump()
    assert late(log) == REFUSED
    assert store.dump() == before
    assert log.set_active(TASK, EPOCH, LEADER, active=False)
    assert log.set_active(TASK, EPOCH, NEXT, active=True)


@pytest.mark.parametrize(
    "hear",
    [
        lambda log: log.heed([OTHER_TASK, TASK], EPOCH, LEADER),
        lambda log: log.set_active(TASK, EPOCH, LEADER, active=True),
        lambda log: log.add_lanes(TASK, EPOCH, LEADER, {LANE: 0}),
        lambda log: begin(log, 2),
    ],
    ids=["heed", "set_active", "add_lanes", "begin_version"],
)
def test_whatever_a_leader_asks_for_ends_the_say_of_those_before_it(
    store: Store, hear: Callable[[PartialLog], object]
) -> None:
    log = store.open()
    log.initialise(TASK, EPOCH, start(leader=FORMER))
    assert log.set_active(TASK, EPOCH, FORMER, active=True)
    hear(log)
    assert head_of(log).leader == LEADER
    before = store.dump()
    assert late(log) == REFUSED
    assert store.dump() == before


def test_leaders_are_compared_as_numbers(log: PartialLog) -> None:
    assert log.set_active(TASK, EPOCH, LeaderEpoch(10), active=False)
    assert not log.set_active(TASK, EPOCH, LeaderEpoch(9), active=True)
    assert head_of(log).leader == 10


def test_life_of_another_epoch_hears_of_no_leader(store: Store, log: PartialLog) -> None:
    before = store.dump()
    log.heed([TASK], PAST_EPOCH, NEXT)
    log.heed([TASK], NEXT_EPOCH, NEXT)
    log.heed([], EPOCH, NEXT)
    assert store.dump() == before


def test_former_leader_is_not_heeded_again(log: PartialLog) -> None:
    log.heed([TASK], EPOCH, FORMER)
    assert head_of(log).leader == LEADER


def test_new_life_is_led_by_who_began_it_however_low_its_epoch(log: PartialLog) -> None:
    """Of a ZooKeeper that has lost how high leader epochs were, in the epoch that this begins."""
    assert log.initialise(TASK, NEXT_EPOCH, start(leader=LeaderEpoch(1)))
    assert log.set_active(TASK, NEXT_EPOCH, LeaderEpoch(1), active=False)
    assert head_of(log).leader == 1


# ---------------------------------------------------------------------------------- lanes


def test_added_lanes_begin_where_they_are_told_and_old_ones_stay(log: PartialLog) -> None:
    log.append(TASK, EPOCH, 1, batch(0, 10))
    fresh = Lane("2")
    assert log.append(TASK, EPOCH, 1, gap(0, 5, lane=fresh)) == Stale(fresh, -1)
    assert log.add_lanes(TASK, EPOCH, LEADER, {LANE: 0, fresh: 0, Lane("3@b1"): 40})
    assert head_of(log).offsets == {LANE: 10, OTHER_LANE: 0, fresh: 0, Lane("3@b1"): 40}
    assert log.append(TASK, EPOCH, 1, gap(0, 5, lane=fresh)) == applied(2)


def test_lanes_of_another_epoch_are_refused(store: Store, log: PartialLog) -> None:
    before = store.dump()
    assert not log.add_lanes(TASK, PAST_EPOCH, LEADER, {Lane("2"): 0})
    assert not log.add_lanes(OTHER_TASK, EPOCH, LEADER, {Lane("2"): 0})
    assert store.dump() == before


# ----------------------------------------------------------------------------------- drop


def test_dropped_task_leaves_nothing_and_no_late_call_brings_it_back(store: Store) -> None:
    log = store.open()
    before = store.dump()
    log.initialise(TASK, EPOCH, start(bounds={1: {LANE: 0}}, cuts={LANE: (5,)}))
    log.append(TASK, EPOCH, 1, batch(0, 5, mark_ms=5, buckets=(0, 1, 2, 3)))
    log.compact(TASK, EPOCH, born(log), Bucket(0), base(1))
    log.renew_idle([IdleLease(TASK, EPOCH, LANE, 5, 1)])
    assert log.drop(TASK, EPOCH, LEADER, 1)
    assert store.dump() == before

    assert log.append(TASK, EPOCH, 1, batch(5, 9)) == NoTask()
    assert log.renew_idle([IdleLease(TASK, EPOCH, LANE, 5, 1)]) == [False]
    assert not log.trim(TASK, EPOCH, born(log), Bucket(1), [Sequence64(1)])
    assert not log.compact(TASK, EPOCH, born(log), Bucket(1), base(1, bucket=1))
    assert not log.set_active(TASK, EPOCH, LEADER, active=True)
    assert begin(log, 2) is None
    assert not log.add_lanes(TASK, EPOCH, LEADER, {Lane("2"): 0})
    log.heed([TASK], EPOCH, LEADER)
    assert log.drop(TASK, EPOCH, LEADER, 1)
    assert store.dump() == before


def test_drop_of_a_deleted_task_leaves_the_next_one_of_its_name_alone(store: Store) -> None:
    log = store.open()
    log.initialise(TASK, EPOCH, start(version=3, bounds={3: {}}))
    before = store.dump()
    assert not log.drop(TASK, EPOCH, LEADER, 2)
    assert store.dump() == before
    assert log.drop(TASK, EPOCH, LEADER, 3)


def test_drop_decided_in_an_earlier_life_of_the_store_is_refused(
    store: Store, log: PartialLog
) -> None:
    before = store.dump()
    assert not log.drop(TASK, PAST_EPOCH, NEXT, 1)
    assert store.dump() == before


def test_what_an_earlier_life_left_is_dropped_whoever_led_then(log: PartialLog) -> None:
    assert log.drop(TASK, NEXT_EPOCH, FORMER, 1)
    assert log.head([TASK]) == {TASK: None}


# ----------------------------------------------------------------------------------- seal


def test_store_without_a_seal_has_only_a_run_id(store: Store) -> None:
    identity = store.open().identity()
    assert identity.run_id
    assert (identity.sealed_run_id, identity.sealed_epoch) == (None, None)


def test_seal_is_seen_by_everybody(store: Store) -> None:
    log = store.open()
    run_id = log.identity().run_id
    log.seal(EPOCH, LEADER, run_id)
    assert store.open().identity() == StoreIdentity(run_id, run_id, EPOCH)


def test_seal_never_goes_back(store: Store) -> None:
    log = store.open()
    assert log.seal(StoreEpoch(10), LEADER, "this")
    assert not log.seal(StoreEpoch(9), NEXT, "that")
    assert log.identity().sealed_epoch == 10
    assert log.seal(StoreEpoch(10), LEADER, "that")
    assert log.identity().sealed_run_id == "that"


def test_seal_of_a_former_leader_does_not_replace_that_of_a_later_one(store: Store) -> None:
    log = store.open()
    assert log.seal(EPOCH, LEADER, "this")
    assert not log.seal(EPOCH, FORMER, "that")
    assert log.identity().sealed_run_id == "this"
    assert log.seal(NEXT_EPOCH, FORMER, "that")


# ------------------------------------------------------------------------------- doorbell


def test_doorbell_wakes_who_listens_to_the_task(store: Store, log: PartialLog) -> None:
    reducer = store.open()
    reducer.listen([OTHER_TASK, TASK])
    assert not reducer.wait(0.05)
    log.append(TASK, EPOCH, 1, batch(0, 10))
    assert eventually(lambda: reducer.wait(0.1) == {TASK})


def test_each_task_that_rang_is_named(store: Store, log: PartialLog) -> None:
    log.initialise(OTHER_TASK, EPOCH, start())
    reducer = store.open()
    reducer.listen([OTHER_TASK, TASK])
    assert reducer.wait(0.05) == frozenset()
    log.append(TASK, EPOCH, 1, batch(0, 10))
    log.append(OTHER_TASK, EPOCH, 1, batch(0, 10))
    log.append(TASK, EPOCH, 1, batch(10, 20))
    rung = set[TaskName]()

    def heard() -> bool:
        rung.update(reducer.wait(0.1))
        return rung == {TASK, OTHER_TASK}

    assert eventually(heard)


def test_doorbells_in_between_count_as_one(store: Store, log: PartialLog) -> None:
    reducer = store.open()
    reducer.listen([TASK])
    assert not reducer.wait(0.05)
    for first in range(5):
        log.append(TASK, EPOCH, 1, batch(first, first + 1))
    assert eventually(lambda: reducer.wait(0.1))
    # The last one may still have been on its way.
    assert not (reducer.wait(0.05) and reducer.wait(0.05))


def test_doorbells_of_other_tasks_and_refused_batches_are_not_heard(
    store: Store, log: PartialLog
) -> None:
    log.initialise(OTHER_TASK, EPOCH, start())
    reducer = store.open()
    reducer.listen([TASK])
    assert not reducer.wait(0.05)
    reducer.listen([OTHER_TASK])
    assert not reducer.wait(0.05)
    log.append(TASK, EPOCH, 1, batch(0, 10))
    log.append(OTHER_TASK, EPOCH, 1, batch(5, 10))
    assert not reducer.wait(0.05)
    log.append(OTHER_TASK, EPOCH, 1, batch(0, 10))
    assert eventually(lambda: reducer.wait(0.1))


def test_nobody_rings_for_who_listens_to_nothing(log: PartialLog) -> None:
    log.append(TASK, EPOCH, 1, batch(0, 10))
    assert not log.wait(0.01)
