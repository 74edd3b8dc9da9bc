"""The loop of a reducer process: whose heads it looks at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from mars.machines.events import BucketCommitted, BucketFailed, Event
from mars.ports import Committed
from mars.process.life import Services
from mars.types import Bucket, MemberId, TaskName
from reducer.loop import ReducerLoop

ALL = [TaskName("a"), TaskName("b"), TaskName("c")]
HOUR_S = 3600.0


class Machine:
    """Watches three tasks, and wants nothing."""

    def watched(self) -> list[TaskName]:
        return list(ALL)

    def clearings(self) -> tuple[()]:
        return ()

    def buckets(self) -> tuple[()]:
        return ()

    def unread(self, _heads: object) -> dict[Any, int]:
        return {}

    def handle(self, _event: Event) -> list[Any]:
        return []


class Log:
    """Notes whose heads are asked for."""

    def __init__(self) -> None:
        self.asked: list[list[TaskName]] = []

    def head(self, tasks: Sequence[TaskName]) -> dict[TaskName, None]:
        self.asked.append(list(tasks))
        return {}


class NoTasks:
    def poll(self) -> None:
        return None


class NeverDue:
    def due(self) -> bool:
        return False


def made(log: Log) -> ReducerLoop:
    nothing = cast(Any, None)
    loop = ReducerLoop(
        MemberId("reducer-1"),
        cast(Any, Machine()),
        log=cast(Any, log),
        sink=nothing,
        registry=nothing,
        coordinator=nothing,
        tasks=cast(Any, NoTasks()),
        reporter=cast(Any, NeverDue()),
        services=Services("reducer"),
        poll_s=HOUR_S,
        threads=1,
    )
    loop._assignment_changed.clear()
    return loop


def go_round(loop: ReducerLoop, *heard: Event | frozenset[TaskName]) -> None:
    for one in heard:
        loop._inbox.put(one)
    loop._inbox.put(None)
    loop._wait()
    loop.round()


def test_all_tasks_are_looked_at_first_and_then_those_that_rang() -> None:
    log = Log()
    loop = made(log)

    go_round(loop)
    assert log.asked == [ALL]

    go_round(loop)
    assert log.asked == [ALL]

    go_round(loop, frozenset({ALL[1]}), frozenset({ALL[2]}), frozenset({TaskName("deleted")}))
    assert log.asked == [ALL, [ALL[1], ALL[2]]]

    go_round(loop)
    assert len(log.asked) == 2


def test_all_tasks_are_looked_at_when_anything_but_a_commit_has_happened() -> None:
    log = Log()
    loop = made(log)
    go_round(loop)

    go_round(loop, BucketCommitted(Bucket(0), 1, Committed((), 0)))
    assert log.asked == [ALL]

    go_round(loop, BucketFailed(Bucket(0), 1, fenced=False, detail="why"))
    assert log.asked == [ALL, ALL]
