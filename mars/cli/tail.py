"""`mars tail`: results as they are committed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import click
import msgspec

from mars.answers import ResultEvent
from mars.cli.completion import task_argument
from mars.cli.shared import api_address, api_option, json_option, messages, output
from mars.cli.tables import clock, table
from mars.client import Client

ROWS_SHOWN = 20
"""Rows of a window that a table shows; --all and --json show every one."""

_TIMES = ("window_start", "window_end")


@click.command()
@task_argument
@click.option("--windows", type=click.IntRange(min=1), default=None, help="Stop after as many.")
@click.option("--all", "everything", is_flag=True, help="Every row of a window.")
@click.option("--sources", is_flag=True, help="With --json: where each row was counted from, too.")
@api_option
@json_option
def tail(
    name: str, windows: int | None, everything: bool, sources: bool, api: str | None, as_json: bool
) -> None:
    """Results of task NAME as they come: a table a window, or (--json) one line a row.

    With --sources a line is {"row": ..., "source": {"bucket", "rows", "ranges", "revision",
    "deleted"}}. Where late rows revise a window, the groups that they changed come again.
    """
    limit = None if everything else ROWS_SHOWN
    with Client(api_address(api)) as client:
        client.task(name)
        messages().print(f"Waiting for the next window of {name}; Ctrl-C ends this.", markup=False)
        shown, current = 0, _Window()
        for event in client.tail(name):
            if as_json:
                click.echo(_line(event) if sources else event.raw.decode())
            part = _part(event)
            if current.part not in (None, part):
                shown += 1
                _print(current, limit, as_json)
                current = _Window()
                if windows is not None and shown >= windows:
                    return
            current.add(part, event.row)


def _line(event: ResultEvent) -> str:
    """A row and its source, as JSON."""
    return msgspec.json.encode({"row": msgspec.Raw(event.raw), "source": event.source}).decode()


@dataclass(frozen=True, slots=True)
class _Part:
    """What makes a table: a window as it closed, or one revision of it."""

    start: int
    revision: int
    deleted: bool

    def title(self, rows: int) -> str:
        words = f"{clock(self.start)}  {rows} rows"
        if self.revision:
            words += f", revision {self.revision} for late rows"
        return words + (", no results any more" if self.deleted else "")


def _part(event: ResultEvent) -> _Part:
    source = event.source
    start = int(str(event.row["window_start"]))
    return _Part(start, source.revision if source else 0, source.deleted if source else False)


class _Window:
    """The rows of one table, as far as they have come."""

    def __init__(self) -> None:
        self.part: _Part | None = None
        self.rows: list[Mapping[str, object]] = []

    def add(self, part: _Part, row: Mapping[str, object]) -> None:
        self.part = part
        self.rows.append(row)


def _print(window: _Window, limit: int | None, as_json: bool) -> None:
    if as_json or window.part is None:
        return
    columns = [column for column in window.rows[0] if column not in _TIMES]
    kept = window.rows if limit is None else window.rows[:limit]
    cells = [[json.dumps(row[column], ensure_ascii=False) for column in columns] for row in kept]
    output().print(window.part.title(len(window.rows)))
    output().print(table(columns, cells))
    if len(kept) < len(window.rows):
        output().print(f"... and {len(window.rows) - len(kept)} more (--all shows them)")
