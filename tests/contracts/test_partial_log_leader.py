"""What the leader does with a store: begin, pause, change, drop, seal; and the doorbell."""

from __future__ import annotations

from mars.ports import (
    Applied,
    Head,
    IdleLease,
    NoTask,
    PartialLog,
    Stale,
    StoreIdentity,
    TaskPaused,
)
from mars.types import Bucket, Lane, Sequence64, StoreEpoch, TaskName
from tests.contracts.batches import (
    EPOCH,
    LANE,
    OTHER_LANE,
    OTHER_TASK,
    TASK,
    base,
    batch,
    entries,
    gap,
    start,
)
from tests.contracts.redis_servers import Store
from tests.contracts.waiting import eventually

NEXT_EPOCH = StoreEpoch(EPOCH + 1)
PAST_EPOCH = StoreEpoch(EPOCH - 1)


def head_of(log: PartialLog) -> Head:
    head = log.head([TASK])[TASK]
    assert head is not None
    return head


# ------------------------------------------------------------------------------- initialise


def test_new_life_leaves_nothing_of_the_one_before(store: Store, log: PartialLog) -> None:
    log.append(TASK, EPOCH, 1, batch(0, 10, mark_ms=5, buckets=(0, 1, 2, 3)))
    log.append(TASK, EPOCH, 1, batch(10, 20, buckets=(0, 1)))
    log.compact(TASK, EPOCH, Bucket(0), base(1))
    log.renew_idle([IdleLease(TASK, EPOCH, OTHER_LANE, 0)])
    assert log.initialise(TASK, NEXT_EPOCH, start({LANE: 4}, version=2, bounds={LANE: 4}))
    after = store.dump()

    log.drop(TASK)
    assert log.initialise(TASK, NEXT_EPOCH, start({LANE: 4}, version=2, bounds={LANE: 4}))
    assert store.dump() == after
    head = head_of(log)
    assert (head.seq, head.log_bytes, head.offsets) == (0, 0, {LANE: 4})
    assert log.append(TASK, NEXT_EPOCH, 2, batch(4, 10)) == Applied(1)


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
    assert log.set_active(TASK, EPOCH, active=False)
    assert not head_of(log).active
    assert log.append(TASK, EPOCH, 1, batch(10, 20)) == TaskPaused()
    assert log.set_active(TASK, EPOCH, active=True)
    assert log.append(TASK, EPOCH, 1, batch(10, 20)) == Applied(2)


def test_resume_clears_the_idle_leases_and_a_pause_does_not(log: PartialLog) -> None:
    log.renew_idle([IdleLease(TASK, EPOCH, LANE, 0)])
    log.set_active(TASK, EPOCH, active=False)
    assert head_of(log).idle == {LANE}
    log.set_active(TASK, EPOCH, active=True)
    assert head_of(log).idle == frozenset()


def test_pause_of_another_epoch_is_refused(store: Store, log: PartialLog) -> None:
    before = store.dump()
    assert not log.set_active(TASK, PAST_EPOCH, active=False)
    assert not log.set_active(OTHER_TASK, EPOCH, active=False)
    assert store.dump() == before


# ------------------------------------------------------------------------------- versions


def test_switch_makes_a_version_current_and_the_task_active(log: PartialLog) -> None:
    log.append(TASK, EPOCH, 1, batch(0, 10))
    log.set_active(TASK, EPOCH, active=False)
    assert log.switch_version(TASK, EPOCH, 2, {LANE: 15, OTHER_LANE: 3})
    head = head_of(log)
    assert (head.version, head.active, head.seq) == (2, True, 1)
    assert log.append(TASK, EPOCH, 1, batch(10, 15)) == Applied(2)
    assert log.append(TASK, EPOCH, 2, batch(15, 20)) == Applied(3)


def test_switch_forgets_the_bounds_of_the_version_before(log: PartialLog) -> None:
    log.switch_version(TASK, EPOCH, 2, {LANE: 100, OTHER_LANE: 100})
    assert log.switch_version(TASK, EPOCH, 3, {LANE: 5})
    assert log.append(TASK, EPOCH, 3, batch(0, 9, lane=OTHER_LANE)) == Applied(1)


