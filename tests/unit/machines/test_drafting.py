"""Windows that are drafted before they close: when, and what becomes of the draft."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Unpack

import polars as pl
import pytest

from mars.core.plan import (
    Call,
    Column,
    Function,
    LatePolicy,
    Literal,
    Plan,
    ValueType,
    WatermarkScope,
)
from mars.core.types import Lane, TaskName, Topic
from mars.core.windows import Window
from mars.engine.codec.checksum import checksum
from mars.engine.finishing import Finished, finish
from mars.protocol.ports import Head, ResultBatch
from mars.protocol.reducer.commit_plan import OwnerLimits
from mars.protocol.reducer.drafting import (
    DRAFT_MS,
    DRAFT_MS_MAX,
    DRAFT_PAUSE_MS,
    DRAFT_PAUSE_MS_MAX,
    DRAFT_TOGETHER_MS,
    DraftFigures,
    Drafting,
    early_ms,
)
from mars.protocol.reducer.events import CommitTransaction, FailTask, WriteDraft
from mars.protocol.runnable import RunnableTask
from tests.unit.machines.owned_bucket import LIMITS, OTHER, Bucket, names, only
from tests.unit.machines.reducing_rows import (
    NAME,
    P0,
    PlanOptions,
    RowSpec,
    counts_of,
    make_entry,
    make_gap,
    make_head,
    make_plan,
    make_task,
    make_version,
)
from tests.unit.machines.reducing_world import BUCKETS, Reducer, World, counted

DELAY_MS = 4_000
DRAFTS = replace(LIMITS, draft_rows_min=1, large_task_rows=100)


def task(name: str = NAME, **options: Unpack[PlanOptions]) -> RunnableTask:
    options.setdefault("delay_ms", DELAY_MS)
    return make_task(name=name, **options)


def head(seq: int, mark_ms: int, offsets: Mapping[Lane, int] | None = None) -> Head:
    """A look; the window [0, 10 s) closes when the mark is 14 s."""
    return make_head(seq, offsets or {P0: seq}, marks_ms={P0: mark_ms})


def owned(*tasks: RunnableTask, limits: OwnerLimits = DRAFTS) -> Bucket:
    here = Bucket(*(tasks or (task(),)), limits=limits)
    here.own()
    return here


def drafted(here: Bucket, rows: Sequence[RowSpec] = ((1, "x"), (2, "y"))) -> WriteDraft:
    """The window's rows have come, and it is about to close."""
    here.read(head(1, 13_500), make_entry(1, 0, rows))
    return only(here.machine.ticked(1), WriteDraft)


def values(results: Sequence[ResultBatch]) -> dict[tuple[int, str], int]:
    return counts_of(value for batch in results for value in batch.values)


# ------------------------------------------------------------------------------------- when


def test_a_window_is_drafted_shortly_before_it_closes() -> None:
    here = owned()
    rows = make_entry(1, 0, [(1, "x"), (2, "x")])
    here.read(head(1, 14_000 - DRAFT_MS - 1), rows)
    assert here.machine.ticked(1) == []

    here.read(head(1, 14_000 - DRAFT_MS))
    draft = only(here.machine.ticked(2), WriteDraft)

    assert values(draft.results) == {(0, "x"): 2}
    assert (draft.term, draft.next) == (here.term, here.position)


@pytest.mark.parametrize(
    ("delay_ms", "early"), [(0, 0), (100, 50), (2 * DRAFT_MS, DRAFT_MS), (60_000, DRAFT_MS)]
)
def test_no_more_than_half_a_tasks_delay_before(delay_ms: int, early: int) -> None:
    assert early_ms(make_plan(delay_ms=delay_ms)) == early


def test_where_rows_are_few_there_is_no_draft() -> None:
    here = owned(limits=replace(DRAFTS, draft_rows_min=3))
    here.read(head(1, 13_900), make_entry(1, 0, [(1, "x"), (2, "y")]))
    assert here.machine.ticked(1) == []
    here.read(head(2, 13_900, {P0: 3}), make_entry(2, 2, [(1, "z")]))
    assert len(values(only(here.machine.ticked(2), WriteDraft).results)) == 3


