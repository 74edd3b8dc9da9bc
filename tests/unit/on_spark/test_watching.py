"""Which leases are renewed, and what the member's report says of partitions."""

from __future__ import annotations

from dataclasses import replace

from mapper.on_spark.planning import RoundLook
from mapper.on_spark.watching import REFUSED_FOR_MS, Watch
from mars.core.types import Range, TaskName, live_lane
from mars.protocol.ports import Backpressure, TaskPaused
from tests.unit.machines.mapping_world import EPOCH, TOPIC, Mapped, make_task, make_version, row
from tests.unit.on_spark.spark_world import SparkWorld

P0, P1 = live_lane(0), live_lane(1)
IDLE_AFTER_MS = 5_000
"""The default of a task's options."""


def world_at_its_end() -> SparkWorld:
    """One task that has seen all of partition 0; partition 1 is empty."""
    world = SparkWorld({0: [row(number) for number in range(50)], 1: []})
    world.add(make_task("a"))
    world.watch.looked(world.look())
    world.round()
    return world


def silent(world: SparkWorld) -> list[str]:
    return sorted(renewal.lane for renewal in world.watch.looked(world.look()))


def states(world: SparkWorld) -> dict[int, str]:
    world.watch.looked(world.look())
    return {one.partition: one.state for one in world.watch.readings()}


def test_a_lane_at_its_end_is_idle_when_no_row_came_for_a_while() -> None:
    world = world_at_its_end()
    assert silent(world) == []
    world.now_ms += IDLE_AFTER_MS - 1
    assert silent(world) == []
    world.now_ms += 1
    assert silent(world) == [P0, P1]


def test_a_renewal_is_taken_by_the_store() -> None:
    world = world_at_its_end()
    world.now_ms += IDLE_AFTER_MS
    assert world.store.renew_idle(world.watch.looked(world.look())) == [True, True]


def test_a_lane_with_rows_left_is_not_idle() -> None:
    world = world_at_its_end()
    world.now_ms += IDLE_AFTER_MS
    world.partitions[0].append(row(50))
    assert silent(world) == [P1]


def test_rows_make_a_lane_busy_again() -> None:
    world = world_at_its_end()
    world.now_ms += IDLE_AFTER_MS
    world.partitions[0].append(row(50))
    world.round()
    assert silent(world) == [P1]
    world.now_ms += IDLE_AFTER_MS
    assert silent(world) == [P0, P1]


def test_rows_without_an_event_time_keep_no_lane_busy() -> None:
    world = world_at_its_end()
    world.now_ms += IDLE_AFTER_MS
    world.partitions[0].append(b"{")
    world.round()
    assert silent(world) == [P0, P1]


def test_a_lane_that_somebody_else_moves_is_busy() -> None:
    world = world_at_its_end()
    world.now_ms += IDLE_AFTER_MS
    world.partitions[0].append(row(50))
    mapped = Mapped((Range(P0, 50, 51),), {}, ())
    world.store.append(TaskName("a"), EPOCH, 1, mapped)
    assert silent(world) == [P1]


def test_a_lane_of_a_task_made_anew_under_the_name_is_silent_only_since_then() -> None:
    world = world_at_its_end()
    world.now_ms += IDLE_AFTER_MS
    anew = make_task("a", make_version(2, {}))
    anew = replace(anew, definition=replace(anew.definition, first_version=2))
    head = world.look().heads[TaskName("a")]
    assert head is not None
    head = replace(head, version=2, offsets={P0: 0, P1: 0})
    look = RoundLook({anew.name: anew}, {anew.name: head}, {TOPIC: {0: 0, 1: 0}})

    assert world.watch.looked(look) == []
    world.now_ms += IDLE_AFTER_MS
    assert [lease.lane for lease in world.watch.looked(look)] == [P0, P1]


def test_a_lane_whose_version_does_not_compile_here_is_left_to_other_mappers() -> None:
    """They know how long it must be silent by that version."""
    world = world_at_its_end()
    task = world.tasks[TaskName("a")]
    versions = (*task.definition.versions, make_version(2, {P0: 50}))
    definition = replace(task.definition, versions=versions)
    world.tasks[task.name] = replace(task, definition=definition)
    world.now_ms += IDLE_AFTER_MS

    assert silent(world) == []


def test_a_look_older_than_our_own_batch_does_not_make_the_lane_busy() -> None:
    world = world_at_its_end()
    world.now_ms += IDLE_AFTER_MS
    world.partitions[0].append(b"{")
    before = world.look()
    world.round()
    world.watch.looked(before)
    assert silent(world) == [P0, P1]


def test_a_mapper_that_has_begun_just_now_lets_a_lane_be_silent_first() -> None:
    world = world_at_its_end()
    world.now_ms += IDLE_AFTER_MS
    assert Watch(lambda: world.now_ms).looked(world.look()) == []


def test_partitions_are_starting_until_a_query_runs_on_spark() -> None:
    world = world_at_its_end()
    assert states(world) == {0: "starting", 1: "starting"}
    world.watch.runs(running=True)
    assert states(world) == {0: "reading", 1: "reading"}
    world.watch.runs(running=False)
    assert states(world) == {0: "starting", 1: "starting"}


def test_a_silent_partition_is_told_as_idle_and_a_refused_one_as_refused() -> None:
    world = world_at_its_end()
    world.watch.runs(running=True)
    world.now_ms += IDLE_AFTER_MS
    assert states(world) == {0: "idle", 1: "idle"}

    refused = Mapped((Range(P0, 50, 60),), {}, ())
    world.watch.refused(TOPIC, refused, Backpressure())
    assert states(world) == {0: "backpressure", 1: "idle"}
    world.watch.refused(TOPIC, refused, TaskPaused())
    assert states(world)[0] == "paused"
    world.now_ms += REFUSED_FOR_MS
    assert states(world)[0] == "idle"


def test_the_position_of_a_partition_is_that_of_the_task_furthest_ahead() -> None:
    world = world_at_its_end()
    world.add(make_task("b"), p0=7)
    world.watch.looked(world.look())
    assert {one.partition: one.position for one in world.watch.readings()} == {0: 50, 1: 0}
