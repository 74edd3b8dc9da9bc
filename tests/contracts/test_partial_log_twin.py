"""How the twin of the partial log is told to fail."""

from __future__ import annotations

import pytest

from mars.adapters.memory.partial_log import MemoryPartialLog
from mars.core.errors import Unavailable
from mars.core.types import StoreEpoch
from mars.protocol.ports import NoTask, Stale
from tests.contracts.batches import (
    EPOCH,
    LANE,
    LEADER,
    TASK,
    applied,
    batch,
    start,
)


@pytest.fixture
def twin() -> MemoryPartialLog:
    log = MemoryPartialLog(lambda: 1_000)
    log.initialise(TASK, EPOCH, start({LANE: 0}))
    return log


def test_failure_before_the_effect_leaves_nothing_behind(twin: MemoryPartialLog) -> None:
    twin.fail_next("append")
    with pytest.raises(Unavailable):
        twin.append(TASK, EPOCH, 1, batch(0, 10))
    assert twin.append(TASK, EPOCH, 1, batch(0, 10)) == applied(1)


def test_failure_after_the_effect_hides_only_the_answer(twin: MemoryPartialLog) -> None:
    twin.fail_next("append", before=False)
    with pytest.raises(Unavailable):
        twin.append(TASK, EPOCH, 1, batch(0, 10))
    assert twin.append(TASK, EPOCH, 1, batch(0, 10)) == Stale(LANE, 10)


def test_failures_come_in_the_order_they_were_planned_for_one_connection_alone(
    twin: MemoryPartialLog,
) -> None:
    twin.fail_next("append")
    twin.fail_next("append", before=False)
    other = twin.connect()
    for _ in range(2):
        with pytest.raises(Unavailable):
            twin.append(TASK, EPOCH, 1, batch(0, 10))
    assert other.append(TASK, EPOCH, 1, batch(0, 10)) == Stale(LANE, 10)
    assert twin.head([TASK])[TASK] is not None


def test_flush_takes_everything_and_keeps_the_run_id(twin: MemoryPartialLog) -> None:
    before = twin.identity()
    twin.seal(EPOCH, LEADER, before.run_id)
    twin.flush()
    assert twin.append(TASK, EPOCH, 1, batch(0, 10)) == NoTask()
    assert twin.identity() == before


def test_restart_takes_everything_and_changes_the_run_id(twin: MemoryPartialLog) -> None:
    before = twin.identity()
    twin.restart()
    assert twin.head([TASK]) == {TASK: None}
    assert twin.identity().run_id != before.run_id


def test_replica_that_takes_over_has_what_it_held_and_another_run_id(
    twin: MemoryPartialLog,
) -> None:
    once, before = twin.snapshot(), twin.identity().run_id
    twin.append(TASK, EPOCH, 1, batch(0, 10))
    twin.restart(once)
    head = twin.head([TASK])[TASK]
    assert head is not None
    assert (head.seq, head.begun_on) == (0, before)
    assert head.run_id == twin.identity().run_id != before


def test_restore_silently_goes_back(twin: MemoryPartialLog) -> None:
    twin.append(TASK, EPOCH, 1, batch(0, 10))
    twin.seal(EPOCH, LEADER, "run")
    once = twin.snapshot()
    twin.append(TASK, EPOCH, 1, batch(10, 20))
    twin.seal(StoreEpoch(EPOCH + 1), LEADER, "run")
    for _ in range(2):
        twin.restore(once)
        assert twin.identity().sealed_epoch == EPOCH
        assert twin.append(TASK, EPOCH, 1, batch(10, 30)) == applied(2)
