from __future__ import annotations

import pytest

from mars.windows import (
    Sliding,
    closed_up_to,
    ending_between,
    first_pane_needed,
    is_late,
    last_window_end,
    pane_of,
    window_panes,
    window_starts,
)

TUMBLING = Sliding(size_ms=60, slide_ms=60)
SLIDING = Sliding(size_ms=30, slide_ms=20)


def test_tumbling_window_is_its_own_pane() -> None:
    # time      0         60        120
    #           |---------|---------|
    assert TUMBLING.pane_ms == 60
    assert list(window_starts(TUMBLING, 60)) == [60]
    assert list(window_panes(TUMBLING, 60)) == [60]


@pytest.mark.parametrize(
    ("time_ms", "pane"), [(0, 0), (59, 0), (60, 60), (-1, -60), (-60, -60), (-61, -120)]
)
def test_pane_holds_its_begin_and_not_its_end_before_1970_too(time_ms: int, pane: int) -> None:
    # -120      -60       0         60
    #   |---------|---------|---------|
    assert pane_of(time_ms, 60) == pane


@pytest.mark.parametrize(
    ("pane", "starts"),
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
def test_windows_that_hold_a_pane(pane: int, starts: list[int]) -> None:
    # -20  -10  0    10   20   30   40   50   60   70
    # |==============|                                  -20
    #           |==============|                        0
    #                     |==============|              20
    #                               |==============|    40
    assert list(window_starts(SLIDING, pane)) == starts
    assert last_window_end(SLIDING, pane) == starts[-1] + 30


def test_window_is_made_of_its_panes() -> None:
    # 20   30   40   50
    # |----|----|----|
    assert list(window_panes(SLIDING, 20)) == [20, 30, 40]


def test_pane_is_late_once_its_last_window_is_closed() -> None:
    # pane 20: windows [0, 30) and [20, 50)
    assert not is_late(SLIDING, 20, 49)
    assert is_late(SLIDING, 20, 50)


@pytest.mark.parametrize(("watermark", "end"), [(29, 10), (30, 30), (49, 30), (50, 50), (-1, -10)])
def test_closed_up_to_is_the_last_end_that_the_watermark_has_passed(
    watermark: int, end: int
) -> None:
    # ends   -10   10   30   50
    assert closed_up_to(SLIDING, watermark) == end


def test_windows_close_once_and_in_order() -> None:
    # ends       30   50   70   90
    # closed      C----------|        30 is closed already
    # watermark              W        70 is not yet due at 69
    assert list(ending_between(SLIDING, 30, 69)) == [50]
    assert list(ending_between(SLIDING, 30, 70)) == [50, 70]
    assert list(ending_between(SLIDING, 30, 30)) == []
    assert list(ending_between(SLIDING, 30, 10)) == []


def test_panes_before_the_next_window_are_not_needed() -> None:
    # closed up to 30: the next window is [20, 50)
    assert first_pane_needed(SLIDING, 30) == 20
    assert first_pane_needed(TUMBLING, 60) == 60
