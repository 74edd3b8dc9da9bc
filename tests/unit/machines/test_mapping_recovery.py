"""A mapper after answers were lost, the store was lost, or a task has changed meanwhile."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Unpack

from mars.core.definitions import TaskState, resume_helps
from mars.core.plan import Field, FieldType, Origin
from mars.core.types import Bucket, Lane, Reason, Sequence64, StoreEpoch, TaskName
from mars.core.windows import Sliding
from mars.protocol.mapper.events import CATCH_UP, LIVE, Sourced
from mars.protocol.ports import OffsetGone, TaskStart
from mars.protocol.runnable import RunnableTask
from tests.unit.machines.mapping_world import (
    BUCKETS,
    EPOCH,
    LEADER,
    TOPIC,
    World,
    WorldSettings,
    make_plan,
    make_task,
    make_version,
    row,
)

P0 = Lane("0")
A = TaskName("a")


def world(rows: int = 1_000, **settings: Unpack[WorldSettings]) -> World:
    return World({0: [row(offset) for offset in range(rows)]}, **settings)


def test_a_partition_is_read_though_the_head_could_not_be_when_it_was_assigned() -> None:
    here = world()
    here.add(make_task("a"))
    here.store.fail_next("head")
    here.assign(0)
    assert not here.positions

    here.run()

    assert here.counts("a") == here.expected()


def test_a_lost_store_is_noticed_though_no_rows_come() -> None:
    here = world(rows=10)
    here.add(make_task("a"))
    here.assign(0)
    here.run(rounds=5)
    here.store.restart()
    offsets = {P0: 3}
    here.store.initialise(A, StoreEpoch(2), TaskStart(1, True, offsets, {}, {P0: (7,)}))

    here.run(rounds=20)

    assert here.offsets("a") == {P0: 10}
    assert here.counts("a") == here.expected(p0=3)


def test_a_batch_that_was_refused_is_mapped_anew_for_the_version_that_has_begun_since() -> None:
    here = world(rows=2_000, log_bytes_max=1)
    here.partitions[1] = []
    here.add(make_task("a"))
    here.assign(0)
    here.run(rounds=30)
    start = here.offsets("a")[P0]
    assert 0 < start < 2_000
    assert here.machine.readings()[0].state == "backpressure"

    shorter = replace(make_plan("a", 2), window=Sliding(30_000, 30_000))
    both = make_task("a", make_version(1, {}), make_version(2, {P0: start}))
    run_id = here.store.identity().run_id
    begun = here.store.begin_version(A, EPOCH, LEADER, run_id, 2, after=1)
    assert begun is not None
    assert begun.starts[P0] == start
    here.store.set_active(A, EPOCH, LEADER, active=True)
    here.change(replace(both, plans={**both.plans, 2: shorter}))
    here.store._store.budget = 10**9
    here.run()

    wanted = Counter(
        (number * 1_000 // length * length, f"10.0.0.{number % 7}")
        for length, numbers in ((60_000, range(start)), (30_000, range(start, 2_000)))
        for number in numbers
    )
    assert here.counts("a") == wanted


def test_rows_that_kafka_lost_are_named_though_the_first_answer_was_lost() -> None:
    here = world(rows=100)
    here.add(make_task("a"))
    here.assign(0)
    here.store.fail_next("append", before=True)

    here.feed(Sourced(LIVE, OffsetGone(TOPIC, 0, 0, 40)))
    here.run()

    named = [
        rejected
        for number in range(BUCKETS)
        for entry in here.store.read(A, Bucket(number), Sequence64(0), Sequence64(2**40)).entries
        for rejected in entry.partial.rejections.ranges
    ]
    # Every bucket is told, one names the rows.
    assert {(one.first, one.next, one.reason) for one in named} == {(0, 40, Reason.GONE)}
    assert sorted(one.rows for one in named) == [0] * (BUCKETS - 1) + [40]
    assert here.counts("a") == here.expected(p0=40)


def test_a_task_behind_the_others_is_not_read_again_and_again_while_its_log_is_full() -> None:
    here = world(rows=200, log_bytes_max=10**9, step=20)
    here.partitions[1] = [row(offset) for offset in range(10)]
    here.add(make_task("ahead"), p0=200)
    here.add(make_task("behind"), p0=0)
    here.store._store.budget = 1
    here.assign(0, 1)
    here.run(rounds=20)
    assert (CATCH_UP, 0) in here.paused

    for _ in range(20):
        here.run(rounds=1)
        assert (CATCH_UP, 0) in here.paused


def test_a_task_that_is_resumed_is_offered_what_it_missed() -> None:
    here = world(rows=50)
    here.add(make_task("a", state=TaskState.PAUSED))
    here.assign(0)
    here.run(rounds=5)
    assert here.counts("a") == {}

    here.change(make_task("a"))
    here.run(rounds=5)

    assert here.counts("a") == here.expected()


def test_a_partition_that_ends_below_what_was_read_of_it_fails_the_tasks_that_read_it() -> None:
    here = world(rows=100)
    here.add(make_task("a"), p0=80)
    here.assign(0)

    here.feed(Sourced(LIVE, OffsetGone(TOPIC, 0, 80, 0)))

    assert "partition 0 has no offset 80 any more" in here.failed[A]
    assert not resume_helps(here.failed[A])
    assert here.offsets("a") == {Lane("0"): 80}


def test_rows_that_are_held_are_not_given_to_a_task_of_the_topic_that_was_made_anew() -> None:
    """No task took them, and the new one begins at the same offset."""
    here = world(rows=50)
    here.add(make_task("a"))
    here.assign(0)
    here.store.set_active(A, EPOCH, LEADER, active=False)
    here.run(rounds=5)
    assert here.counts("a") == {}
    here.partitions[0] = [b'{"timestamp": 5, "sip": "new"}'] * 60
    task = make_task("a", replace(make_version(2, {}), topic_id="of the new topic"))

    here.store.restart()
    here.store.initialise(A, EPOCH, TaskStart(2, True, {P0: 0}, {}, {}))
    here.change(replace(task, definition=replace(task.definition, first_version=2)))
    here.run()

    assert here.counts("a") == {(0, "new"): 60}


def keyed(task: RunnableTask) -> RunnableTask:
    """A task that reads the keys of the records."""
    field = Field("key", FieldType.STRING, Origin.KEY)
    plans = {
        number: replace(plan, fields=(*plan.fields, field)) for number, plan in task.plans.items()
    }
    return replace(task, plans=plans)


def test_a_task_that_reads_keys_takes_no_rows_that_one_which_catches_up_has_read_without() -> None:
    """It failed: "the records were read without their keys"."""
    here = world(rows=2_000)
    here.add(make_task("live"), p0=1_900)
    here.add(make_task("behind"))
    here.assign(0)
    here.run(rounds=5)
    assert (here.positions[CATCH_UP, 0], here.offsets("behind")) == (
        500,
        {P0: 100},
    )  # it holds some

    here.add(keyed(make_task("keys")), p0=150)
    here.run()

    assert here.failed == {}
    assert here.counts("keys") == here.expected(p0=150)
    assert here.counts("behind") == here.expected()


def test_a_task_that_reads_keys_takes_no_rows_that_are_held_without() -> None:
    """The group's reader says so too, but cannot where its poll fails."""
    here = world(rows=20, rest_ms=10_000)
    here.add(make_task("live"))
    here.run(rounds=1)
    here.assign(0)
    here.run(rounds=5)
    here.partitions[0] += [row(number) for number in range(20, 40)]
    here.run(rounds=2)
    assert (here.positions[LIVE, 0], here.offsets("live")) == (40, {P0: 20})  # it holds them

    here.add(keyed(make_task("keys")), p0=20)
    here.run(rounds=300)

    assert here.failed == {}
    assert here.counts("keys") == here.expected(p0=20)
    assert here.counts("live") == here.expected()
