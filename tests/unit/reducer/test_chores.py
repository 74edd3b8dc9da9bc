"""What a reducer does once, now or later."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from mars.adapters.memory.registry import MemoryRegistry
from mars.core.definitions import TaskState
from mars.core.errors import Unavailable
from mars.core.types import Bucket, Entry, Partial, RowCounts, Sequence64, StoreEpoch, TaskName
from mars.process.life import ServiceHealth
from mars.protocol.ports import LogTrim
from mars.protocol.reducer.events import CompactLog, FailTask, TrimLog
from reducer.chores import Chores
from tests.contracts.test_registry import definition

A = TaskName("a")


class Trims:
    """A log that is trimmed."""

    def __init__(self) -> None:
        self.trimmed: list[int | str] = []
        self.asked = 0
        self.away = False

    def trim_together(self, trims: Sequence[LogTrim]) -> None:
        self.asked += 1
        if self.away:
            raise Unavailable("redis", "it is away")
        self.trimmed += [seq for one in trims for seq in one.seqs]

    def compact(self, *given: Any) -> None:
        self.trimmed.append(f"merged up to {given[4].seq}")


def merge(number: int) -> CompactLog:
    base = Entry(Sequence64(number), 1, (), Partial(Bucket(1), RowCounts(), (), b""))
    return CompactLog(Bucket(1), A, StoreEpoch(1), "life", base)


def trim(number: int) -> TrimLog:
    return TrimLog(Bucket(1), A, StoreEpoch(1), "life", (Sequence64(number),))


def test_a_failure_that_zookeeper_cannot_take_is_told_later_and_holds_up_no_trimming() -> None:
    registry, log = MemoryRegistry(), Trims()
    running = replace(definition("a"), detail="")
    assert registry.create_task(running)
    chores = Chores(cast(Any, log), registry, ServiceHealth("reducer"))
    registry.fail_next("task")

    assert not chores.do(FailTask(A, (1, 0), "why"))
    assert chores.do(trim(1))

    assert log.trimmed == [1]
    assert registry.tasks()[A].state is TaskState.RUNNING
    chores.catch_up()
    assert registry.tasks()[A] == replace(running, state=TaskState.FAILED, detail="why")


def test_a_failure_that_waits_is_not_forgotten_for_one_of_an_earlier_run() -> None:
    """Which another bucket came upon later, and which fails nothing any more."""
    registry = MemoryRegistry()
    assert registry.create_task(replace(definition("a"), detail="", resumes=1))
    chores = Chores(cast(Any, Trims()), registry, ServiceHealth("reducer"))
    registry.fail_next("task")

    chores.do(FailTask(A, (1, 1), "its own"))
    chores.do(FailTask(A, (1, 0), "an old failure"))
    chores.catch_up()

    assert registry.tasks()[A].detail == "its own"


def test_what_the_store_cannot_take_is_done_later_and_in_order() -> None:
    log = Trims()
    log.away = True
    chores = Chores(cast(Any, log), MemoryRegistry(), ServiceHealth("reducer"))

    assert not any([chores.do(trim(1)), chores.do(trim(2))])
    assert log.asked == 1, "nobody waits for a server that is away more than once in a round"
    log.away = False
    chores.catch_up()

    assert log.trimmed == [1, 2]
    assert chores.do(trim(3))


def test_trims_that_follow_each_other_go_together_and_in_their_order_with_merges() -> None:
    log = Trims()
    chores = Chores(cast(Any, log), MemoryRegistry(), ServiceHealth("reducer"))

    assert chores.do(trim(1), trim(2), merge(2), trim(3))

    assert log.asked == 2
    assert log.trimmed == [1, 2, "merged up to 2", 3]
