"""Sessions: a commit that drops late rows saves what is open, and owners begin with that."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from mars.adapters.kafka.wire import decode_progress, encode_progress
from mars.core.types import Entry, Range
from mars.core.windows import Session
from mars.engine.aggregates import session_aggregates
from mars.engine.codec.dead import DeadRange, decode_dead
from mars.engine.codec.snapshot import decode_snapshot
from mars.protocol.ports import Ledger, LogSlice, Progress
from mars.protocol.reducer.preparation import Prepared
from mars.protocol.reducer.task_in_bucket import TaskInBucket
from tests.unit.machines.bucket_parts import read
from tests.unit.machines.reducing_rows import (
    OWNER,
    P0,
    P1,
    SAVE_MS,
    STREAM,
    RowSpec,
    make_entry,
    make_head,
    make_slice,
    make_task,
    make_version,
)

SESSIONS = Session(10_000, 60_000)
"""Gaps of 10 s; panes of 2.5 s."""


def begin(*records: Progress, anchors: Sequence[Entry] = (), **version: object) -> TaskInBucket:
    """A task with sessions, of an owner that has read the anchors of its records."""
    task = make_task(make_version(**version), window=SESSIONS)  # type: ignore[arg-type]
    hidden = session_aggregates(STREAM.event_time)
    plans = {
        number: replace(plan, aggregates=(*plan.aggregates, *hidden))
        for number, plan in task.plans.items()
    }
    part = TaskInBucket(
        replace(task, plans=plans), OWNER, {one.version: one for one in records}, SAVE_MS
    )
    assert bool(part.restoring.wanted) is bool(anchors)
    part.restored(anchors, ())
    return part


def entry(part: TaskInBucket, seq: int, first: int, rows: Sequence[RowSpec]) -> Entry:
    return make_entry(seq, first, rows, plan=part.task.plans[1])


def emitted(prepared: Prepared) -> dict[tuple[int, int, str], int]:
    """What a commit emits: when each session begins and ends in seconds, its key, its rows."""
    values = [json.loads(value) for batch in prepared.results for value in batch.values]
    return {
        (one["window_start"] // 1000, one["window_end"] // 1000, one["k"]): one["n"]
        for one in values
    }


def commit(part: TaskInBucket) -> tuple[Progress, Entry | None]:
    """The record, and the panes that it saves."""
    prepared = part.prepare()
    (record,) = prepared.progress
    part.committed(record)
    saved = [decode_snapshot(parts.parts) for parts in prepared.snapshots if parts.parts]
    return record, saved[0] if saved else None


def closed_at_20() -> TaskInBucket:
    """A bucket that has closed what was over by 20 s; one session of x goes on."""
    part = begin()
    rows = entry(part, 1, 0, [(1, "y"), (12, "x"), (20, "x")])
    read(part, make_head(1, {P0: 3, P1: 0}, mark_s=20), rows)
    assert emitted(part.prepare()) == {(1, 11, "y"): 1}
    commit(part)
    return part


def test_a_late_row_is_dropped_and_all_that_is_open_is_saved() -> None:
    part = closed_at_20()
    read(part, make_head(2, {P0: 4, P1: 0}, mark_s=20), entry(part, 2, 3, [(15, "x")]))

    record, saved = commit(part)

    assert record.ledger == Ledger(read=4, late=1, counted=3, emitted=1)
    assert record.snapshot is not None
    assert record.anchored
    assert record.snapshot.merged == record.merged == record.needed == {P0: 4, P1: 0}
    assert saved is not None
    assert sum(pane.rows for pane in saved.partial.panes) == 2
    assert decode_progress(encode_progress(record), "here") == record
    assert json.loads(encode_progress(record))["format"] == 6


def test_a_row_in_a_slice_that_is_not_closed_is_in_time_and_nothing_is_saved() -> None:
    part = closed_at_20()
    read(part, make_head(2, {P0: 4, P1: 0}, mark_s=20), entry(part, 2, 3, [(20, "x")]))

    record, saved = commit(part)

    assert record.ledger.late == 0
    assert (record.snapshot, saved) == (None, None)


def test_a_session_that_is_withheld_is_named_with_its_own_bounds_and_offsets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mars.engine.finishing.RESULT_BYTES_MAX", 200)
    part, long = begin(), "x" * 200
    read(part, make_head(1, {P0: 2, P1: 0}, mark_s=5), entry(part, 1, 0, [(1, "y"), (5, "y")]))
    commit(part)
    rows = entry(part, 2, 2, [(21, long), (23, long), (50, "y")])
    read(part, make_head(2, {P0: 5, P1: 0}, mark_s=50), rows)
    prepared = part.prepare()

    assert emitted(prepared) == {(1, 15, "y"): 2}
    (letter,) = map(decode_dead, prepared.dead)
    assert isinstance(letter, DeadRange)
    assert (letter.window_start, letter.window_end) == (21_000, 33_000)
    assert (letter.first, letter.next, letter.rows) == (2, 5, 0)
    assert letter.key is not None
    assert letter.key.startswith("[21000,")
    assert "of a session that ended by 1970-01-01 00:00:33Z" in prepared.withheld
    assert prepared.progress[0].ledger == Ledger(read=5, counted=5, emitted=4)


def test_the_next_owner_begins_with_what_was_saved_and_not_with_the_log() -> None:
    part = closed_at_20()
    log = [entry(part, 1, 0, [(1, "y"), (12, "x"), (20, "x")]), entry(part, 2, 3, [(15, "x")])]
    read(part, make_head(2, {P0: 4, P1: 0}, mark_s=20), log[1])
    record, saved = commit(part)
    assert saved is not None

    successor = begin(record, anchors=[saved])
    read(successor, make_head(2, {P0: 4, P1: 0}, mark_s=40), *log)

    assert emitted(successor.prepare()) == {(12, 30, "x"): 2}


def test_what_was_emitted_is_not_emitted_by_the_next_owner() -> None:
    part = begin()
    log = entry(part, 1, 0, [(1, "y"), (12, "x"), (20, "x")])
    read(part, make_head(1, {P0: 3, P1: 0}, mark_s=20), log)
    record, _saved = commit(part)

    successor = begin(record)
    read(successor, make_head(1, {P0: 3, P1: 0}, mark_s=40), log)

    assert emitted(successor.prepare()) == {(12, 30, "x"): 2}


def lost_half(*times_s: int, mark_s: int) -> tuple[TaskInBucket, Progress, list[Entry]]:
    """After a loss of the store: of two lanes with rows of one open session one is read again."""
    part = begin()
    first, second, third = times_s
    log = [entry(part, 1, 0, [(first, "x"), (second, "x")]), of_lane_1(part, 2, [(third, "x")])]
    read(part, make_head(2, {P0: 2, P1: 1}, mark_s=mark_s), *log)
    record, _saved = commit(part)
    assert record.ledger == Ledger(read=3, counted=3)
    successor = begin(record)
    read(successor, make_head(1, {P0: 2, P1: 0}, mark_s=mark_s), log[0])
    assert not successor.position.caught_up
    return successor, record, log


def of_lane_1(part: TaskInBucket, seq: int, rows: Sequence[RowSpec]) -> Entry:
    return make_entry(seq, 0, rows, P1, plan=part.task.plans[1])


def test_nothing_is_over_before_all_that_was_accounted_is_back() -> None:
    part, record, log = lost_half(12, 13, 20, mark_s=25)

    assert part.upkeep.trim() == ()
    (base,) = part.upkeep.bases()
    assert sum(pane.rows for pane in base.partial.panes) == 2

    successor = begin(record)
    read(successor, make_head(2, {P0: 2, P1: 1}, mark_s=40), log[1], base=base)
    assert emitted(successor.prepare()) == {(12, 30, "x"): 3}


def test_what_waited_and_was_late_then_does_not_come_back_with_the_log() -> None:
    part, _record, _log = lost_half(12, 13, 14, mark_s=22)
    read(part, make_head(2, {P0: 3, P1: 0}, mark_s=22), entry(part, 2, 2, [(16, "z")]))
    bases = part.upkeep.bases()
    assert len(bases) == 2
    last = of_lane_1(part, 3, [(14, "x")])
    read(part, make_head(3, {P0: 3, P1: 1}, mark_s=25), last)
    assert emitted(part.prepare()) == {(12, 24, "x"): 3}
    record, _saved = commit(part)
    assert record.ledger == Ledger(read=4, late=1, counted=3, emitted=3)

    successor = begin(record)
    successor.absorb(LogSlice(bases[0], (last,), bases[1:]))
    successor.drained(make_head(3, {P0: 3, P1: 1}, mark_s=60))

    assert emitted(successor.prepare()) == {}


def test_a_session_that_may_have_rows_of_the_version_before_says_so() -> None:
    part = begin(complete_from_ms=4_000)
    rows = entry(part, 1, 0, [(13, "x"), (14, "y")])
    read(part, make_head(1, {P0: 2, P1: 0}, mark_s=40), rows)

    batches = part.prepare().results

    told = {json.loads(batch.values[0])["k"]: dict(batch.headers) for batch in batches}
    assert {key: one["mars-complete"] for key, one in told.items()} == {"x": b"0", "y": b"1"}


def test_a_base_that_is_older_than_what_was_saved_is_not_taken() -> None:
    part = closed_at_20()
    (base,) = part.upkeep.bases()
    late = entry(part, 2, 3, [(15, "x"), (21, "x")])
    read(part, make_head(2, {P0: 5, P1: 0}, mark_s=20), late)
    record, saved = commit(part)
    assert saved is not None

    successor = begin(record, anchors=[saved])
    read(successor, make_head(2, {P0: 5, P1: 0}, mark_s=40), late, base=base)

    assert emitted(successor.prepare()) == {(12, 31, "x"): 3}


def test_a_base_that_was_merged_later_is_taken_in_place_of_it() -> None:
    part = closed_at_20()
    read(part, make_head(2, {P0: 4, P1: 0}, mark_s=20), entry(part, 2, 3, [(15, "x")]))
    _record, saved = commit(part)
    assert saved is not None
    read(part, make_head(3, {P0: 5, P1: 0}, mark_s=22), entry(part, 3, 4, [(22, "x")]))
    record, _saved = commit(part)
    (base,) = part.upkeep.bases()

    successor = begin(record, anchors=[saved])
    read(successor, make_head(3, {P0: 5, P1: 0}, mark_s=40), base=base)

    assert emitted(successor.prepare()) == {(12, 32, "x"): 3}


def test_rows_that_no_open_session_needs_are_passed_over_with_those_that_were_late() -> None:
    """Nothing is open, so nothing is saved; the log still has the row that was late."""
    part = begin()
    log = [entry(part, 1, 0, [(1, "y")]), entry(part, 2, 1, [(12, "y")])]
    read(part, make_head(1, {P0: 1, P1: 0}, mark_s=20), log[0])
    commit(part)
    read(part, make_head(2, {P0: 2, P1: 0}, mark_s=20), log[1])
    record, saved = commit(part)
    assert record.ledger == Ledger(read=2, late=1, counted=1, emitted=1)
    assert (record.snapshot, saved) == (None, None)

    successor = begin(record)
    read(successor, make_head(2, {P0: 2, P1: 0}, mark_s=40), *log)

    assert emitted(successor.prepare()) == {}


def test_a_base_below_all_entries_is_not_taken_a_second_time() -> None:
    """Panes that were put back are a base with SEQ 0, as is what is merged before an entry came."""
    part = closed_at_20()
    read(part, make_head(2, {P0: 4, P1: 0}, mark_s=20), entry(part, 2, 3, [(15, "x")]))
    record, saved = commit(part)
    assert saved is not None
    successor = begin(record, anchors=[saved])
    back = replace(saved, seq=type(saved.seq)(0))
    successor.restoring.read([])
    read(successor, make_head(0, {P0: 4, P1: 0}, mark_s=20), base=back)
    assert successor.position.caught_up

    more = entry(successor, 1, 4, [(22, "x")])
    successor.absorb(make_slice(more, base=replace(back, ranges=record_ranges(back))))
    successor.drained(make_head(1, {P0: 5, P1: 0}, mark_s=40))

    assert emitted(successor.prepare()) == {(12, 32, "x"): 3}


def record_ranges(base: Entry) -> tuple[Range, ...]:
    """Those of a base that was merged further meanwhile."""
    return tuple(Range(part.lane, part.first, part.next + 1) for part in base.ranges)
