"""Windows that begin together and end step by step: the day so far, every minute."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mars.core.windows.shapes import EndingWindows, Regular, Window

if TYPE_CHECKING:  # a plan is read where it is not
    import numpy as np
    import numpy.typing as npt


class Cycles(EndingWindows):
    """Windows that begin together, with a cycle, of which the last is all of it."""

    __slots__ = ()

    @abstractmethod
    def cycle(self, time_ms: int) -> int:
        """Where the cycle begins that a time falls into."""

    @property
    def begin_together(self) -> bool:
        """See `Shape`."""
        return True

    def window_ending(self, end_ms: int) -> Window:
        """See `EndingWindows`."""
        return Window(end_ms, self.cycle(end_ms - 1))

    def last_window(self, pane_ms: int) -> Window:
        """See `Shape`: all of its cycle."""
        return Window(self.last_end(pane_ms), self.cycle(pane_ms))

    def window_of_start(self, start_ms: int) -> Window:
        """See `Shape`: all of the cycle that begins then."""
        return Window(self.last_end(start_ms), start_ms)

    def name_of(self, window: Window) -> int:
        """See `Shape`: its end."""
        return window.end_ms

    def window_named(self, name_ms: int) -> Window:
        """See `Shape`."""
        return self.window_ending(name_ms)

    def first_needed(self, closed_ms: int) -> int:
        """See `Shape`: where the cycle begins that is not closed."""
        return self.cycle(closed_ms)

    def carried(self, panes: Sequence[int], behind_ms: int) -> Mapping[int, int]:
        """See `Shape`: what lies behind goes to the begin of its cycle."""
        return {
            pane: cycle
            for pane in panes
            if self.pane_end(pane) <= behind_ms and (cycle := self.cycle(pane)) != pane
        }


@dataclass(frozen=True, slots=True)
class Cumulating(Cycles, Regular):
    """Windows `[n * size, n * size + j * step)` for j from 1 to `size / step`; in milliseconds.

    Those of one n are a cycle, and the last of them is all of it. The size is a multiple of the
    step, which is the pane, too. All of it is `offset_ms` later where that is given.

        time     0         10        20        30 s        size 30 s, step 10 s
        windows  |=========|                               [0, 10)
                 |===================|                     [0, 20)
                 |=============================|           [0, 30), the next one is [30, 40)
    """

    size_ms: int
    step_ms: int
    offset_ms: int = 0

    @property
    def pane_ms(self) -> int:
        """See `Regular`."""
        return self.step_ms

    @property
    def is_tumbling(self) -> bool:
        """See `Shape`."""
        return self.step_ms == self.size_ms

    @property
    def kept_ms(self) -> int:
        """See `Shape`."""
        return self.size_ms

    @property
    def ends_apart_ms(self) -> int:
        """See `Shape`."""
        return self.step_ms

    def cycle(self, time_ms: int) -> int:
        """See `Cycles`."""
        return (time_ms - self.offset_ms) // self.size_ms * self.size_ms + self.offset_ms

    def last_end(self, pane_ms: int) -> int:
        """See `Shape`."""
        return self.cycle(pane_ms) + self.size_ms

    def closed_by(self, level_ms: int) -> int:
        """See `Shape`."""
        return self.panes(level_ms)

    def missed_share(self, behind_ms: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """See `Shape`: the last of its windows ends with the cycle."""
        return (behind_ms / self.size_ms).clip(0, 1)
