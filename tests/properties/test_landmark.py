"""The arithmetic of windows since a landmark against its definition, and a join on ranges."""

from __future__ import annotations

import duckdb
import numpy as np
import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from mars.core.windows import Landmark, Window

BOUNDS = st.none() | st.integers(-800, 1_500)
SINCE = st.integers(0, 600)
"""How long after the landmark."""


@st.composite
def shapes(draw: st.DrawFn) -> Landmark:
    return Landmark(draw(st.integers(-300, 300)), draw(st.integers(1, 60)))


def all_windows(shape: Landmark) -> list[Window]:
    """Those that end within a time in which all rows of these tests lie, in order."""
    ends = range(shape.start_ms + shape.step_ms, shape.start_ms + 1_000, shape.step_ms)
    return [Window(end, shape.start_ms) for end in ends]


def with_own_rows(shape: Landmark, times: set[int]) -> list[Window]:
    """Of them those in whose last step one of these times lies."""
    return [
        one
        for one in all_windows(shape)
        if any(one.end_ms - shape.step_ms <= time_ms < one.end_ms for time_ms in times)
    ]


@given(shapes(), SINCE)
def test_pane_is_a_step_and_there_for_the_window_that_ends_with_it(
    shape: Landmark, since_ms: int
) -> None:
    # landmark |-----|-----|--*--|     windows end at each step, and begin with the landmark
    time_ms = shape.start_ms + since_ms
    pane, (wanted,) = shape.panes(time_ms), with_own_rows(shape, {time_ms})
    assert pane <= time_ms < shape.pane_end(pane) == pane + shape.step_ms
    assert list(shape.windows_of([pane])) == [wanted]
    assert shape.first_end(pane) == shape.last_end(pane) == wanted.end_ms
    assert shape.last_window(pane) == wanted == shape.window_named(shape.name_of(wanted))
    assert shape.pane_numbered(shape.pane_numbers(pane)) == pane
    assert shape.window_of_start(shape.start_ms) == all_windows(shape)[0]


@given(shapes(), st.sets(SINCE), BOUNDS, BOUNDS)
def test_windows_of_panes_come_in_order_and_once(
    shape: Landmark, apart: set[int], after: int | None, upto: int | None
) -> None:
    times = {shape.start_ms + since_ms for since_ms in apart}
    kept = [
        window
        for window in with_own_rows(shape, times)
        if (after is None or window.end_ms > after) and (upto is None or window.end_ms <= upto)
    ]
    panes = {shape.panes(time_ms) for time_ms in times}
    assert list(shape.windows_of(panes, after_ms=after, upto_ms=upto)) == kept


@given(shapes(), SINCE)
def test_closed_up_to_is_the_last_end_that_was_passed(shape: Landmark, since_ms: int) -> None:
    level = shape.start_ms + since_ms
    ends = [shape.start_ms, *(window.end_ms for window in all_windows(shape))]
    assert shape.closed_by(level) == max(end for end in ends if end <= level)


@given(shapes(), SINCE, st.integers(-900, 900))
def test_no_row_is_ever_late_and_none_waits_that_was_emitted(
    shape: Landmark, since_ms: int, closed: int
) -> None:
    # panes    |--a--|--b--|--c--|
    # closed               C            a and b are needed for ever; c alone waits to be emitted
    pane = shape.panes(shape.start_ms + since_ms)
    assert pane >= shape.first_needed(closed) == shape.start_ms
    assert (pane >= shape.first_waiting(closed)) == (shape.pane_end(pane) > closed)


@given(shapes(), st.lists(SINCE, min_size=1), st.integers(-100, 700))
def test_all_that_lies_behind_is_carried_to_the_landmark(
    shape: Landmark, apart: list[int], behind_ms: int
) -> None:
    # panes    |--a--|--b--|--c--|
    # behind               D            b becomes part of a: each window that ends after D has both
    behind = shape.start_ms + behind_ms
    panes = sorted({shape.panes(shape.start_ms + since_ms) for since_ms in apart})
    carried = shape.carried(panes, behind)
    for pane in panes:
        into = carried.get(pane, pane)
        assert into == (shape.start_ms if shape.pane_end(pane) <= behind else pane)


@given(shapes(), st.integers(-100, 600))
def test_rows_never_miss_all_windows(shape: Landmark, behind: int) -> None:
    assert shape.missed_share(np.array([behind])).tolist() == [0]


@settings(max_examples=25)
@given(shapes(), st.lists(SINCE, min_size=1, max_size=40))
def test_windows_have_the_rows_of_a_join_on_ranges(shape: Landmark, apart: list[int]) -> None:
    flows = pl.DataFrame({"ts": [shape.start_ms + since_ms for since_ms in apart]})
    rows = flows.select(shape.panes(pl.col("ts")).alias("pane")).to_series().to_list()
    found = {
        window: sum(window.start_ms <= pane < window.end_ms for pane in rows)
        for window in shape.windows_of(set(rows))
    }
    windows = pl.DataFrame(
        [(one.start_ms, one.end_ms) for one in all_windows(shape)], ["s", "e"], orient="row"
    )
    assert found == joined(shape, windows, flows)


def joined(shape: Landmark, windows: pl.DataFrame, flows: pl.DataFrame) -> dict[Window, int]:
    """The same by DuckDB."""
    with duckdb.connect() as connection:
        connection.register("windows", windows.to_arrow())
        connection.register("flows", flows.to_arrow())
        found = connection.execute(
            "SELECT e, s, count(*) FROM flows JOIN windows ON ts >= s AND ts < e GROUP BY ALL "
            f"HAVING max(ts) >= e - {shape.step_ms}"
        ).fetchall()
    return {Window(end, start): number for end, start, number in found}
