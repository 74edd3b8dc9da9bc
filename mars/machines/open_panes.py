"""The panes that are open, in order of time: what a window consists of is found by halving."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from mars.machines.panes import Pane
from mars.windows import Window


@dataclass(frozen=True, slots=True)
class Size:
    """What closing windows takes: `rows` are states that are to be merged, those of all panes."""

    windows: int = 0
    panes: int = 0
    rows: int = 0

    def __add__(self, other: Size) -> Size:
        """Of both together."""
        return Size(self.windows + other.windows, self.panes + other.panes, self.rows + other.rows)


class OpenPanes(Mapping[int, Pane]):
    """Panes by their start, the earliest first."""

    def __init__(self) -> None:
        self._by_start: dict[int, Pane] = {}
        self._starts: list[int] = []

    def __getitem__(self, start_ms: int) -> Pane:
        return self._by_start[start_ms]

    def __iter__(self) -> Iterator[int]:
        return iter(self._starts)

    def __len__(self) -> int:
        return len(self._starts)

    def at(self, start_ms: int) -> Pane:
        """The pane that starts then; a new one if there is none."""
        pane = self._by_start.get(start_ms)
        if pane is None:
            pane = self._by_start[start_ms] = Pane()
            insort(self._starts, start_ms)
        return pane

    def drop(self, starts_ms: Collection[int]) -> None:
        """Forget these."""
        for start in starts_ms:
            del self._by_start[start]
        if starts_ms:
            self._starts = [start for start in self._starts if start in self._by_start]

    def since(self, start_ms: int) -> list[int]:
        """The starts of those that do not start before."""
        return self._starts[bisect_left(self._starts, start_ms) :]

    def within(self, window: Window) -> list[Pane]:
        """Those of a window."""
        low = bisect_left(self._starts, window.start_ms)
        high = bisect_left(self._starts, window.end_ms, low)
        return [self._by_start[start] for start in self._starts[low:high]]

    def sizes(self, windows: Iterable[Window]) -> Iterator[Size]:
        """What each of these windows holds; they come in order, of their starts too.

        The cost grows with the panes and with the windows, not with their product.
        """
        low = high = rows = 0
        for window in windows:
            until = bisect_left(self._starts, window.end_ms, high)
            rows += self._rows(high, until)
            first = bisect_left(self._starts, window.start_ms, low)
            rows -= self._rows(low, first)
            low, high = first, until
            yield Size(1, high - low, rows)

    def _rows(self, low: int, high: int) -> int:
        return sum(self._by_start[start].groups for start in self._starts[low:high])
