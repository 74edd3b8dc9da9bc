"""Windows by the clock and the calendar of a time zone: days, weeks, months, parts of a day.

They are made of the slices of a `Calendar`, and differ in length as those do: what is arithmetic
for windows of one length is asked of it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mars.core.windows.calendars import Calendar
from mars.core.windows.cumulating import Cycles
from mars.core.windows.shapes import EndingWindows, Panes, SaidLengths, Times, Window
from mars.core.windows.zones import Zone

if TYPE_CHECKING:  # a plan is read where it is not
    import numpy as np
    import numpy.typing as npt


class Zoned(EndingWindows):
    """Windows whose panes are slices of a calendar, at the end of each of which one ends."""

    __slots__ = ()

    steps: Calendar

    @property
    @abstractmethod
    def whole(self) -> Calendar:
        """The calendar with whose slices windows begin."""

    @property
    def zone(self) -> Zone:
        """See `Shape`."""
        return self.steps.zone

    @property
    def pane_ms(self) -> int:
        """See `Shape`."""
        return self.steps.least_ms

    @property
    def ends_apart_ms(self) -> int:
        """See `Shape`."""
        return self.steps.least_ms

    def local(self, window: Window) -> str | None:
        """See `Shape`."""
        return self.whole.local(window.start_ms)

    # ---------------------------------------------------------------------------- panes

    def panes(self, times: Times) -> Times:
        """See `Shape`."""
        if isinstance(times, int):
            return self.steps.floor(times)
        from mars.core.windows.calendar_columns import floors  # noqa: PLC0415 -- see above

        return floors(self.steps, times)

    def pane_end(self, pane_ms: int) -> int:
        """See `Shape`."""
        return self.steps.after(pane_ms)

    def pane_numbers(self, panes: Panes) -> Panes:
        """See `Shape`."""
        if isinstance(panes, int):
            return self.steps.number(panes)
        from mars.core.windows.calendar_columns import numbers_of  # noqa: PLC0415 -- see above

        return numbers_of(self.steps, panes)

    def pane_numbered(self, number: int) -> int:
        """See `Shape`."""
        return self.steps.start(number)

    def panes_in(self, span_ms: int) -> int:
        """See `Shape`."""
        return -(-span_ms // self.pane_ms)

    # -------------------------------------------------------------------------- windows

    def ends(self, first_ms: int, last_ms: int) -> Iterable[int]:
        """See `EndingWindows`."""
        low, high = self.steps.number(first_ms), self.steps.number(last_ms)
        return (self.steps.start(number) for number in range(low, high + 1))

    def end_after(self, time_ms: int) -> int:
        """See `EndingWindows`."""
        return self.steps.after(time_ms)

    def closed_by(self, level_ms: int) -> int:
        """See `Shape`."""
        return self.steps.floor(level_ms)


@dataclass(frozen=True, slots=True)
class ZonedSliding(Zoned):
    """Windows of `count` slices of a calendar, of which one ends with each: `7 d SLIDE 1 d`.

    A count of 1 is a tumbling window: the day.
    """

    steps: Calendar
    count: int = 1

    @property
    def whole(self) -> Calendar:
        """See `Zoned`."""
        return self.steps

    @property
    def is_tumbling(self) -> bool:
        """See `Shape`."""
        return self.count == 1

    @property
    def begin_together(self) -> bool:
        """See `Shape`."""
        return False

    @property
    def kept_ms(self) -> int:
        """See `Shape`."""
        return self.count * self.steps.longest_ms

    @property
    def said(self) -> SaidLengths:
        """See `Shape`."""
        size = self.steps.times(self.count)
        return SaidLengths(size, str(self.steps), self.whole.offset_ms)

    def window_ending(self, end_ms: int) -> Window:
        """See `EndingWindows`."""
        return Window(end_ms, self.steps.after(end_ms, -self.count))

    def last_window(self, pane_ms: int) -> Window:
        """See `Shape`."""
        return self.window_of_start(pane_ms)

    def last_end(self, pane_ms: int) -> int:
        """See `Shape`."""
        return self.steps.after(pane_ms, self.count)

    def window_of_start(self, start_ms: int) -> Window:
        """See `Shape`."""
        return Window(self.last_end(start_ms), start_ms)

    def first_needed(self, closed_ms: int) -> int:
        """See `Shape`."""
        return self.steps.after(closed_ms, 1 - self.count)

    def carried(self, panes: Sequence[int], behind_ms: int) -> Mapping[int, int]:
        """See `Shape`: none, as windows that begin later hold some of them only."""
        return {}

    def missed_share(self, behind_ms: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """See `Shape`."""
        slide_ms = self.steps.least_ms
        return ((behind_ms - (self.count - 1) * slide_ms) / slide_ms).clip(0, 1)


@dataclass(frozen=True, slots=True)
class ZonedCumulating(Cycles, Zoned):
    """Windows that begin with a slice of one calendar and end with each of a finer one: the month
    so far, every day. Each slice of `cycles` begins with one of `steps`.
    """

    steps: Calendar
    cycles: Calendar

    @property
    def whole(self) -> Calendar:
        """See `Zoned`."""
        return self.cycles

    @property
    def is_tumbling(self) -> bool:
        """See `Shape`."""
        return self.steps == self.cycles

    @property
    def kept_ms(self) -> int:
        """See `Shape`."""
        return self.cycles.longest_ms

    @property
    def said(self) -> SaidLengths:
        """See `Shape`."""
        return SaidLengths(str(self.cycles), str(self.steps), self.whole.offset_ms)

    def cycle(self, time_ms: int) -> int:
        """See `Cycles`."""
        return self.cycles.floor(time_ms)

    def last_end(self, pane_ms: int) -> int:
        """See `Shape`."""
        return self.cycles.after(pane_ms)

    def missed_share(self, behind_ms: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """See `Shape`."""
        return (behind_ms / self.cycles.least_ms).clip(0, 1)
