"""When the rows of a mark were taken, and from what a life of a task goes on."""

from __future__ import annotations

import pytest

from mars.adapters.redis.keys import TaskKeys
from mars.core.types import Mark, StoreEpoch
from mars.protocol.ports import PartialLog, WrongEpoch
from tests.contracts.batches import (
    EPOCH,
    LANE,
    OTHER_LANE,
    TASK,
    applied,
    batch,
    begin,
    both_lanes,
    drop,
    gap,
    head_of,
    server_of,
    start,
)
from tests.contracts.redis_servers import RedisStoreUnderTest, Store

NEXT_EPOCH = StoreEpoch(EPOCH + 1)


# ---------------------------------------------------------------------------- when rows came


def test_mark_is_taken_when_its_rows_are(log: PartialLog) -> None:
    before_ms = head_of(log).now_ms
    assert log.append(TASK, EPOCH, 1, batch(0, 10, mark_ms=500)) == applied(1)
    head = head_of(log)
    assert head.taken_ms.keys() == {LANE}
    assert before_ms <= head.taken_ms[LANE] <= head.now_ms


def test_rows_that_do_not_raise_the_mark_are_taken_all_the_same(
    store: Store, log: PartialLog
) -> None:
    log.append(TASK, EPOCH, 1, batch(0, 10, mark_ms=500))
    first_ms = head_of(log).taken_ms[LANE]
    store.let_time_pass()
    log.append(TASK, EPOCH, 1, batch(10, 20, mark_ms=400))
    head = head_of(log)
    assert head.marks_ms == {LANE: 500}
    assert first_ms < head.taken_ms[LANE] <= head.now_ms


@pytest.mark.parametrize("later", [batch(10, 20), gap(10, 20)], ids=["no usable time", "no row"])
def test_what_has_no_event_time_is_not_noted(store: Store, log: PartialLog, later: object) -> None:
    log.append(TASK, EPOCH, 1, batch(0, 10, mark_ms=500))
    taken = head_of(log).taken_ms
    store.let_time_pass()
    log.append(TASK, EPOCH, 1, later)  # type: ignore[arg-type]
    assert head_of(log).offsets[LANE] == 20
    assert head_of(log).taken_ms == taken


def test_each_lane_of_a_batch_is_noted_that_has_a_mark_in_it(store: Store, log: PartialLog) -> None:
    log.append(TASK, EPOCH, 1, both_lanes(0, 10, 0, 10, marks_ms={LANE: 5, OTHER_LANE: 9}))
    both = head_of(log).taken_ms
    assert both[LANE] == both[OTHER_LANE]
    store.let_time_pass()
    log.append(TASK, EPOCH, 1, both_lanes(10, 20, 10, 20, marks_ms={OTHER_LANE: 7}))
    taken = head_of(log).taken_ms
    assert taken[LANE] == both[LANE]
    assert taken[OTHER_LANE] > both[OTHER_LANE]


def test_refused_batch_is_not_noted(store: Store, log: PartialLog) -> None:
    log.append(TASK, EPOCH, 1, batch(0, 10, mark_ms=500))
    taken = head_of(log).taken_ms
    store.let_time_pass()
    refused = log.append(TASK, NEXT_EPOCH, 1, batch(10, 20, mark_ms=600))
    assert refused == WrongEpoch(EPOCH)
    assert head_of(log).taken_ms == taken


# --------------------------------------------------------------------------- how a life begins


def test_life_begins_without_marks_and_goes_on_from_nothing(log: PartialLog) -> None:
    head = head_of(log)
    assert (head.marks_ms, head.taken_ms, head.restored) == ({}, {}, None)


def test_life_after_a_loss_goes_on_from_what_it_is_told(log: PartialLog) -> None:
    log.append(TASK, EPOCH, 1, batch(0, 10, mark_ms=500))
    assert log.initialise(TASK, NEXT_EPOCH, start(restored=Mark(-700, 900)))
    head = head_of(log)
    assert (head.marks_ms, head.taken_ms, head.restored) == ({}, {}, Mark(-700, 900))


def test_what_is_restored_is_taken_no_later_than_now(log: PartialLog) -> None:
    before_ms = head_of(log).now_ms
    ahead_ms = before_ms + 3_600_000
    log.initialise(TASK, NEXT_EPOCH, start(restored=Mark(500, ahead_ms)))
    head = head_of(log)
    assert head.restored is not None
    assert head.restored.time_ms == 500
    assert head.restored.taken_ms is not None
    assert before_ms <= head.restored.taken_ms <= head.now_ms


def test_life_that_is_told_nothing_has_nothing_of_the_one_before(log: PartialLog) -> None:
    log.initialise(TASK, NEXT_EPOCH, start(restored=Mark(500, 900)))
    assert log.initialise(TASK, StoreEpoch(NEXT_EPOCH + 1), start())
    assert head_of(log).restored is None


def test_rows_leave_what_was_restored_alone(log: PartialLog) -> None:
    log.initialise(TASK, NEXT_EPOCH, start(restored=Mark(500, 900)))
    log.append(TASK, NEXT_EPOCH, 1, batch(0, 10, mark_ms=800))
    head = head_of(log)
    assert (head.marks_ms, head.restored) == ({LANE: 800}, Mark(500, 900))


def test_version_begins_by_the_marks_of_the_lanes_alone(log: PartialLog) -> None:
    log.initialise(TASK, NEXT_EPOCH, start(restored=Mark(500, 900)))
    log.append(TASK, NEXT_EPOCH, 1, batch(0, 10, mark_ms=300))
    run_id = server_of(log)
    begun = log.begin_version(TASK, NEXT_EPOCH, start().leader, run_id, 2, after=1)
    assert begun is not None
    assert begun.marks_ms == {LANE: 300}
    assert head_of(log).restored == Mark(500, 900)


def test_dropped_task_leaves_nothing(store: Store) -> None:
    log = store.open()
    before = store.dump()
    log.initialise(TASK, EPOCH, start(restored=Mark(500, 900)))
    log.append(TASK, EPOCH, 1, batch(0, 10, mark_ms=500, buckets=()))
    drop(log)
    assert store.dump() == before


# ----------------------------------------------------------------------------- older releases


@pytest.mark.integration
def test_mark_of_an_older_release_was_taken_nobody_knows_when(
    redis_store: RedisStoreUnderTest,
) -> None:
    log = redis_store.open()
    log.initialise(TASK, EPOCH, start())
    redis_store.client.hset(TaskKeys.of(redis_store.namespace, TASK).marks, LANE, 500)
    log.append(TASK, EPOCH, 1, batch(0, 10, lane=OTHER_LANE, mark_ms=400))
    head = head_of(log)
    assert head.marks_ms == {LANE: 500, OTHER_LANE: 400}
    assert head.taken_ms.keys() == {OTHER_LANE}
    log.append(TASK, EPOCH, 1, batch(0, 10, mark_ms=300))
    assert head_of(log).taken_ms.keys() == {LANE, OTHER_LANE}


@pytest.mark.integration
def test_an_older_release_finds_lanes_alone_among_the_marks(
    redis_store: RedisStoreUnderTest,
) -> None:
    log = redis_store.open()
    log.initialise(TASK, EPOCH, start(restored=Mark(500, 900)))
    log.append(TASK, EPOCH, 1, batch(0, 10, mark_ms=700))
    begin(log, 2)
    found = redis_store.client.hgetall(TaskKeys.of(redis_store.namespace, TASK).marks)
    assert found == {LANE.encode(): b"700"}
