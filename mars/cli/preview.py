"""What `mars task preview` reads and prints."""

from __future__ import annotations

import json
from pathlib import Path

from mars.cli.shared import output, read_text
from mars.cli.tables import begin_together, number, table, window_name
from mars.client.answers import Preview, PreviewWindow
from mars.core.errors import Rejected

WINDOWS_SHOWN = 3
"""The newest; --json has all of them."""

ROWS_SHOWN = 10
"""Of a window."""

_TIMES = ("window_start", "window_end")


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
    name = window_name(window.window_start, window.window_end, together=together)
    output().print(f"{name}  {number(window.groups)} groups")
    if not window.rows:
        return
    columns = [column for column in window.rows[0] if column not in _TIMES]
    shown = window.rows[:ROWS_SHOWN]
    cells = [[json.dumps(row[column], ensure_ascii=False) for column in columns] for row in shown]
    output().print(table(columns, cells))
