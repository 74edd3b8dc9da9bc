"""Which pane a time falls into, which windows hold a pane, and when those end.

All that is known of windows is asked of their shape: nothing outside this package reckons with the
lengths of which one is made. Panes are named by the moment at which they begin.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from mars.core.windows.moments import span
from mars.core.windows.zones import Zone

if TYPE_CHECKING:  # a plan is read where neither of them is
    import numpy as np
    import numpy.typing as npt
    import polars as pl

Times = TypeVar("Times", int, "pl.Expr")
"""A time, or a column of times (Int64, epoch ms)."""

Panes = TypeVar("Panes", int, "npt.NDArray[np.int64]")
"""A pane, or an array of them."""

OPEN_PANES_MAX = 50_000
"""Panes with rows that a task may have open in a bucket: about 2 kB of memory each, whatever is in
them. A year in windows of 11 minutes is as many; what has more is most often a wrong event time."""


class Window(NamedTuple):
    """The time `[start_ms, end_ms)`, of which a window has the rows; in epoch milliseconds.

    Its end comes first, and names it: windows are in the order in which they end, and a shape may
    have several that begin together. What stands in records, keys and answers is the start. It is
    a tuple because thousands may be sorted and looked up at a time, which takes dataclasses ten
    times as long.
    """

    end_ms: int
    start_ms: int


class SaidLengths(NamedTuple):
    """How long windows are, how far apart they end, and how much later they begin than otherwise:
    `1 month`, `1 d`, 0 ms.
    """

    size: str
    slide: str
    offset_ms: int


class Tiling(Protocol):
    """Panes, which tile time: of them all windows of a shape are made."""

    def panes(self, times: Times) -> Times:
        """The pane that each of these times falls into."""

    def pane_end(self, pane_ms: int) -> int:
        """The moment at which a pane ends, and the next one begins."""

    def pane_numbers(self, panes: Panes) -> Panes:
        """Panes as numbers, one more for each that follows; far apart where they are."""

    def pane_numbered(self, number: int) -> int:
        """The pane that has this number."""

    def panes_in(self, span_ms: int) -> int:
        """How many panes a span of time is made of, at most."""


class Shape(Tiling, Protocol):
    """What every shape of windows offers."""

    @property
    def is_tumbling(self) -> bool:
        """True where no two windows overlap, so that each pane is a window."""

    @property
    def longest_ms(self) -> int | None:
        """How long windows are, the longest if they differ; None where they grow for ever."""

    @property
    def kept_ms(self) -> int:
        """For how long from its begin on a pane may be kept apart from others, if no row is late:
        as long as windows are, unless all of them have it in common by then.
        """

    @property
    def begins_ms(self) -> int | None:
        """When the first window begins: no earlier row is in any. None: there is no first."""

    @property
    def by_any_row(self) -> bool:
        """True where a window that has rows is emitted only if one came in its last step, of any
        group: who does not see all rows does not know.
        """

    @property
    def ends_apart_ms(self) -> int:
        """How far apart the ends of windows are, the least if they differ: but for what a clock
        that is put forward takes.
        """

    @property
    def pane_ms(self) -> int:
        """How long panes are, the least if they differ, in the same way."""

    @property
    def said(self) -> SaidLengths:
        """The same as people say it."""

    @property
    def zone(self) -> Zone | None:
        """Whose clock they go by; None for lengths of time that are always the same."""

    def local(self, window: Window) -> str | None:
        """When a window begins by the clock of its zone, as ISO 8601: a day where all of them begin
        with one.
        """

    @property
    def begin_together(self) -> bool:
        """True where several windows begin at one moment: only their ends tell them apart."""

    # -------------------------------------------------------------------------- windows

    def windows_of(
        self, panes: Iterable[int], *, after_ms: int | None = None, upto_ms: int | None = None
    ) -> Iterator[Window]:
        """The windows for whose sake any of these panes is there, if they end in `(after, upto]`.

        Those are all that hold it; where no window is the last, the first that does.
        They come in order and each once, though thousands of panes may share one: the cost grows
        with the panes and with the windows, not with their product.
        """

    def first_end(self, pane_ms: int) -> int:
        """End of the earliest window that holds a pane."""

    def last_window(self, pane_ms: int) -> Window:
        """The latest window for whose sake a pane is there."""

    def last_end(self, pane_ms: int) -> int:
        """Its end: once that is closed, nothing of the pane waits to be emitted."""

    def window_of_start(self, start_ms: int) -> Window:
        """The window that begins then; the longest where several do."""

    def name_of(self, window: Window) -> int:
        """The moment by which records name a window: its start; its end where several begin
        together.
        """

    def window_named(self, name_ms: int) -> Window:
        """The window that a record names."""

    # -------------------------------------------------------------------------- closing

    def closed_by(self, level_ms: int) -> int:
        """The largest window end at or before a level of event time."""

    def first_needed(self, closed_ms: int) -> int:
        """The earliest pane that belongs to a window ending after `closed_ms`."""

    def first_waiting(self, closed_ms: int) -> int:
        """The earliest pane for whose sake a window ends after `closed_ms`."""

    def carried(self, panes: Sequence[int], behind_ms: int) -> Mapping[int, int]:
        """Of these panes those that may become part of another one, and which, once no window is
        needed that ends at or before `behind_ms`: all others that hold them hold that one, too.
        """

    def missed_share(self, behind_ms: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """How many of its windows a row is too late for, as a share, that comes when event time has
        gone on so far; on average over where in them it lies. All of them are 1.
        """


class EndingWindows(ABC):
    """Windows that one after the other end: which hold a pane follows from their ends alone."""

    __slots__ = ()

    @property
    @abstractmethod
    def kept_ms(self) -> int:
        """See `Shape`."""

    @property
    def longest_ms(self) -> int | None:
        """See `Shape`."""
        return self.kept_ms

    @property
    def begins_ms(self) -> int | None:
        """See `Shape`."""
        return None

    @property
    def by_any_row(self) -> bool:
        """See `Shape`."""
        return False

    @abstractmethod
    def pane_end(self, pane_ms: int) -> int:
        """See `Shape`."""

    @abstractmethod
    def window_ending(self, end_ms: int) -> Window:
        """The window that ends then."""

    @abstractmethod
    def end_after(self, time_ms: int) -> int:
        """The earliest window end after a time."""

    @abstractmethod
    def ends(self, first_ms: int, last_ms: int) -> Iterable[int]:
        """The window ends from one to another, both among them; none where the last comes first."""

    @abstractmethod
    def last_end(self, pane_ms: int) -> int:
        """See `Shape`."""

    @abstractmethod
    def closed_by(self, level_ms: int) -> int:
        """See `Shape`."""

    @abstractmethod
    def first_needed(self, closed_ms: int) -> int:
        """See `Shape`."""

    def first_waiting(self, closed_ms: int) -> int:
        """See `Shape`: what is needed at all."""
        return self.first_needed(closed_ms)

    def windows_of(
        self, panes: Iterable[int], *, after_ms: int | None = None, upto_ms: int | None = None
    ) -> Iterator[Window]:
        """See `Shape`."""
        latest = None if upto_ms is None else self.closed_by(upto_ms)
        next_end = None if after_ms is None else self.end_after(after_ms)
        for pane in sorted(panes):
            first, last = self.first_end(pane), self.last_end(pane)
            if next_end is not None:
                first = max(first, next_end)
            if latest is not None:
                last = min(last, latest)
                if first > latest:
                    return
            for end in self.ends(first, last):
                yield self.window_ending(end)
            next_end = max(first, self.end_after(last))

    def first_end(self, pane_ms: int) -> int:
        """See `Shape`."""
        return self.end_after(self.pane_end(pane_ms) - 1)

    @abstractmethod
    def window_of_start(self, start_ms: int) -> Window:
        """See `Shape`."""

    def name_of(self, window: Window) -> int:
        """See `Shape`: its start."""
        return window.start_ms

    def window_named(self, name_ms: int) -> Window:
        """See `Shape`."""
        return self.window_of_start(name_ms)


class Regular(EndingWindows):
    """Windows whose panes are of one length, and whose ends are equally far apart.

    `offset_ms` is by how much they begin later than at multiples of their slide since 1970.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def offset_ms(self) -> int:
        """See above."""

    @property
    @abstractmethod
    def pane_ms(self) -> int:
        """Length of the largest slice of time of which every window is made."""

    @property
    @abstractmethod
    def ends_apart_ms(self) -> int:
        """See `Shape`."""

    @property
    def said(self) -> SaidLengths:
        """See `Shape`."""
        return SaidLengths(span(self.kept_ms), span(self.ends_apart_ms), self.offset_ms)

    @property
    def zone(self) -> None:
        """See `Shape`."""
        return None

    def local(self, window: Window) -> None:
        """See `Shape`: no clock on a wall shows it."""
        return

    # ---------------------------------------------------------------------------- panes

    def panes(self, times: Times) -> Times:
        """See `Shape`; before 1970 too."""
        return (times - self.offset_ms) // self.pane_ms * self.pane_ms + self.offset_ms

    def pane_end(self, pane_ms: int) -> int:
        """See `Shape`."""
        return pane_ms + self.pane_ms

    def pane_numbers(self, panes: Panes) -> Panes:
        """See `Shape`."""
        return (panes - self.offset_ms) // self.pane_ms

    def pane_numbered(self, number: int) -> int:
        """See `Shape`."""
        return number * self.pane_ms + self.offset_ms

    def panes_in(self, span_ms: int) -> int:
        """See `Shape`."""
        return -(-span_ms // self.pane_ms)

    # -------------------------------------------------------------------------- windows

    def ends(self, first_ms: int, last_ms: int) -> Iterable[int]:
        """See `EndingWindows`."""
        return range(first_ms, last_ms + 1, self.ends_apart_ms)

    def end_after(self, time_ms: int) -> int:
        """See `EndingWindows`."""
        return self.closed_by(time_ms) + self.ends_apart_ms


@dataclass(frozen=True, slots=True)
class Sliding(Regular):
    """Windows `[n * slide + offset, n * slide + offset + size)`; in milliseconds since 1970.

    `slide_ms == size_ms` is a tumbling window: each of them ends where the next begins, and all
    that is said of sliding ones holds. The slide is never longer than the size.
    """

    size_ms: int
    slide_ms: int
    offset_ms: int = 0

    @property
    def pane_ms(self) -> int:
        """See `Regular`."""
        return math.gcd(self.size_ms, self.slide_ms)

    @property
    def is_tumbling(self) -> bool:
        """See `Shape`."""
        return self.slide_ms == self.size_ms

    @property
    def kept_ms(self) -> int:
        """See `Shape`."""
        return self.size_ms

    @property
    def ends_apart_ms(self) -> int:
        """See `Shape`."""
        return self.slide_ms

    @property
    def begin_together(self) -> bool:
        """See `Shape`."""
        return False

    # -------------------------------------------------------------------------- windows

    def window_ending(self, end_ms: int) -> Window:
        """See `Regular`."""
        return Window(end_ms, end_ms - self.size_ms)

    def last_window(self, pane_ms: int) -> Window:
        """See `Shape`."""
        return self.window_of_start(self.last_end(pane_ms) - self.size_ms)

    def last_end(self, pane_ms: int) -> int:
        """See `Shape`."""
        offset_ms = self.offset_ms
        return (pane_ms - offset_ms) // self.slide_ms * self.slide_ms + offset_ms + self.size_ms

    def window_of_start(self, start_ms: int) -> Window:
        """See `Shape`."""
        return Window(start_ms + self.size_ms, start_ms)

    # -------------------------------------------------------------------------- closing

    def closed_by(self, level_ms: int) -> int:
        """See `Shape`."""
        first_ms = self.offset_ms + self.size_ms
        return (level_ms - first_ms) // self.slide_ms * self.slide_ms + first_ms

    def first_needed(self, closed_ms: int) -> int:
        """See `Shape`."""
        return self.closed_by(closed_ms) + self.slide_ms - self.size_ms

    def carried(self, panes: Sequence[int], behind_ms: int) -> Mapping[int, int]:
        """See `Shape`: none, as windows that begin later hold some of them only."""
        return {}

    def missed_share(self, behind_ms: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """See `Shape`."""
        still_open_ms = self.size_ms - self.slide_ms
        return ((behind_ms - still_open_ms) / self.slide_ms).clip(0, 1)
