"""Whole reducers on the twins: each window once, whoever owns its bucket and when."""

from __future__ import annotations

import pytest

from mars.adapters.memory.sink import Crash
from mars.core.types import Bucket, TaskName
from mars.protocol.reducer.events import (
    AssignmentRead,
    ClaimBucket,
    ReadAssignment,
    ReleaseBucket,
    TasksChanged,
    Ticked,
)
from mars.protocol.reducer.machine import ReducerMachine
from mars.protocol.reducer.owner import RETRY_PAUSE_MS, OwnerState
from tests.unit.machines.reducing_rows import NAME, RowSpec, make_task
from tests.unit.machines.reducing_world import BUCKETS, Reducer, World, counted

ALL_TO_ONE = dict.fromkeys(range(BUCKETS), "r1")
ROWS: list[RowSpec] = [(number // 2, f"k{number % 7}") for number in range(80)]
"""Forty seconds of event time over seven keys."""


def world(**settings: int) -> World:
    here = World(make_task(), **settings)
    here.assign(ALL_TO_ONE)
    return here


def feed(here: World, first: int, end: int) -> None:
    """Rows in both lanes; lane 1 gets the same rows as lane 0."""
    for lane in ("0", "1"):
        here.append(NAME, lane, first, ROWS[first:end])


def wanted(until_s: int) -> dict[tuple[int, str], int]:
    return counted([*ROWS, *ROWS], until_s)


# ------------------------------------------------------------------------------------ results


def test_every_window_that_the_watermark_has_passed_is_emitted_once() -> None:
    here = world()
    reducer = Reducer(here, "r1")
    for first in range(0, 80, 16):
        feed(here, first, first + 16)
        reducer.run(3)

    assert here.emitted(NAME) == wanted(30)


def test_a_new_process_goes_on_exactly_where_a_dead_one_stopped() -> None:
    here = world()
    feed(here, 0, 30)
    Reducer(here, "r1").run(3)
    feed(here, 30, 50)

    here.assign(dict.fromkeys(range(BUCKETS), "r2"))
    second = Reducer(here, "r2")
    feed(here, 50, 80)
    second.run(3)

    assert here.emitted(NAME) == wanted(30)


def test_a_former_owner_that_goes_on_emits_nothing() -> None:
    here = world()
    feed(here, 0, 30)
    former = Reducer(here, "r1")
    former.run(1)
    here.assign(dict.fromkeys(range(BUCKETS), "r2"))
    newer = Reducer(here, "r2")
    feed(here, 30, 80)

    former.run(1)
    newer.run(1)
    former.run(20, elapsed_ms=200)
    newer.run(20, elapsed_ms=200)

    assert here.emitted(NAME) == wanted(30)
    assert "bucket_interrupted" in former.reports or "bucket_fenced" in former.reports
    assert former.machine.statuses() == ()


@pytest.mark.parametrize("crash", list(Crash))
def test_an_unknown_outcome_loses_and_doubles_nothing(crash: Crash) -> None:
    here = world()
    reducer = Reducer(here, "r1")
    feed(here, 0, 40)
    reducer.sink.crash_next(crash)
    reducer.run(3)
    here.broker.deliver_delayed()
    feed(here, 40, 80)
    reducer.run(3, elapsed_ms=RETRY_PAUSE_MS)

    assert "bucket_interrupted" in reducer.reports
    assert here.emitted(NAME) == wanted(30)


def test_merged_entries_are_read_by_the_next_owner() -> None:
    here = world(log_bytes_max=8_000)
    first = Reducer(here, "r1")
    for number in range(0, 16, 2):
        feed(here, number, number + 2)
        first.run(1)
    assert any(here.store.dump().tasks[NAME].bases)  # type: ignore[attr-defined]

    here.assign(dict.fromkeys(range(BUCKETS), "r2"))
    second = Reducer(here, "r2")
    feed(here, 16, 80)
    second.run(3)

    assert here.emitted(NAME) == wanted(30)


def test_emitted_entries_leave_the_store() -> None:
    here = world()
    reducer = Reducer(here, "r1")
    feed(here, 0, 10)
    feed(here, 10, 42)
    feed(here, 42, 50)
    reducer.run(3)

    logs = here.store.dump().tasks[NAME].logs  # type: ignore[attr-defined]
    left = {entry.entry.seq for log in logs.values() for entry in log.values()}
    assert left == {3, 4, 5, 6}


def test_another_task_is_emitted_though_one_topic_is_gone() -> None:
    here = World(make_task(), make_task(name="other"))
    here.assign(ALL_TO_ONE)
    reducer = Reducer(here, "r1")
    for name in (NAME, "other"):
        for lane in ("0", "1"):
            here.append(name, lane, 0, ROWS)
    here.broker.delete_topic(next(t for t in here.broker.topics if t.endswith("results.other")))

    reducer.run(10, elapsed_ms=RETRY_PAUSE_MS)

    assert here.emitted(NAME) == wanted(30)
    assert list(reducer.failed) == ["other"]


# ------------------------------------------------------------------------------------ routing


def test_only_the_buckets_that_are_assigned_are_claimed() -> None:
    here = World(make_task())
    here.assign({0: "r1", 1: "r2", 2: "r1"})
    machine = ReducerMachine(Reducer(here, "r1").name, here.limits)

    given = machine.handle(AssignmentRead(here.assignment))

    assert [each.bucket for each in given if isinstance(each, ClaimBucket)] == [0, 2]


def test_a_bucket_that_moved_away_is_released() -> None:
    here = world()
    reducer = Reducer(here, "r1")
    here.assign({1: "r2"})

    given = reducer.machine.handle(AssignmentRead(here.assignment))

    assert given == [ReleaseBucket(Bucket(1))]
    assert [status.bucket for status in reducer.machine.statuses()] == [0, 2]


def test_heads_are_watched_only_while_a_bucket_is_owned_and_for_living_tasks() -> None:
    here = World(make_task())
    reducer = Reducer(here, "r1")
    assert reducer.machine.watched() == []

    here.assign(ALL_TO_ONE)
    reducer.feed(AssignmentRead(here.assignment))
    assert reducer.machine.watched() == [TaskName(NAME)]


def test_logs_are_followed_once_they_have_been_read_and_not_while_their_bucket_commits() -> None:
    here = world()
    reducer = Reducer(here, "r1")
    name = TaskName(NAME)
    assert reducer.machine.followed([name]) == {name: {}}
    feed(here, 0, 4)
    reducer.run()
    seqs = dict.fromkeys(map(Bucket, range(BUCKETS)), 2)
    assert reducer.machine.followed([name]) == {name: seqs}

    reducer.machine._buckets[Bucket(1)].state = OwnerState.COMMITTING
    assert reducer.machine.followed([name]) == {name: {0: 2, 2: 2}}


def test_buckets_whose_outcome_is_unknown_ask_for_the_assignment_after_a_pause() -> None:
    here = world()
    reducer = Reducer(here, "r1")
    feed(here, 0, 40)
    for _ in range(BUCKETS):
        reducer.sink.crash_next(Crash.BEFORE_COMMIT)
    reducer.run(1)

    for bucket in reducer.machine.buckets():
        soon = Ticked(here.now_ms + RETRY_PAUSE_MS - 1, bucket)
        later = Ticked(here.now_ms + RETRY_PAUSE_MS, bucket)
        assert reducer.machine.handle(soon) == []
        assert reducer.machine.handle(later) == [ReadAssignment()]


def test_a_task_that_is_new_to_a_running_reducer_is_read_from_its_start() -> None:
    here = world()
    reducer = Reducer(here, "r1")
    reducer.machine.handle(TasksChanged({}))
    feed(here, 0, 80)
    reducer.run(2)
    assert here.emitted(NAME) == {}

    reducer.feed(TasksChanged(here.tasks))
    reducer.run(2)

    assert here.emitted(NAME) == wanted(30)


def test_nothing_happens_before_there_is_an_assignment() -> None:
    assert (
        ReducerMachine(Reducer(World(make_task()), "r1").name, world().limits).handle(
            AssignmentRead(None)
        )
        == []
    )
