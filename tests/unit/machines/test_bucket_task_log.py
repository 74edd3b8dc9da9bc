"""What a task in a bucket keeps of its log: trimmed, merged, and told to the tracker."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mars.core.types import Lane, Sequence64, StoreEpoch
from mars.protocol.ports import Ledger, LogSlice, Progress, Snapshot
from mars.protocol.ports.seen import Seen
from mars.protocol.reducer.task_in_bucket import TaskInBucket
from mars.protocol.windows.input import StoreWentBack
from tests.unit.machines.bucket_parts import begin, commit, emitted, read, two_versions
from tests.unit.machines.reducing_rows import (
    OWNER,
    P0,
    P1,
    SAVE_MS,
    counts_of,
    make_entry,
    make_head,
    make_plan,
    make_progress,
    make_slice,
    make_task,
    make_version,
)

OWNER_TRACKED = replace(OWNER, tracked=True)


# ----------------------------------------------------------------------------------- trimming


def test_entries_are_trimmed_after_the_commit_that_closes_their_windows_and_not_before() -> None:
    part = begin()
    entries = make_entry(1, 0, [(1, "x")]), make_entry(2, 1, [(12, "x")])
    read(part, make_head(2, {P0: 2}, mark_s=12), *entries)
    assert part.upkeep.trim() == ()

    commit(part)
    assert part.upkeep.trim() == (1,)
    assert part.upkeep.trim() == ()


def test_an_entry_stays_while_an_older_version_needs_it() -> None:
    part = two_versions()
    commit(part)

    assert part.upkeep.trim() == ()
    part.drained(make_head(2, {P0: 3}, mark_s=10))
    commit(part)
    assert part.upkeep.trim() == (1, 2)


def test_a_base_stands_for_all_entries_of_an_only_version() -> None:
    part = begin()
    entries = make_entry(1, 0, [(1, "x")]), make_entry(2, 1, [(12, "x")])
    read(part, make_head(2, {P0: 2}, mark_s=5), *entries)
    commit(part)

    (base,) = part.upkeep.bases()

    assert (base.seq, [pane.start_ms for pane in base.partial.panes]) == (2, [0, 10_000])
    assert not part.upkeep.is_compactable(budget=0)
    assert part.upkeep.bases() == ()
    assert part.upkeep.empty_base(1) is None


def test_a_base_that_nobody_needs_any_more_is_replaced_by_an_empty_one() -> None:
    part = begin()
    entries = make_entry(1, 0, [(1, "x")]), make_entry(2, 1, [(2, "x")])
    read(part, make_head(2, {P0: 2}, mark_s=5), *entries)
    commit(part)
    assert part.upkeep.bases()
    part.drained(make_head(2, {P0: 2}, mark_s=10))
    commit(part)

    empty = part.upkeep.empty_base(1)

    assert empty is not None
    assert (empty.seq, empty.partial.panes, empty.partial.states) == (2, (), b"")
    assert part.upkeep.empty_base(1) is None


def test_over_the_budget_any_entry_is_merged_and_a_base_again_once_it_holds_what_is_closed() -> (
    None
):
    part = begin()
    entries = make_entry(1, 0, [(1, "x")]), make_entry(2, 1, [(12, "x")])
    read(part, make_head(2, {P0: 2}, mark_s=5, log_bytes=900), entries[0])
    commit(part)
    assert not part.upkeep.is_compactable(budget=900)
    assert part.upkeep.is_compactable(budget=899)

    assert part.upkeep.bases()
    part.absorb(make_slice(entries[1]))
    part.drained(make_head(2, {P0: 2}, mark_s=10, log_bytes=900))
    commit(part)
    (both,) = part.upkeep.bases()
    assert [pane.start_ms for pane in both.partial.panes] == [10_000]
    assert not part.upkeep.is_compactable(budget=899)

    part.drained(make_head(2, {P0: 2}, mark_s=20, log_bytes=900))
    commit(part)
    assert part.upkeep.is_compactable(budget=899)
    assert not part.upkeep.is_compactable(budget=900)


def test_a_new_owner_goes_on_from_a_base_and_the_entries_behind_it() -> None:
    first = begin()
    entries = make_entry(1, 0, [(1, "x")]), make_entry(2, 1, [(12, "x")])
    read(first, make_head(2, {P0: 2}, mark_s=5), *entries)
    (record,) = commit(first)
    (base,) = first.upkeep.bases()

    part = begin(record)
    rest = make_entry(3, 2, [(4, "x"), (13, "y")])
    read(part, make_head(3, {P0: 4}, mark_s=13), rest, base=base)

    assert emitted(part) == {(0, "x"): 2}
    assert commit(part)[0].ledger == Ledger(read=4, counted=4, emitted=2)
    part.drained(make_head(3, {P0: 4}, mark_s=20))
    assert emitted(part) == {(10, "x"): 1, (10, "y"): 1}


def test_reading_goes_on_behind_the_last_entry_or_the_head_if_that_is_further() -> None:
    part = begin()
    read(part, make_head(7, {P0: 3}), make_entry(1, 0, [(1, "x")] * 3))

    assert part.position.last_seq == Sequence64(7)
    assert part.position.through == {Lane("0"): 3}


def test_the_bases_of_two_versions_stand_for_all_entries_of_both() -> None:
    part = two_versions()
    records = commit(part)

    newer, older = part.upkeep.bases()

    assert [(base.version, base.seq) for base in (newer, older)] == [(2, 2), (1, 2)]
    assert not part.upkeep.is_compactable(budget=0)
    task = make_task(make_version(1), make_version(2, {P0: 2}))
    successor = TaskInBucket(task, OWNER, {record.version: record for record in records}, SAVE_MS)
    successor.absorb(LogSlice(newer, (), (older,)))
    successor.drained(make_head(2, {P0: 3}, mark_s=30))
    part.drained(make_head(2, {P0: 3}, mark_s=30))
    assert results_by_version(successor) == results_by_version(part)
    assert set(results_by_version(part)) == {1, 2}


def test_entries_behind_the_bases_of_two_versions_are_read_on() -> None:
    part = two_versions()
    records = commit(part)
    newer, older = part.upkeep.bases()
    task = make_task(make_version(1), make_version(2, {P0: 2}))
    successor = TaskInBucket(task, OWNER, {record.version: record for record in records}, SAVE_MS)
    rest = make_entry(3, 3, [(4, "y")], plan=make_plan(version=2))

    successor.absorb(LogSlice(newer, (rest,), (older,)))

    assert successor.position.last_seq == 3
    with pytest.raises(StoreWentBack, match="below 4"):
        successor.absorb(make_slice(make_entry(4, 2, [(4, "y")], plan=make_plan(version=2))))


def results_by_version(part: TaskInBucket) -> dict[int, dict[tuple[int, str], int]]:
    """What would be committed now, by version."""
    return {one.version: counts_of(one.values) for one in part.prepare().results}


# ------------------------------------------------------------------ merging what is read again


def lost_store() -> tuple[TaskInBucket, Progress]:
    """A bucket that had accounted offsets 0 to 4 of both lanes, and has read lane 0 again."""
    record = make_progress(
        {P0: 4, P1: 4}, needed={P0: 0, P1: 0}, ledger=Ledger(read=8, counted=8), emit=7
    )
    part = begin(record)
    entries = make_entry(1, 0, [(1, "x"), (2, "x")]), make_entry(2, 2, [(3, "x"), (13, "x")])
    ahead = make_entry(3, 4, [(14, "x")])
    read(part, make_head(3, {P0: 5, P1: 0}, mark_s=60), *entries, ahead)
    return part, record


def test_a_task_is_caught_up_once_each_of_its_versions_is() -> None:
    task = make_task(make_version(1), make_version(2, {P0: 2}))
    records = {1: make_progress({P0: 2}), 2: make_progress({P0: 5}, version=2)}
    part = TaskInBucket(task, OWNER, records, SAVE_MS)
    new = make_plan(version=2)
    read(part, make_head(2, {P0: 3}), make_entry(1, 0, [(1, "x")] * 2))
    assert not part.position.caught_up

    read(part, make_head(3, {P0: 5}), make_entry(3, 3, [(3, "x")] * 2, plan=new))
    assert part.position.caught_up


def test_a_task_that_is_not_caught_up_commits_progress_and_no_rows() -> None:
    part, _record = lost_store()
    assert not part.position.caught_up

    prepared = part.prepare()
    (record,) = prepared.progress

    assert prepared.results == ()
    assert (record.closed_ms, record.watermark_ms, record.emit) == (None, None, 8)
    assert (record.merged, record.needed) == ({P0: 5, P1: 4}, {P0: 0, P1: 0})
    assert (record.ledger.read, record.ledger.emitted) == (9, 0)


def test_what_was_read_again_is_merged_before_all_of_it_is_there() -> None:
    part, _record = lost_store()
    assert part.upkeep.is_compactable(budget=0)
    (record,) = commit(part)

    (base,) = part.upkeep.bases()

    assert {one.lane: (one.first, one.next) for one in base.ranges} == {P0: (0, 5), P1: (0, 0)}
    rest = make_entry(4, 0, [(5, "y"), (6, "y"), (7, "y"), (15, "y")], lane=P1)
    successor = begin(record)
    head = make_head(4, {P0: 5, P1: 4}, mark_s=60)
    read(successor, head, rest, base=base)
    read(part, head, rest)
    assert successor.position.caught_up
    assert (
        emitted(successor)
        == emitted(part)
        == {
            (0, "x"): 3,
            (0, "y"): 3,
            (10, "x"): 2,
            (10, "y"): 1,
        }
    )


# --------------------------------------------------------------------------------- the tracker


def test_the_next_owner_does_not_tell_the_tracker_again_what_was_counted_before() -> None:
    first = TaskInBucket(make_task(), OWNER_TRACKED, {}, SAVE_MS)
    entry, later = make_entry(1, 0, [(1, "x")]), make_entry(2, 1, [(1, "x")])
    read(first, make_head(1, {P0: 1}), entry)
    records = {record.version: record for record in commit(first)}
    assert first.take_accounted() == ((1, 1),)

    second = TaskInBucket(make_task(), OWNER_TRACKED, records, SAVE_MS)
    read(second, make_head(2, {P0: 2}), entry, later)
    (record,) = commit(second)

    assert second.take_accounted() == ((1, 2),)
    assert record.seen == Seen(0, 2, bytes([0b11]))


def test_an_owner_who_finds_records_without_a_tracker_does_not_claim_to_know_the_log() -> None:
    part = TaskInBucket(make_task(), OWNER_TRACKED, {1: make_progress({P0: 0})}, SAVE_MS)
    read(part, make_head(3, {P0: 1}), make_entry(2, 0, [(1, "x")]))
    (record,) = commit(part)

    assert record.seen is not None
    assert not record.seen.knows(3)


def test_what_an_older_version_has_seen_is_not_gone_on_from_after_an_owner_without_a_tracker() -> (
    None
):
    older = make_progress({P0: 0}, seen=Seen(0, 5, b"\xff"))
    newer = make_progress({P0: 0}, version=2)
    task = make_task(make_version(1), make_version(2, {P0: 0}))
    part = TaskInBucket(task, OWNER_TRACKED, {1: older, 2: newer}, SAVE_MS)
    read(
        part,
        make_head(9, {P0: 1}, version=2),
        make_entry(9, 0, [(1, "x")], plan=make_plan(version=2)),
    )
    (record, *_) = commit(part)

    assert record.seen is not None
    assert not record.seen.knows(7)


def test_entries_whose_rows_a_saved_base_holds_are_seen_too() -> None:
    older = make_progress({P0: 2}, store_epoch=StoreEpoch(0))
    part = TaskInBucket(make_task(), OWNER_TRACKED, {1: older}, SAVE_MS)
    base = make_entry(0, 0, [(1, "x"), (2, "x")])
    again, new = make_entry(1, 1, [(2, "x")]), make_entry(2, 2, [(3, "x")])
    read(part, make_head(2, {P0: 3}), again, new, base=base)
    (record,) = commit(part)

    assert part.take_accounted() == ((1, 1), (1, 2))
    assert record.seen == Seen(0, 2, bytes([0b11]))


def test_a_new_life_of_the_store_begins_with_nothing_seen() -> None:
    older = make_progress({P0: 0}, store_epoch=StoreEpoch(0), seen=Seen(0, 70, b"\xff"))
    part = TaskInBucket(make_task(), OWNER_TRACKED, {1: older}, SAVE_MS)
    read(part, make_head(1, {P0: 1}), make_entry(1, 0, [(1, "x")]))
    (record,) = commit(part)

    assert record.seen == Seen(0, 1, bytes([1]))


def test_a_log_of_saved_panes_alone_is_read_though_no_entry_has_come() -> None:
    saved = Snapshot({P0: 2}, until_ms=10_000, parts=1, checksum=0)
    part = TaskInBucket(make_task(), OWNER, {1: make_progress({P0: 2}, snapshot=saved)}, SAVE_MS)
    assert part.position.is_behind(make_head(0, {P0: 2}))
    part.absorb(make_slice())
    assert not part.position.is_behind(make_head(0, {P0: 2}))
