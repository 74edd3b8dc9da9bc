from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from mars.core.windows import Cumulating, Sliding, Window
from tests.support.windows import panes_of

TUMBLING = Sliding(size_ms=60, slide_ms=60)
SLIDING = Sliding(size_ms=30, slide_ms=20)


def starts(shape: Sliding, pane_ms: int) -> list[int]:
    return [window.start_ms for window in shape.windows_of([pane_ms])]


def test_windows_are_in_order_of_their_ends_and_then_of_their_starts() -> None:
    assert sorted([Window(30, 20), Window(40, 0), Window(30, 0)]) == [
        Window(30, 0),
        Window(30, 20),
        Window(40, 0),
    ]


def test_tumbling_window_is_its_own_pane() -> None:
    # time      0         60        120
    #           |---------|---------|
    assert TUMBLING.is_tumbling
    assert not SLIDING.is_tumbling
    assert TUMBLING.pane_end(60) == 120
    assert list(TUMBLING.windows_of([60])) == [Window(120, 60)]
    assert list(panes_of(TUMBLING, Window(120, 60))) == [60]


@pytest.mark.parametrize(
    ("time_ms", "pane"), [(0, 0), (59, 0), (60, 60), (-1, -60), (-60, -60), (-61, -120)]
)
def test_pane_holds_its_begin_and_not_its_end_before_1970_too(time_ms: int, pane: int) -> None:
    # -120      -60       0         60
    #   |---------|---------|---------|
    assert TUMBLING.panes(time_ms) == pane
    assert pl.select(TUMBLING.panes(pl.lit(time_ms))).item() == pane


@pytest.mark.parametrize(
    ("pane", "held_by"),
    [
        (0, [-20, 0]),
        (10, [0]),
        (20, [0, 20]),
        (30, [20]),
        (40, [20, 40]),
        (-10, [-20]),
        (-20, [-40, -20]),
    ],
)
def test_windows_that_hold_a_pane(pane: int, held_by: list[int]) -> None:
    # -20  -10  0    10   20   30   40   50   60   70
    # |==============|                                  -20
    #           |==============|                        0
    #                     |==============|              20
    #                               |==============|    40
    assert starts(SLIDING, pane) == held_by
    assert SLIDING.last_end(pane) == held_by[-1] + 30
    assert SLIDING.last_window(pane) == SLIDING.window_of_start(held_by[-1])
    assert SLIDING.first_end(pane) == held_by[0] + 30


def test_window_is_made_of_its_panes() -> None:
    # 20   30   40   50
    # |----|----|----|
    assert list(panes_of(SLIDING, Window(50, 20))) == [20, 30, 40]
    assert SLIDING.panes_in(30) == 3
    assert SLIDING.panes_in(31) == 4


def test_pane_is_of_no_use_once_its_last_window_is_closed() -> None:
    # pane 20: windows [0, 30) and [20, 50)
    assert SLIDING.last_end(20) == 50
    assert list(SLIDING.windows_of([20], after_ms=49)) == [Window(50, 20)]
    assert list(SLIDING.windows_of([20], after_ms=50)) == []


@pytest.mark.parametrize(("watermark", "end"), [(29, 10), (30, 30), (49, 30), (50, 50), (-1, -10)])
def test_closed_up_to_is_the_last_end_that_the_watermark_has_passed(
    watermark: int, end: int
) -> None:
    # ends   -10   10   30   50
    assert SLIDING.closed_by(watermark) == end


def test_windows_close_once_and_in_order() -> None:
    # ends       30   50   70   90
    # closed      C----------|        30 is closed already
    # watermark              W        70 is not yet due at 69
    def ends(after_ms: int, upto_ms: int) -> list[int]:
        due = SLIDING.windows_of(range(0, 90, 10), after_ms=after_ms, upto_ms=upto_ms)
        return [window.end_ms for window in due]

    assert ends(30, 69) == [50]
    assert ends(30, 70) == [50, 70]
    assert ends(30, 30) == []
    assert ends(30, 10) == []


def test_panes_before_the_next_window_are_not_needed() -> None:
    # closed up to 30: the next window is [20, 50)
    assert SLIDING.first_needed(30) == 20
    assert TUMBLING.first_needed(60) == 60


def test_rows_miss_the_windows_that_are_closed_when_they_come() -> None:
    # [0, 30) [20, 50): a row is in one and a half of them; behind by 10 it misses none for certain,
    # by 30 all of them
    behind = np.array([-5, 10, 20, 30, 99])
    assert SLIDING.missed_share(behind).tolist() == [0, 0, 0.5, 1, 1]


def test_windows_with_an_offset_begin_later() -> None:
    # 0    5              25             45
    #      |--------------|--------------|      20 long, 5 later
    shape = Sliding(20, 20, 5)
    assert [shape.panes(time_ms) for time_ms in (4, 5, 24, 25)] == [-15, 5, 5, 25]
    assert shape.closed_by(24) == 5
    assert list(shape.windows_of([5])) == [Window(25, 5)]
    assert shape.pane_numbered(shape.pane_numbers(25)) == 25
    cycles = Cumulating(30, 10, 5)
    assert list(cycles.windows_of([15])) == [Window(25, 5), Window(35, 5)]
    assert cycles.first_needed(35) == 35
