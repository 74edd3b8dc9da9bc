"""Tables and times as people read them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from mars.core.printable import LINES, printable

_MOMENT = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
"""What `clock` shows."""

MOMENT_WIDTH = len("2026-11-28 12:00:00")

WINDOW_TIMES = ("window_start", "window_end")
"""The columns of a result row that bound its window."""


class _Table(Table):
    """Columns with times of a day are folded last: not before the others are this narrow."""

    NARROW = 8

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        moments = [one for one in self.columns if _holds_moments(list(map(str, one.cells)))]
        others = len(self.columns) - len(moments)
        fits = (MOMENT_WIDTH + 3) * len(moments) + self.NARROW * others <= options.max_width
        for column in moments:
            column.no_wrap = fits
        yield from super().__rich_console__(console, options)


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """A plain table; cells are shown as they are: nothing in them is read as markup or obeyed."""
    made = _Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in titles:
        made.add_column(_literal(title), overflow="fold")
    for row in rows:
        made.add_row(*(_literal(cell) for cell in row))
    return made


def listing(things: str, titles: Sequence[str], rows: Sequence[Sequence[str]]) -> Table | str:
    """A table of all of them, or a sentence where there are none."""
    return table(titles, rows) if rows else f"There are no {things}."


def _holds_moments(cells: Sequence[str]) -> bool:
    """Times alone, and dashes: a longer text beside them must be folded, or it would be cut off."""
    said = [cell for cell in cells if cell not in ("", "-")]
    return bool(said) and all(map(_MOMENT.fullmatch, said))


def _literal(cell: str) -> Text:
    return Text(printable(cell, LINES))


def cell(row: Mapping[str, object], column: str) -> str:
    """The value of a result row: JSON, but for the bounds of its window."""
    value = row[column]
    if column in WINDOW_TIMES and isinstance(value, int):
        return clock(value)
    return json.dumps(value, ensure_ascii=False)


def clock(time_ms: int | None) -> str:
    """A time in UTC to the second, or a dash."""
    if time_ms is None:
        return "-"
    try:
        moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(time_ms)
    return moment.strftime("%Y-%m-%d %H:%M:%S")


def window_name(start_ms: int, end_ms: int, *, together: bool) -> str:
    """A window in UTC: its start, and its end where several begin `together`."""
    start, end = clock(start_ms), clock(end_ms)
    day, _, time = end.partition(" ")
    ends = time if time and start.startswith(day) else end
    return f"{start} to {ends}" if together else start


def begin_together(starts_ms: Sequence[int]) -> bool:
    """Whether some of these windows begin at one moment."""
    return len(set(starts_ms)) < len(starts_ms)


def number(value: float | None) -> str:
    """A figure with thousands separated, or a dash."""
    return "-" if value is None else f"{value:,.0f}"
