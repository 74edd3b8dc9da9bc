"""Panes, windows, watermarks: pure arithmetic on epoch milliseconds.

A window shape has windows `[n * slide, n * slide + size)` for every integer n. Panes are the
slices of length gcd(size, slide) of which each window is made; a row belongs to one pane and to
`size / slide` windows, more or less.

    time     0    10    20    30    40    50   s        size 30 s, slide 20 s, pane 10 s
    panes    |-----|-----|-----|-----|-----|
    windows  |=================|
                         |=================|

Where windows cumulate, several begin together and end step by step (`cumulating.py`); those since a
landmark all do (`landmark.py`). Days, weeks
and months of a time zone differ in length (`zoned.py`): their panes are slices of its calendar.
Windows of so many rows go by their numbers, and by no time (`counting.py`). How long a session is
its rows tell (`sessions.py`).
"""

from __future__ import annotations

from typing import TypeAlias

from mars.core.windows.calendars import Calendar, Unit
from mars.core.windows.counting import Counting, CountingByKey
from mars.core.windows.cumulating import Cumulating
from mars.core.windows.landmark import Landmark
from mars.core.windows.moments import moment, span
from mars.core.windows.sessions import Session
from mars.core.windows.shapes import OPEN_PANES_MAX, Shape, Sliding, Window
from mars.core.windows.watermarks import Watermark, event_time, find_watermark, highest_mark
from mars.core.windows.zoned import ZonedCumulating, ZonedSliding
from mars.core.windows.zones import Zone

WindowShape: TypeAlias = (
    Sliding
    | Cumulating
    | Landmark
    | ZonedSliding
    | ZonedCumulating
    | Counting
    | CountingByKey
    | Session
)
"""The shapes that there are: who tells them apart names each of these."""

__all__ = [
    "OPEN_PANES_MAX",
    "Calendar",
    "Counting",
    "CountingByKey",
    "Cumulating",
    "Landmark",
    "Session",
    "Shape",
    "Sliding",
    "Unit",
    "Watermark",
    "Window",
    "WindowShape",
    "Zone",
    "ZonedCumulating",
    "ZonedSliding",
    "event_time",
    "find_watermark",
    "highest_mark",
    "moment",
    "span",
]
