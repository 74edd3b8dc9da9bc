"""Which pane a time falls into, which windows a pane belongs to, and when those end."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

OPEN_PANES_MAX = 50_000
"""Panes with rows that a task may have open in a bucket: about 2 kB of memory each, whatever is in
them. A year in windows of 11 minutes is as many; what has more is most often a wrong event time."""


@dataclass(frozen=True, slots=True)
class Sliding:
    """Windows `[n * slide, n * slide + size)`, aligned to the epoch; in milliseconds.

    `slide_ms == size_ms` is a tumbling window. The slide is never longer than the size.
    """

    size_ms: int
    slide_ms: int

    @property
    def pane_ms(self) -> int:
        """Length of the largest slice of time of which every window is made."""
        return math.gcd(self.size_ms, self.slide_ms)


def pane_of(time_ms: int, pane_ms: int) -> int:
    """Start of the pane that holds a time, before 1970 too."""
    return time_ms // pane_ms * pane_ms


def window_starts(shape: Sliding, pane_start_ms: int) -> range:
    """Starts of all windows that hold a pane, the earliest first; never empty."""
    pane_end = pane_start_ms + shape.pane_ms
    earliest = -((shape.size_ms - pane_end) // shape.slide_ms) * shape.slide_ms
    latest = pane_start_ms // shape.slide_ms * shape.slide_ms
    return range(earliest, latest + 1, shape.slide_ms)


def windows_of_panes(
    shape: Sliding,
    panes: Iterable[int],
    *,
    after_ms: int | None = None,
    upto_ms: int | None = None,
) -> Iterator[int]:
    """Starts of the windows that hold any of these panes and end in `(after_ms, upto_ms]`.

    They come in order and each once, though thousands of panes may share one: the cost grows with
    the panes and with the windows, not with their product.
    """
    lowest = None if after_ms is None else first_pane_needed(shape, after_ms)
    for pane in sorted(panes):
        held = window_starts(shape, pane)
        if upto_ms is not None and held[0] + shape.size_ms > upto_ms:
            return
        first = held[0] if lowest is None else max(held[0], lowest)
        last = held[-1] if upto_ms is None else min(held[-1], upto_ms - shape.size_ms)
        starts = range(first, last + 1, shape.slide_ms)
        yield from starts
        lowest = starts[-1] + shape.slide_ms if starts else lowest
        if upto_ms is not None and lowest is not None and lowest + shape.size_ms > upto_ms:
            return


def window_panes(shape: Sliding, window_start_ms: int) -> range:
    """Starts of the panes of which a window is made, the earliest first."""
    return range(window_start_ms, window_start_ms + shape.size_ms, shape.pane_ms)


def last_window_end(shape: Sliding, pane_start_ms: int) -> int:
    """End of the latest window that holds a pane: once it is closed, the pane is of no use."""
    return pane_start_ms // shape.slide_ms * shape.slide_ms + shape.size_ms


def is_late(shape: Sliding, pane_start_ms: int, closed_ms: int) -> bool:
    """True if every window that holds the pane ends at or before `closed_ms`."""
    return last_window_end(shape, pane_start_ms) <= closed_ms


def closed_up_to(shape: Sliding, watermark_ms: int) -> int:
    """The largest window end at or before a watermark."""
    return (watermark_ms - shape.size_ms) // shape.slide_ms * shape.slide_ms + shape.size_ms


def ending_between(shape: Sliding, closed_ms: int, watermark_ms: int) -> range:
    """Ends of the windows that end in `(closed_ms, watermark_ms]`, the earliest first."""
    earliest = closed_up_to(shape, closed_ms) + shape.slide_ms
    return range(earliest, watermark_ms + 1, shape.slide_ms)


def first_pane_needed(shape: Sliding, closed_ms: int) -> int:
    """Start of the earliest pane that belongs to a window ending after `closed_ms`."""
    return closed_up_to(shape, closed_ms) + shape.slide_ms - shape.size_ms