def test_it_can_be_switched_off() -> None:
    here = owned(limits=replace(DRAFTS, draft_rows_min=0))
    here.read(head(1, 13_900), make_entry(1, 0, [(1, "x")]))
    assert here.machine.ticked(1) == []


def test_where_another_bucket_writes_to_the_same_partition_there_is_no_draft() -> None:
    here = owned(limits=replace(DRAFTS, buckets=3))
    here.read(head(1, 13_900), make_entry(1, 0, [(1, "x")]))
    assert here.machine.ticked(1) == []


def test_where_groups_close_apart_there_is_no_draft() -> None:
    scoped = task(watermark=WatermarkScope.KEY, key_lag_ms=1_000)
    here = owned(scoped)
    (plan,) = scoped.plans.values()
    here.read(head(1, 14_900), make_entry(1, 0, [(1, "x")], plan=plan))
    assert here.machine.ticked(1) == []


def both(here: Bucket, mark_ms: int, *rows: RowSpec, seq: int = 1) -> None:
    """Both tasks of a bucket hear of these rows, or of nothing but the mark."""
    for name in (NAME, OTHER):
        entries = [make_entry(seq, 0, rows, plan=make_plan(name))] if rows else []
        here.read(head(seq, mark_ms), *entries, name=TaskName(name))


def draft_of(here: Bucket, now_ms: int = 0) -> WriteDraft:
    """The draft of a bucket with several tasks: the first waits a moment for the others."""
    assert here.machine.ticked(now_ms) == []
    return only(here.machine.ticked(now_ms + DRAFT_TOGETHER_MS), WriteDraft)


def test_all_tasks_of_a_bucket_are_in_one_draft_and_in_one_commit() -> None:
    here = owned(task(), task(OTHER))
    both(here, 13_900, (1, "x"))
    draft = draft_of(here)
    both(here, 14_000)
    commit = only(here.machine.ticked(100), CommitTransaction)

    assert [batch.task for batch in draft.results] == [NAME, OTHER]
    assert commit.transaction.results == draft.results
    assert names(commit) == [NAME, OTHER]


def test_tasks_that_hear_of_it_one_after_the_other_are_drafted_together() -> None:
    here = owned(task(), task(OTHER))
    entry = make_entry(1, 0, [(1, "x")], plan=make_plan(OTHER))
    here.read(head(1, 13_900), entry, name=OTHER)
    assert here.machine.ticked(0) == []
    here.read(head(1, 13_900), make_entry(1, 0, [(1, "x")]))

    draft = only(here.machine.ticked(DRAFT_TOGETHER_MS), WriteDraft)

    assert [batch.task for batch in draft.results] == [NAME, OTHER]


def test_drafted_tasks_wait_for_each_other_for_a_moment_when_they_are_due() -> None:
    here = owned(task(), task(OTHER))
    both(here, 13_900, (1, "x"))
    draft = draft_of(here)
    here.read(head(1, 14_000))
    assert here.machine.ticked(100) == []
    here.read(head(1, 14_000), name=OTHER)

    commit = only(here.machine.ticked(110), CommitTransaction)

    assert commit.transaction.results == draft.results


def test_they_do_not_wait_for_longer_than_a_moment() -> None:
    here = owned(task(), task(OTHER))
    both(here, 13_900, (1, "x"))
    draft_of(here)
    here.read(head(1, 14_000))
    assert here.machine.ticked(100) == []

    commit = only(here.machine.ticked(100 + DRAFT_TOGETHER_MS), CommitTransaction)

    assert names(commit) == [NAME]


