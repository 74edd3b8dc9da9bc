"""What `mars task preview` reads and prints."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from mars.cli.shared import output, read_text
from mars.cli.tables import WINDOW_TIMES, begin_together, cell, clock, number, table, window_name
from mars.client.answers import Preview, PreviewWindow
from mars.core.errors import Rejected
from mars.core.words import counted

WINDOWS_SHOWN = 3
"""The newest; --json has all of them."""

ROWS_SHOWN = 10
"""Of a window."""

_NAMES = ("partition", "window_number")


def read_lines(path: Path) -> list[object]:
    """The values of a file of JSON lines. Raises Rejected, naming the line."""
    rows = []
    # Only `\n` ends a line: a text in JSON may hold every other character that does so elsewhere.
    for count, line in enumerate(read_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            rows.append(json.loads(line))
        except (ValueError, RecursionError) as error:
            raise Rejected(f"{path}, line {count}: this is not a JSON value ({error})") from None
    return rows


def print_preview(found: Preview) -> None:
    """The newest windows, then what to know, then what the task would cost."""
    if any(window.is_session for window in found.windows):
        _print_sessions(found.windows[-ROWS_SHOWN:])
    else:
        shown = found.windows[-WINDOWS_SHOWN:]
        together = begin_together([window.window_start for window in shown])
        for window in shown:
            _print_window(window, together)
    counts = found.counts
    output().print(
        f"{number(counts.read)} rows read: {number(counts.counted)} counted, "
        f"{number(counts.filtered)} filtered, {number(counts.bad)} bad, "
        f"{number(counts.future)} future."
    )
    for sentence in (*found.notes, *found.predictions.sentences):
        output().print(sentence)
    if found.rejected:
        rows = [
            (str(each.partition), str(each.offset), each.reason, each.detail, each.sample)
            for each in found.rejected
        ]
        output().print(table(("partition", "offset", "reason", "because", "row"), rows))


def _print_window(window: PreviewWindow, together: bool) -> None:
    if window.counts_rows:
        name = f"window {window.window_number} of partition {window.partition}"
    else:
        name = window_name(window.window_start, window.window_end, together=together)
    full = ", not full" if window.complete is False else ""
    output().print(f"{name}  {counted(window.groups, 'group', ',')}{full}")
    if not window.rows:
        return
    hidden = _NAMES if window.counts_rows else WINDOW_TIMES
    columns = [column for column in window.rows[0] if column not in hidden]
    shown = window.rows[:ROWS_SHOWN]
    output().print(table(columns, [[cell(row, column) for column in columns] for row in shown]))


def _print_sessions(windows: Sequence[PreviewWindow]) -> None:
    """Sessions are of one group each: a line for each."""
    lines = [(window, row) for window in windows for row in window.rows]
    rest = [column for column in lines[0][1] if column not in WINDOW_TIMES]
    titles = ("begins", "ends", *rest, "")
    rows = [
        (
            clock(window.window_start),
            clock(window.window_end),
            *(cell(row, column) for column in rest),
            "" if window.complete else "may have more rows",
        )
        for window, row in lines
    ]
    output().print(table(titles, rows))
