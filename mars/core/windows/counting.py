"""Windows of so many rows of one lane: their moments are places, and no times (decision 52).

The rows of a lane that pass the filter have numbers in the order of their offsets. A place is the
number of a row, and far above it the partition of its lane, so that a place is one whole number,
and all rows of a lane lie side by side:

    place    |0......8| |p......p+8|         p = LANE_PLACES
    lane 0   |===|===|
    lane 1              |===|===|            windows of 3 rows; the last two rows wait for a third
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import gcd
from typing import TYPE_CHECKING, NamedTuple

from mars.core.windows.shapes import EndingWindows, Panes, SaidLengths, Times, Window

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

LANE_PLACES = 2**43
"""Places of a lane: 280 years of rows at 1,000 a second. Of so many lanes that their places are
whole numbers of 64 bits, there may be a million."""


def first_place(partition: int) -> int:
    """The place of the first row of a partition."""
    return partition * LANE_PLACES


def partition_of(place: int) -> int:
    """The partition in which a place lies."""
    return place // LANE_PLACES


def number_of(place: int) -> int:
    """The number of the row at a place."""
    return place % LANE_PLACES


EARLIEST_MS = -(2**48)
"""Event time is seen to go on from here: that is thousands of years before 1970."""


BEFORE_ALL_MS = EARLIEST_MS - 1
"""What was seen of event time is counted from here: so it is above 0, and 0 before all rows."""


class CountedAndSeen(NamedTuple):
    """How many rows lie below an offset, and how far event time had come with them, filtered ones
    too. Where rows of each key are counted, its `number` is what stands beside offsets.
    """

    rows: int
    seen: int

    @classmethod
    def of(cls, number: int) -> CountedAndSeen:
        """Both of a number."""
        return cls(number_of(number), number // LANE_PLACES)

    @property
    def number(self) -> int:
        """Both as one, of more than 64 bits; neither goes back, and so does not this."""
        return self.seen * LANE_PLACES + self.rows


class WindowNumber(NamedTuple):
    """What names a window of a version of a task: its number in its partition."""

    number: int
    partition: int


@dataclass(frozen=True, slots=True)
class Counting(EndingWindows):
    """Of each partition the windows `[n * slide, n * slide + size)`, n = 0, 1, ..., in rows.

    What other shapes call moments and lengths in milliseconds are places and rows here.
    """

    size: int
    slide: int

    @property
    def is_tumbling(self) -> bool:
        """See `Shape`."""
        return self.slide == self.size

    @property
    def kept_ms(self) -> int:
        """See `Shape`."""
        return self.size

    @property
    def ends_apart_ms(self) -> int:
        """See `Shape`."""
        return self.slide

    @property
    def pane_ms(self) -> int:
        """See `Shape`."""
        return gcd(self.size, self.slide)

    @property
    def said(self) -> SaidLengths:
        """See `Shape`."""
        return SaidLengths(f"{self.size} rows", f"{self.slide} rows", 0)

    @property
    def zone(self) -> None:
        """See `Shape`."""
        return None

    def local(self, window: Window) -> None:
        """See `Shape`."""
        return

    @property
    def begin_together(self) -> bool:
        """See `Shape`."""
        return False

    def number(self, window: Window) -> int:
        """The number of a window in its partition, from 0 on."""
        return number_of(window.start_ms) // self.slide

    def window_numbered(self, name: WindowNumber) -> Window:
        """The window of a name."""
        return self.window_of_start(first_place(name.partition) + name.number * self.slide)

    # ---------------------------------------------------------------------------- panes

    def panes(self, times: Times) -> Times:
        """See `Shape`."""
        begin = times // LANE_PLACES * LANE_PLACES
        return begin + (times - begin) // self.pane_ms * self.pane_ms

    def pane_end(self, pane_ms: int) -> int:
        """See `Shape`."""
        return pane_ms + self.pane_ms

    def pane_numbers(self, panes: Panes) -> Panes:
        """See `Shape`."""
        begin = panes // LANE_PLACES * LANE_PLACES
        return begin + (panes - begin) // self.pane_ms

    def pane_numbered(self, number: int) -> int:
        """See `Shape`."""
        begin = first_place(partition_of(number))
        return begin + (number - begin) * self.pane_ms

    def panes_in(self, span_ms: int) -> int:
        """See `Shape`."""
        return -(-span_ms // self.pane_ms)

    # -------------------------------------------------------------------------- windows

    def window_ending(self, end_ms: int) -> Window:
        """See `EndingWindows`."""
        return Window(end_ms, end_ms - self.size)

    def ends(self, first_ms: int, last_ms: int) -> Iterable[int]:
        """See `EndingWindows`."""
        return range(first_ms, last_ms + 1, self.slide)

    def end_after(self, time_ms: int) -> int:
        """See `EndingWindows`; in the same lane."""
        number = number_of(time_ms)
        slides = 0 if number < self.size else (number - self.size) // self.slide + 1
        return time_ms - number + slides * self.slide + self.size

    def last_window(self, pane_ms: int) -> Window:
        """See `Shape`."""
        return self.window_of_start(pane_ms - number_of(pane_ms) % self.slide)

    def last_end(self, pane_ms: int) -> int:
        """See `Shape`."""
        return self.last_window(pane_ms).end_ms

    def window_of_start(self, start_ms: int) -> Window:
        """See `Shape`."""
        return Window(start_ms + self.size, start_ms)

    # -------------------------------------------------------------------------- closing

    def closed_by(self, level_ms: int) -> int:
        """See `Shape`; the begin of the lane where no window ends by then."""
        number = number_of(level_ms)
        if number < self.size:
            return level_ms - number
        return level_ms - (number - self.size) % self.slide

    def first_needed(self, closed_ms: int) -> int:
        """See `Shape`; in the same lane."""
        return self.end_after(closed_ms) - self.size

    def carried(self, panes: Sequence[int], behind_ms: int) -> Mapping[int, int]:
        """See `Shape`: none."""
        return {}

    def missed_share(self, behind_ms: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """See `Shape`: no row is late."""
        return (behind_ms * 0).astype("float64")


@dataclass(frozen=True, slots=True)
class CountingByKey(Counting):
    """The same of the rows of each key of a partition (decision 59).

    Which windows a row is of only those tell that its key had before: panes are the rows of a
    partition as they come. Rows of a key are of one life as
    long as its partition's event time goes on by no more than `expire_ms` from one to the next.
    """

    expire_ms: int

    @property
    def said(self) -> SaidLengths:
        """See `Shape`."""
        return SaidLengths(f"{self.size} rows of a key", f"{self.slide} rows of a key", 0)

    def number(self, window: Window) -> int:
        """What names a window of a key in its partition: the number of its first row there."""
        return number_of(window.start_ms)

    def window_numbered(self, name: WindowNumber) -> Window:
        """The window of a name, as if no other key had rows."""
        return self.window_of_start(first_place(name.partition) + name.number)

    def panes(self, times: Times) -> Times:
        """See `Shape`: each row is one."""
        return times

    def pane_numbers(self, panes: Panes) -> Panes:
        """See `Shape`: all rows of a partition are told of together."""
        return panes // LANE_PLACES

    def pane_numbered(self, number: int) -> int:
        """See `Shape`."""
        return first_place(number)

    def last_end(self, pane_ms: int) -> int:
        """See `EndingWindows`: some key may wait for ever."""
        return first_place(partition_of(pane_ms) + 1) - 1


def number_of_window(shape: Counting, window: Window) -> WindowNumber:
    """What names a window."""
    return WindowNumber(shape.number(window), partition_of(window.start_ms))
