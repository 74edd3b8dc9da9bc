"""What a round reads, as a function of heads, ends and definitions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from mapper.on_spark.planning import (
    RETRY_PAUSE_MS,
    RoundLimits,
    RoundLook,
    RoundRefusals,
    lanes_of,
    look_at,
    shares_of,
    works_of,
)
from mars.adapters.memory.admin import MemoryTopicAdmin
from mars.adapters.memory.broker import MemoryBroker
from mars.adapters.memory.partial_log import MemoryPartialLog
from mars.adapters.spark.lane_work import LaneWork
from mars.core.definitions import TaskState
from mars.core.errors import TopicRefused
from mars.core.settings import Settings
from mars.core.types import Lane, Range, Sequence64, StoreEpoch, TaskName, Topic, live_lane
from mars.process.life import ServiceHealth
from mars.protocol.ports import Head, TaskStart
from mars.protocol.runnable import RunnableTask
from tests.unit.machines.mapping_world import BUCKETS, EPOCH, TOPIC, make_task, make_version
from tests.unit.on_spark.spark_world import fenced

P0, P1 = live_lane(0), live_lane(1)
ROWS_MAX = 100
A, B, C = TaskName("a"), TaskName("b"), TaskName("c")


def head(*, active: bool = True, **offsets: int) -> Head:
    lanes = {live_lane(int(name[1:])): offset for name, offset in offsets.items()}
    return Head(EPOCH, 1, active, lanes, {}, frozenset(), Sequence64(0), 0, 0)


def look(ends: Mapping[int, int], *pairs: tuple[RunnableTask, Head | None]) -> RoundLook:
    return RoundLook(
        {task.name: task for task, _head in pairs},
        {task.name: found for task, found in pairs},
        {TOPIC: ends},
    )


def works(seen: RoundLook) -> list[LaneWork]:
    limits = RoundLimits(ROWS_MAX, 10**9, BUCKETS)
    return works_of(Settings(), limits, seen, list(shares_of(seen, ROWS_MAX)))


def parts(seen: RoundLook) -> dict[tuple[str, str], tuple[int, int]]:
    """(task, lane) -> the offsets planned."""
    return {
        (share.task, share.part.lane): (share.part.first, share.part.next)
        for work in works(seen)
        for share in work.shares
    }


def test_a_task_is_read_from_its_head_to_the_end_of_each_lane() -> None:
    seen = look({0: 50, 1: 30}, (make_task("a"), head(p0=10, p1=29)))
    assert parts(seen) == {("a", "0"): (10, 50), ("a", "1"): (29, 30)}


def test_one_work_reads_at_most_so_many_messages_of_a_lane() -> None:
    seen = look({0: 5_000}, (make_task("a"), head(p0=10)))
    assert [work.part for work in works(seen)] == [Range(P0, 10, 10 + ROWS_MAX)]


def test_nothing_is_planned_where_nothing_is_new() -> None:
    assert works(look({0: 50}, (make_task("a"), head(p0=50)))) == []


def test_a_topic_that_is_gone_is_left_alone() -> None:
    assert works(RoundLook({A: make_task("a")}, {A: head(p0=50)}, {TOPIC: {}})) == []


def test_a_partition_that_ends_below_what_was_read_of_it_is_asked_for_the_next_row() -> None:
    """By itself: a reading that others share would wait for it."""
    seen = look({0: 20}, (make_task("a"), head(p0=50)), (make_task("b"), head(p0=10)))
    assert [work.part for work in works(seen)] == [Range(P0, 10, 20), Range(P0, 50, 51)]


def test_tasks_that_are_near_each_other_share_a_reading() -> None:
    seen = look({0: 500}, (make_task("a"), head(p0=40)), (make_task("b"), head(p0=10)))
    (work,) = works(seen)
    assert work.part == Range(P0, 10, 110)
    assert [(share.task, share.part.first, share.part.next) for share in work.shares] == [
        ("b", 10, 110),
        ("a", 40, 110),
    ]


def test_a_task_far_behind_is_read_by_itself_and_drags_nobody_back() -> None:
    seen = look(
        {0: 5_000},
        (make_task("a"), head(p0=4_000)),
        (make_task("b"), head(p0=10)),
        (make_task("c"), head(p0=4_050)),
    )
    assert [work.part for work in works(seen)] == [Range(P0, 10, 110), Range(P0, 4_000, 4_100)]
    assert [len(work.shares) for work in works(seen)] == [1, 2]


def test_a_share_ends_where_the_next_version_begins() -> None:
    task = make_task("a", make_version(1, {}), make_version(2, {P0: 30}))
    (work,) = works(look({0: 90}, (task, head(p0=10))))
    assert [(share.version, share.part.next) for share in work.shares] == [(1, 30)]
    (work,) = works(look({0: 90}, (task, head(p0=30))))
    assert [(share.version, share.part.next) for share in work.shares] == [(2, 90)]


def test_a_version_that_this_release_cannot_compile_is_left_alone() -> None:
    task = replace(make_task("a"), plans={})
    assert works(look({0: 90}, (task, head(p0=10)))) == []


def test_rows_below_a_fence_are_a_bulk_process_s() -> None:
    task = fenced(make_task("a"), p0=40)
    assert parts(look({0: 90, 1: 90}, (task, head(p0=10, p1=10)))) == {("a", "1"): (10, 90)}
    assert ("a", "0") in parts(look({0: 90}, (task, head(p0=40))))


def test_lanes_of_backfills_are_left_alone() -> None:
    found = replace(head(), offsets={Lane("0@b1"): 5, Lane("f@b2"): 0, P0: 20})
    assert parts(look({0: 90}, (make_task("a"), found))) == {("a", "0"): (20, 90)}


@pytest.mark.parametrize("state", [TaskState.PAUSED, TaskState.FAILED, TaskState.DELETED])
def test_a_task_that_does_not_run_is_left_alone(state: TaskState) -> None:
    assert works(look({0: 90}, (make_task("a", state=state), head(p0=10)))) == []


def test_a_task_that_the_store_does_not_know_or_has_paused_is_left_alone() -> None:
    assert works(look({0: 90}, (make_task("a"), None))) == []
    assert works(look({0: 90}, (make_task("a"), head(active=False, p0=10)))) == []


def test_a_head_of_another_task_of_the_name_is_left_alone() -> None:
    task = make_task("a")
    ours = head(p0=10)
    assert lanes_of(task, ours) == {0: 10}
    assert lanes_of(task, replace(ours, version=2)) == {}


def test_rows_that_were_not_taken_rest_before_they_are_mapped_again() -> None:
    seen = look({0: 50, 1: 50}, (make_task("a"), head(p0=10, p1=10)))
    shares, refusals = list(shares_of(seen, ROWS_MAX)), RoundRefusals()
    assert refusals.due(shares, 5_000) == shares
    refusals.planned(shares, 5_000)

    assert refusals.due(shares, 5_000 + RETRY_PAUSE_MS - 1) == []
    assert refusals.due(shares, 5_000 + RETRY_PAUSE_MS) == shares


def test_rows_behind_those_that_were_taken_do_not_rest() -> None:
    task, refusals = make_task("a"), RoundRefusals()
    refusals.planned(shares_of(look({0: 50}, (task, head(p0=10))), ROWS_MAX), 5_000)

    further = list(shares_of(look({0: 90}, (task, head(p0=50))), ROWS_MAX))
    assert refusals.due(further, 5_000) == further


def test_the_same_rows_in_another_life_of_the_store_do_not_rest() -> None:
    task, refusals = make_task("a"), RoundRefusals()
    refusals.planned(shares_of(look({0: 50}, (task, head(p0=10))), ROWS_MAX), 5_000)

    again = replace(head(p0=10), epoch=StoreEpoch(EPOCH + 1))
    assert refusals.due(shares_of(look({0: 50}, (task, again)), ROWS_MAX), 5_000)


def test_a_look_asks_for_the_heads_of_running_tasks_and_the_ends_of_their_topics() -> None:
    broker = MemoryBroker(lambda: 0)
    broker.create_topic(TOPIC, 2)
    log = MemoryPartialLog(lambda: 0, buckets=BUCKETS)
    log.initialise(A, EPOCH, TaskStart(1, True, {P0: 0}, {}, {}))
    tasks = {A: make_task("a"), B: make_task("b", state=TaskState.PAUSED), C: make_task("c")}
    services = ServiceHealth("test")

    seen = look_at(services, tasks, log, MemoryTopicAdmin(broker))
    assert seen is not None
    assert seen.heads.keys() == {A, C}
    assert (seen.heads[C], seen.ends) == (None, {TOPIC: {0: 0, 1: 0}})


class Refusing(MemoryTopicAdmin):
    """Kafka shows one of the topics no more: somebody has taken the right away."""

    def ends(self, topic: Topic) -> dict[int, int]:
        if topic == TOPIC:
            raise TopicRefused(TOPIC, "not authorized")
        return super().ends(topic)


def test_a_topic_that_kafka_refuses_holds_up_the_tasks_of_no_other() -> None:
    broker, other = MemoryBroker(lambda: 0), Topic("other")
    for topic in (TOPIC, other):
        broker.create_topic(topic, 1)
    log = MemoryPartialLog(lambda: 0, buckets=BUCKETS)
    log.initialise(A, EPOCH, TaskStart(1, True, {P0: 0}, {}, {}))
    log.initialise(B, EPOCH, TaskStart(1, True, {P0: 0}, {}, {}))
    elsewhere = make_task("b").definition
    stream = replace(elsewhere.current.stream, topic=other)
    elsewhere = replace(elsewhere, versions=(replace(elsewhere.current, stream=stream),))
    tasks = {A: make_task("a"), B: replace(make_task("b"), definition=elsewhere)}

    seen = look_at(ServiceHealth("test"), tasks, log, Refusing(broker))

    assert seen is not None
    assert seen.ends == {other: {0: 0}}
    assert works(seen) == []


def test_there_is_no_look_while_a_server_does_not_answer() -> None:
    broker = MemoryBroker(lambda: 0)
    broker.create_topic(TOPIC, 2)
    log, admin = MemoryPartialLog(lambda: 0, buckets=BUCKETS), MemoryTopicAdmin(broker)
    log.initialise(A, EPOCH, TaskStart(1, True, {P0: 0}, {}, {}))
    services, tasks = ServiceHealth("test"), {A: make_task("a")}

    log.fail_next("head")
    assert look_at(services, tasks, log, admin) is None
    assert services.missing == ("redis",)
    admin.fail_next("ends")
    assert look_at(services, tasks, log, admin) is None
    assert services.missing == ("kafka",)
    assert look_at(services, tasks, log, admin) is not None
    assert list(services.missing) == []
