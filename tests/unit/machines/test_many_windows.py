"""A task with very many windows: it fails, or closes some at a time, and the others go on."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from mars.core.errors import TaskLimit
from mars.core.types import Lane, TaskName
from mars.core.windows import Sliding
from mars.engine.codec.dead import DeadRange, decode_dead
from mars.protocol.ports import Clearing, Followed, TaskLook
from mars.protocol.reducer.task_in_bucket import TaskInBucket
from mars.protocol.windows import input as input_module
from mars.protocol.windows import turns, window_panes
from tests.unit.machines.reducing_rows import (
    OWNER,
    P0,
    SAVE_MS,
    SLIDING,
    RowSpec,
    balanced,
    counts_of,
    make_entry,
    make_folding,
    make_frontier,
    make_head,
    make_plan,
    make_slice,
    make_task,
)
from tests.unit.machines.reducing_world import BUCKETS, Reducer, World

EACH_WINDOW: list[RowSpec] = [(10 * number, "x") for number in range(7)]
"""One row in each of seven windows of 10 s."""


# --------------------------------------------------------------------------------- too many open


def test_rows_in_too_many_slices_of_time_fail_the_task_before_they_are_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(window_panes, "OPEN_PANES_MAX", 7)
    folding = make_folding(make_plan(), merged={})
    folding.absorb(make_entry(1, 0, EACH_WINDOW))
    folding.absorb(make_entry(2, 7, EACH_WINDOW))

    with pytest.raises(TaskLimit) as caught:
        folding.absorb(make_entry(3, 14, [(5, "x"), (90, "x"), (110, "x")]))

    for part in (
        "9 slices of 10000 ms",
        "from 1970-01-01 00:00:00Z to 1970-01-01 00:01:50Z",
        "7 may be open",
        "longer windows",
    ):
        assert part in str(caught.value)
    assert len(folding.state.open_windows()) == 7


def test_windows_that_are_closed_make_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window_panes, "OPEN_PANES_MAX", 7)
    folding = make_folding(make_plan(), merged={})
    folding.absorb(make_entry(1, 0, EACH_WINDOW))
    folding.committed(make_frontier({P0: 7}, 20_000), folding.ledger(20_000))

    folding.absorb(make_entry(2, 7, [(70, "x"), (80, "x"), (5, "late")]))

    starts = [window.start_ms for window in folding.state.open_windows()]
    assert starts == list(range(20_000, 90_000, 10_000))


def test_the_task_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window_panes, "OPEN_PANES_MAX", 5)
    world = World(make_task(name="wild"), make_task(name="calm"))
    world.assign(dict.fromkeys(range(BUCKETS), "r1"))
    for lane in ("0", "1"):
        world.append("wild", lane, 0, EACH_WINDOW)
        world.append("calm", lane, 0, [(1, "x"), (12, "x")])

    reducer = Reducer(world, "r1")
    reducer.run(3)

    assert list(reducer.failed) == ["wild"]
    assert "may be open" in reducer.failed[TaskName("wild")]
    assert world.emitted("calm") == {(0, "x"): 2}


# ------------------------------------------------------------------------------- some at a time


def due(**task: object) -> TaskInBucket:
    """A task whose seven windows are all due at once."""
    made = make_task(**task)  # type: ignore[arg-type]
    part = TaskInBucket(made, OWNER, {}, SAVE_MS)
    part.absorb(make_slice(make_entry(1, 0, EACH_WINDOW, plan=made.plans[1])))
    part.drained(make_head(1, {P0: 7}, mark_s=95))
    return part


@pytest.mark.parametrize("limit", ["WINDOWS_AT_ONCE", "PANES_AT_ONCE", "ROWS_AT_ONCE"])
def test_a_commit_closes_only_so_many_windows_and_the_next_one_goes_on(
    monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(turns, limit, 3)
    part = due()
    found: list[list[int]] = []
    while part.due() is not None:
        prepared = part.prepare()
        found.append(
            [start for batch in prepared.results for start, _key in counts_of(batch.values)]
        )
        (record,) = prepared.progress
        assert balanced(record.ledger)
        assert record.ledger.emitted == sum(map(len, found))
        part.committed(record)

    assert found == [[0, 10, 20], [30, 40, 50], [60]]
    assert part.records[1].closed_ms == 90_000
    assert part.records[1].ledger.open == 0


def test_one_window_is_closed_however_large_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "ROWS_AT_ONCE", 0.5)

    assert counts_of(due().prepare().results[0].values) == {(0, "x"): 1}


def test_sliding_windows_are_closed_some_at_a_time_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "WINDOWS_AT_ONCE", 2)
    part = due(window=SLIDING)
    values: list[bytes] = []
    while part.due() is not None:
        prepared = part.prepare()
        values += [value for batch in prepared.results for value in batch.values]
        part.committed(prepared.progress[0])

    ends = {-10: 1, **dict.fromkeys(range(0, 60, 10), 2), 60: 1}
    assert counts_of(values) == {(start, "x"): count for start, count in ends.items()}


def test_between_two_such_commits_the_logs_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "WINDOWS_AT_ONCE", 2)
    world = World(make_task())
    world.assign(dict.fromkeys(range(BUCKETS), "r1"))
    for lane in ("0", "1"):
        world.append("a", lane, 0, EACH_WINDOW)
    reducer = Reducer(world, "r1")
    emitted_at_look: set[int] = set()
    answer = reducer.store.look

    def look(followed: Followed, clearings: Sequence[Clearing]) -> dict[TaskName, TaskLook | None]:
        emitted_at_look.add(len(world.emitted("a")))
        return answer(followed, clearings)

    monkeypatch.setattr(reducer.store, "look", look)
    reducer.run(6)

    assert emitted_at_look == {0, 2, 4, 6}


# ------------------------------------------------------------------------------------------ late


def test_late_rows_of_very_many_windows_are_all_counted_though_some_are_named_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(input_module, "LATE_WINDOWS_NAMED_MAX", 3)
    folding = make_folding(make_plan(), merged={}, closed_ms=60_000)
    folding.absorb(make_entry(1, 0, EACH_WINDOW))

    named = [decode_dead(raw) for raw in folding.input.dead]
    assert [(one.window_start, one.rows) for one in named if isinstance(one, DeadRange)] == [
        (0, 1),
        (10_000, 1),
        (50_000, 4),
    ]
    assert folding.ledger(60_000).late == 6


def test_late_panes_of_one_window_are_named_together() -> None:
    plan = make_plan(window=Sliding(30_000, 20_000))
    folding = make_folding(plan, merged={Lane("0"): 0}, closed_ms=110_000)
    folding.absorb(make_entry(1, 0, [(41, "x"), (52, "x")], plan=plan))

    (named,) = [decode_dead(raw) for raw in folding.input.dead]
    assert isinstance(named, DeadRange)
    assert (named.window_start, named.rows) == (40_000, 2)
