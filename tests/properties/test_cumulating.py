"""The arithmetic of windows that cumulate against its definition, and against a join on ranges."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import duckdb
import numpy as np
import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from mars.core.windows import Cumulating, Window
from tests.support.windows import panes_of

TIMES = st.integers(-600, 600)
BOUNDS = st.none() | st.integers(-800, 800)


@st.composite
def shapes(draw: st.DrawFn) -> Cumulating:
    step = draw(st.integers(1, 60))
    return Cumulating(step * draw(st.integers(1, 8)), step)


def all_windows(shape: Cumulating) -> list[Window]:
    """Every window of a cycle near the epoch, in the order in which they end."""
    cycles = range(-1_200 // shape.size_ms, 1_200 // shape.size_ms + 1)
    steps = range(1, shape.size_ms // shape.step_ms + 1)
    begins = [n * shape.size_ms for n in cycles]
    return sorted(Window(begin + j * shape.step_ms, begin) for begin in begins for j in steps)


def holding(shape: Cumulating, time_ms: int) -> list[Window]:
    return [one for one in all_windows(shape) if one.start_ms <= time_ms < one.end_ms]


@given(shapes(), TIMES)
def test_row_is_in_the_windows_of_its_pane(shape: Cumulating, time_ms: int) -> None:
    # cycle    |-----------------------|
    # pane           |--*--|                windows [n, end of the pane or of a later one)
    pane, wanted = shape.panes(time_ms), holding(shape, time_ms)
    assert pane <= time_ms < shape.pane_end(pane)
    assert list(shape.windows_of([pane])) == wanted
    assert shape.first_end(pane) == wanted[0].end_ms
    assert shape.last_window(pane) == wanted[-1] == shape.window_of_start(wanted[0].start_ms)
    assert shape.last_end(pane) == wanted[-1].end_ms


@given(shapes(), st.sets(TIMES), BOUNDS, BOUNDS)
def test_windows_of_panes_come_in_order_and_once(
    shape: Cumulating, times: set[int], after: int | None, upto: int | None
) -> None:
    panes = {shape.panes(time_ms) for time_ms in times}
    wanted = {window for time_ms in times for window in holding(shape, time_ms)}
    kept = [
        window
        for window in sorted(wanted)
        if (after is None or window.end_ms > after) and (upto is None or window.end_ms <= upto)
    ]
    assert list(shape.windows_of(panes, after_ms=after, upto_ms=upto)) == kept


@given(shapes(), TIMES)
def test_panes_tile_their_window_and_its_end_names_it(shape: Cumulating, time_ms: int) -> None:
    # window  |===========|
    # panes   |---|---|---|
    for window in holding(shape, time_ms):
        panes = list(panes_of(shape, window))
        assert panes[0] == window.start_ms
        assert [shape.pane_end(pane) for pane in panes] == [*panes[1:], window.end_ms]
        assert shape.window_named(shape.name_of(window)) == window


@given(shapes(), TIMES)
def test_closed_up_to_is_the_last_end_that_was_passed(shape: Cumulating, level: int) -> None:
    # ends     |     |     |
    #                C   W
    ends = [window.end_ms for window in all_windows(shape)]
    assert shape.closed_by(level) == max(end for end in ends if end <= level)


@given(shapes(), TIMES, TIMES)
def test_pane_is_late_once_its_cycle_is_closed(
    shape: Cumulating, time_ms: int, closed: int
) -> None:
    # cycle  |-----|-----|-----|      late when its last window ends at or before C
    #           *              C
    pane = shape.panes(time_ms)
    late = shape.last_end(pane) <= closed
    assert late == all(window.end_ms <= closed for window in holding(shape, time_ms))
    assert late == (pane < shape.first_needed(closed))


@given(shapes(), st.lists(TIMES, min_size=1), TIMES)
def test_carried_panes_lie_in_the_same_windows_after_what_is_behind(
    shape: Cumulating, times: list[int], behind: int
) -> None:
    # panes    |--a--|--b--|--c--|
    # behind               D            b becomes part of a: each window that ends after D has both
    panes = sorted({shape.panes(time_ms) for time_ms in times})
    carried = shape.carried(panes, behind)
    for pane in panes:
        into = carried.get(pane, pane)
        after = [window for window in holding(shape, pane) if window.end_ms > behind]
        assert [window for window in holding(shape, into) if window.end_ms > behind] == after
        is_behind = shape.pane_end(pane) <= behind
        assert into == (shape.last_window(pane).start_ms if is_behind else pane)


@given(shapes(), st.integers(-100, 600))
def test_share_of_rows_that_are_too_late(shape: Cumulating, behind: int) -> None:
    # behind by b: those of the first b of a cycle find it open
    late = sum(shape.last_end(shape.panes(at)) <= at + behind for at in range(shape.size_ms))
    assert shape.missed_share(np.array([behind])).tolist() == [late / shape.size_ms]


@settings(max_examples=25)
@given(shapes(), st.lists(TIMES, min_size=1, max_size=40))
def test_windows_have_the_rows_of_a_join_on_ranges(shape: Cumulating, times: list[int]) -> None:
    windows = pl.DataFrame(
        [(one.start_ms, one.end_ms) for one in all_windows(shape)], ["s", "e"], orient="row"
    )
    assert counted(shape, times) == joined(windows, pl.DataFrame({"ts": times}))


def counted(shape: Cumulating, times: Sequence[int]) -> dict[Window, int]:
    """Rows of each window that has any, by its panes."""
    rows: defaultdict[int, int] = defaultdict(int)
    column = pl.DataFrame({"at": times}).select(shape.panes(pl.col("at"))).to_series()
    for pane in column.to_list():
        rows[pane] += 1
    return {
        window: sum(rows[pane] for pane in panes_of(shape, window))
        for window in shape.windows_of(rows)
    }


def joined(windows: pl.DataFrame, flows: pl.DataFrame) -> dict[Window, int]:
    """The same by DuckDB."""
    with duckdb.connect() as connection:
        connection.register("windows", windows.to_arrow())
        connection.register("flows", flows.to_arrow())
        found = connection.execute(
            "SELECT e, s, count(*) FROM flows JOIN windows ON ts >= s AND ts < e GROUP BY ALL"
        ).fetchall()
    return {Window(end, start): number for end, start, number in found}
