"""The open panes of one bucket: what entries do to them, and what comes out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mars.core.plan import Plan
from mars.core.types import Entry, Lane, Range, Sequence64
from mars.core.windows import Window
from mars.engine.codec.dead import DeadRange, DeadRow, decode_dead
from mars.protocol.ports import Ledger
from mars.protocol.windows import panes as panes_module
from mars.protocol.windows.closing import WholeSpan
from mars.protocol.windows.folding import Folding
from mars.protocol.windows.input import StoreWentBack
from tests.unit.machines.reducing_rows import (
    P0,
    P1,
    SLIDING,
    balanced,
    counts_of,
    make_entry,
    make_folding,
    make_frontier,
    make_gap,
    make_head,
    make_plan,
    panes_of,
)


def fold(plan: Plan | None = None, closed_s: int | None = None, **merged: int) -> Folding:
    """A folding whose last commit had these merged-through offsets (`p0=5`)."""
    closed_ms = None if closed_s is None else closed_s * 1000
    lanes = {Lane(name[1:]): offset for name, offset in merged.items()}
    return make_folding(plan or make_plan(), merged=lanes, closed_ms=closed_ms)


def closed(folding: Folding, watermark_s: int) -> dict[tuple[int, str], int]:
    """The rows of the windows that are due."""
    windows = folding.state.close(folding.state.due(watermark_s * 1000))
    return counts_of(value for window in windows for value in window.finished.values)


def commit(folding: Folding, watermark_s: int, **through: int) -> Ledger:
    """Close and commit, as an owner does."""
    merged = {Lane(name[1:]): offset for name, offset in through.items()}
    closed_ms = panes_of(folding).closed_by(watermark_s * 1000)
    ledger = folding.ledger(closed_ms)
    folding.committed(make_frontier(merged, closed_ms), ledger)
    return ledger


# ----------------------------------------------------------------------------------- closing
#
#   time     0         10        20        30 s
#   rows      x  y  x    x          y
#   windows  |=========|=========|=========|


def test_a_tumbling_window_has_the_rows_of_its_time_and_is_due_at_its_end() -> None:
    folding = fold()
    folding.absorb(make_entry(1, 0, [(1, "x"), (4, "y"), (7, "x"), (12, "x"), (23, "y")]))

    assert closed(folding, 9) == {}
    assert closed(folding, 10) == {(0, "x"): 2, (0, "y"): 1}
    assert closed(folding, 20) == {(0, "x"): 2, (0, "y"): 1, (10, "x"): 1}


def test_a_window_gathers_rows_of_all_entries_and_lanes() -> None:
    folding = fold()
    folding.absorb(make_entry(1, 0, [(1, "x"), (11, "x")]))
    folding.absorb(make_entry(2, 0, [(2, "x"), (3, "y")], lane=P1))
    folding.absorb(make_entry(3, 2, [(4, "x")]))

    assert closed(folding, 10) == {(0, "x"): 3, (0, "y"): 1}


#   time     0         10        20        30        40 s
#   rows      x         x y
#   windows  |===================|
#                      |===================|
#            (one from -10)      (one from 20)


def test_a_sliding_window_is_made_of_panes_that_other_windows_use_too() -> None:
    folding = fold(make_plan(window=SLIDING))
    folding.absorb(make_entry(1, 0, [(1, "x"), (11, "x"), (14, "y")], plan=folding.plan))

    assert closed(folding, 40) == {
        (-10, "x"): 1,
        (0, "x"): 2,
        (0, "y"): 1,
        (10, "x"): 1,
        (10, "y"): 1,
    }


def test_a_sliding_window_that_was_closed_is_not_closed_again_though_its_panes_stay() -> None:
    folding = fold(make_plan(window=SLIDING))
    folding.absorb(make_entry(1, 0, [(1, "x"), (11, "x")], plan=folding.plan))

    assert closed(folding, 20) == {(-10, "x"): 1, (0, "x"): 2}
    commit(folding, 20, p0=2)

    assert closed(folding, 30) == {(10, "x"): 1}
    assert folding.state.open_windows() == [Window(30_000, 10_000)]


def test_nothing_is_due_without_a_watermark() -> None:
    folding = fold(closed_s=0)
    folding.absorb(make_entry(1, 0, [(1, "x")]))

    assert folding.state.due(None) == []
    assert panes_of(folding).closed_by(None) == 0


def test_closed_up_to_never_goes_back() -> None:
    assert panes_of(fold(closed_s=30)).closed_by(12_000) == 30_000
    assert panes_of(fold(closed_s=30)).closed_by(47_000) == 40_000


def test_windows_outside_of_the_bounds_are_incomplete() -> None:
    folding = fold()
    panes_of(folding).bounds = WholeSpan(from_ms=10_000, until_ms=30_000)
    folding.absorb(make_entry(1, 0, [(5, "x"), (15, "x"), (25, "x"), (35, "x")]))

    windows = folding.state.close(folding.state.due(40_000))

    assert [(one.window.start_ms, one.complete) for one in windows] == [
        (0, False),
        (10_000, True),
        (20_000, True),
        (30_000, False),
    ]


def test_many_states_are_merged_early_without_a_difference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(panes_module, "MERGE_ROWS_MIN", 1)
    folding = fold()
    for number in range(6):
        folding.absorb(make_entry(number + 1, 2 * number, [(1, "x"), (2, f"y{number % 2}")]))

    assert folding.state.panes.size([Window(10_000, 0)]).rows <= 5
    assert closed(folding, 10) == {(0, "x"): 6, (0, "y0"): 3, (0, "y1"): 3}


# -------------------------------------------------------------------------------------- late


def test_late_rows_are_dropped_counted_and_referenced() -> None:
    folding = fold(closed_s=20, p0=5)
    folding.absorb(make_entry(7, 5, [(12, "x"), (13, "y"), (21, "x")]))

    ledger = folding.ledger(folding.state.frontier.closed_ms)
    (reference,) = [decode_dead(raw) for raw in folding.input.dead]

    assert (ledger.read, ledger.late, ledger.counted) == (3, 2, 1)
    assert balanced(ledger)
    assert isinstance(reference, DeadRange)
    assert (reference.reason, reference.rows) == ("late", 2)
    assert (reference.first, reference.next, reference.window_start) == (5, 8, 10_000)
    assert closed(folding, 30) == {(20, "x"): 1}


def test_late_rows_are_named_in_the_lanes_that_hold_some() -> None:
    """A batch may have rows of hundreds of lanes."""
    folding = fold(closed_s=20, p0=5)
    early = make_entry(7, 5, [(12, "x")])
    ranges = (*early.ranges, Range(Lane("1"), 0, 9), Range(Lane("2"), 0, 9))
    folding.absorb(replace(early, ranges=ranges))

    named = [decode_dead(raw) for raw in folding.input.dead]

    assert [(one.partition, one.rows) for one in named if isinstance(one, DeadRange)] == [(0, 1)]


def test_a_row_is_late_only_when_no_sliding_window_takes_it() -> None:
    folding = fold(make_plan(window=SLIDING), closed_s=20, p0=5)
    folding.absorb(make_entry(7, 5, [(5, "x"), (15, "y"), (25, "z")], plan=folding.plan))

    ledger = folding.ledger(folding.state.frontier.closed_ms)

    assert (ledger.read, ledger.late, ledger.counted, ledger.late_partly) == (3, 1, 2, 1)
    assert balanced(ledger)
    assert closed(folding, 30) == {(10, "y"): 1, (10, "z"): 1}


def test_rows_that_cannot_be_read_are_counted_and_named() -> None:
    folding = fold()
    folding.absorb(make_entry(1, 0, [(1, "x"), (0, "")]))

    (reference,) = [decode_dead(raw) for raw in folding.input.dead]
    ledger = folding.ledger(None)

    assert (ledger.read, ledger.bad, ledger.counted) == (2, 1, 1)
    assert isinstance(reference, DeadRow)
    assert reference.offset == 1


# --------------------------------------------------------------------------------- accounted


def test_accounted_entries_build_panes_again_and_touch_nothing_else() -> None:
    before = Ledger(read=4, bad=1, counted=3)
    folding = make_folding(make_plan(), merged={P0: 4}, closed_ms=0, ledger=before)
    folding.absorb(make_entry(1, 0, [(1, "x"), (2, "x"), (0, ""), (12, "y")]))

    assert folding.ledger(0) == before
    assert folding.input.dead == []
    assert closed(folding, 20) == {(0, "x"): 2, (10, "y"): 1}


def test_accounted_rows_of_closed_windows_are_not_late_a_second_time() -> None:
    folding = fold(closed_s=10, p0=3)
    folding.absorb(make_entry(1, 0, [(1, "x"), (2, "x"), (12, "y")]))

    assert folding.ledger(10_000).late == 0
    assert closed(folding, 20) == {(10, "y"): 1}


def test_accounted_rows_that_missed_some_windows_are_not_counted_so_again() -> None:
    folding = fold(make_plan(window=SLIDING), closed_s=20, p0=1)
    folding.absorb(make_entry(1, 0, [(15, "x")], plan=folding.plan))

    assert folding.ledger(20_000).late_partly == 0


def test_an_entry_on_both_sides_of_what_is_accounted_means_that_the_store_went_back() -> None:
    folding = fold(p0=3)

    with pytest.raises(StoreWentBack, match="straddles"):
        folding.absorb(make_entry(1, 0, [(1, "x")] * 5))


def test_an_entry_that_begins_where_the_accounted_ones_end_is_new() -> None:
    folding = fold(p0=3)
    folding.absorb(make_entry(1, 3, [(1, "x")] * 2))

    assert folding.ledger(None).read == 2


# ------------------------------------------------------------------------------ ledger and L


def test_the_ledger_balances_at_every_commit() -> None:
    folding = fold(make_plan(window=SLIDING))
    rows = [(1, "x"), (0, ""), (14, "y"), (22, "x"), (3, "z"), (31, "y"), (15, "x"), (48, "z")]
    for at, row in enumerate(rows):
        folding.absorb(make_entry(at + 1, at, [row], plan=folding.plan))
        ledger = commit(folding, row[0], p0=at + 1)
        assert balanced(ledger), f"after row {at}: {ledger}"
        assert ledger.read == at + 1
    assert ledger.late == 2
    assert ledger.open == 2


def test_rows_are_emitted_once_all_their_windows_are_closed() -> None:
    folding = fold(make_plan(window=SLIDING))
    folding.absorb(make_entry(1, 0, [(5, "x"), (15, "x")], plan=folding.plan))

    assert folding.ledger(10_000).emitted == 0
    assert folding.ledger(20_000).emitted == 1
    assert folding.ledger(30_000).emitted == 2


def test_what_is_needed_is_the_first_offset_of_the_panes_that_stay_open() -> None:
    folding = fold()
    folding.absorb(make_entry(1, 0, [(1, "x"), (2, "x")]))
    folding.absorb(make_entry(2, 2, [(11, "x")]))
    folding.absorb(make_entry(3, 0, [(12, "x")], lane=P1))
    through = {P0: 3, P1: 1}

    assert folding.state.commits.needed(through, make_frontier({}, None)) == {P0: 0, P1: 0}
    assert folding.state.commits.needed(through, make_frontier({}, 10_000)) == {P0: 2, P1: 0}
    assert folding.state.commits.needed(through, make_frontier({}, 20_000)) == through


def test_a_window_that_many_batches_filled_needs_the_first_of_them_again() -> None:
    folding = fold()
    folding.absorb(make_entry(1, 0, [(1, "x")]))
    folding.absorb(make_entry(2, 1, [(2, "x")]))

    assert folding.state.commits.needed({P0: 2}, make_frontier({}, None)) == {P0: 0}


# ----------------------------------------------------------------------------------- the base


def merged_entries() -> tuple[Folding, Entry]:
    """A folding with rows in two open windows, committed, and its base."""
    folding = fold()
    folding.absorb(make_entry(1, 0, [(1, "x"), (12, "x"), (13, "y")]))
    folding.absorb(make_entry(2, 0, [(22, "x")], lane=P1))
    commit(folding, 10, p0=3, p1=1)
    return folding, folding.bases(Sequence64(2), folding.input.merged)[0]


def test_a_new_owner_builds_the_same_panes_from_a_base() -> None:
    folding, base = merged_entries()
    ledger = folding.ledger(10_000)
    other = make_folding(make_plan(), merged={P0: 3, P1: 1}, closed_ms=10_000, ledger=ledger)
    other.absorb(base)

    assert closed(other, 30) == closed(folding, 30) == {(10, "x"): 1, (10, "y"): 1, (20, "x"): 1}
    assert other.ledger(10_000) == ledger == Ledger(read=4, counted=4, emitted=1)
    through, frontier = {P0: 3, P1: 1}, make_frontier({}, 10_000)
    assert other.state.commits.needed(through, frontier) == folding.state.commits.needed(
        through, frontier
    )


def test_a_new_owner_goes_on_behind_a_base() -> None:
    _folding, base = merged_entries()
    other = fold(closed_s=10, p0=3, p1=1)
    other.absorb(base)
    other.absorb(make_entry(3, 3, [(14, "x"), (2, "x")]))

    ledger = other.ledger(10_000)
    assert (ledger.read, ledger.late) == (2, 1)
    assert closed(other, 20) == {(10, "x"): 2, (10, "y"): 1}


def test_what_either_of_two_bases_holds_is_not_taken_again() -> None:
    rows = [(1, "x")] * 8
    folding, bases = fold(p0=8), (make_entry(2, 0, rows[:5]), make_entry(2, 5, rows[5:]))
    for base in bases:
        folding.absorb_base(base)

    folding.absorb(make_entry(3, 5, rows[5:]))

    assert closed(folding, 10) == {(0, "x"): 8}


def test_an_owner_that_has_closed_more_since_takes_from_a_base_what_is_open() -> None:
    _folding, base = merged_entries()
    other = fold(closed_s=20, p0=5, p1=4)
    other.absorb(base)

    assert closed(other, 30) == {(20, "x"): 1}
    assert other.ledger(20_000).late == 0


def test_a_base_of_nothing_holds_no_panes() -> None:
    folding = fold(p0=3)
    base = folding.bases(Sequence64(2), folding.input.merged)[0]

    assert base.partial.panes == ()
    assert base.partial.states == b""


def test_a_log_that_is_merged_while_saved_rows_come_again_holds_each_of_them_once() -> None:
    """The base was restored with offsets 0 to 5 in it; of those, 2 and 3 were read again since."""
    rows = [(1, "x")] * 8
    first, owner, successor = fold(), fold(p0=8), fold(p0=8)
    first.absorb(make_entry(1, 0, rows[:6]))
    saved = first.snapshot(make_frontier({P0: 6}))
    assert saved is not None
    owner.absorb_base(saved)
    owner.absorb(make_entry(1, 2, rows[2:4]))

    successor.absorb_base(owner.bases(Sequence64(1), {P0: 4})[0])
    successor.absorb(make_entry(2, 4, rows[4:6]))
    successor.absorb(make_entry(3, 6, rows[6:]))

    assert closed(successor, 10) == {(0, "x"): 8}


# ------------------------------------------------------------------------- rows that are gone


def completeness(folding: Folding, watermark_s: int) -> dict[int, bool]:
    """By the start of each window that is due, in seconds: whether it is complete."""
    folding.reached(make_head(0, {}))
    windows = folding.state.close(folding.state.due(watermark_s * 1000))
    return {one.window.start_ms // 1000: one.complete for one in windows}


def test_windows_up_to_the_first_rows_behind_a_gap_are_not_complete() -> None:
    folding = fold()
    folding.absorb(make_entry(1, 0, [(1, "a")]))
    folding.absorb(make_gap(2, 1, 9))
    folding.absorb(make_entry(3, 0, [(25, "b")], lane=P1))
    folding.absorb(make_entry(4, 9, [(12, "a"), (25, "a")]))

    assert completeness(folding, 60) == {0: False, 10: False, 20: True}
    assert [decode_dead(record).reason for record in folding.input.dead] == ["gone"]


def test_of_merged_entries_behind_a_gap_any_may_have_come_next() -> None:
    folding = fold()
    folding.absorb(make_gap(1, 0, 9))
    entry = make_entry(3, 9, [(12, "a"), (25, "a")])
    folding.absorb(replace(entry, merged=(Sequence64(2), Sequence64(3))))

    assert completeness(folding, 60) == {10: False, 20: False}


def test_of_two_gaps_the_one_that_reaches_further_counts() -> None:
    folding = fold()
    folding.absorb(make_gap(1, 0, 9))
    folding.absorb(make_entry(2, 9, [(25, "a"), (35, "a")]))
    folding.absorb(make_gap(3, 0, 9, lane=P1))
    folding.absorb(make_entry(4, 9, [(12, "b")], lane=P1))

    assert completeness(folding, 60) == {10: False, 20: False, 30: True}


def test_nothing_is_complete_while_a_lane_that_lost_rows_has_no_new_ones() -> None:
    folding = fold()
    folding.absorb(make_gap(1, 0, 9))
    folding.absorb(make_entry(2, 0, [(25, "b")], lane=P1))

    assert completeness(folding, 60) == {20: False}


def test_rows_that_are_gone_when_a_window_is_built_again_are_missed_though_they_were_counted() -> (
    None
):
    folding = fold(p0=9)
    folding.absorb(make_gap(1, 0, 6))
    folding.absorb(make_entry(2, 6, [(8, "a"), (9, "a"), (12, "a")]))

    assert completeness(folding, 60) == {0: False, 10: True}
    (record,) = folding.input.dead
    named = decode_dead(record)
    assert isinstance(named, DeadRange)
    assert (named.first, named.next, named.rows, named.reason) == (0, 6, 6, "gone")


def test_a_successor_knows_which_windows_lack_rows() -> None:
    folding = fold()
    folding.absorb(make_gap(1, 0, 5))
    folding.absorb(make_entry(2, 5, [(12, "a"), (22, "a")]))
    folding.reached(make_head(0, {}))

    successor = make_folding(make_plan(), incomplete_before_ms=folding.gaps.before_ms)
    successor.absorb(make_entry(2, 5, [(12, "a"), (22, "a")]))

    assert completeness(successor, 60) == {10: False, 20: True}


def test_panes_are_not_saved_while_a_lane_that_lost_rows_has_no_new_ones() -> None:
    folding = fold()
    folding.absorb(make_entry(1, 0, [(1, "a")]))
    folding.absorb(make_gap(2, 1, 9))
    assert folding.snapshot(make_frontier({P0: 9})) is None

    folding.absorb(make_entry(3, 9, [(12, "a")]))
    folding.reached(make_head(0, {}))
    assert folding.snapshot(make_frontier({P0: 10})) is not None
