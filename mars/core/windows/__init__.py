"""Panes, windows, watermarks: pure arithmetic on epoch milliseconds.

A window shape has windows `[n * slide, n * slide + size)` for every integer n. Panes are the
slices of length gcd(size, slide) of which each window is made; a row belongs to one pane and to
`size / slide` windows, more or less.

    time     0    10    20    30    40    50   s        size 30 s, slide 20 s, pane 10 s
    panes    |-----|-----|-----|-----|-----|
    windows  |=================|
                         |=================|

Where windows cumulate, several begin together and end step by step (`cumulating.py`).
"""

from __future__ import annotations

from typing import TypeAlias

from mars.core.windows.cumulating import Cumulating
from mars.core.windows.moments import moment, span
from mars.core.windows.shapes import OPEN_PANES_MAX, Shape, Sliding, Window
from mars.core.windows.watermarks import Watermark, event_time, find_watermark, highest_mark

WindowShape: TypeAlias = Sliding | Cumulating
"""The shapes that there are: who tells them apart names each of these."""

__all__ = [
    "OPEN_PANES_MAX",
    "Cumulating",
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
