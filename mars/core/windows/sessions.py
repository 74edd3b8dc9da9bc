"""Sessions: the rows of a group that follow each other closely (decision 56).

A group's next session begins with the first row that comes a gap or more behind the one before it,
by event time. Where a session ends only its rows tell, so windows of this shape are not known from
panes alone; what is known of each pane is the shortest session that its rows may be of.

    rows      |x x  x       x x|x x          gap 4; cut where the cell of MAX ends
    sessions  |=======]     |==|====]        [first row, last row + gap), or up to the cell's end
    panes     |--|--|--|--|--|--|--|--|      shorter than the gap: rows of one are of one session
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from mars.core.windows.moments import span
from mars.core.windows.shapes import Regular, SaidLengths, Times, Window

if TYPE_CHECKING:  # a plan is read where neither of them is
    import numpy as np
    import numpy.typing as npt

PANES_A_GAP = 4
"""At least so many panes make a gap: a session closes at most one pane later than it could."""


@lru_cache(maxsize=1_024)
def _pane_ms(gap_ms: int, most_ms: int) -> int:
    """The longest pane that divides a cell and is no longer than a quarter of a gap; 1 ms else."""
    longest = gap_ms // PANES_A_GAP
    low = (part for part in range(1, math.isqrt(most_ms) + 1) if most_ms % part == 0)
    divisors = (part for pair in ((one, most_ms // one) for one in low) for part in pair)
    return max((part for part in divisors if part <= longest), default=1)


@dataclass(frozen=True, slots=True)
class Session(Regular):
    """Sessions with gaps of `gap_ms`, cut at multiples of `most_ms` since 1970: these are cells.

    A cut that depended on the first row of a session would be another one where rows that were
    emitted are not read again.
    """

    gap_ms: int
    most_ms: int

    @property
    def offset_ms(self) -> int:
        """See `Regular`."""
        return 0

    @property
    def pane_ms(self) -> int:
        """See `Regular`."""
        return _pane_ms(self.gap_ms, self.most_ms)

    @property
    def is_tumbling(self) -> bool:
        """See `Shape`."""
        return False

    @property
    def begin_together(self) -> bool:
        """See `Shape`."""
        return False

    @property
    def kept_ms(self) -> int:
        """See `Shape`."""
        return self.most_ms

    @property
    def ends_apart_ms(self) -> int:
        """See `Shape`."""
        return self.pane_ms

    @property
    def said(self) -> SaidLengths:
        """See `Shape`: how long sessions may be, and how long nothing comes between them."""
        return SaidLengths(span(self.most_ms), span(self.gap_ms), 0)

    def cell(self, time: Times) -> Times:
        """Where the cell begins that a time lies in."""
        return time // self.most_ms * self.most_ms

    # -------------------------------------------------------------------------- windows

    def reach(self, window: Window) -> Window:
        """Where rows lie that may be of a session: less than a gap before its first one, too."""
        return Window(window.end_ms, window.start_ms - self.gap_ms + 1)

    def last_window(self, pane_ms: int) -> Window:
        """See `Shape`: the shortest session that holds all times of a pane."""
        return Window(self.shortest_end(self.pane_end(pane_ms) - 1), pane_ms)

    def shortest_end(self, time_ms: int) -> int:
        """Where the session of a row ends if none follows it."""
        return min(time_ms + self.gap_ms, self.cell(time_ms) + self.most_ms)

    def windows_of(
        self, panes: Iterable[int], *, after_ms: int | None = None, upto_ms: int | None = None
    ) -> Iterator[Window]:
        """See `Shape`: of each pane the shortest session."""
        for window in sorted({self.last_window(pane) for pane in panes}):
            if (after_ms is None or window.end_ms > after_ms) and (
                upto_ms is None or window.end_ms <= upto_ms
            ):
                yield window

    def window_ending(self, end_ms: int) -> Window:
        """See `Regular`."""
        return self.last_window(self.panes(end_ms - self.gap_ms))

    def window_of_start(self, start_ms: int) -> Window:
        """See `Shape`: the shortest one."""
        return Window(self.shortest_end(start_ms), start_ms)

    def last_end(self, pane_ms: int) -> int:
        """See `Shape`: no session goes on behind its cell."""
        return self.cell(pane_ms) + self.most_ms

    # -------------------------------------------------------------------------- closing

    def closed_by(self, level_ms: int) -> int:
        """See `Shape`: rows are too late by whole panes."""
        return self.panes(level_ms)

    def first_needed(self, closed_ms: int) -> int:
        """See `Shape`: an open session has a row less than a gap before that, in the same cell."""
        return self.cell(closed_ms - self.gap_ms)

    def carried(self, panes: Sequence[int], behind_ms: int) -> Mapping[int, int]:
        """See `Shape`: none."""
        return {}

    def missed_share(self, behind_ms: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """See `Shape`: a row is of one session, and too late once that may have been emitted."""
        return (behind_ms / self.pane_ms).clip(0, 1)