def test_what_is_due_beside_a_draft_is_committed_after_it() -> None:
    here = owned(task(), task(OTHER))
    here.read(head(1, 13_900), make_entry(1, 0, [(1, "x")]))
    draft = draft_of(here)
    entry = make_entry(1, 0, [(1, "y")], plan=make_plan(OTHER))
    here.read(head(1, 14_000), entry, name=OTHER)
    here.read(head(1, 14_000))

    first = only(here.machine.ticked(100), CommitTransaction)
    here.commit(first)
    second = only(here.machine.ticked(101), CommitTransaction)

    assert first.transaction.results == draft.results
    assert [batch.task for batch in second.transaction.results] == [OTHER]


def test_what_is_due_before_the_draft_does_not_wait_for_it() -> None:
    here = owned(task(), task(OTHER))
    here.read(head(1, 13_900), make_entry(1, 0, [(1, "x")]))
    draft_of(here)
    entry = make_entry(1, 0, [(1, "y")], plan=make_plan(OTHER))
    here.read(head(1, 14_000), entry, name=OTHER)

    assert names(only(here.machine.ticked(100), CommitTransaction)) == [OTHER]


def test_a_large_task_is_drafted_alone_or_not_at_all() -> None:
    rows = [(1, f"k{number}") for number in range(4)]
    alone = owned(limits=replace(DRAFTS, large_task_rows=3))
    alone.read(head(1, 13_900), make_entry(1, 0, rows))
    only(alone.machine.ticked(0), WriteDraft)

    here = owned(task(), task(OTHER), limits=replace(DRAFTS, large_task_rows=3))
    both(here, 13_900, *rows)
    assert here.machine.ticked(0) == []
    assert here.machine.ticked(DRAFT_TOGETHER_MS) == []


def test_a_task_that_cannot_be_drafted_fails_alone() -> None:
    here = owned(task(max_keys=1), task(OTHER))
    for name in (NAME, OTHER):
        rows = make_entry(1, 0, [(1, "x")], plan=make_plan(name))
        more = make_entry(2, 1, [(1, "y")], plan=make_plan(name))
        here.read(head(2, 13_900), rows, more, name=TaskName(name))
    assert here.machine.ticked(0) == []

    assert only(here.machine.ticked(DRAFT_TOGETHER_MS), FailTask).task == NAME
    here.read(head(2, 13_950), name=OTHER)
    draft = only(here.machine.ticked(100), WriteDraft)
    assert {batch.task for batch in draft.results} == {OTHER}


# ------------------------------------------------------------------------------ what becomes of it


def test_the_commit_takes_the_rows_of_the_draft_as_they_are() -> None:
    here = owned()
    draft = drafted(here)
    entry = make_entry(2, 2, [(15, "x")])
    here.read(head(2, 13_900, {P0: 3}), entry)
    assert here.machine.ticked(2) == []

    here.read(head(2, 14_000, {P0: 3}))
    commit = only(here.machine.ticked(3), CommitTransaction)

    (record,) = commit.transaction.progress
    assert all(
        mine is theirs
        for mine, theirs in zip(commit.transaction.results, draft.results, strict=True)
    )
    assert record.merged == {P0: 3}
    assert record.emission is not None
    written = [value for batch in draft.results for value in batch.values]
    assert (record.emission.count, record.emission.checksum) == (2, checksum(written))
    assert record.ledger.emitted == 2
    here.commit(commit)


def test_a_row_that_comes_after_it_takes_the_draft_back() -> None:
    here = owned()
    drafted(here)
    here.read(head(2, 13_900, {P0: 3}), make_entry(2, 2, [(9, "x")]))

    assert only(here.machine.ticked(2), WriteDraft).results == ()
    here.read(head(2, 14_000, {P0: 3}))
    commit = only(here.machine.ticked(3), CommitTransaction)
    assert values(commit.transaction.results) == {(0, "x"): 2, (0, "y"): 1}


def test_a_row_and_the_end_of_the_window_may_come_together() -> None:
    here = owned()
    draft = drafted(here)
    here.read(head(2, 14_000, {P0: 3}), make_entry(2, 2, [(9, "z")]))

    commit = only(here.machine.ticked(2), CommitTransaction)

    assert commit.transaction.results != draft.results
    assert values(commit.transaction.results) == {(0, "x"): 1, (0, "y"): 1, (0, "z"): 1}