def test_switch_clears_the_idle_leases(log: PartialLog) -> None:
    log.renew_idle([IdleLease(TASK, EPOCH, LANE, 0)])
    log.switch_version(TASK, EPOCH, 2, {})
    assert head_of(log).idle == frozenset()


def test_switch_may_be_repeated_but_never_goes_back(store: Store, log: PartialLog) -> None:
    assert log.switch_version(TASK, EPOCH, 10, {LANE: 5})
    before = store.dump()
    assert log.switch_version(TASK, EPOCH, 10, {LANE: 5})
    assert not log.switch_version(TASK, EPOCH, 9, {LANE: 3})
    assert store.dump() == before


def test_switch_of_another_epoch_is_refused(store: Store, log: PartialLog) -> None:
    before = store.dump()
    assert not log.switch_version(TASK, PAST_EPOCH, 2, {LANE: 5})
    assert not log.switch_version(OTHER_TASK, EPOCH, 2, {LANE: 5})
    assert store.dump() == before


# ---------------------------------------------------------------------------------- lanes


def test_added_lanes_begin_where_they_are_told_and_old_ones_stay(log: PartialLog) -> None:
    log.append(TASK, EPOCH, 1, batch(0, 10))
    fresh = Lane("2")
    assert log.append(TASK, EPOCH, 1, gap(0, 5, lane=fresh)) == Stale(fresh, -1)
    assert log.add_lanes(TASK, EPOCH, {LANE: 0, fresh: 0, Lane("3@b1"): 40})
    assert head_of(log).offsets == {LANE: 10, OTHER_LANE: 0, fresh: 0, Lane("3@b1"): 40}
    assert log.append(TASK, EPOCH, 1, gap(0, 5, lane=fresh)) == Applied(2)


def test_lanes_of_another_epoch_are_refused(store: Store, log: PartialLog) -> None:
    before = store.dump()
    assert not log.add_lanes(TASK, PAST_EPOCH, {Lane("2"): 0})
    assert not log.add_lanes(OTHER_TASK, EPOCH, {Lane("2"): 0})
    assert store.dump() == before


# ----------------------------------------------------------------------------------- drop


def test_dropped_task_leaves_nothing_and_no_late_call_brings_it_back(store: Store) -> None:
    log = store.open()
    before = store.dump()
    log.initialise(TASK, EPOCH, start(bounds={LANE: 0}, cuts={LANE: (5,)}))
    log.append(TASK, EPOCH, 1, batch(0, 5, mark_ms=5, buckets=(0, 1, 2, 3)))
    log.compact(TASK, EPOCH, Bucket(0), base(1))
    log.renew_idle([IdleLease(TASK, EPOCH, LANE, 5)])
    log.drop(TASK)
    assert store.dump() == before

    assert log.append(TASK, EPOCH, 1, batch(5, 9)) == NoTask()
    assert log.renew_idle([IdleLease(TASK, EPOCH, LANE, 5)]) == [False]
    assert not log.trim(TASK, EPOCH, Bucket(1), [Sequence64(1)])
    assert not log.compact(TASK, EPOCH, Bucket(1), base(1, bucket=1))
    assert not log.set_active(TASK, EPOCH, active=True)
    assert not log.switch_version(TASK, EPOCH, 2, {})
    assert not log.add_lanes(TASK, EPOCH, {Lane("2"): 0})
    log.drop(TASK)
    assert store.dump() == before


# ----------------------------------------------------------------------------------- seal


def test_store_without_a_seal_has_only_a_run_id(store: Store) -> None:
    identity = store.open().identity()
    assert identity.run_id
    assert (identity.sealed_run_id, identity.sealed_epoch) == (None, None)


def test_seal_is_seen_by_everybody(store: Store) -> None:
    log = store.open()
    run_id = log.identity().run_id
    log.seal(EPOCH, run_id)
    assert store.open().identity() == StoreIdentity(run_id, run_id, EPOCH)


def test_seal_never_goes_back(store: Store) -> None:
    log = store.open()
    log.seal(StoreEpoch(10), "this")
    log.seal(StoreEpoch(9), "that")
    assert log.identity().sealed_epoch == 10
    log.seal(StoreEpoch(10), "that")
    assert log.identity().sealed_run_id == "that"


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
