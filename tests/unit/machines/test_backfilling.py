"""The machine of a bulk process: every row of a history exactly once in the log, in order."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from mars.core.definitions import Backfill, FileHistory, HistoryFile, LaneSpan, TaskState
from mars.core.types import (
    Lane,
    Mapped,
    Range,
    StoreEpoch,
    TaskName,
    file_lane,
    live_lane,
)
from mars.core.windows import Counting
from mars.protocol.backfill.events import HeadsRead, StartJob, TasksChanged, Ticked
from mars.protocol.backfill.machine import (
    ENDS_INTERVAL_MS,
    LEFT_MS,
    RETRY_PAUSE_MS,
    TRIES,
    BackfillLimits,
    BackfillMachine,
)
from mars.protocol.backfill.steps import Step, marked
from mars.protocol.mapper.task_view import TaskView
from mars.protocol.ports import TaskStart
from mars.protocol.runnable import RunnableTask
from tests.unit.machines.backfilling_world import (
    B1,
    NAME,
    Bulk,
    World,
    history,
    make_task,
    topic,
)
from tests.unit.machines.mapping_world import BUCKETS, make_plan, make_version

SPANS = {0: (10, 400), 1: (0, 250)}
LIVE = {0: 400, 1: 250}
P0, P1 = Lane("0@b1"), Lane("1@b1")


def world(chunks: int = 7) -> World:
    return World(topic(500), make_task(history(SPANS, chunks), live=LIVE))


def test_a_history_is_mapped_chunk_by_chunk_up_to_its_fences() -> None:
    here = world()

    Bulk(here).run()

    assert here.counts() == here.expected(SPANS)
    assert here.offsets() == {P0: 400, P1: 250, Lane("0"): 400, Lane("1"): 250}
    assert here.appended == [history(SPANS, 7).chunk(number) for number in range(7)]


def test_jobs_run_ahead_but_their_batches_are_appended_in_order() -> None:
    here = world()
    bulk = Bulk(here)
    bulk.tick()
    assert here.started == [history(SPANS, 7).chunk(0), history(SPANS, 7).chunk(1)]

    first, second = bulk.jobs.values()
    bulk.jobs = {second.id: second, first.id: first}
    bulk.spark()
    assert here.appended == []
    bulk.spark()
    assert here.appended == [first.ranges, second.ranges]


def test_a_process_goes_on_where_the_last_one_ended() -> None:
    here = world()
    Bulk(here).run(rounds=3)
    done = len(here.appended)
    assert 0 < done < 7

    Bulk(here).run()

    assert here.counts() == here.expected(SPANS)
    assert len(here.appended) == 7


def test_two_processes_at_once_map_nothing_twice() -> None:
    here = world()
    one, other = Bulk(here), Bulk(here)

    for _ in range(60):
        one.run(rounds=1)
        other.run(rounds=1)

    assert here.counts() == here.expected(SPANS)


def test_a_lost_answer_counts_nothing_twice() -> None:
    here = world()
    here.store.fail_next("append", before=False)
    here.store.fail_next("append", before=True)
    here.store.fail_next("append", before=False)

    Bulk(here).run()

    assert here.counts() == here.expected(SPANS)


def test_a_store_that_was_lost_gets_the_same_chunks_again() -> None:
    here = world()
    bulk = Bulk(here)
    bulk.run(rounds=4)
    chunk = history(SPANS, 7).chunk(1)
    offsets = {**here.offsets(), **{part.lane: part.first for part in chunk}}
    here.recover(offsets)

    bulk.run()

    assert here.appended == [history(SPANS, 7).chunk(number) for number in range(1, 7)]


def test_a_store_that_went_back_in_its_epoch_gets_the_same_chunks_again() -> None:
    """A refusal names one lane: with what was believed of the others it made half of a chunk."""
    here = world()
    bulk = Bulk(here)
    bulk.run(rounds=2)
    replica, kept = here.store.snapshot(), len(here.appended)
    bulk.run(rounds=3)
    assert len(here.appended) > kept, "nothing is lost: the test shows nothing"
    here.store.restart(replica)
    here.appended.clear()

    bulk.run()

    assert here.appended == [history(SPANS, 7).chunk(number) for number in range(kept, 7)]
    assert here.counts() == here.expected(SPANS)


@pytest.mark.parametrize("seed", range(20))
def test_whatever_lanes_are_set_back_no_range_straddles_a_boundary_between_chunks(
    seed: int,
) -> None:
    chance = random.Random(seed)
    backfill = history(SPANS, 7)
    here = world()
    bulk = Bulk(here)
    bulk.run(rounds=chance.randrange(1, 9))
    boundaries = {
        lane: [backfill.lanes[lane].first, *(_next(backfill, n, lane) for n in range(7))]
        for lane in backfill.lanes
    }
    back = {lane: chance.choice(boundaries[lane][:4]) for lane in backfill.lanes}
    here.recover({**here.offsets(), **back}, {lane: tuple(at) for lane, at in boundaries.items()})

    bulk.run()

    assert here.counts() == here.expected({0: (back[P0], 400), 1: (back[P1], 250)})
    for ranges in here.appended:
        numbers = {boundaries[part.lane].index(part.next) for part in ranges}
        assert len(numbers) == 1


def _next(backfill: Backfill, number: int, lane: Lane) -> int:
    return next(part.next for part in backfill.chunk(number) if part.lane == lane)


def test_a_cut_that_lies_within_a_chunk_is_kept() -> None:
    here = world(chunks=2)
    here.recover(here.offsets(), {P0: (100,)})

    Bulk(here).run()

    assert here.counts() == here.expected(SPANS)
    assert Range(P0, 10, 100) in here.appended[0]


def test_a_paused_task_waits_and_goes_on_when_it_is_resumed() -> None:
    here = world()
    bulk = Bulk(here)
    bulk.run(rounds=2)
    running = here.task
    here.task = replace(running, definition=replace(running.definition, state=TaskState.PAUSED))
    bulk.feed(TasksChanged(here.tasks))
    before = len(here.appended)
    bulk.run(rounds=20)
    assert (len(here.appended), bulk.jobs) == (before, {})

    here.task = running
    bulk.feed(TasksChanged(here.tasks))
    bulk.run()
    assert here.counts() == here.expected(SPANS)


def test_a_job_that_fails_for_now_is_tried_again_after_a_pause() -> None:
    here = world()
    bulk = Bulk(here)
    bulk.tick()

    bulk.spark(jobs=2, problem="an executor was lost")
    bulk.tick()
    assert bulk.jobs == {}
    bulk.run()

    assert here.counts() == here.expected(SPANS)
    assert here.failed == {}


def test_a_job_that_can_never_succeed_fails_its_task() -> None:
    here = world()
    bulk = Bulk(here)
    bulk.tick()

    bulk.spark(problem="more than 1,000,000 distinct values", lasting=True)

    assert here.failed == {NAME: "more than 1,000,000 distinct values"}


def test_a_process_whose_turn_is_over_gives_up_its_jobs() -> None:
    here = world()
    bulk = Bulk(here)
    bulk.tick()
    assert bulk.jobs

    bulk.stop()
    assert bulk.jobs == {}
    bulk.feed(TasksChanged(here.tasks))
    assert bulk.jobs == {}


def test_a_head_of_another_task_of_the_name_leaves_nothing_to_do() -> None:
    here = World(topic(500), make_task(history(SPANS, 4), live=LIVE))
    bulk = Bulk(here)
    bulk.tick()
    assert bulk.jobs
    head = here.store.head([NAME])[NAME]
    assert head is not None

    bulk.feed(HeadsRead({NAME: replace(head, version=2)}))

    assert bulk.jobs == {}


def with_another(here: World, name: str = "b") -> dict[TaskName, RunnableTask]:
    """The task of the world, and another like it."""
    other = TaskName(name)
    definition = replace(here.task.definition, name=other)
    start = TaskStart(1, True, dict(definition.current.starts or {}), {}, {}, definition.ends)
    here.store.initialise(other, StoreEpoch(1), start)
    return {NAME: here.task, other: replace(here.task, definition=definition)}


def test_a_history_whose_version_does_not_compile_here_holds_up_no_other() -> None:
    """A release that can compile it goes on with it."""
    spans = history({0: (0, 100)}, chunks=2)
    here = World(topic(100), make_task(spans, live={0: 100}))
    tasks = with_another(here)
    newer = make_version(2, here.task.definition.current.starts)
    changed = replace(here.task.definition, versions=(*here.task.definition.versions, newer))
    tasks[NAME] = replace(here.task, definition=changed)
    machine = BackfillMachine(BackfillLimits(BUCKETS, 50, ahead=2, catch_up_rows_min=10**9))
    machine.handle(TasksChanged(tasks))
    machine.handle(HeadsRead(here.store.head(list(tasks))))

    started = [one for one in machine.handle(Ticked(1)) if isinstance(one, StartJob)]

    assert [one.job.task for one in started] == ["b", "b"]


def worked_for(bulk: Bulk) -> set[str]:
    """The tasks whose jobs run after a pause."""
    bulk.world.now_ms += RETRY_PAUSE_MS
    bulk.tick()
    return {job.task for job in bulk.jobs.values()}


def test_a_history_whose_jobs_go_on_failing_holds_up_no_other() -> None:
    here = world()
    bulk = Bulk(here)
    bulk.feed(TasksChanged(with_another(here)))

    for _ in range(TRIES):
        assert worked_for(bulk) == {NAME}
        bulk.spark(problem="its files cannot be read")
    for _ in range(TRIES):
        assert worked_for(bulk) == {"b"}
        bulk.spark(problem="nor can these")
    assert worked_for(bulk) == {"b"}  # as many failures: it goes on with that one
    for _ in range(TRIES):
        bulk.spark(problem="nor can these")
        worked_for(bulk)
    assert worked_for(bulk) == {NAME}


def test_failures_before_a_batch_that_was_taken_do_not_count() -> None:
    here = world()
    bulk = Bulk(here)
    for _ in range(TRIES):
        worked_for(bulk)
        bulk.spark(problem="an executor was lost")
    worked_for(bulk)
    bulk.spark(jobs=2)
    assert here.appended

    bulk.feed(TasksChanged(with_another(here)))

    assert worked_for(bulk) == {NAME}


def test_histories_of_topic_and_files_come_on_together() -> None:
    files = FileHistory("ndjson", (HistoryFile("a", 0, 120),))
    lane = file_lane("b2")
    old = Backfill("b2", {lane: LaneSpan(0, 120)}, 4, 0, files)
    here = World(topic(500), make_task(history(SPANS, 4), old, live=LIVE))
    bulk = Bulk(here)

    bulk.tick()

    assert {part.lane for ranges in here.started for part in ranges} == {P0, P1, lane}
    assert {job.files for job in bulk.jobs.values()} == {None, files}


def test_a_lane_of_files_is_marked_by_what_all_unread_files_lie_above() -> None:
    files = FileHistory(
        "parquet", (HistoryFile("new", 0, 50, 9_000), HistoryFile("old", 50, 100, 4_000))
    )
    lane = file_lane("b2")
    here = World(
        topic(100, partitions=1),
        make_task(Backfill("b2", {lane: LaneSpan(0, 100)}, 2, 0, files), live={0: 0}),
    )
    bulk = Bulk(here)
    bulk.tick()
    bulk.spark()

    head = here.store.head([NAME])[NAME]
    assert head is not None
    assert head.marks_ms[lane] == 3_999


@pytest.mark.parametrize(("until_ms", "mark_ms"), [(None, 4_102_444_800_000), (7_000, 7_000)])
def test_rows_of_files_behind_until_do_not_mark_the_lane(
    until_ms: int | None, mark_ms: int
) -> None:
    """Where there is no bound, such a row counts."""
    lane = file_lane("b2")
    files = FileHistory("json", (HistoryFile("a", 0, 100),), until_ms=until_ms)
    old = Backfill("b2", {lane: LaneSpan(0, 100)}, 1, 0, files)
    part = Range(lane, 0, 100)
    far = Mapped((part,), {lane: 4_102_444_800_000}, ())

    found = marked(far, Step(1, (part,), old), make_task(old, live={0: 0}))

    assert found.marks_ms == {lane: mark_ms}


def test_a_lane_of_files_has_no_mark_while_rows_that_are_to_come_may_lie_anywhere() -> None:
    files = FileHistory("json", (HistoryFile("new", 0, 50, 9_000), HistoryFile("old", 50, 100)))
    lane = file_lane("b2")
    here = World(
        topic(100, partitions=1),
        make_task(Backfill("b2", {lane: LaneSpan(0, 100)}, 2, 0, files), live={0: 0}),
    )
    bulk = Bulk(here)
    bulk.tick()
    bulk.spark()

    head = here.store.head([NAME])[NAME]
    assert head is not None
    assert head.offsets[lane] == 50
    assert lane not in head.marks_ms


def test_a_task_far_behind_is_caught_up_in_batches_of_one_lane_and_then_left_to_mappers() -> None:
    here = World(topic(500), make_task(live={0: 100, 1: 0}), catch_up_rows_min=300)
    bulk = Bulk(here)

    bulk.tick()
    view = TaskView(here.task)
    view.learn(here.store.head([NAME])[NAME])
    assert here.task.definition.catch_up == {live_lane(0): 500, live_lane(1): 500}
    assert not view.ready(live_lane(0))
    bulk.run()

    assert here.counts() == here.expected({0: (100, 500), 1: (0, 500)})
    assert all(len(ranges) == 1 for ranges in here.appended)
    assert here.task.definition.catch_up == {}
    assert B1 not in str(here.appended)


def test_a_lane_is_caught_up_to_its_fence_and_not_beyond() -> None:
    here = World(topic(500, partitions=1), make_task(live={0: 0}))
    here.set_catch_up({live_lane(0): 120})

    Bulk(here).run()

    lane = live_lane(0)
    assert here.appended == [(Range(lane, *span),) for span in ((0, 50), (50, 100), (100, 120))]


def test_a_catch_up_ends_where_a_version_begins_that_counts_rows() -> None:
    made = make_task(live={0: 0})
    lane = live_lane(0)
    versions = (*made.definition.versions, make_version(2, starts={lane: 60}))
    counting = replace(make_plan(NAME, 2), window=Counting(10, 10))
    made = replace(
        made,
        definition=replace(made.definition, versions=versions, catch_up={lane: 120}),
        plans={**made.plans, 2: counting},
    )
    here = World(topic(500, partitions=1), made)
    here.recover({lane: 0})

    Bulk(here).run()

    assert here.appended == [(Range(lane, *span),) for span in ((0, 50), (50, 60))]
    assert here.task.definition.catch_up == {}


def test_a_task_of_which_a_version_does_not_compile_here_is_left_to_mappers() -> None:
    """To take its lanes would keep them from those mappers that can compile it."""
    made = make_task(live={0: 0})
    newer = make_version(2, starts={live_lane(0): 60})
    versions = (*made.definition.versions, newer)
    changed = replace(made, definition=replace(made.definition, versions=versions))
    here = World(topic(500, partitions=1), changed, catch_up_rows_min=300)

    here.recover({live_lane(0): 60})
    Bulk(here).tick()

    assert (here.started, here.caught_up) == ([], [])


def test_a_task_far_behind_goes_back_to_mappers_if_its_jobs_go_on_failing() -> None:
    here = World(topic(500), make_task(live={0: 100, 1: 0}), catch_up_rows_min=300)
    bulk = Bulk(here)
    for _ in range(TRIES):
        assert worked_for(bulk) == {NAME}
        assert here.task.definition.catch_up
        bulk.spark(problem="the master does not answer")
    assert here.task.definition.catch_up == {}

    here.now_ms += ENDS_INTERVAL_MS
    assert worked_for(bulk) == set()
    assert here.task.definition.catch_up == {}
    here.now_ms += LEFT_MS
    assert worked_for(bulk) == {NAME}
    bulk.run()
    assert here.counts() == here.expected({0: (100, 500), 1: (0, 500)})


def behind(log_bytes_max: int = 10**9) -> World:
    """A task of which lane 1 is further behind than lane 0; neither has a mark."""
    made = make_task(live={0: 400, 1: 0})
    return World(topic(500), made, log_bytes_max, catch_up_rows_min=300)


def lanes_appended(here: World) -> list[str]:
    return [ranges[0].lane for ranges in here.appended]


def test_into_a_full_log_goes_the_lane_that_holds_the_watermark() -> None:
    free = behind()
    Bulk(free).run(rounds=2)
    assert lanes_appended(free) == ["1", "1"]
    head = free.store.head([NAME])[NAME]
    assert head is not None

    here = behind(log_bytes_max=head.log_bytes * 3 // 4)
    Bulk(here).run(rounds=30)

    assert lanes_appended(here) == ["1", "0"]


def test_where_a_full_log_waits_for_what_is_behind_its_history_waits_too() -> None:
    here = World(topic(500), make_task(history({0: (0, 400)}, 8), live={0: 400, 1: 0}))
    here.set_catch_up({live_lane(0): 500, live_lane(1): 500})
    bulk = Bulk(here)
    bulk.run(rounds=1)
    assert lanes_appended(here) == [P0]
    head = here.store.head([NAME])[NAME]
    assert head is not None

    full = World(
        here.partitions, here.task, log_bytes_max=head.log_bytes * 3 // 2, catch_up_rows_min=10**9
    )
    Bulk(full).run(rounds=40)

    assert lanes_appended(full)[0] == P0
    assert set(lanes_appended(full)[1:]) == {"1"}


def test_a_task_a_little_behind_is_left_to_mappers() -> None:
    here = World(topic(100), make_task(live={0: 0, 1: 0}), catch_up_rows_min=201)

    Bulk(here).run()

    assert (here.appended, here.task.definition.catch_up) == ([], {})