def test_rows_that_are_found_gone_after_it_make_its_windows_incomplete() -> None:
    here = owned()
    draft = drafted(here)
    here.read(head(2, 14_000, {P0: 9}), make_gap(2, 2, 9))

    commit = only(here.machine.ticked(2), CommitTransaction)

    assert values(commit.transaction.results) == values(draft.results)
    headers = [dict(batch.headers) for batch in commit.transaction.results]
    assert {one["mars-complete"] for one in headers} == {b"0"}


def test_a_revision_that_comes_with_the_commit_is_emitted_though_the_draft_still_stands() -> None:
    here = owned(task(late=LatePolicy.REVISE, lateness_ms=30_000))
    here.read(head(1, 15_000, {P0: 2}), make_entry(1, 0, [(1, "x"), (11, "y")]))
    here.commit(only(here.machine.ticked(1), CommitTransaction))
    here.read(head(1, 23_500, {P0: 2}))
    draft = only(here.machine.ticked(2), WriteDraft)
    assert values(draft.results) == {(10, "y"): 1}

    here.read(head(2, 24_000, {P0: 3}), make_entry(2, 2, [(2, "x")]))
    commit = only(here.machine.ticked(3), CommitTransaction)

    assert values(commit.transaction.results) == {(0, "x"): 2, (10, "y"): 1}


def test_two_windows_may_close_where_one_was_drafted() -> None:
    here = owned()
    drafted(here)
    here.read(head(2, 24_000, {P0: 3}), make_entry(2, 2, [(15, "z")]))

    commit = only(here.machine.ticked(2), CommitTransaction)

    assert values(commit.transaction.results) == {(0, "x"): 1, (0, "y"): 1, (10, "z"): 1}


def test_a_draft_whose_window_does_not_close_is_taken_back_once() -> None:
    here = owned()
    drafted(here)
    assert here.machine.ticked(DRAFT_MS_MAX) == []
    assert only(here.machine.ticked(DRAFT_MS_MAX + 1), WriteDraft).results == ()
    assert here.machine.ticked(DRAFT_MS_MAX + 2) == []


def test_progress_that_cannot_wait_is_committed_without_the_draft() -> None:
    here = owned(limits=replace(DRAFTS, log_bytes_max=100))
    here.read(
        make_head(1, {P0: 2}, marks_ms={P0: 13_500}, log_bytes=10),
        make_entry(1, 0, [(1, "x"), (2, "y")]),
    )
    only(here.machine.ticked(1), WriteDraft)
    crowded = make_head(2, {P0: 3}, marks_ms={P0: 13_600}, log_bytes=90)
    here.read(crowded, make_entry(2, 2, [(15, "x")]))

    commit = only(here.machine.ticked(2), CommitTransaction)
    assert commit.transaction.results == ()
    here.commit(commit)
    here.read(make_head(2, {P0: 3}, marks_ms={P0: 14_000}))
    due = only(here.machine.ticked(3), CommitTransaction)
    assert values(due.transaction.results) == {(0, "x"): 1, (0, "y"): 1}
    assert due.transaction.progress[0].emit == 2


def test_a_new_version_takes_the_draft_back() -> None:
    here = owned()
    drafted(here)
    here.change(task())

    assert only(here.machine.ticked(2), WriteDraft).results == ()


def test_a_draft_that_fails_is_forgotten_with_all_else() -> None:
    here = owned()
    drafted(here)
    here.fail()
    here.assign(epoch=2)
    here.claim()
    here.read(head(1, 13_500), make_entry(1, 0, [(1, "x")]))

    assert values(only(here.machine.ticked(2), WriteDraft).results) == {(0, "x"): 1}


