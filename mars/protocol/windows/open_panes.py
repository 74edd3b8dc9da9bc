"""The panes that are open, in order of time: what a window consists of is found by halving.

Long windows of many panes that slide share nearly all of them with the next. They are made of as
few pieces as there are, panes at both ends and blocks of ever more panes in between:

    panes     |.|.|.|.|.|.|.|.|.|.|.|.|.|.|.|.|.|.|
    blocks    |-------|-------|-------|-------|----      of BLOCK_PANES panes, and of so many blocks
    window          |.|-------|-------|.|.|
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from mars.core.windows import Shape, Window
from mars.protocol.windows.panes import Block, Pane, Piece

BLOCK_PANES = 64
"""Panes of a block, and blocks of a larger one: a window of 10,000 panes has some 130 pieces. With
fewer, later windows take a little less, and the first one, for which all are made, much longer."""

FRAME_PANES = 2
"""A frame of a block takes as long as so many panes: it has more states."""

BLOCKS_FROM_PANES = 128
"""Windows of fewer panes are made of the panes themselves."""


@dataclass(frozen=True, slots=True)
class Size:
    """What closing windows takes: `panes` and `rows` (their states) that are to be merged."""

    windows: int = 0
    panes: int = 0
    rows: int = 0

    def __add__(self, other: Size) -> Size:
        """Of both together."""
        return Size(self.windows + other.windows, self.panes + other.panes, self.rows + other.rows)


class OpenPanes(Mapping[int, Pane]):
    """Panes by their start, the earliest first."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._by_start: dict[int, Pane] = {}
        self._starts: list[int] = []
        self._spans = list(_spans(shape))
        self._blocks: dict[tuple[int, int], Block] = {}
        """By the number of panes that they span, and the number of the first of them."""
        self._merged: Size | None = None
        """What was merged of the last window that was made of blocks."""

    def __getitem__(self, start_ms: int) -> Pane:
        return self._by_start[start_ms]

    def __iter__(self) -> Iterator[int]:
        return iter(self._starts)

    def __len__(self) -> int:
        return len(self._starts)

    def at(self, start_ms: int) -> Pane:
        """The pane that starts then, to be changed; a new one if there is none."""
        self._change(start_ms)
        pane = self._by_start.get(start_ms)
        if pane is None:
            pane = self._by_start[start_ms] = Pane()
            insort(self._starts, start_ms)
        return pane

    def drop(self, starts_ms: Collection[int]) -> None:
        """Forget these."""
        for start in starts_ms:
            self._change(start)
            del self._by_start[start]
        if starts_ms:
            self._starts = [start for start in self._starts if start in self._by_start]

    def carry(self, behind_ms: int) -> None:
        """Make one pane of those that no window tells apart which ends after this time."""
        carried = self._shape.carried(self.before(behind_ms), behind_ms)
        for start, into in carried.items():
            self.at(into).carry(self._by_start[start], into)
        self.drop(carried)

    def since(self, start_ms: int) -> list[int]:
        """The starts of those that do not start before."""
        return self._starts[self._place(start_ms) :]

    def before(self, start_ms: int) -> list[int]:
        """The starts of those that start before."""
        return self._starts[: self._place(start_ms)]

    def _change(self, start_ms: int) -> None:
        """Throw the blocks away that hold a pane."""
        if self._blocks:
            number = self._shape.pane_numbers(start_ms)
            for span in self._spans:
                self._blocks.pop((span, number // span * span), None)

    def within(self, window: Window) -> list[Piece]:
        """What a window consists of, in order of time."""
        low, high = self._place(window.start_ms), self._place(window.end_ms)
        if high - low < BLOCKS_FROM_PANES or not self._spans:
            return [self._by_start[start] for start in self._starts[low:high]]
        number = self._shape.pane_numbers
        return list(self._pieces(number(window.start_ms), number(window.end_ms)))

    def has_merged(self, window: Window, frames: int, rows: int) -> None:
        """Of how many frames, with how many states, what `within` gave for a window was made."""
        if self._place(window.end_ms) - self._place(window.start_ms) >= BLOCKS_FROM_PANES:
            self._merged = Size(1, frames, rows)

    def _place(self, start_ms: int) -> int:
        return bisect_left(self._starts, start_ms)

    def _pieces(self, number: int, end: int) -> Iterator[Piece]:
        """The panes with numbers in `[number, end)`, in blocks as large as they can be."""
        while number < end:
            fitting = (span for span in self._spans if not number % span and number + span <= end)
            span = max(fitting, default=1)
            yield from self._piece(span, number)
            number += span

    def _piece(self, span: int, number: int) -> Iterator[Piece]:
        """The block of so many panes, or the pane; nothing where there is none."""
        start_ms, end_ms = (self._shape.pane_numbered(at) for at in (number, number + span))
        if span == 1:
            if start_ms in self._by_start:
                yield self._by_start[start_ms]
        elif self._place(start_ms) < self._place(end_ms):
            place = span, number
            if place not in self._blocks:
                step = span // BLOCK_PANES
                parts = (self._piece(step, at) for at in range(number, number + span, step))
                self._blocks[place] = Block([one for part in parts for one in part])
            yield self._blocks[place]

    def sizes(self, windows: Iterable[Window]) -> Iterator[Size]:
        """What each of these windows takes; they come in order, of their starts too.

        Those that are made of blocks take about what the last one of them did, which was more for
        the first. The cost grows with the panes and with the windows, not with their product.
        """
        low = high = rows = 0
        for window in windows:
            until = bisect_left(self._starts, window.end_ms, high)
            rows += self._rows(high, until)
            first = bisect_left(self._starts, window.start_ms, low)
            rows -= self._rows(low, first)
            low, high = first, until
            yield self._expected(Size(1, high - low, rows))

    def _expected(self, all_panes: Size) -> Size:
        last = self._merged
        if last is None or all_panes.panes < BLOCKS_FROM_PANES:
            return all_panes
        return Size(
            1,
            min(all_panes.panes, FRAME_PANES * last.panes + BLOCK_PANES),
            min(all_panes.rows, 2 * last.rows),
        )

    def _rows(self, low: int, high: int) -> int:
        return sum(self._by_start[start].groups for start in self._starts[low:high])


def _spans(shape: Shape) -> Iterator[int]:
    """How many panes blocks may have."""
    span, most = BLOCK_PANES, shape.panes_in(shape.kept_ms)
    while span <= most:
        yield span
        span *= BLOCK_PANES
