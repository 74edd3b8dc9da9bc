"""Rows that Kafka no longer has: each is named, and what lacks one says so, whoever is told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mars.core.plan import LatePolicy
from mars.core.types import Entry, Range, Sequence64
from mars.core.windows import Cumulating
from mars.engine.codec.dead import DeadRange, decode_dead
from mars.engine.kernel import map_gone
from mars.protocol.ports import Ledger
from mars.protocol.reducer.task_in_bucket import TaskInBucket
from mars.protocol.windows.folding import Folding
from tests.unit.machines.bucket_parts import begin, commit, read
from tests.unit.machines.reducing_rows import (
    OWNER,
    P0,
    P1,
    SAVE_MS,
    make_entry,
    make_folding,
    make_frontier,
    make_gap,
    make_head,
    make_plan,
    make_progress,
    make_task,
    make_version,
)


def fold(merged: int = 0) -> Folding:
    """A folding whose last commit had accounted for so much of lane 0."""
    return make_folding(make_plan(), merged={P0: merged})


def completeness(folding: Folding) -> dict[int, bool]:
    """By the start of each window, in seconds: whether it is complete."""
    folding.reached(make_head(0, {}))
    windows = folding.state.close(folding.state.due(60_000))
    return {one.window.start_ms // 1000: one.complete for one in windows}


def gap_elsewhere(seq: int, first: int, after: int) -> Entry:
    """The log entry of a bucket that does not count the rows that are gone."""
    mapped = map_gone(make_plan(), 2, Range(P0, first, after))
    (partial,) = [one for one in mapped.partials if not one.rejections.ranges[0].rows]
    return Entry(Sequence64(seq), make_plan().version, mapped.ranges, partial)


def named(folding: Folding) -> list[tuple[int, int, int]]:
    """First, next and number of the rows that are named."""
    dead = [decode_dead(raw) for raw in folding.input.dead]
    return [(one.first, one.next, one.rows) for one in dead if isinstance(one, DeadRange)]


# ------------------------------------------------------------------------------------- gaps


def test_a_successor_knows_of_which_lanes_no_row_has_come_since_some_were_gone() -> None:
    folding = fold()
    folding.absorb(make_entry(1, 0, [(1, "a")]))
    folding.absorb(make_gap(2, 1, 9))

    successor = make_folding(make_plan(), merged={P0: 9}, gaps=folding.gaps.lanes)
    successor.absorb(make_entry(1, 0, [(1, "a")]))
    successor.absorb(make_entry(3, 0, [(25, "b")], lane=P1))
    assert completeness(successor) == {0: False, 20: False}

    successor.absorb(make_entry(4, 9, [(22, "a")]))
    successor.absorb(make_entry(5, 10, [(31, "a")]))
    assert completeness(successor) == {0: False, 20: False, 30: True}


@pytest.mark.parametrize(
    ("options", "next_s", "known", "spoilt"),
    [
        ({}, 18, True, {10}),
        ({"delay_ms": 5_000}, 14, True, {10}),
        ({"delay_ms": 5_000}, 14, False, {10, 20}),
        ({"delay_ms": 5_000}, 18, True, {10, 20}),
        ({"key_lag_ms": 5_000}, 18, True, {10, 20}),
        ({"late": LatePolicy.REVISE, "lateness_ms": 15_000}, 18, True, {10, 20, 30}),
    ],
)
def test_rows_that_are_gone_may_be_newer_than_the_next_one_by_what_rows_may_be_out_of_order(
    options: dict[str, Any], next_s: int, known: bool, spoilt: set[int]
) -> None:
    plan = make_plan(**options)
    folding = make_folding(plan, merged={P0: 0})
    folding.absorb(make_gap(1, 0, 9))
    folding.absorb(make_entry(2, 9, [(next_s, "a")], plan=plan))
    folding.reached(make_head(0, {P0: 0} if known else {}, next_s))
    folding.absorb(make_entry(3, 10, [(25, "a"), (35, "a"), (45, "a")], plan=plan))

    assert completeness(folding) == {start: start not in spoilt for start in (10, 20, 30, 40)}


def test_rows_of_another_lane_in_one_entry_do_not_end_a_gap() -> None:
    folding = fold()
    folding.absorb(make_gap(1, 0, 9))
    entry = make_entry(2, 0, [(12, "b")], lane=P1)
    folding.absorb(replace(entry, ranges=(Range(P0, 9, 11), *entry.ranges)))
    folding.absorb(make_entry(3, 11, [(25, "a"), (31, "a")]))

    assert completeness(folding) == {10: False, 20: False, 30: True}


@pytest.mark.parametrize("known", [True, False])
def test_panes_of_a_cycle_that_became_one_do_not_stand_for_the_next_row(known: bool) -> None:
    # cycle      |----a----|----a----|----a----|      the base has the first rows in one pane, at
    # gone            ~~~~~~~                         the cycle's start: the gap ends in the second
    plan = make_plan(window=Cumulating(20_000, 5_000))
    folding = make_folding(plan, merged={P0: 0})
    folding.absorb(make_entry(1, 0, [(1, "a"), (7, "a")], plan=plan))
    folding.absorb(make_gap(2, 2, 9))
    after = [make_entry(3, 9, [(22, "a")], plan=plan), make_entry(4, 10, [(28, "a")], plan=plan)]
    through = 9
    if known:
        for entry in after:
            folding.absorb(entry)
        folding.reached(make_head(0, {P0: 0}, 28))
        through = 11
    folding.committed(make_frontier({P0: through}, 30_000 if known else 10_000), Ledger())
    (base,) = folding.bases(Sequence64(4 if known else 2), {P0: through})
    source, frontier = folding.gaps, folding.state.frontier
    successor = make_folding(
        plan,
        merged=frontier.merged,
        closed_ms=frontier.closed_ms,
        forgotten_ms=frontier.forgotten_ms,
        gaps=source.lanes,
        incomplete_before_ms=source.before_ms,
    )

    successor.absorb_base(base)
    for entry in () if known else after:
        successor.absorb(entry)
    successor.absorb(make_entry(5, 11, [(31, "a"), (47, "a")], plan=plan))

    assert completeness(successor) == {20: False, 40: True} | ({} if known else {0: False})


def test_the_record_tells_the_next_owner_of_the_gap() -> None:
    part = begin()
    read(part, make_head(1, {P0: 2, P1: 0}), make_gap(1, 0, 2))
    (record,) = commit(part)
    successor = begin(record)
    read(successor, make_head(2, {P0: 2, P1: 1}, mark_s=30), make_entry(2, 0, [(1, "x")], lane=P1))

    (batch,) = successor.prepare().results
    assert dict(batch.headers)["mars-complete"] == b"0"


# ------------------------------------------------------------------------------------ names


@pytest.mark.parametrize("merged", [0, 9])
def test_every_bucket_names_rows_that_are_gone_because_it_may_go_on_alone(merged: int) -> None:
    folding = fold(merged)
    folding.absorb(gap_elsewhere(1, 0, 9))

    assert named(folding) == [(0, 9, 0)]


def test_rows_that_are_gone_are_named_for_the_others_though_saved_panes_hold_the_own_ones() -> None:
    saved = fold(9)
    saved.absorb(make_entry(1, 0, [(1, "a")] * 9))
    folding = fold(9)
    folding.absorb_base(saved.bases(Sequence64(0), {P0: 9})[0])
    folding.absorb(make_gap(1, 0, 9))

    assert named(folding) == [(0, 9, 9)]
    assert completeness(folding) == {0: True}


# ----------------------------------------------------------------------------------- ledger


def test_an_older_version_whose_rows_are_gone_is_done_once_its_record_says_so() -> None:
    record = make_progress(
        {P0: 2, P1: 1}, needed={P0: 0, P1: 0}, ledger=Ledger(read=3, counted=3), emit=1
    )
    task = make_task(make_version(1), make_version(2, {P0: 2, P1: 1}))
    part = TaskInBucket(task, OWNER, {1: record}, SAVE_MS)
    read(part, make_head(1, {P0: 3, P1: 0}, mark_s=30), make_gap(1, 0, 2))
    assert [(one.version, one.ledger.open) for one in commit(part)] == [(1, 3), (2, 0)]

    part.drained(make_head(1, {P0: 3, P1: 1}, mark_s=30))
    assert part.stale()
    assert [(one.version, one.ledger.open) for one in commit(part)] == [(1, 0), (2, 0)]
    assert [one.version for one in commit(part)] == [2]
