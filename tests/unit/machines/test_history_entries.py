"""Entries of several lanes, as backfills make them, and lanes with an end, in the reducers.

seq 1   0@b1 [0, 2)   1@b1 [0, 2)      one chunk: taken, accounted and trimmed as a whole
seq 2   0@b1 [2, 4)   1@b1 [2, 4)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from mars.core.types import Entry, Lane, Records, Sequence64
from mars.engine.combining import combine
from mars.engine.kernel import decode, map_batch
from mars.protocol.ports import Head, Progress
from mars.protocol.reducer.task_in_bucket import TaskInBucket
from mars.protocol.windows.input import StoreWentBack
from tests.unit.machines.reducing_rows import (
    OWNER,
    P0,
    SAVE_MS,
    STREAM,
    RowSpec,
    balanced,
    counts_of,
    make_entry,
    make_head,
    make_plan,
    make_progress,
    make_slice,
    make_task,
    make_version,
    message,
)

H0, H1 = Lane("0@b1"), Lane("1@b1")
ENDS = {H0: 4, H1: 4}
STARTS = {P0: 4, H0: 0, H1: 0}


def chunk(seq: int, first: int, rows: Mapping[Lane, Sequence[RowSpec]]) -> Entry:
    """What a chunk leaves in the one bucket: rows of each lane from `first` on."""
    plan, pieces = make_plan(), []
    for lane, some in rows.items():
        offsets = range(first, first + len(some))
        values = [message(row) for row in some]
        records = Records(lane, first, offsets.stop, values, offsets, [-1] * len(some))
        pieces.append(map_batch(plan, 1, decode(STREAM, plan.fields, records)))
    mapped = combine(plan, pieces)
    (partial,) = mapped.partials
    return Entry(Sequence64(seq), plan.version, mapped.ranges, partial)


CHUNKS = (
    chunk(1, 0, {H0: [(1, "x"), (5, "y")], H1: [(2, "x"), (12, "x")]}),
    chunk(2, 2, {H0: [(13, "x"), (25, "x")], H1: [(14, "y"), (21, "x")]}),
)
LIVE = make_entry(3, 4, [(31, "x"), (45, "x")])


def begin(*records: Progress) -> TaskInBucket:
    task = make_task(make_version(1, STARTS))
    return TaskInBucket(task, OWNER, {record.version: record for record in records}, SAVE_MS)


def head(seq: int, offsets: Mapping[Lane, int], marks_s: Mapping[Lane, int]) -> Head:
    made = make_head(seq, offsets, ends=ENDS)
    return replace(made, marks_ms={lane: second * 1_000 for lane, second in marks_s.items()})


def read(part: TaskInBucket, found: Head, *entries: Entry) -> None:
    part.absorb(make_slice(*entries))
    part.drained(found)


def commit(part: TaskInBucket) -> Progress:
    (record,) = part.prepare().progress
    part.committed(record)
    return record


def emitted(part: TaskInBucket) -> dict[tuple[int, str], int]:
    return counts_of(value for batch in part.prepare().results for value in batch.values)


FIRST = {P0: 4, H0: 2, H1: 2}
SECOND = {P0: 4, H0: 4, H1: 4}


# ------------------------------------------------------------------------------- the watermark


def test_an_unfinished_history_holds_the_watermark_by_its_mark_whatever_live_lanes_say() -> None:
    part = begin()
    read(part, head(1, {**FIRST, P0: 6}, {H0: 5, H1: 12, P0: 45}), CHUNKS[0])
    assert part.due() is None

    read(part, head(2, {**FIRST, P0: 6}, {H0: 10, H1: 12, P0: 45}))
    assert emitted(part) == {(0, "x"): 2, (0, "y"): 1}


def test_a_history_without_a_mark_holds_everything() -> None:
    part = begin()
    read(part, head(1, {**FIRST, P0: 6}, {H0: 45, P0: 45}), CHUNKS[0])

    assert part.due() is None


def test_a_finished_history_does_not_hold_the_watermark() -> None:
    part = begin()
    read(part, head(3, {**SECOND, P0: 6}, {H0: 25, P0: 45}), *CHUNKS, LIVE)

    assert emitted(part) == {
        (0, "x"): 2,
        (0, "y"): 1,
        (10, "x"): 2,
        (10, "y"): 1,
        (20, "x"): 2,
        (30, "x"): 1,
    }


def test_the_clock_closes_windows_once_history_is_finished_and_live_lanes_are_idle() -> None:
    part = begin()
    idle = replace(head(2, SECOND, {H0: 25, H1: 21}), idle=frozenset({P0}), now_ms=10**9)
    read(part, replace(idle, offsets={**SECOND, H1: 3}), *CHUNKS)
    assert set(emitted(part)) == {(0, "x"), (0, "y"), (10, "x"), (10, "y")}

    part.drained(idle)
    assert (20, "x") in emitted(part)


# ------------------------------------------------------------------------------- accounting


def test_rows_of_a_chunk_are_counted_once_and_the_ledger_balances() -> None:
    part = begin()
    read(part, head(2, SECOND, {P0: 30}), *CHUNKS)

    record = commit(part)

    assert (record.ledger.read, record.ledger.late, record.merged) == (8, 0, SECOND)
    assert balanced(record.ledger)


def test_what_is_needed_names_the_first_offset_of_each_lane_with_rows_in_an_open_window() -> None:
    part = begin()
    read(part, head(2, {**SECOND, H0: 4, H1: 3}, {P0: 30, H1: 20}), *CHUNKS)

    record = commit(part)

    assert record.closed_ms == 20_000
    assert record.needed == {P0: 4, H0: 2, H1: 2}


def test_chunks_below_what_is_accounted_only_rebuild_open_windows() -> None:
    first = begin()
    read(first, head(1, FIRST, {H0: 10, H1: 12, P0: 45}), CHUNKS[0])
    record = commit(first)
    assert record.needed == {P0: 4, H0: 2, H1: 0}

    part = begin(record)
    read(part, head(2, SECOND, {P0: 45}), *CHUNKS)

    assert emitted(part) == {(10, "x"): 2, (10, "y"): 1, (20, "x"): 2}
    assert commit(part).ledger.read == 8


def test_only_what_is_needed_of_a_chunk_may_come_again_after_a_loss() -> None:
    """L differs by lane: the bulk process then maps the part of the chunk that lies above it."""
    first = begin()
    read(first, head(1, FIRST, {H0: 10, H1: 12, P0: 45}), CHUNKS[0])
    record = commit(first)
    rest = chunk(1, 0, {H1: [(2, "x"), (12, "x")]})

    part = begin(record)
    again = replace(CHUNKS[1], seq=Sequence64(2))
    read(part, head(2, SECOND, {P0: 45}), rest, again)

    assert emitted(part) == {(10, "x"): 2, (10, "y"): 1, (20, "x"): 2}


@pytest.mark.parametrize("merged", [{P0: 4, H0: 2, H1: 0}, {P0: 4, H0: 1, H1: 1}])
def test_a_chunk_on_both_sides_of_what_is_accounted_means_that_the_store_went_back(
    merged: dict[Lane, int],
) -> None:
    part = begin(make_progress(merged))

    with pytest.raises(StoreWentBack, match="straddles"):
        part.absorb(make_slice(CHUNKS[0]))


def test_a_chunk_whose_second_range_was_read_before_means_that_the_store_went_back() -> None:
    part = begin()
    part.absorb(make_slice(CHUNKS[0]))
    overlapping = chunk(2, 1, {H1: [(14, "y"), (21, "x")]})

    with pytest.raises(StoreWentBack, match="1@b1"):
        part.absorb(make_slice(overlapping))


# ---------------------------------------------------------------------------- trimming, bases


def test_an_entry_is_trimmed_once_no_lane_of_it_is_needed() -> None:
    part = begin()
    read(part, head(1, FIRST, {H0: 10, H1: 12, P0: 45}), CHUNKS[0])
    commit(part)
    assert part.upkeep.trim() == ()

    read(part, head(2, SECOND, {P0: 22}), CHUNKS[1])
    commit(part)
    assert part.upkeep.trim() == (1,)

    part.drained(head(2, SECOND, {P0: 45}))
    commit(part)
    assert part.upkeep.trim() == (2,)


def test_a_base_of_chunks_carries_each_panes_first_offset_of_every_lane() -> None:
    part = begin()
    read(part, head(2, SECOND, {P0: 10}), *CHUNKS)
    record = commit(part)

    (base,) = part.upkeep.bases()

    firsts = {pane.start_ms: dict(pane.first) for pane in base.partial.panes}
    assert firsts == {10_000: {H0: 2, H1: 0}, 20_000: {H0: 2, H1: 2}}
    assert {one.lane: (one.first, one.next) for one in base.ranges} == {
        P0: (4, 4),
        H0: (2, 4),
        H1: (0, 4),
    }
    successor = begin(record)
    successor.absorb(make_slice(LIVE, base=base))
    successor.drained(head(3, {**SECOND, P0: 6}, {P0: 45}))
    assert emitted(successor) == {(10, "x"): 2, (10, "y"): 1, (20, "x"): 2, (30, "x"): 1}
