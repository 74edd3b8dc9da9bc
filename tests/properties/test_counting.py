"""Windows that count rows, against their definition."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mars.core.windows import Counting, Window
from mars.core.windows.counting import LANE_PLACES, first_place, number_of, partition_of

PARTITIONS = st.sampled_from([0, 1, 7, 2**20 - 1])
NUMBERS = st.integers(0, 200) | st.integers(LANE_PLACES - 1_000, LANE_PLACES - 200)


@st.composite
def shapes(draw: st.DrawFn) -> Counting:
    size = draw(st.integers(1, 40))
    return Counting(size, draw(st.integers(1, size)))


def holding(shape: Counting, partition: int, number: int) -> list[Window]:
    """The windows that hold a row, one by one."""
    begin = first_place(partition)
    first = max(0, (number - shape.size) // shape.slide - 1)
    starts = (at * shape.slide for at in range(first, number // shape.slide + 2))
    return [
        Window(begin + start + shape.size, begin + start)
        for start in starts
        if start <= number < start + shape.size
    ]


@given(shapes(), PARTITIONS, NUMBERS)
def test_a_row_is_in_the_windows_that_hold_its_number(
    shape: Counting, partition: int, number: int
) -> None:
    place = first_place(partition) + number
    assert (partition_of(place), number_of(place)) == (partition, number)
    pane = shape.panes(place)
    wanted = holding(shape, partition, number)

    assert pane <= place < shape.pane_end(pane)
    assert list(shape.windows_of([pane])) == wanted
    if wanted:
        assert shape.last_window(pane) == wanted[-1]
        assert shape.first_end(pane) == wanted[0].end_ms
        after = shape.pane_end(pane)
        assert all(one.start_ms <= pane and after <= one.end_ms for one in wanted)
        assert shape.number(wanted[0]) * shape.slide == number_of(wanted[0].start_ms)


@given(shapes(), st.lists(st.tuples(PARTITIONS, NUMBERS), max_size=20))
def test_panes_of_arrays_are_those_of_their_rows(
    shape: Counting, rows: list[tuple[int, int]]
) -> None:
    places = [first_place(partition) + number for partition, number in rows]
    panes = shape.panes(np.array(places, dtype=np.int64))  # type: ignore[type-var]
    assert panes.tolist() == [shape.panes(place) for place in places]
    numbers = shape.pane_numbers(panes)
    assert [shape.pane_numbered(number) for number in numbers.tolist()] == panes.tolist()


@given(shapes(), PARTITIONS, NUMBERS, NUMBERS)
def test_what_is_closed_and_what_is_needed(
    shape: Counting, partition: int, closed: int, number: int
) -> None:
    begin = first_place(partition)
    ends = [window.end_ms for window in holding(shape, partition, number)]
    level = shape.closed_by(begin + closed)

    assert [end for end in ends if end <= begin + closed] == [end for end in ends if end <= level]
    needed = any(end > begin + closed for end in ends)
    pane = shape.panes(begin + number)
    assert needed == (bool(ends) and pane >= shape.first_needed(begin + closed)) or not ends
