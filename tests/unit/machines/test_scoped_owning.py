"""Buckets that close windows key by key, through take-overs and the loss of the store."""

from __future__ import annotations

from mars.core.plan import WatermarkScope
from mars.core.types import Lane
from mars.protocol.ports import Ledger
from mars.protocol.reducer.commit_plan import GATHERING_MS
from mars.protocol.reducer.task_in_bucket import TaskInBucket
from tests.unit.machines.reducing_rows import (
    NAME,
    OWNER,
    P0,
    P1,
    SAVE_MS,
    PlanOptions,
    RowSpec,
    balanced,
    counts_of,
    make_entry,
    make_head,
    make_plan,
    make_progress,
    make_slice,
    make_task,
)
from tests.unit.machines.reducing_world import BUCKETS, Reducer, World

ROWS: list[RowSpec] = [(1, "x"), (2, "x"), (3, "slow"), (12, "x"), (14, "slow"), (25, "x")]
EARLY = {(0, "x"): 2, (0, "slow"): 1, (10, "x"): 1}
"""What of ROWS is emitted by the keys' own rows."""


def make_world(**limits: int) -> tuple[World, Reducer]:
    task = make_task(watermark=WatermarkScope.KEY, key_lag_ms=60_000)
    world = World(task, **limits)
    world.assign(dict.fromkeys(range(BUCKETS), "r1"))
    return world, Reducer(world, "r1")


def feed_first(world: World, reducer: Reducer) -> None:
    world.append(NAME, "0", 0, ROWS)
    world.append(NAME, "1", 0, [(1, "other")])
    reducer.run(3, elapsed_ms=GATHERING_MS)
    assert world.emitted(NAME) == EARLY


def late(world: World) -> int:
    assert all(balanced(record.ledger) for record in world.newest())
    return sum(record.ledger.late for record in world.newest())


def test_groups_that_are_due_wait_for_others_before_they_are_committed() -> None:
    world, reducer = make_world()
    world.append(NAME, "0", 0, ROWS)
    reducer.run(2, elapsed_ms=GATHERING_MS // 10)
    assert world.emitted(NAME) == {}

    reducer.run(12, elapsed_ms=GATHERING_MS // 10)
    assert world.emitted(NAME) == EARLY


def test_a_new_owner_emits_no_group_again_and_knows_which_rows_are_late() -> None:
    world, reducer = make_world()
    feed_first(world, reducer)
    world.assign(dict.fromkeys(range(BUCKETS), "r2"))
    new = Reducer(world, "r2")
    new.run(3, elapsed_ms=GATHERING_MS)
    assert world.emitted(NAME) == EARLY

    world.append(NAME, "0", len(ROWS), [(4, "x"), (15, "slow"), (28, "x"), (31, "x")])
    new.run(3, elapsed_ms=GATHERING_MS)

    assert world.emitted(NAME) == EARLY | {(20, "x"): 2}
    new.run(2, elapsed_ms=20_000)
    assert late(world) == 1


def test_a_lost_store_brings_open_groups_back_and_emitted_ones_not() -> None:
    world, reducer = make_world()
    feed_first(world, reducer)
    made: list[Reducer] = []
    owners = dict.fromkeys(range(BUCKETS), "r2")
    world.lose_store(owners, also=lambda: made.append(Reducer(world, "r2")))
    new = made[0]
    world.append(NAME, "0", 0, ROWS)
    world.append(NAME, "0", len(ROWS), [(5, "x"), (26, "slow")])
    new.run(3, elapsed_ms=GATHERING_MS)
    assert world.emitted(NAME) == EARLY, "lane 1 is not back: nothing is decided"
    world.append(NAME, "1", 0, [(1, "other")])
    new.run(3, elapsed_ms=GATHERING_MS)

    assert world.emitted(NAME) == EARLY | {(10, "slow"): 1}
    new.run(2, elapsed_ms=20_000)
    assert late(world) == 1


def test_no_group_is_emitted_before_all_that_was_accounted_has_been_read_again() -> None:
    """A bucket that has counted no row yet is settled at once, and yet not caught up."""
    scope: PlanOptions = {"watermark": WatermarkScope.KEY, "key_lag_ms": 60_000}
    record = make_progress({P0: 0, P1: 3})
    part = TaskInBucket(make_task(**scope), OWNER, {1: record}, SAVE_MS)
    part.absorb(make_slice(make_entry(1, 0, [(1, "x"), (12, "x")], plan=make_plan(**scope))))
    part.drained(make_head(1, {P0: 2, P1: 0}, mark_s=12))
    assert part.prepare().results == ()

    part.drained(make_head(1, {P0: 2, P1: 3}, mark_s=12))
    assert counts_of(part.prepare().results[0].values) == {(0, "x"): 1}


def test_a_row_above_m_waits_although_all_of_its_own_lane_is_read_again() -> None:
    scope: PlanOptions = {"watermark": WatermarkScope.KEY, "key_lag_ms": 60_000}
    record = make_progress({P0: 2, P1: 0}, ledger=Ledger(read=2, counted=2))
    part = TaskInBucket(make_task(**scope), OWNER, {1: record}, SAVE_MS)
    plan = make_plan(**scope)
    below = make_entry(1, 0, [(1, "x")], plan=plan)
    above = make_entry(2, 0, [(1, "x")], plan=plan, lane=P1)
    part.absorb(make_slice(below, above))
    part.drained(make_head(2, {P0: 1, P1: 1}, mark_s=1))
    assert [each.ledger for each in part.prepare().progress] == [record.ledger]

    part.absorb(make_slice(make_entry(3, 1, [(2, "x")], plan=plan)))
    part.drained(make_head(3, {P0: 2, P1: 1}, mark_s=2))
    assert [each.ledger.read for each in part.prepare().progress] == [3]


def test_a_silent_key_is_emitted_once_the_partitions_are_so_far_ahead() -> None:
    world, reducer = make_world()
    feed_first(world, reducer)
    for lane in ("0", "1"):
        world.append(NAME, lane, len(ROWS) if lane == "0" else 1, [(80, "x")])
    reducer.run(3, elapsed_ms=GATHERING_MS)

    assert world.emitted(NAME) == EARLY | {(10, "slow"): 1, (20, "x"): 1, (0, "other"): 1}


def test_a_crowded_log_is_merged_without_what_was_emitted() -> None:
    world, reducer = make_world(log_bytes_max=12_000)
    feed_first(world, reducer)
    for number in range(12):
        world.append(NAME, "0", len(ROWS) + number, [(27, "x")])
        reducer.run(2, elapsed_ms=GATHERING_MS)
    world.assign(dict.fromkeys(range(BUCKETS), "r2"))
    new = Reducer(world, "r2")
    world.append(NAME, "0", len(ROWS) + 12, [(6, "x"), (33, "x")])
    new.run(4, elapsed_ms=GATHERING_MS)

    assert world.emitted(NAME) == EARLY | {(20, "x"): 13}
    new.run(2, elapsed_ms=20_000)
    assert late(world) == 1
    head = world.store.head([NAME])[NAME]
    assert head is not None
    assert head.offsets[Lane("0")] == len(ROWS) + 14
