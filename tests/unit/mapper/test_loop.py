"""The loop of a mapper process: how much it asks for, and what it reports."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from mapper.loop import POLL_RECORDS_MAX, MapperLoop
from mars.core.errors import Unavailable
from mars.core.plan import Field, FieldType, Origin
from mars.core.types import Lane, Mapped, Range, Sequence64, StoreEpoch, TaskName, Topic
from mars.process.life import ServiceHealth
from mars.protocol.mapper.events import (
    CATCH_UP,
    LIVE,
    Offer,
    Offered,
    ReaderLane,
    TasksChanged,
    Ticked,
)
from mars.protocol.mapper.machine import MapperMachine
from mars.protocol.ports import Applied, Batch, NoTask
from mars.protocol.runnable import RunnableTask
from tests.unit.machines.mapping_world import make_task

FLOWS = Topic("flows")


class Reader:
    """Notes what is asked of it, and has nothing."""

    def __init__(self, lags: dict[object, int] | None = None) -> None:
        self.asked: list[int] = []
        self._lags = lags or {}

    def poll(self, records_max: int, _timeout_s: float) -> list[object]:
        self.asked.append(records_max)
        return []

    def lags(self) -> dict[object, int]:
        return self._lags


class KeyReader(Reader):
    """Notes when it is asked for keys, too."""

    def __init__(self, name: str, notes: list[object]) -> None:
        super().__init__()
        self.name = name
        self.notes = notes

    def want_keys(self, topics: frozenset[Topic]) -> None:
        self.notes.append((self.name, topics))


class SomeTasks:
    """Answers with one set of tasks after the other."""

    def __init__(self, *sets: dict[TaskName, RunnableTask]) -> None:
        self.sets = list(sets)

    def poll(self) -> dict[TaskName, RunnableTask] | None:
        return self.sets.pop(0) if self.sets else None


class NoTasks:
    def poll(self) -> dict[str, object]:
        return {}


class NeverDue:
    def due(self) -> bool:
        return False


def loop_of(machine: object, live: Reader, behind: Reader, **given: Any) -> MapperLoop:
    """A loop with readers, and whatever else a test gives."""
    others: dict[str, Any] = {
        "log": None,
        "registry": None,
        "coordinator": Heard(),
        "tasks": NoTasks(),
        "reporter": NeverDue(),
        "services": ServiceHealth("mapper"),
        "poll_s": 0.0,
    }
    readers: Any = {LIVE: live, CATCH_UP: behind}
    return MapperLoop(cast(Any, machine), readers=readers, **{**others, **given})


@pytest.mark.parametrize(
    ("batch", "asked"), [(500, 500), (10 * POLL_RECORDS_MAX, POLL_RECORDS_MAX)]
)
def test_a_poll_takes_no_more_than_a_batch_may_hold(batch: int, asked: int) -> None:
    machine = MapperMachine(8, rows_max=batch, bytes_max=10**6, linger_ms=0)
    reader = Reader()
    loop = loop_of(machine, reader, Reader(), records_max=batch)
    loop.round()
    assert reader.asked == [asked]


def test_keys_are_asked_for_before_a_task_that_reads_them_is_known() -> None:
    notes: list[object] = []
    plain = make_task("a")
    plan = plain.plans[1]
    key = Field("key", FieldType.STRING, Origin.KEY)
    keyed = replace(plain, plans={1: replace(plan, fields=(*plan.fields, key))})
    wanted: frozenset[Topic] = frozenset({Topic(plan.stream.topic)})
    none: frozenset[Topic] = frozenset()
    name = TaskName("a")
    tasks = SomeTasks({name: plain}, {name: keyed}, {name: keyed}, {})
    live, behind = (KeyReader(reader, notes) for reader in (LIVE, CATCH_UP))
    loop = loop_of(Noting(notes), live, behind, tasks=tasks)
    for _ in range(5):
        loop.round()
    assert notes == [
        *({name: plain}, (LIVE, wanted), (CATCH_UP, wanted), {name: keyed}),
        *({name: keyed}, (LIVE, none), (CATCH_UP, none), {}),
    ]


class Standing:
    """A machine that says which of its lanes stand still, and which readers were at their ends."""

    catching_up = True
    slicing = False
    rows_mapped = queue_bytes = 0

    def __init__(self) -> None:
        self.standing: dict[ReaderLane, bool] = {}
        self.drained: frozenset[str] = frozenset()

    def handle(self, event: object) -> list[object]:
        if isinstance(event, Ticked):
            self.drained = frozenset(event.drained)
        return []

    def readings(self) -> tuple[()]:
        return ()


class Noting(Standing):
    """Notes of which tasks it hears."""

    def __init__(self, notes: list[object]) -> None:
        super().__init__()
        self.notes = notes

    def handle(self, event: object) -> list[object]:
        if isinstance(event, TasksChanged):
            self.notes.append(event.tasks)
        return []


class Reports:
    """Keeps the figures of each report."""

    def __init__(self) -> None:
        self.ready = False
        self.figures: list[dict[str, float]] = []

    def due(self) -> bool:
        return self.ready

    def report(self, *_given: object, figures: dict[str, float], **_others: object) -> None:
        self.figures.append(figures)


class Heard:
    def report(self, _info: object) -> None: ...


def test_a_report_tells_of_lanes_that_were_held_back_since_the_last_one_and_of_both_readers() -> (
    None
):
    machine, reports = Standing(), Reports()
    live, behind = Reader({(FLOWS, 0): 9_000, (FLOWS, 1): 50}), Reader({(FLOWS, 1): 450})
    loop = loop_of(machine, live, behind, reporter=reports, capacity=0.5)
    machine.standing = {(LIVE, FLOWS, 0): True}
    loop.round()
    assert machine.drained == {LIVE, CATCH_UP}, "what nobody reads keeps no batch waiting"

    machine.standing, reports.ready = {}, True
    loop.round()
    loop.round()
    (held, free) = reports.figures

    assert held["lag_messages"] == free["lag_messages"] == 9_000 + 450
    assert (held["lag_read_messages"], free["lag_read_messages"]) == (450, 9_450)
    assert held["held_back"] > 0
    assert held["capacity"] == 0.5
    assert held["lag_growth_messages_per_second"] == free["lag_growth_messages_per_second"] == 0
    assert machine.drained == {CATCH_UP}


def test_a_reader_that_has_nothing_to_read_is_polled_too_as_its_client_tells_of_itself() -> None:
    machine, live, behind = Standing(), Reader(), Reader()
    machine.catching_up = False

    loop_of(machine, live, behind).round()

    assert len(live.asked) == len(behind.asked) == 1
    assert machine.drained == {LIVE}


class Offering(Standing):
    """Offers three batches, and then something to an outcome; notes what it hears."""

    def __init__(self, offers: list[Offer]) -> None:
        super().__init__()
        self.offers = offers
        self.heard: list[tuple[str, object]] = []

    def handle(self, event: object) -> list[object]:
        if isinstance(event, Offered):
            self.heard.append((event.offer.task, event.outcome))
            return []
        return list(self.offers) if isinstance(event, Ticked) else []


class Store:
    """Answers batches that come together, or does not."""

    def __init__(self, answers: list[object] | None) -> None:
        self.answers = answers
        self.asked: list[list[str]] = []

    def append_together(self, batches: list[Batch]) -> list[object]:
        self.asked.append([batch.task for batch in batches])
        if self.answers is None:
            raise Unavailable("redis", "no answer")
        return self.answers


TAKEN = Applied(Sequence64(1))


@pytest.mark.parametrize(
    ("answers", "heard"),
    [
        ([TAKEN, Unavailable("redis", "broken"), NoTask()], [TAKEN, None, NoTask()]),
        (None, [None, None, None]),
    ],
)
def test_a_batch_goes_to_all_its_tasks_together_and_each_hears_of_its_own(
    answers: list[object] | None, heard: list[object]
) -> None:
    names = [TaskName(name) for name in "abc"]
    offers = [
        Offer(LIVE, FLOWS, name, StoreEpoch(1), 1, Mapped((Range(Lane("0"), 0, 1),), {}, ()))
        for name in names
    ]
    machine, store, services = Offering(offers), Store(answers), ServiceHealth("mapper")
    loop_of(machine, Reader(), Reader(), log=store, services=services).round()
    assert store.asked == [["a", "b", "c"]]
    assert machine.heard == list(zip(names, heard, strict=True))
    assert list(services.missing) == ["redis"]
