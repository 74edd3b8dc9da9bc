"""Windows that cumulate in one bucket: what closes, what is late, what becomes one pane.

time     0         10        20        30        40        50 s
windows  |=========|
         |===================|
         |=============================|
         |=======================================|
         |=================================================|
"""

from __future__ import annotations

from dataclasses import replace
from typing import Unpack

from mars.core.plan import LatePolicy, Plan
from mars.core.types import Sequence64
from mars.core.windows import Cumulating, Window
from mars.engine.codec.entry import decode_entry, encode_entry
from mars.protocol.windows.folding import Folding
from tests.unit.machines.reducing_rows import (
    P0,
    P1,
    PlanOptions,
    absorb,
    closed_windows,
    make_folding,
    make_frontier,
    make_plan,
    make_progress,
    panes_of,
)

CYCLE = Cumulating(50_000, 10_000)


def begin(**options: Unpack[PlanOptions]) -> Folding:
    return make_folding(make_plan(window=CYCLE, **options))


def commit(
    folding: Folding, watermark_s: int, through: int, forgotten_s: int | None = None
) -> None:
    """Close and commit, as an owner does."""
    closed_ms = panes_of(folding).closed_by(watermark_s * 1000)
    forgotten_ms = None if forgotten_s is None else forgotten_s * 1000
    ledger = folding.ledger(closed_ms)
    folding.committed(make_frontier({P0: through}, closed_ms, forgotten_ms), ledger)


def copied(plan: Plan, folding: Folding, through: int) -> Folding:
    """What a successor makes of the same record and a log that was merged."""
    (base,) = folding.bases(Sequence64(9), {P0: through})
    frontier = folding.state.frontier
    record = replace(
        make_progress(frontier.merged),
        closed_ms=frontier.closed_ms,
        forgotten_ms=frontier.forgotten_ms,
        ledger=folding.input.ledger,
    )
    successor = Folding(plan, folding.bucket, {}, record)
    header, states = encode_entry(base.version, base.ranges, base.partial)
    successor.absorb_base(decode_entry(base.seq, header, states))
    return successor


def test_each_step_has_all_groups_of_its_cycle_so_far() -> None:
    folding = begin()
    absorb(folding, 1, 0, [(1, "x"), (12, "y"), (31, "x"), (51, "x")])

    assert closed_windows(folding, 19) == {(0, 10, "x"): 1}
    assert closed_windows(folding, 60) == {
        (0, 10, "x"): 1,
        (0, 20, "x"): 1,
        (0, 20, "y"): 1,
        (0, 30, "x"): 1,
        (0, 30, "y"): 1,
        (0, 40, "x"): 2,
        (0, 40, "y"): 1,
        (0, 50, "x"): 2,
        (0, 50, "y"): 1,
        (50, 60, "x"): 1,
    }


def test_what_lies_behind_is_one_pane_and_later_windows_are_the_same() -> None:
    # panes  |--x--|--y--|--x--|--x--|        closed up to 30: the first three become one
    rows = [(1, "x"), (12, "y"), (24, "x"), (31, "x")]
    carrying, keeping = begin(), begin()
    for folding in (carrying, keeping):
        absorb(folding, 1, 0, rows)
    wanted = {place: n for place, n in closed_windows(keeping, 50).items() if place[1] > 30}

    commit(carrying, 30, through=4)

    assert list(carrying.state.panes.open) == [0, 30_000]
    assert carrying.state.panes.open[0].rows == 3
    assert closed_windows(carrying, 50) == wanted
    assert carrying.ledger(30_000).emitted == 0  # all of them count in windows to come


def test_a_row_of_a_closed_step_counts_in_the_later_ones_and_is_late_after_the_cycle() -> None:
    folding = begin()
    absorb(folding, 1, 0, [(1, "x"), (12, "y")])
    commit(folding, 20, through=2)

    absorb(folding, 2, 2, [(14, "y")])

    assert list(folding.state.panes.open) == [0]
    assert closed_windows(folding, 30) == {(0, 30, "x"): 1, (0, 30, "y"): 2}
    assert folding.input.ledger.late_partly == 1
    assert folding.input.ledger.late == 0

    commit(folding, 50, through=3)
    absorb(folding, 3, 3, [(49, "x"), (50, "x")])

    assert list(folding.state.panes.open) == [50_000]
    assert folding.input.ledger.late == 1


def test_a_carried_pane_needs_the_first_row_of_its_cycle() -> None:
    folding = begin()
    absorb(folding, 1, 5, [(12, "x")])
    absorb(folding, 2, 3, [(1, "x")], lane=P1)
    absorb(folding, 3, 6, [(24, "x")])
    commit(folding, 30, through=7)

    assert folding.state.commits.needed({P0: 7, P1: 4}, make_frontier({}, 30_000)) == {P0: 5, P1: 3}
    commit(folding, 50, through=7)
    assert folding.state.commits.needed({P0: 7, P1: 4}, make_frontier({}, 50_000)) == {P0: 7, P1: 4}


def test_a_successor_takes_carried_panes_from_the_merged_log() -> None:
    folding = begin()
    absorb(folding, 1, 0, [(1, "x"), (12, "y"), (24, "x"), (31, "x")])
    commit(folding, 30, through=4)

    successor = copied(folding.plan, folding, 4)

    assert list(successor.state.panes.open) == [0, 30_000]
    assert closed_windows(successor, 50) == closed_windows(folding, 50)


def test_rows_that_come_again_go_where_the_others_of_their_cycle_went() -> None:
    folding = begin()
    absorb(folding, 1, 0, [(1, "x"), (12, "y"), (31, "x")])
    commit(folding, 30, through=3)
    frontier = folding.state.frontier
    record = replace(make_progress(frontier.merged), closed_ms=30_000, ledger=folding.input.ledger)

    successor = Folding(folding.plan, folding.bucket, {}, record)
    absorb(successor, 1, 0, [(1, "x"), (12, "y"), (31, "x")])

    assert list(successor.state.panes.open) == [0, 30_000]
    assert closed_windows(successor, 50) == closed_windows(folding, 50)
    assert successor.input.ledger == folding.input.ledger


def test_panes_of_windows_that_may_be_revised_stay_apart() -> None:
    # D = 10 ── windows that are kept ── C = 30
    folding = begin(late=LatePolicy.REVISE, lateness_ms=20_000)
    absorb(folding, 1, 0, [(1, "x"), (12, "y"), (24, "x")])
    commit(folding, 30, through=3, forgotten_s=10)

    absorb(folding, 2, 3, [(13, "y")])

    assert list(folding.state.panes.open) == [0, 10_000, 20_000]
    assert panes_of(folding).commits.revisable() == [Window(20_000, 0), Window(30_000, 0)]
