"""A task of two versions, of which the release of one of its owners cannot compile the first."""

from __future__ import annotations

import json
from dataclasses import replace

from mars.core.types import LeaderEpoch, Topic
from mars.protocol.leader.tasks import begin_version
from mars.protocol.runnable import RunnableTask
from tests.unit.machines.reducing_rows import NAME, make_task, make_version
from tests.unit.machines.reducing_world import BUCKETS, Reducer, World

SAVED_MS = 6_000
"""After some rounds of it progress is committed without rows."""

LEADER = LeaderEpoch(9)


def owned(world: World, name: str, task: RunnableTask) -> Reducer:
    """The buckets move to a process that can compile these plans."""
    outputs = world.tasks[NAME].output_partitions
    world.tasks = {NAME: replace(task, output_partitions=outputs)}
    world.assign(dict.fromkeys(range(BUCKETS), name))
    return Reducer(world, name)


def changed(world: World) -> RunnableTask:
    """The second version begins."""
    head = world.store.head([NAME])[NAME]
    assert head is not None
    begun = world.store.begin_version(NAME, head.epoch, LEADER, head.run_id, 2, after=1)
    assert begun is not None
    waits = (make_version(), replace(make_version(2), starts=None))
    before = replace(world.tasks[NAME].definition, versions=waits)
    assert world.store.set_active(NAME, head.epoch, LEADER, active=True)
    return make_task(*begin_version(before, begun, 0, None).versions)


def emitted(world: World) -> dict[tuple[int, int, str], int]:
    """By version, window and key."""
    found: dict[tuple[int, int, str], int] = {}
    for partition in world.broker.topics[Topic(f"mars.results.{NAME}")].partitions:
        for record in partition.committed(0, partition.stable_end):
            row = json.loads(record.value or b"")
            version = int(dict(record.headers)["mars-version"])
            place = version, row["window_start"] // 1_000, row["k"]
            assert place not in found
            found[place] = row["n"]
    return found


def begun() -> World:
    """Rows of the first version lie in an open window, and are accounted."""
    world = World(make_task())
    owner = owned(world, "able", world.tasks[NAME])
    world.append(NAME, "0", 0, [(1, "a"), (2, "b"), (3, "c"), (4, "a")])
    world.append(NAME, "1", 0, [(1, "a")])
    owner.run(3, SAVED_MS)
    return world


def test_an_owner_that_cannot_compile_a_version_takes_none_of_its_rows_away() -> None:
    world = begun()
    both = changed(world)
    unable = owned(world, "unable", replace(both, plans={2: both.plans[2]}))
    world.append(NAME, "0", 4, [(6, "a")])
    unable.run(4, SAVED_MS)
    assert emitted(world) == {}

    able = owned(world, "able", both)
    world.append(NAME, "0", 5, [(30, "a")])
    world.append(NAME, "1", 1, [(30, "a")])
    able.run(6, SAVED_MS)

    assert emitted(world) == {(1, 0, "a"): 3, (1, 0, "b"): 1, (1, 0, "c"): 1, (2, 0, "a"): 1}


def test_a_version_that_is_done_keeps_no_owner_from_the_next_one() -> None:
    world = begun()
    both = changed(world)
    able = owned(world, "able", both)
    world.append(NAME, "0", 4, [(26, "a")])
    world.append(NAME, "1", 1, [(26, "a")])
    able.run(6, SAVED_MS)
    assert {version for version, _start, _key in emitted(world)} == {1}

    unable = owned(world, "unable", replace(both, plans={2: both.plans[2]}))
    world.append(NAME, "0", 5, [(40, "a")])
    world.append(NAME, "1", 2, [(40, "a")])
    unable.run(6, SAVED_MS)

    assert emitted(world)[2, 20, "a"] == 2
