"""Panes side by side are merged once for all windows that share them, unless one changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import polars as pl
import pytest

from mars.core.plan import Aggregate, AggregateFunction, Column, Plan, ValueType
from mars.core.windows import Sliding, Window
from mars.engine.aggregates import limited_window
from mars.protocol.windows import open_panes, turns, window_panes
from mars.protocol.windows.folding import Folding
from tests.unit.machines.reducing_rows import (
    P0,
    RowSpec,
    counts_of,
    make_entry,
    make_folding,
    make_frontier,
    make_plan,
)

LONG = Sliding(60_000, 1_000)
FIRST = 60
"""When the first window with all rows ends, in seconds."""


@pytest.fixture(autouse=True)
def blocks_of_four(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_panes, "BLOCK_PANES", 4)
    monkeypatch.setattr(open_panes, "BLOCKS_FROM_PANES", 8)


@pytest.fixture
def merged(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Of how many frames each window was made."""
    counts: list[int] = []

    def noting(plan: Plan, window: Window, parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
        counts.append(len(parts))
        return limited_window(plan, window, parts)

    monkeypatch.setattr(window_panes, "limited_window", noting)
    return counts


def fold(plan: Plan | None = None) -> Folding:
    """A row of a key in each second; the windows that lack some of the seconds are closed."""
    plan = plan or make_plan(window=LONG)
    folding = make_folding(plan, merged={}, closed_ms=FIRST * 1000 - 1000)
    take(folding, 1, 0, [(second, "x") for second in range(2 * FIRST)])
    return folding


def take(folding: Folding, seq: int, first: int, rows: Sequence[RowSpec]) -> None:
    folding.absorb(make_entry(seq, first, rows, plan=folding.plan))


def closed(folding: Folding, end_s: int) -> int:
    """Close and commit the window that ends then; how many rows it has by its result."""
    (window,) = folding.state.close([LONG.window_of_start(end_s * 1000 - 60_000)])
    (count,) = counts_of(window.finished.values).values()
    assert window.rows == count
    folding.committed(make_frontier({P0: 0}, end_s * 1000), folding.ledger(end_s * 1000))
    return count


def test_a_window_is_made_of_few_pieces(merged: list[int]) -> None:
    folding = fold()
    assert [closed(folding, end_s) for end_s in range(FIRST, FIRST + 10)] == [60] * 10
    assert max(merged) < 20
    assert merged[4] == 3 + 3, "[4, 16) in blocks of 4, [16, 64) in blocks of 16"


def test_a_row_that_comes_to_a_block_is_in_the_windows_that_follow() -> None:
    folding = fold()
    assert closed(folding, FIRST) == 60
    take(folding, 2, 120, [(17, "x"), (18, "x")])
    assert closed(folding, FIRST + 1) == 62
    take(folding, 3, 122, [(17, "x"), (200, "x")])
    assert [closed(folding, end_s) for end_s in (77, 78, 79)] == [63, 61, 60]


def test_a_block_of_many_groups_is_not_merged(merged: list[int]) -> None:
    plan = make_plan(window=LONG)
    folding = make_folding(plan, merged={}, closed_ms=FIRST * 1000 - 1000)
    take(folding, 1, 0, [(second, f"{second}") for second in range(FIRST)])
    (window,) = folding.state.close([LONG.window_of_start(0)])
    assert len(window.finished.keys) == merged[0] == FIRST


def test_what_is_forgotten_leaves_no_block_behind() -> None:
    folding = fold()
    for end_s in range(FIRST, 4 * FIRST):
        windows = folding.state.due(end_s * 1000)
        folding.state.close(windows)
        folding.committed(make_frontier({P0: 0}, end_s * 1000), folding.ledger(end_s * 1000))
    assert not folding.state.panes.open._blocks


def test_the_lowest_offsets_of_blocks_are_those_of_their_panes() -> None:
    folding = make_folding(make_plan(window=LONG), merged={})
    for second in range(2 * FIRST):
        take(folding, second + 1, second, [(second, "x")])
    (window,) = folding.state.close([LONG.window_of_start(20_000)])
    assert dict(window.firsts) == {P0: 20}


def test_floats_are_added_up_in_the_order_of_their_panes_in_each_window(
    merged: list[int],
) -> None:
    seconds = Column("ts", ValueType.FLOAT64)
    total = Aggregate("a1", AggregateFunction.SUM, seconds, None, ValueType.FLOAT64)
    plan = make_plan(window=LONG)
    plan = replace(plan, aggregates=(*plan.aggregates, total))
    assert closed(fold(plan), FIRST) == 60
    assert merged == [60]


def test_windows_that_share_blocks_are_closed_many_at_once(
    monkeypatch: pytest.MonkeyPatch, merged: list[int]
) -> None:
    monkeypatch.setattr(turns, "PANES_AT_ONCE", 100)
    folding = fold()
    assert folding.state.reach((FIRST + 20) * 1000) == FIRST * 1000, "each has 60 panes"

    closed(folding, FIRST)
    at_once = 100 // (2 * merged[0] + 4)
    assert at_once > 1
    assert folding.state.reach((FIRST + 20) * 1000) == (FIRST + at_once) * 1000
