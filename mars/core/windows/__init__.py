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

from mars.core.windows.moments import moment, span
from mars.core.windows.shapes import OPEN_PANES_MAX, Shape, Sliding, Window, WindowShape
from mars.core.windows.watermarks import Watermark, event_time, find_watermark, highest_mark

__all__ = [
    "OPEN_PANES_MAX",
    "Shape",
    "Sliding",
    "Watermark",
    "Window",
    "WindowShape",
    "event_time",
    "find_watermark",
    "highest_mark",
    "moment",
    "span",
]
