"""Which pane a time falls into, which windows a pane belongs to, and when those end."""

from __future__ import annotations

from mars.plan import WindowShape


def pane_of(time_ms: int, pane_ms: int) -> int:
    """Start of the pane that holds a time, before 1970 too."""
    return time_ms // pane_ms * pane_ms


def window_starts(shape: WindowShape, pane_start_ms: int) -> range:
    """Starts of all windows that hold a pane, the earliest first; never empty."""
    pane_end = pane_start_ms + shape.pane_ms
    earliest = -((shape.size_ms - pane_end) // shape.slide_ms) * shape.slide_ms
    latest = pane_start_ms // shape.slide_ms * shape.slide_ms
    return range(earliest, latest + 1, shape.slide_ms)


def window_panes(shape: WindowShape, window_start_ms: int) -> range:
    """Starts of the panes of which a window is made, the earliest first."""
    return range(window_start_ms, window_start_ms + shape.size_ms, shape.pane_ms)


def last_window_end(shape: WindowShape, pane_start_ms: int) -> int:
    """End of the latest window that holds a pane: once it is closed, the pane is of no use."""
    return pane_start_ms // shape.slide_ms * shape.slide_ms + shape.size_ms


def is_late(shape: WindowShape, pane_start_ms: int, closed_ms: int) -> bool:
    """True if every window that holds the pane ends at or before `closed_ms`."""
    return last_window_end(shape, pane_start_ms) <= closed_ms


def closed_up_to(shape: WindowShape, watermark_ms: int) -> int:
    """The largest window end at or before a watermark."""
    return (watermark_ms - shape.size_ms) // shape.slide_ms * shape.slide_ms + shape.size_ms


def ending_between(shape: WindowShape, closed_ms: int, watermark_ms: int) -> range:
    """Ends of the windows that end in `(closed_ms, watermark_ms]`, the earliest first."""
    earliest = closed_up_to(shape, closed_ms) + shape.slide_ms
    return range(earliest, watermark_ms + 1, shape.slide_ms)


def first_pane_needed(shape: WindowShape, closed_ms: int) -> int:
    """Start of the earliest pane that belongs to a window ending after `closed_ms`."""
    return closed_up_to(shape, closed_ms) + shape.slide_ms - shape.size_ms
