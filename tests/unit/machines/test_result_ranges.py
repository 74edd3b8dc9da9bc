"""The header `mars-ranges`: from which offsets the rows of a window were counted.

lane 0    ─── 5 ──────────── 8 ───▶      rows of the window lie in [5, 8); whatever row of it
              first          through     comes later is late
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from mars.core.types import Entry, Lane, Range
from mars.engine.codec.result_headers import decode_ranges, encode_ranges
from mars.protocol.ports import Head
from mars.protocol.reducer.task_in_bucket import TaskInBucket
from tests.unit.machines.reducing_rows import (
    OWNER,
    P0,
    P1,
    SAVE_MS,
    SLIDING,
    make_entry,
    make_head,
    make_plan,
    make_progress,
    make_slice,
    make_task,
    make_version,
)

Spans = dict[Lane, tuple[int, int]]


def read(part: TaskInBucket, head: Head, *entries: Entry, base: Entry | None = None) -> None:
    """Take entries, then go forward to the head."""
    part.absorb(make_slice(*entries, base=base))
    part.drained(head)


def commit(part: TaskInBucket) -> None:
    """Take what is prepared as durable."""
    for record in part.prepare().progress:
        part.committed(record)


def spans(part: TaskInBucket) -> list[tuple[int, Spans]]:
    """Start in seconds, and what the headers say, of each window that would be committed now."""
    found = []
    for batch in part.prepare().results:
        ranges = decode_ranges(dict(batch.headers)["mars-ranges"])
        start_s = json.loads(batch.keys[0])[0] // 1000
        found.append((start_s, {one.lane: (one.first, one.next) for one in ranges}))
    return found


def entry_of_second_version(seq: int, first: int, rows: Sequence[tuple[int, str]]) -> Entry:
    return make_entry(seq, first, rows, plan=make_plan(version=2))


def test_ranges_are_short_json_by_lane() -> None:
    ranges = (Range(Lane("0"), 120, 980), Range(Lane("3@b1"), 0, 55))
    assert encode_ranges(ranges) == b'{"0":[120,980],"3@b1":[0,55]}'
    assert decode_ranges(encode_ranges(ranges)) == ranges


def test_rows_name_the_offsets_that_their_window_was_counted_from() -> None:
    part = TaskInBucket(make_task(), OWNER, {}, SAVE_MS)
    entries = (
        make_entry(1, 5, [(1, "x"), (11, "x")]),
        make_entry(2, 7, [(12, "x")]),
        make_entry(3, 0, [(13, "y")], lane=P1),
    )
    read(part, make_head(3, {P0: 8, P1: 1}, mark_s=20), *entries)
    assert spans(part) == [(0, {P0: (5, 8)}), (10, {P0: (5, 8), P1: (0, 1)})]
    rows = [dict(batch.headers)["mars-rows"] for batch in part.prepare().results]
    assert rows == [b"1", b"3"]


def test_a_window_names_all_its_panes() -> None:
    part = TaskInBucket(make_task(window=SLIDING), OWNER, {}, SAVE_MS)
    entries = (make_entry(1, 3, [(1, "x")]), make_entry(2, 4, [(11, "x")]))
    read(part, make_head(2, {P0: 9}, mark_s=40), *entries)
    assert spans(part) == [(-10, {P0: (3, 9)}), (0, {P0: (3, 9)}), (10, {P0: (4, 9)})]


def test_rows_of_a_former_version_name_no_offset_of_the_next() -> None:
    newer = make_version(2, {P0: 2, P1: 0})
    part = TaskInBucket(make_task(make_version(), newer), OWNER, {}, SAVE_MS)
    entries = (make_entry(1, 0, [(1, "x"), (2, "x")]), entry_of_second_version(2, 2, [(3, "x")]))
    read(part, make_head(2, {P0: 3, P1: 4}, mark_s=20, version=2), *entries)
    assert spans(part) == [(0, {P0: (0, 2)}), (0, {P0: (2, 3)})]


def test_rows_that_came_too_late_are_behind_the_range() -> None:
    part = TaskInBucket(make_task(), OWNER, {}, SAVE_MS)
    read(part, make_head(1, {P0: 2}, mark_s=11), make_entry(1, 0, [(1, "x"), (11, "x")]))
    assert spans(part) == [(0, {P0: (0, 2)})]
    commit(part)
    read(part, make_head(2, {P0: 4}, mark_s=20), make_entry(2, 2, [(2, "x"), (12, "x")]))
    assert spans(part) == [(10, {P0: (0, 4)})]


def test_a_window_that_is_read_again_names_the_same_rows() -> None:
    record = make_progress({P0: 4}, closed_ms=10_000)
    part = TaskInBucket(make_task(), OWNER, {1: record}, SAVE_MS)
    again = make_entry(1, 2, [(11, "x"), (12, "x")])
    read(part, make_head(2, {P0: 5}, mark_s=20), again, make_entry(2, 4, [(13, "x")]))
    assert spans(part) == [(10, {P0: (2, 5)})]


def test_merged_entries_keep_where_a_window_began() -> None:
    part = TaskInBucket(make_task(), OWNER, {}, SAVE_MS)
    read(part, make_head(1, {P0: 3}, mark_s=5), make_entry(1, 1, [(1, "x"), (2, "x")]))
    commit(part)
    (base,) = part.upkeep.bases()
    taken_over = TaskInBucket(make_task(), OWNER, dict(part.records), SAVE_MS)
    read(taken_over, make_head(2, {P0: 4}, mark_s=11), make_entry(2, 3, [(11, "x")]), base=base)
    assert spans(taken_over) == [(0, {P0: (1, 4)})]
