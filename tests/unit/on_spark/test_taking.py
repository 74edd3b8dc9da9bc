"""Rounds without Spark: plan, work, take, against the store's twin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl
import pytest

from mars.adapters.spark import lane_work
from mars.adapters.spark.lane_work import Added, LaneWork, Refused, Unread
from mars.core.definitions import REGISTER_AGAIN, TaskState, resume_helps
from mars.core.errors import PartitionCut, SettingsError, TaskLimit, Unavailable
from mars.core.plan import Plan
from mars.core.types import Mapped, Range, Reason, StoreEpoch, TaskName, live_lane
from mars.engine import kernel
from mars.engine.aggregates import states
from mars.engine.combining import combine
from mars.process.tracking import Outbox
from mars.protocol.ports import TaskStart
from tests.unit.machines.mapping_world import (
    BUCKETS,
    EPOCH,
    LEADER,
    TOPIC,
    make_task,
    make_version,
    row,
)
from tests.unit.on_spark.spark_world import Batches, SparkWorld

P0 = live_lane(0)


def rows(count: int) -> list[bytes]:
    return [row(number) for number in range(count)]


def test_rounds_bring_every_row_to_every_task_once() -> None:
    world = SparkWorld({0: rows(250), 1: rows(70)})
    world.add(make_task("a"))
    world.add(make_task("near"), p0=45)
    world.add(make_task("far"), p0=120)

    for _round in range(4):
        world.round()

    assert world.world.counts("a") == world.world.expected()
    assert world.world.counts("near") == world.world.expected(p0=45)
    assert world.world.counts("far") == world.world.expected(p0=120)
    assert world.plan() == []
    assert world.watch.rows == 250 + 205 + 130 + 3 * 70


class ToldOutbox(Outbox):
    """Remembers what was stored."""

    def __init__(self) -> None:
        self.told: list[tuple[TaskName, int, tuple[Range, ...]]] = []

    def stored(
        self, task: TaskName, epoch: StoreEpoch, version: int, seq: int, mapped: Mapped
    ) -> None:
        self.told.append((task, seq, mapped.ranges))


def test_the_tracker_is_told_of_each_batch_that_was_taken_and_of_no_other() -> None:
    world = SparkWorld({0: rows(80)})
    world.add(make_task("a"))
    world.taking._tracking = outbox = ToldOutbox()
    outcomes = [outcome for work in world.plan() for outcome in world.run(work)]

    world.take(outcomes)
    world.take(outcomes)

    assert outbox.told == [("a", 1, (Range(P0, 0, 80),))]


def test_the_same_round_taken_twice_adds_nothing() -> None:
    world = SparkWorld({0: rows(80)})
    world.add(make_task("a"))
    outcomes = [outcome for work in world.plan() for outcome in world.run(work)]

    world.take(outcomes)
    world.take(outcomes)

    assert world.world.counts("a") == world.world.expected()


def test_a_version_is_mapped_up_to_its_end_and_the_next_one_from_there() -> None:
    world = SparkWorld({0: rows(90)})
    task = make_task("a", make_version(1, {}), make_version(2, {P0: 40}))
    world.add(task, TaskStart(2, True, {P0: 0}, {1: {}, 2: {P0: 40}}, {P0: (40,)}))

    world.round()
    assert world.world.offsets("a") == {P0: 40}
    world.round()
    assert world.world.offsets("a") == {P0: 90}
    assert world.mapped_again == []


def test_a_batch_that_straddles_a_cut_is_mapped_again_up_to_it() -> None:
    world = SparkWorld({0: rows(90)})
    world.add(make_task("a"), TaskStart(1, True, {P0: 0}, {}, {P0: (37, 61)}))

    for _round in range(3):
        world.round()

    assert world.mapped_again == [Range(P0, 0, 37), Range(P0, 37, 61)]
    assert world.world.offsets("a") == {P0: 90}
    assert world.world.counts("a") == world.world.expected()


def test_after_the_store_is_lost_rounds_go_on_where_it_begins_anew() -> None:
    world = SparkWorld({0: rows(90)})
    world.add(make_task("a"))
    world.round()
    lost = [outcome for work in world.plan() for outcome in world.run(work)]
    world.store.flush()
    world.take(lost)
    world.round()
    assert world.planned == []

    again = TaskStart(1, True, {P0: 20}, {}, {P0: (55,)})
    world.store.initialise(TaskName("a"), StoreEpoch(EPOCH + 1), again)
    world.round()
    world.round()

    assert world.world.counts("a") == world.world.expected(p0=20)


def test_a_batch_of_another_epoch_is_dropped() -> None:
    world = SparkWorld({0: rows(30)})
    world.add(make_task("a"))
    outcomes = [outcome for work in world.plan() for outcome in world.run(work)]
    anew = TaskStart(1, True, {P0: 0}, {}, {})
    world.store.initialise(TaskName("a"), StoreEpoch(EPOCH + 1), anew)

    world.take(outcomes)

    assert world.world.offsets("a") == {P0: 0}


def test_an_answer_that_is_lost_harms_nothing() -> None:
    world = SparkWorld({0: rows(150)})
    world.add(make_task("a"))
    world.store.fail_next("append", before=False)
    world.round()
    assert world.services.missing == ("redis",)

    world.round()

    assert world.world.counts("a") == world.world.expected()
    assert list(world.services.missing) == []


def test_a_paused_task_is_told_of_and_left_alone() -> None:
    world = SparkWorld({0: rows(40)})
    world.add(make_task("a"))
    outcomes = [outcome for work in world.plan() for outcome in world.run(work)]
    world.store.set_active(TaskName("a"), EPOCH, LEADER, active=False)

    world.take(outcomes)

    assert world.world.offsets("a") == {P0: 0}
    assert world.plan() == []


def test_lanes_that_do_not_hold_the_watermark_wait_while_the_log_is_full() -> None:
    world = SparkWorld({0: rows(100), 1: rows(50)}, log_bytes_max=2_000)
    world.add(make_task("a"))
    for _round in range(3):
        world.round()
        world.now_ms += 1_000
    world.watch.looked(world.look())

    states = {one.partition: one.state for one in world.watch.readings()}
    assert "backpressure" in states.values()
    world.world.empty_log("a")
    for _round in range(4):
        world.round()
        world.world.empty_log("a")
        world.now_ms += 1_000
    assert world.world.offsets("a") == {P0: 100, live_lane(1): 50}


def test_a_task_over_a_limit_fails_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    world = SparkWorld({0: rows(60)})
    bad, good = make_task("bad"), make_task("good")
    world.add(bad)
    world.add(good)
    whole = states.lift

    def limited(plan: Plan, *given: Any) -> pl.DataFrame:
        if plan.task == "bad":
            raise TaskLimit("too many keys; group by less")
        return whole(plan, *given)

    monkeypatch.setattr(kernel, "lift", limited)
    world.round()

    assert world.state(bad) == (TaskState.FAILED, "too many keys; group by less")
    assert world.state(good) == (TaskState.RUNNING, "")
    assert world.world.counts("good") == world.world.expected()


def test_an_unexpected_error_stops_its_task_only(monkeypatch: pytest.MonkeyPatch) -> None:
    world = SparkWorld({0: rows(60)})
    world.add(make_task("bad"))
    world.add(make_task("good"))
    whole = combine

    def broken(plan: Plan, pieces: Sequence[Mapped]) -> Mapped:
        if plan.task == "bad":
            raise KeyError("k0")
        return whole(plan, pieces)

    monkeypatch.setattr(lane_work, "combine", broken)
    world.round()

    assert world.state(make_task("bad")) == (TaskState.FAILED, "unexpected KeyError: 'k0'")
    assert world.world.counts("good") == world.world.expected()


def one_work(world: SparkWorld) -> LaneWork:
    (work,) = world.plan()
    return work


def test_a_work_ends_early_when_it_has_read_enough_bytes() -> None:
    world = SparkWorld({0: rows(90)}, bytes_max=1)
    world.add(make_task("a"))
    (added,) = world.run(one_work(world))
    assert isinstance(added, Added)
    assert added.mapped.ranges == (Range(P0, 0, world.batch),)


@pytest.mark.parametrize(
    "problem", [Unavailable("kafka", "no connection"), SettingsError("no such file of a key")]
)
def test_what_was_read_before_a_broker_went_away_is_not_lost(problem: Exception) -> None:
    world = SparkWorld({0: rows(90)})
    world.add(make_task("a"))

    def broken(part: Range) -> Batches:
        yield next(world.batches(part))
        raise problem

    outcomes = world.run(one_work(world), broken)
    assert isinstance(outcomes[0], Unread)
    world.take(outcomes)

    assert world.world.offsets("a") == {P0: world.batch}
    assert world.services.missing == ("kafka",)


def test_nothing_is_added_where_nothing_could_be_read() -> None:
    world = SparkWorld({0: rows(90)})
    world.add(make_task("a"))

    def broken(_part: Range) -> Batches:
        raise Unavailable("kafka", "no connection")
        yield  # type: ignore[unreachable]  # a generator, as the reader is

    assert world.run(one_work(world), broken) == [Unread("no connection")]


def test_rows_that_kafka_no_longer_has_are_accounted_as_gone() -> None:
    world = SparkWorld({0: rows(90)})
    world.add(make_task("a"))

    def partly_gone(part: Range) -> Batches:
        yield Range(part.lane, part.first, 50)
        yield from world.batches(Range(part.lane, 50, part.next))

    outcomes = world.run(one_work(world), partly_gone)
    world.take(outcomes)

    (added,) = outcomes
    assert isinstance(added, Added)
    ranges = [one for partial in added.mapped.partials for one in partial.rejections.ranges]
    gone = [one for one in ranges if one.rows]
    assert [(one.reason, one.first, one.next) for one in gone] == [(Reason.GONE, 0, 50)]
    assert world.world.offsets("a") == {P0: 90}
    assert world.world.counts("a") == world.world.expected(p0=50)


def test_a_partition_that_ends_below_what_was_read_of_it_fails_the_tasks_that_read_it() -> None:
    """As a mapper of the other kind says; it was never noticed here."""
    world = SparkWorld({0: rows(20)})
    there, gone = make_task("there"), make_task("gone")
    world.add(there)
    world.add(gone, p0=80)

    def cut(part: Range) -> Batches:
        if part.first > 20:
            raise PartitionCut(f"it ends at offset 20: {REGISTER_AGAIN}.", 20)
        yield from world.batches(part)

    works = world.plan()
    world.take([outcome for work in works for outcome in world.run(work, cut)])

    state, detail = world.state(gone)
    assert state is TaskState.FAILED
    assert not resume_helps(detail)
    assert world.state(there) == (TaskState.RUNNING, "")
    assert world.world.counts("there") == world.world.expected()


def test_a_partition_that_is_cut_while_it_is_read_fails_no_task_that_has_counted_less() -> None:
    world = SparkWorld({0: rows(90)})
    behind, gone = make_task("behind"), make_task("gone")
    world.add(behind)
    world.add(gone, p0=70)

    def cut(part: Range) -> Batches:
        yield from world.batches(Range(part.lane, part.first, 60))
        raise PartitionCut(f"it ends at offset 60: {REGISTER_AGAIN}.", 60)

    (work,) = world.plan()
    world.take(world.run(work, cut))

    assert world.state(gone)[0] is TaskState.FAILED
    assert world.state(behind)[0] is TaskState.RUNNING
    assert world.world.offsets("behind") == {P0: 60}


def test_outcomes_survive_their_travel() -> None:
    world = SparkWorld({0: [*rows(40), b"{", b"[]"]})
    world.add(make_task("a"))
    outcomes = [*world.run(one_work(world)), Refused(TaskName("b"), (1, 0), "why"), Unread("why")]
    raws = [lane_work.encode_outcome(one) for one in outcomes]
    assert [lane_work.decode_outcome(raw) for raw in raws] == outcomes
    added = outcomes[0]
    assert isinstance(added, Added)
    assert added.topic == TOPIC
    assert len(added.mapped.partials) <= BUCKETS
