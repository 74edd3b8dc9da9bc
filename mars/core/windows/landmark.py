"""Windows from a landmark on: all that came since it, at each step in which something came."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mars.core.windows.cumulating import Cycles
from mars.core.windows.moments import moment, span
from mars.core.windows.shapes import Regular, SaidLengths

if TYPE_CHECKING:  # a plan is read where it is not
    import numpy as np
    import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Landmark(Cycles, Regular):
    """Windows `[landmark, landmark + j * step)` for j from 1 on; in milliseconds.

    They are one cycle that never ends. A pane is there for the sake of the window that ends with
    it: those that end with a pane without rows are never asked for, though they hold others.

        time     5         15        25        35        45      landmark 5, step 10
        panes    |--rows---|--rows---|---------|--rows---|
        windows  |=========|                                     [5, 15)
                 |===================|                           [5, 25)
                 |=======================================|       [5, 45)
    """

    start_ms: int
    step_ms: int

    @property
    def offset_ms(self) -> int:
        """See `Regular`."""
        return self.start_ms % self.step_ms

    @property
    def pane_ms(self) -> int:
        """See `Regular`."""
        return self.step_ms

    @property
    def is_tumbling(self) -> bool:
        """See `Shape`."""
        return False

    @property
    def longest_ms(self) -> None:
        """See `Shape`."""
        return

    @property
    def kept_ms(self) -> int:
        """See `Shape`: behind its end it becomes part of the first one."""
        return self.step_ms

    @property
    def begins_ms(self) -> int:
        """See `Shape`."""
        return self.start_ms

    @property
    def by_any_row(self) -> bool:
        """See `Shape`."""
        return True

    @property
    def ends_apart_ms(self) -> int:
        """See `Shape`."""
        return self.step_ms

    @property
    def said(self) -> SaidLengths:
        """See `Shape`."""
        return SaidLengths(f"since {moment(self.start_ms)}", span(self.step_ms), 0)

    def cycle(self, time_ms: int) -> int:
        """See `Cycles`: there is one."""
        return self.start_ms

    def last_end(self, pane_ms: int) -> int:
        """See `Shape`: its own end."""
        return self.pane_end(pane_ms)

    def closed_by(self, level_ms: int) -> int:
        """See `Shape`."""
        return self.panes(level_ms)

    def first_waiting(self, closed_ms: int) -> int:
        """See `Shape`: all others have been emitted with some window."""
        return self.panes(closed_ms)

    def missed_share(self, behind_ms: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """See `Shape`: none, of windows without end."""
        return (behind_ms * 0.0).clip(0, 1)
