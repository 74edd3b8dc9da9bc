"""What spans of time hold of the panes that are open."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from mars.core.windows import Sliding, Window
from mars.protocol.windows.open_panes import OpenPanes, Size
from mars.protocol.windows.panes import Pane

EACH_MS = Sliding(1, 1)

STARTS = st.lists(st.integers(-50, 50), max_size=30)


def made(starts: list[int]) -> OpenPanes:
    """Each pane has as many states waiting as it was named."""
    panes = OpenPanes(EACH_MS)
    for start in starts:
        panes.at(start).waiting_rows += 1
    return panes


@given(STARTS, STARTS)
def test_panes_come_in_order_of_time_each_once_until_they_are_dropped(
    starts: list[int], gone: list[int]
) -> None:
    panes = made(starts)
    panes.drop({start for start in gone if start in panes})

    left = sorted(set(starts) - set(gone))
    assert list(panes) == left
    assert all(one < after for one, after in pairwise(panes))
    assert panes.since(0) == [start for start in left if start >= 0]
    assert panes.before(0) == [start for start in left if start < 0]
    assert len(panes) == len(left)


@given(STARTS, st.lists(st.integers(-60, 60), max_size=20).map(sorted), st.integers(1, 40))
def test_sizes_of_windows_are_those_of_the_panes_that_begin_in_them(
    starts: list[int], spans: list[int], length: int
) -> None:
    panes = made(starts)

    def counted(begin: int) -> Size:
        inside = [start for start in starts if begin <= start < begin + length]
        return Size(1, len(set(inside)), len(inside))

    windows = [Window(begin + length, begin) for begin in spans]
    assert list(panes.sizes(windows)) == [counted(begin) for begin in spans]
    for window in windows:
        held = panes.within(window)
        assert len(held) == counted(window.start_ms).panes
        groups = sum(pane.groups for pane in held if isinstance(pane, Pane))
        assert groups == counted(window.start_ms).rows
