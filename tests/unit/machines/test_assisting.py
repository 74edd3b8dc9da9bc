"""Which segments fall to which assistant, and what is merged of one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mars.core.plan import OverMaxKeys, Plan
from mars.core.types import (
    AssignmentEpoch,
    Bucket,
    Entry,
    LeaderEpoch,
    MemberId,
    Range,
    Reason,
    RejectedRange,
    Rejections,
    Sequence64,
    StoreEpoch,
)
from mars.protocol.ports import Assignment, Owner
from mars.protocol.reducer import assisting
from mars.protocol.reducer.assisting import (
    SEGMENT_SEQS,
    SHRINKAGE_RUNS_MIN,
    Assist,
    Merged,
    Shrinkage,
    assists_of,
    merged_entries,
    segments,
)
from mars.protocol.reducer.task_in_bucket import TaskInBucket
from tests.unit.machines.reducing_rows import (
    OWNER,
    P0,
    P1,
    SAVE_MS,
    balanced,
    make_entry,
    make_head,
    make_plan,
    make_slice,
    make_task,
)

A, B, C = (MemberId(name) for name in "abc")
PLAN = make_plan()


def assist(place: int = 0, count: int = 1) -> Assist:
    return Assist(Bucket(0), AssignmentEpoch(1), StoreEpoch(1), place, count)


def given_to(after: int, head: int, place: int = 0, count: int = 1) -> list[tuple[int, int]]:
    found = segments(assist(place, count), Sequence64(after), Sequence64(head))
    return [(segment.after, segment.upto) for segment in found]


# -------------------------------------------------------------------------------------- who merges


def test_the_assignment_says_whom_a_reducer_assists() -> None:
    owners = {Bucket(0): Owner(A, AssignmentEpoch(3)), Bucket(1): Owner(B, AssignmentEpoch(4))}
    helped = {Bucket(0): (B, C), Bucket(1): (C,), Bucket(2): (C,)}
    assignment = Assignment(LeaderEpoch(1), StoreEpoch(7), owners, helped)

    assert assists_of(C, assignment) == (
        Assist(Bucket(0), AssignmentEpoch(3), StoreEpoch(7), 1, 2),
        Assist(Bucket(1), AssignmentEpoch(4), StoreEpoch(7), 0, 1),
    )
    assert assists_of(A, assignment) == ()
    assert assists_of(A, None) == ()
    assert assists_of(B, replace(assignment, assistants={Bucket(1): (B,)})) == ()


def test_segments_begin_above_what_is_cleared_and_end_where_they_are_whole() -> None:
    assert given_to(0, SEGMENT_SEQS - 1) == []
    assert given_to(0, SEGMENT_SEQS) == [(0, 16)]
    assert given_to(5, 40) == [(5, 16), (16, 32)]
    assert given_to(16, 40) == [(16, 32)]
    assert given_to(32, 40) == []


@given(after=st.integers(0, 200), more=st.integers(0, 200), count=st.integers(1, 4))
def test_each_whole_segment_falls_to_one_assistant(after: int, more: int, count: int) -> None:
    head = after + more

    found = sorted(
        segment for place in range(count) for segment in given_to(after, head, place, count)
    )

    assert found == given_to(after, head)
    seqs = [seq for low, high in found for seq in range(low + 1, high + 1)]
    assert seqs == list(range(after + 1, after + 1 + len(seqs)))
    assert head - (after + len(seqs)) < SEGMENT_SEQS or not seqs


# ----------------------------------------------------------------------------------- what is merged


def rows(number: int) -> list[tuple[int, str]]:
    """Of each batch: five rows in two windows, one that cannot be read."""
    return [(number, "x"), (number, "y"), (11, "x"), (11, f"k{number % 3}"), (12, "z"), (3, "")]


def batches(count: int, after: int = 0) -> list[Entry]:
    """Two lanes by turns; both skip offsets, as where batches have nothing for the bucket."""
    return [
        make_entry(
            after + number + 1, (after + number) // 2 * 10, rows(number), (P0, P1)[number % 2]
        )
        for number in range(count)
    ]


def gone(entry: Entry) -> Entry:
    lost = RejectedRange(P0, 0, 5, Reason.GONE, 5)
    return replace(entry, partial=replace(entry.partial, rejections=Rejections((), (lost,))))


def worth_it(plan: Plan, entries: Sequence[Entry]) -> list[Entry]:
    """What an assistant writes."""
    return [merged.entry for merged in merged_entries(plan, entries) if merged.worth_it]


def read(*entries: Entry) -> TaskInBucket:
    """What an owner makes of a log."""
    part = TaskInBucket(make_task(), OWNER, {}, SAVE_MS)
    part.absorb(make_slice(*entries))
    part.drained(make_head(entries[-1].seq, {P0: 1_000, P1: 1_000}, mark_s=20))
    return part


def test_a_merged_entry_is_worth_what_it_stands_for() -> None:
    entries = batches(8)

    (merged,) = worth_it(PLAN, entries)

    single, several = read(*entries), read(merged)
    assert several.position.last_seq == single.position.last_seq == 8
    one, other = single.prepare(), several.prepare()
    assert other.results == one.results
    assert other.dead == one.dead
    assert other.progress == one.progress
    assert balanced(other.progress[0].ledger)
    assert merged.merged == tuple(range(1, 9))


def test_the_offsets_of_each_lane_are_kept_with_their_gaps() -> None:
    (merged,) = worth_it(PLAN, batches(4))

    assert merged.ranges == (
        Range(P0, 0, 6), Range(P0, 10, 16), Range(P1, 0, 6), Range(P1, 10, 16)
    )  # fmt: skip


def test_offsets_that_meet_are_joined() -> None:
    entries = [make_entry(seq, seq * 6, rows(seq)) for seq in range(1, 4)]

    (merged,) = worth_it(PLAN, entries)

    assert merged.ranges == (Range(P0, 6, 24),)


def test_every_rejected_row_keeps_its_name() -> None:
    entries = batches(6)

    (merged,) = worth_it(PLAN, entries)

    named = [row for entry in entries for row in entry.partial.rejections.rows]
    assert list(merged.partial.rejections.rows) == named
    assert len(named) == 6


def runs(*entries: Entry) -> list[tuple[int, ...]]:
    return [merged.merged for merged in worth_it(PLAN, entries)]


def test_only_entries_of_the_current_version_that_follow_each_other_are_merged() -> None:
    one, two, three, four, five, six = batches(6)

    assert runs(one, two, replace(three, version=2), four, five, six) == [(1, 2), (4, 5, 6)]
    assert runs(one, replace(two, version=2), three) == []


def test_what_is_merged_already_is_left_as_it_is() -> None:
    entries = batches(6)
    (merged,) = worth_it(PLAN, entries[1:4])

    assert runs(entries[0], merged, *entries[4:]) == [(5, 6)]


def test_what_comes_after_rows_that_are_gone_is_not_merged_with_them() -> None:
    one, two, three, four, five = batches(5)

    assert runs(one, two, gone(three), four, five) == [(1, 2), (4, 5)]


def test_windows_that_may_lack_rows_say_so_though_it_is_not_known_which_came_next() -> None:
    first, *others = batches(5)
    (merged,) = worth_it(PLAN, others)

    single, several = read(gone(first), *others), read(gone(first), merged)

    def complete(part: TaskInBucket) -> int | None:
        return part.prepare().progress[0].incomplete_before_ms

    assert (complete(several) or 0) >= (complete(single) or 0) > 0


def test_the_number_of_rows_below_each_offset_is_kept() -> None:
    entries = [
        replace(one, partial=replace(one.partial, numbers={P0: {10 * one.seq: 3 * one.seq}}))
        for one in batches(3)
    ]

    (merged,) = merged_entries(PLAN, entries)

    assert merged.entry.partial.numbers == {P0: {10: 3, 20: 6, 30: 9}}


def test_what_merging_does_not_shrink_is_left_to_the_owner() -> None:
    entries = [
        make_entry(seq, seq * 400, [(1, f"k{seq}-{each}") for each in range(400)])
        for seq in range(1, 5)
    ]

    assert runs(*entries) == []
    (merged,) = merged_entries(PLAN, entries)
    assert merged.after_bytes > 0.9 * merged.before_bytes


def test_how_much_remained_is_a_mean_of_the_last_runs_once_there_are_some() -> None:
    (entry,) = batches(1)
    shrinkage = Shrinkage()
    for _ in range(SHRINKAGE_RUNS_MIN - 1):
        shrinkage = shrinkage.and_then(Merged(entry, 1_000, 900))
    assert shrinkage.remaining is None

    shrinkage = shrinkage.and_then(Merged(entry, 1_000, 900))
    assert shrinkage.remaining == pytest.approx(0.9)
    for _ in range(50):
        shrinkage = shrinkage.and_then(Merged(entry, 1_000, 100))
    assert shrinkage.remaining == pytest.approx(0.1, abs=0.01)


def test_the_tracker_is_told_of_each_entry() -> None:
    (merged,) = worth_it(PLAN, batches(4))
    tracked = TaskInBucket(make_task(), replace(OWNER, tracked=True), {}, SAVE_MS)

    tracked.absorb(make_slice(merged))

    assert tracked.take_accounted() == ((1, 1), (1, 2), (1, 3), (1, 4))


@pytest.mark.parametrize("max_keys", [2, 5])
def test_groups_beyond_a_limit_are_the_same_ones(max_keys: int) -> None:
    plan = make_plan(max_keys=max_keys, over_max_keys=OverMaxKeys.FOLD)
    entries = [
        make_entry(seq, seq * 3, [(1, f"k{seq + each}") for each in range(3)], plan=plan)
        for seq in range(1, 9)
    ]
    task = make_task(max_keys=max_keys, over_max_keys=OverMaxKeys.FOLD)

    def results(*log: Entry) -> object:
        part = TaskInBucket(task, OWNER, {}, SAVE_MS)
        part.absorb(make_slice(*log))
        part.drained(make_head(8, {P0: 1_000}, mark_s=20))
        return part.prepare().results

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assisting, "SHRINK_MAX", 10.0)
        (merged,) = worth_it(plan, entries)
    assert results(merged) == results(*entries)
