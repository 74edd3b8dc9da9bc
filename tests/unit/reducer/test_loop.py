"""The loop of a reducer process: whose heads it looks at."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any, cast

import pytest

from mars.core.errors import Unavailable
from mars.core.types import (
    Bucket,
    Entry,
    Lane,
    MemberId,
    Partial,
    Range,
    Reason,
    RejectedRange,
    Rejections,
    RowCounts,
    Sequence64,
    StoreEpoch,
    TaskName,
)
from mars.process.life import ServiceHealth
from mars.protocol.ports import (
    Committed,
    Followed,
    Head,
    Incident,
    IncidentKind,
    LogSlice,
    ReadRequest,
    TaskLook,
)
from mars.protocol.reducer.events import (
    BucketCommitted,
    BucketFailed,
    Event,
    HeadsRead,
    LogRead,
    ReadLog,
    Ticked,
)
from reducer.bells import LOOKS_PAUSE_S_MAX, RANG_S
from reducer.loop import ReducerLoop

ALL = [TaskName("a"), TaskName("b"), TaskName("c")]
HOUR_S = 3600.0


class Machine:
    """Watches three tasks, and wants nothing; those that are `busy` wait for a commit."""

    def __init__(self) -> None:
        self.busy: set[TaskName] = set()

    def watched(self) -> list[TaskName]:
        return list(ALL)

    def followed(self, tasks: Iterable[TaskName]) -> dict[TaskName, dict[Bucket, Sequence64]]:
        return {task: {} for task in tasks}

    def clearings(self) -> tuple[()]:
        return ()

    def buckets(self) -> tuple[()]:
        return ()

    def unread(self, _heads: object) -> dict[Any, int]:
        return {}

    def left(self, _heads: object) -> set[TaskName]:
        return set(self.busy)

    def handle(self, _event: Event) -> list[Any]:
        return []


class Log:
    """Notes whose heads are asked for."""

    def __init__(self) -> None:
        self.asked: list[list[TaskName]] = []
        self.away = False

    def look(self, followed: Followed, _clearings: object) -> dict[TaskName, None]:
        self.asked.append(list(followed))
        if self.away:
            raise Unavailable("redis", "it is away")
        return dict.fromkeys(followed)


class NoTasks:
    def poll(self) -> None:
        return None


class NeverDue:
    def due(self) -> bool:
        return False


def made(log: Log, machine: Machine | None = None) -> ReducerLoop:
    nothing = cast(Any, None)
    loop = ReducerLoop(
        MemberId("reducer-1"),
        cast(Any, machine or Machine()),
        log=cast(Any, log),
        sink=nothing,
        registry=nothing,
        coordinator=nothing,
        tasks=cast(Any, NoTasks()),
        reporter=cast(Any, NeverDue()),
        services=ServiceHealth("reducer"),
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


def test_a_task_that_rang_during_a_commit_is_looked_at_until_it_can_be_read() -> None:
    log, machine = Log(), Machine()
    loop = made(log, machine)
    go_round(loop)

    machine.busy = {ALL[1]}
    go_round(loop, frozenset({ALL[1], ALL[2]}))
    go_round(loop, BucketCommitted(Bucket(0), 1, Committed((), 0)))
    machine.busy = set()
    go_round(loop, BucketCommitted(Bucket(0), 1, Committed((), 0)))
    go_round(loop)
    assert log.asked == [ALL, [ALL[1], ALL[2]], [ALL[1]], [ALL[1]]]


def test_a_task_that_waits_for_a_commit_is_not_looked_at_in_between() -> None:
    log, machine = Log(), Machine()
    loop = made(log, machine)
    go_round(loop)

    machine.busy = {ALL[1]}
    go_round(loop, frozenset({ALL[1]}))
    machine.busy = set()
    go_round(loop, frozenset({ALL[2]}))
    go_round(loop)
    go_round(loop, BucketCommitted(Bucket(0), 1, Committed((), 0)))
    assert log.asked == [ALL, [ALL[1]], [ALL[2]], [ALL[1]]]


def test_what_rang_a_moment_ago_is_left_out_of_a_look_at_all_tasks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = [1_000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    log = Log()
    loop = made(log)
    loop._bells._poll_s = 0.5
    loop._bells.rang([ALL[1]])
    loop._look()
    now_s[0] += 0.6
    loop._look()
    assert log.asked == [ALL, [ALL[0], ALL[2]]]

    loop._bells.changed()
    loop._look()
    assert log.asked[2:] == [ALL]

    loop._bells.rang([ALL[1]])
    loop._look()
    now_s[0] += RANG_S
    loop._look()
    assert log.asked[3:] == [[ALL[1]], ALL]


def test_a_bell_is_not_forgotten_while_the_store_is_away() -> None:
    log = Log()
    loop = made(log)
    go_round(loop)

    log.away = True
    go_round(loop, frozenset({ALL[1]}))
    log.away = False
    go_round(loop)
    assert log.asked == [ALL, [ALL[1]], [ALL[1]]]


def test_a_look_that_stood_still_does_not_put_the_next_one_off_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A process that is stopped for six seconds in a look once read nothing for two minutes."""
    log = Log()
    loop = made(log)
    loop._bells._poll_s = 0.0
    now_s = [1_000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    answer = log.look

    def stand_still(followed: Followed, clearings: object) -> Mapping[TaskName, TaskLook | None]:
        now_s[0] += 6.0
        return answer(followed, clearings)

    monkeypatch.setattr(log, "look", stand_still)
    loop._look()
    monkeypatch.undo()
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    now_s[0] += LOOKS_PAUSE_S_MAX - 0.1
    loop._look()
    assert log.asked == [ALL]
    now_s[0] += 0.2
    loop._look()
    assert log.asked == [ALL, ALL]


def test_a_round_that_has_closed_windows_for_long_goes_on_where_it_stopped_in_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = [1_000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    turns: list[tuple[int, bool]] = []

    class Slow(Machine):
        def buckets(self) -> tuple[Bucket, ...]:  # type: ignore[override]
            return tuple(map(Bucket, range(4)))

        def handle(self, event: Event) -> list[Any]:
            if isinstance(event, Ticked):
                turns.append((event.bucket, event.in_turn))
                now_s[0] += 0.06 if event.in_turn else 0.0
            return []

    loop = made(Log(), Slow())
    loop._tick()
    assert turns == [(0, True), (1, True), (2, False), (3, False)]
    assert not loop._inbox.empty(), "the next round waits"

    del turns[:]
    loop._tick()
    assert turns == [(2, True), (3, True), (0, False), (1, False)]


def test_messages_that_cannot_be_unpacked_make_one_incident_of_a_task_and_partition() -> None:
    told: list[Incident] = []
    loop = made(Log())
    loop._tell = told.append
    for first in (7, 900):
        for lane in ("0", "3"):
            part = RejectedRange(Lane(lane), first, first + 12, Reason.UNDECODABLE, 12)
            partial = Partial(Bucket(1), RowCounts(bad=12), (), b"", Rejections((), (part,)))
            entry = Entry(Sequence64(1), 1, (Range(Lane(lane), first, first + 12),), partial)
            read = ReadLog(Bucket(1), 1, ALL[0], Sequence64(0), Sequence64(9), (1, 0))
            loop._tell_of_undecodable_rows(read, LogSlice(None, (entry,)))

    assert [(one.lane, one.first, one.next) for one in told] == [("0", 7, 19), ("3", 7, 19)]
    assert {one.kind for one in told} == {IncidentKind.UNDECODABLE}


def head_at(seq: int) -> Head:
    return Head(StoreEpoch(1), 1, True, {}, {}, frozenset(), Sequence64(seq), 0, 0)


def test_what_a_look_brings_is_taken_with_its_head_and_only_the_rest_is_read() -> None:
    brought, read_later = LogSlice(None, ()), LogSlice(None, (), run_id="later")
    reads = [
        ReadLog(Bucket(bucket), 1, ALL[0], Sequence64(3), Sequence64(5), (1, 0))
        for bucket in (0, 1)
    ]
    taken: list[LogRead] = []

    class Behind(Machine):
        def handle(self, event: Event) -> list[Any]:
            if isinstance(event, LogRead):
                taken.append(event)
            return list(reads) if isinstance(event, HeadsRead) else []

    class Busy(Log):
        def look(self, followed: Followed, _clearings: object) -> Any:
            return {**dict.fromkeys(followed), ALL[0]: TaskLook(head_at(5), {Bucket(1): brought})}

        def read_many(self, requests: list[ReadRequest]) -> list[LogSlice]:
            assert [request.bucket for request in requests] == [0]
            return [read_later]

        def head(self, tasks: list[TaskName]) -> dict[TaskName, Head]:
            return {task: head_at(6) for task in tasks}

    made(Busy(), Behind())._look()
    assert taken == [
        LogRead(reads[1], brought, head_at(5)),
        LogRead(reads[0], read_later, head_at(6)),
    ]
