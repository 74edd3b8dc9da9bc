"""Windows that count the rows of each key: several rows in a message, rows that are gone, and what
an owner begins with.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from mars.core.errors import TaskLimit
from mars.core.types import Entry, Range, Records, Sequence64
from mars.core.windows import CountingByKey
from mars.core.windows.counting import BEFORE_ALL_MS, LANE_PLACES, CountedAndSeen
from mars.engine.kernel import decode, map_batch, map_gone, map_many
from mars.protocol.ports import Ledger, RowsRecord, Snapshot
from mars.protocol.windows.folding import Folding
from tests.unit.machines.reducing_rows import (
    P0,
    STREAM,
    make_folding,
    make_head,
    make_plan,
    make_progress,
)

PLAN = make_plan(window=CountingByKey(3, 3, 40_000))
COUNTED = Ledger(read=4, counted=4)
BEGIN = 0


def entry(
    seq: int, first: int, *messages: Sequence[tuple[int, str | None]], number: int = BEGIN
) -> Entry:
    """What a batch of messages adds, each an array of rows."""
    values = [
        json.dumps([{"ts": at * 1_000, "k": key} for at, key in rows]).encode() for rows in messages
    ]
    offsets = range(first, first + len(values))
    records = Records(P0, first, offsets.stop, values, offsets, [-1] * len(values))
    mapped = map_batch(PLAN, 1, decode(STREAM, PLAN.fields, records), number)
    return Entry(Sequence64(seq), 1, mapped.ranges, mapped.partials[0])


def gone(seq: int, first: int, after: int) -> Entry:
    mapped = map_gone(PLAN, 1, Range(P0, first, after), CountedAndSeen(2, 1).number)
    return Entry(Sequence64(seq), 1, mapped.ranges, mapped.partials[0])


def emitted(folding: Folding) -> list[tuple[object, ...]]:
    """Key, number of the window, rows, offsets, and whether it is complete, of what is due."""
    state = folding.state
    return [
        (row["k"], row["window_number"], row["n"], *_offsets(row), closed.complete)
        for closed in state.close(state.due(None))
        for row in map(json.loads, closed.finished.values)
    ]


def _offsets(row: dict[str, object]) -> tuple[object, object]:
    return row["window_first_offset"], row["window_last_offset"]


def committed(folding: Folding, next_offset: int) -> None:
    commits = folding.state.commits
    closing = commits.closing(None, {P0: next_offset}, caught_up=True, none_to_come=False)
    ledger = folding.ledger(commits.closed_in(closing.frontier))
    folding.committed(closing.frontier, ledger)


def has_to_save(folding: Folding) -> bool:
    return folding.state.needs_anchor


def test_rows_of_one_message_are_counted_one_by_one() -> None:
    folding = make_folding(PLAN)
    folding.absorb(entry(1, 7, [(1, "a"), (1, "a"), (2, "b"), (2, "a"), (3, "a")], [(4, "a")]))
    assert emitted(folding) == [("a", 0, 3, 7, 7, True)]
    committed(folding, 9)
    folding.absorb(entry(2, 9, [(5, "a"), (5, "a")], number=CountedAndSeen(6, 1).number))
    assert emitted(folding) == [("a", 4, 3, 7, 9, True)]


def test_rows_that_wait_are_found_by_a_key_that_is_null_too() -> None:
    folding = make_folding(PLAN)
    folding.absorb(entry(1, 0, [(1, None)], [(1, "b")]))
    committed(folding, 2)
    later = entry(2, 2, [(1, None)], [(1, None)], number=CountedAndSeen(2, 1).number)
    folding.absorb(later)
    assert emitted(folding) == [(None, 0, 3, 0, 3, True)]


def test_windows_on_both_sides_of_rows_that_are_gone_are_not_complete() -> None:
    folding = make_folding(PLAN)
    folding.absorb(entry(1, 0, [(1, "a")], [(1, "b")]))
    folding.absorb(gone(2, 2, 5))
    assert has_to_save(folding)
    committed(folding, 5)
    assert not has_to_save(folding)
    later = [[(2, key)] for key in "aabccc"]
    folding.absorb(entry(3, 5, *later, number=CountedAndSeen(2, 1).number))
    assert sorted(emitted(folding)) == [("a", 0, 3, 0, 6, False), ("c", 5, 3, 8, 10, True)]


def test_a_gap_is_forgotten_once_no_row_waits_from_before_it() -> None:
    folding = make_folding(PLAN)
    folding.absorb(entry(1, 0, [(1, "a")]))
    folding.absorb(gone(2, 1, 5))
    committed(folding, 5)
    rest = entry(3, 5, [(2, "a")], [(2, "a")], number=CountedAndSeen(1, 1).number)
    folding.absorb(rest)
    said = folding.state.commits
    closing = said.closing(None, {P0: 7}, caught_up=True, none_to_come=False)
    record = said.told(make_progress({P0: 7}), closing, None, None)
    assert record.rows is not None
    assert record.rows.gaps == {P0: (1, 5)}
    committed(folding, 7)
    record = said.told(make_progress({P0: 7}), closing, None, None)
    assert record.rows is not None
    assert record.rows.gaps == {}


def test_a_task_cannot_go_on_without_rows_that_it_had_counted() -> None:
    folding = make_folding(PLAN, merged={P0: 5}, needed={P0: 0}, ledger=COUNTED)
    with pytest.raises(TaskLimit, match="nobody knows with which row"):
        folding.absorb(gone(1, 0, 5))


def test_what_lies_below_the_last_record_is_not_emitted_again() -> None:
    folding = make_folding(PLAN, merged={P0: 4}, needed={P0: 0}, ledger=COUNTED)
    folding.absorb(entry(1, 0, *([(1, "a")] for _ in range(4))))
    folding.settle()
    assert emitted(folding) == []
    later = entry(2, 4, [(1, "a")], [(1, "a")], number=CountedAndSeen(4, 1).number)
    folding.absorb(later)
    assert emitted(folding) == [("a", 3, 3, 3, 5, True)]


def test_rows_above_the_last_record_wait_until_all_below_it_are_back() -> None:
    folding = make_folding(PLAN, merged={P0: 2}, needed={P0: 0}, ledger=COUNTED)
    folding.absorb(entry(2, 2, [(1, "a")], number=CountedAndSeen(2, 1).number))
    assert folding.state.due(None) == []
    folding.absorb(entry(1, 0, [(1, "a")], [(1, "a")]))
    folding.settle()
    assert emitted(folding) == [("a", 0, 3, 0, 2, True)]


def test_nothing_below_l_is_taken_and_no_base_of_what_was_emitted_since() -> None:
    before = make_folding(PLAN)
    before.absorb(entry(1, 0, [(1, "a")]))
    committed(before, 1)
    (base,) = before.bases(Sequence64(1), {P0: 1})
    said = {"merged": {P0: 3}, "needed": {P0: 3}, "ledger": COUNTED}
    folding = make_folding(PLAN, **said)
    folding.absorb_base(base)
    folding.absorb(entry(2, 1, [(1, "a")], [(1, "a")], number=CountedAndSeen(1, 1).number))
    folding.settle()
    assert folding.state.open_windows() == []
    last = entry(3, 3, *([(1, "a")] for _ in range(3)), number=CountedAndSeen(3, 1).number)
    folding.absorb(last)
    assert emitted(folding) == [("a", 3, 3, 3, 5, True)]


def test_rows_below_l_are_passed_over() -> None:
    folding = make_folding(PLAN, merged={P0: 3}, needed={P0: 3}, ledger=COUNTED)
    folding.absorb(entry(1, 1, [(1, "a")], [(1, "a")], number=CountedAndSeen(1, 1).number))
    folding.settle()
    last = entry(2, 3, *([(1, "a")] for _ in range(3)), number=CountedAndSeen(3, 1).number)
    folding.absorb(last)
    assert emitted(folding) == [("a", 3, 3, 3, 5, True)]


def test_l_goes_up_only_where_no_row_waits() -> None:
    folding = make_folding(PLAN)
    folding.absorb(entry(1, 0, *([(1, "a")] for _ in range(4))))
    commits = folding.state.commits

    def needed(next_offset: int) -> int:
        closing = commits.closing(None, {P0: next_offset}, caught_up=True, none_to_come=False)
        return commits.needed({P0: next_offset}, closing.frontier)[P0]

    assert needed(4) == 0
    committed(folding, 4)
    folding.absorb(entry(2, 4, [(1, "a")], [(1, "a")], number=CountedAndSeen(4, 1).number))
    assert needed(6) == 6
    # Until that is committed the log keeps what came before, too.
    assert commits.needed({P0: 4}, folding.state.frontier) == {P0: 0}
    committed(folding, 6)
    assert commits.needed({P0: 6}, folding.state.frontier) == {P0: 6}


def test_keys_fall_silent_by_what_the_store_saw_and_not_before_it_is_known() -> None:
    folding = make_folding(PLAN)
    folding.absorb(entry(1, 0, [(100, "a")], [(120, "b")], [(140, "x")]))
    head = make_head(1, {P0: 4}, rows={P0: _number_behind(3, 140) + LANE_PLACES})
    due = folding.state.due(folding.state.level(head))
    closed = folding.state.close(due)
    assert [json.loads(one)["k"] for part in closed for one in part.finished.values] == ["a"]
    assert not any(part.complete for part in closed)
    unknown = make_head(1, {P0: 4}, rows={P0: -1})
    assert folding.state.due(folding.state.level(unknown)) == []


def _number_behind(rows: int, seen_s: int) -> int:
    """What stands beside an offset below which so many rows lie, and event time had come so far."""
    return CountedAndSeen(rows, seen_s * 1_000 - BEFORE_ALL_MS).number


def test_a_gap_is_known_until_the_rows_around_it_are_back() -> None:
    before = make_folding(PLAN)
    before.absorb(entry(1, 0, [(1, "a")]))
    before.absorb(gone(2, 1, 5))
    committed(before, 5)
    (base,) = before.bases(Sequence64(1), {P0: 5})
    saved = Snapshot({P0: 5}, 0, 1, 0)
    rows = RowsRecord({}, {}, {P0: (1, 5)})
    said = {"merged": {P0: 5}, "needed": {P0: 5}, "ledger": COUNTED, "snapshot": saved}
    folding = make_folding(PLAN, **said, rows=rows)
    folding.committed(folding.state.frontier, COUNTED)
    folding.absorb_base(base)
    folding.settle()
    folding.absorb(entry(3, 5, [(2, "a")], [(2, "a")], number=CountedAndSeen(1, 1).number))
    assert emitted(folding) == [("a", 0, 3, 0, 6, False)]


def test_no_key_is_over_before_its_rows_are_back() -> None:
    first = entry(1, 0, [(100, "a")])
    more = entry(2, 1, [(140, "a")], number=_number_behind(1, 100))
    rows = RowsRecord({P0: CountedAndSeen.of(_number_behind(0, 150)).seen}, {})
    said = {"merged": {P0: 2}, "needed": {P0: 0}, "ledger": COUNTED}
    folding = make_folding(PLAN, **said, rows=rows)
    folding.absorb(first)
    folding.committed(folding.state.frontier, COUNTED)
    folding.absorb(more)
    folding.settle()
    folding.absorb(entry(3, 2, [(150, "a")], number=_number_behind(2, 150)))
    assert emitted(folding) == [("a", 0, 3, 0, 2, True)]


def test_what_was_seen_is_the_same_however_rows_are_cut() -> None:
    rows = [[(at, "a")] for at in (100, 130, 90, 139, 180, 110)]
    whole = make_folding(PLAN)
    whole.absorb(entry(1, 0, *rows))
    cut, number = make_folding(PLAN), BEGIN
    for offset, row in enumerate(rows):
        cut.absorb(entry(offset + 1, offset, row, number=number))
        seen = max(at for one in rows[: offset + 1] for at, _key in one)
        number = _number_behind(offset + 1, seen)
    assert emitted(whole) == [("a", 0, 3, 0, 2, True), ("a", 3, 1, 3, 3, False)]
    assert emitted(cut) == emitted(whole)


def test_each_task_has_seen_what_it_read() -> None:
    plans = [make_plan(name, window=PLAN.window) for name in ("a", "b")]
    numbers = {plans[0].task: BEGIN, plans[1].task: _number_behind(7, 500)}
    values = [json.dumps({"ts": 100_000, "k": "k"}).encode()]
    records = Records(P0, 0, 1, values, range(1), [-1])
    decoded = decode(STREAM, PLAN.fields, records)
    together = map_many(plans, 1, decoded, numbers)
    assert together == {
        plan.task: map_batch(plan, 1, decoded, numbers[plan.task]) for plan in plans
    }
    assert together[plans[1].task].numbered[P0].next == _number_behind(8, 500)  # type: ignore[union-attr]
