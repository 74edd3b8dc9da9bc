"""Rows that are gone from Kafka, where windows count rows: which windows say that they lack some.

rows     0 ... 11 |  gone  |? ? ?| 25 26 ...      a record knows how many lie below offset 30
windows  [0, 10) whole   [10, 20)   [20, 30) not   [30, 40) whole
"""

from __future__ import annotations

from mars.core.types import NOT_KNOWN, Entry, Range, Records, Sequence64
from mars.core.windows import Counting, Window
from mars.engine.kernel import decode, map_batch, map_gone
from mars.protocol.ports import RowsRecord
from mars.protocol.windows.folding import Folding
from tests.unit.machines.reducing_rows import (
    P0,
    STREAM,
    make_folding,
    make_head,
    make_plan,
    make_progress,
    message,
)

PLAN = make_plan(window=Counting(10, 10))


def rows_entry(seq: int, first: int, count: int, number: int) -> Entry:
    values = [message((at, "k")) for at in range(count)]
    offsets = range(first, first + count)
    records = Records(P0, first, offsets.stop, values, offsets, [-1] * count)
    mapped = map_batch(PLAN, 1, decode(STREAM, PLAN.fields, records), number)
    return Entry(Sequence64(seq), 1, mapped.ranges, mapped.partials[0])


def gap_entry(seq: int, first: int, after: int, number: int) -> Entry:
    mapped = map_gone(PLAN, 1, Range(P0, first, after), number)
    return Entry(Sequence64(seq), 1, mapped.ranges, mapped.partials[0])


def whole(folding: Folding) -> list[int]:
    """Which of the first windows lack nothing."""
    starts = range(0, 50, 10)
    return [at // 10 for at in starts if folding.gaps.is_complete(Window(at + 10, at))]


def with_gap() -> Folding:
    folding = make_folding(PLAN)
    folding.absorb(rows_entry(1, 0, 12, 0))
    folding.absorb(gap_entry(2, 12, 20, 12))
    head = make_head(2, {P0: 20}, rows={P0: NOT_KNOWN}, numbers={P0: {30: 25}})
    folding.reached(head)
    return folding


def test_windows_between_the_numbers_at_both_ends_of_a_gap_are_not_complete() -> None:
    folding = with_gap()
    assert whole(folding) == [0, 3, 4]
    folding.absorb(gap_entry(3, 20, 30, NOT_KNOWN))
    folding.reached(make_head(3, {P0: 30}, rows={P0: 25}, numbers={P0: {30: 25}}))
    assert whole(folding) == [0, 3, 4]


def test_behind_all_records_the_window_around_a_gap_is_not_complete() -> None:
    folding = make_folding(PLAN)
    folding.absorb(gap_entry(1, 12, 20, 12))
    folding.reached(make_head(1, {P0: 20}, rows={P0: 12}))
    assert whole(folding) == [0, 2, 3, 4]


def test_a_gap_between_two_windows_makes_none_of_them_incomplete() -> None:
    folding = make_folding(PLAN)
    folding.absorb(gap_entry(1, 12, 20, 10))
    folding.reached(make_head(1, {P0: 20}, rows={P0: 10}))
    assert whole(folding) == [0, 1, 2, 3, 4]


def test_the_record_tells_the_next_owner_of_the_gap_until_its_windows_are_closed() -> None:
    folding = with_gap()
    commits = folding.state.commits
    closing = commits.closing({P0: 10}, {P0: 20}, caught_up=True, none_to_come=False)
    record = commits.told(make_progress({P0: 20}), closing, {P0: 10}, None)
    assert record.rows == RowsRecord({P0: 10}, {}, {P0: (12, 25)})
    assert whole(make_folding(PLAN, rows=record.rows)) == [0, 3, 4]

    later = commits.closing({P0: 30}, {P0: 40}, caught_up=True, none_to_come=False)
    folding.committed(later.frontier, folding.ledger(later.frontier.closed_rows))
    assert commits.told(record, later, {P0: 30}, record).rows == RowsRecord({P0: 30}, {}, {})