def test_a_task_made_anew_does_not_fail_for_the_draft_of_the_one_before() -> None:
    here = owned()
    drafted(here)
    here.change(make_task(make_version(2), first_version=2))
    assert only(here.machine.ticked(2), WriteDraft).results == ()
    here.due(version=2)

    assert here.refuse() == []


def test_a_draft_may_be_refused() -> None:
    here = owned()
    drafted(here)

    assert here.refuse() == [FailTask(NAME, (1, 0), "why")]


def test_a_window_none_of_whose_groups_pass_is_finished_only_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = task()
    none = Call(
        Function.GREATER,
        (Column("a0", ValueType.INT64), Literal(9, ValueType.INT64)),
        ValueType.BOOL,
    )
    plans = {version: replace(plan, having=none) for version, plan in made.plans.items()}
    here = owned(replace(made, plans=plans))
    finished: list[int] = []

    def noting(plan: Plan, states: pl.DataFrame, window: Window) -> Finished:
        finished.append(window.start_ms)
        return finish(plan, states, window)

    monkeypatch.setattr("mars.protocol.windows.pane_state.finish", noting)
    here.read(head(1, 13_500), make_entry(1, 0, [(1, "x"), (2, "y")]))
    assert here.machine.ticked(1) == []
    here.read(head(1, 13_900))
    assert here.machine.ticked(2) == []
    here.read(head(1, 14_000))
    commit = only(here.machine.ticked(3), CommitTransaction)

    assert commit.transaction.results == ()
    assert finished == [0]


# ---------------------------------------------------------------------------------------- pauses


class Soon:
    """A task with a window that is about to close, always."""

    def closes_soon(self) -> bool:
        return True

    def draft_rows(self, buckets: int) -> int | None:
        return buckets

    def draft_stands(self) -> bool:
        return True


BATCH = ResultBatch(NAME, 1, Topic("out"), 0, [b"[0]"], [b"{}"], ())


def test_after_drafts_of_no_use_there_is_none_for_a_while_and_longer_each_time() -> None:
    drafting, soon, now_ms = Drafting(1, 100, 1), {NAME: Soon()}, 0
    pauses = [DRAFT_PAUSE_MS << number for number in range(6)] + [DRAFT_PAUSE_MS_MAX] * 2
    for pause_ms in pauses:
        assert drafting.wanted(now_ms, soon) == [NAME]
        drafting.begin(now_ms, [NAME], [BATCH])
        drafting.end(now_ms, [])
        assert drafting.wanted(now_ms + pause_ms - 1, soon) == []
        now_ms += pause_ms


def test_drafts_that_are_of_use_make_the_pause_short_again() -> None:
    drafting, soon = Drafting(1, 100, 1), {NAME: Soon()}
    for results in ([], [], [BATCH], [BATCH]):
        drafting.begin(0, [NAME], [BATCH])
        drafting.end(0, results)
    drafting.begin(10**9, [NAME], [BATCH])
    drafting.end(10**9, [])
    assert drafting.wanted(10**9 + DRAFT_PAUSE_MS, soon) == [NAME]
    assert drafting.figures == DraftFigures(committed=2, taken_back=3)


# -------------------------------------------------------------------------- with a sink behind it


@pytest.mark.parametrize("draft_rows_min", [0, 1])
def test_drafted_or_not_the_same_rows_come_out(
    draft_rows_min: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mars.protocol.reducer.drafting.DRAFT_MS", 2_000)
    rows: list[RowSpec] = [(number // 2, f"k{number % 7}") for number in range(80)]
    here = World(task(), draft_rows_min=draft_rows_min, output_partitions=BUCKETS)
    here.assign(dict.fromkeys(range(BUCKETS), "r1"))
    reducer = Reducer(here, "r1")
    for first in range(0, 80, 2):
        for lane in ("0", "1"):
            here.append(NAME, lane, first, rows[first : first + 2])
        reducer.run(1)

    assert here.emitted(NAME) == counted([*rows, *rows], 30)
    assert bool(reducer.drafts) is bool(draft_rows_min)
