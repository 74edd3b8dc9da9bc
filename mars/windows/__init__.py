"""Panes, windows, watermarks: pure arithmetic on epoch milliseconds.

A window shape has windows `[n * slide, n * slide + size)` for every integer n. Panes are the
slices of length gcd(size, slide) of which each window is made; a row belongs to one pane and to
`size / slide` windows, more or less.

    time     0    10    20    30    40    50   s        size 30 s, slide 20 s, pane 10 s
    panes    |-----|-----|-----|-----|-----|
    windows  |=================|
                         |=================|
"""

from __future__ import annotations

from mars.windows.moments import moment, span
from mars.windows.shapes import (
    OPEN_PANES_MAX,
    Sliding,
    closed_up_to,
    ending_between,
    first_pane_needed,
    is_late,
    last_window_end,
    pane_of,
    window_panes,
    window_starts,
    windows_of_panes,
)
from mars.windows.watermarks import Watermark, event_time, find_watermark, highest_mark

__all__ = [
    "OPEN_PANES_MAX",
    "Sliding",
    "Watermark",
    "closed_up_to",
    "ending_between",
    "event_time",
    "find_watermark",
    "first_pane_needed",
    "highest_mark",
    "is_late",
    "last_window_end",
    "moment",
    "pane_of",
    "span",
    "window_panes",
    "window_starts",
    "windows_of_panes",
]
