"""`mars tail`: results as they are committed."""

from __future__ import annotations

import itertools
import json
import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import click
import msgspec

from mars.answers import ResultEvent
from mars.cli.completion import task_argument
from mars.cli.shared import api_address, api_option, json_option, messages, output
from mars.cli.tables import clock, table
from mars.client import Client
from mars.errors import MarsError, Unavailable

ROWS_SHOWN = 20
"""Rows of a window that a table shows; --all and --json show every one."""

QUIET_S = 2.0
"""A window is shown once no row of it came for so long: its buckets emit it one after another. Not
only when the next one begins, which may be an hour later, or never."""

_TIMES = ("window_start", "window_end")


@click.command()
@task_argument
@click.option(
    "--windows",
    type=click.IntRange(min=1),
    default=None,
    help="Stop after as many; a revision is one, too.",
)
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
        messages().print(f"Waiting for the next window of {name}; Ctrl-C ends this.")
        events = _followed(client, name)
        for _ in itertools.count() if windows is None else range(windows):
            window = _next_window(events, (lambda event: _say(event, sources)) if as_json else None)
            if not as_json:
                _print(window, limit)


def _say(event: ResultEvent, sources: bool) -> None:
    click.echo(_line(event) if sources else event.raw.decode())


def _followed(client: Client, name: str) -> _Events:
    """The events of a task, read by a thread that ends with the command."""
    events = _Events()

    def follow() -> None:
        try:
            for event in client.tail(name):
                events.put(event)
            events.put(Unavailable("api", "it has ended the stream of results"))
        except MarsError as error:
            events.put(error)

    threading.Thread(target=follow, name=f"tail-{name}", daemon=True).start()
    return events


def _line(event: ResultEvent) -> str:
    """A row and its source, as JSON."""
    return msgspec.json.encode({"row": msgspec.Raw(event.raw), "source": event.source}).decode()


class _Events:
    """A queue of events, ended by an error, that can be looked into without taking."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[ResultEvent | MarsError] = queue.SimpleQueue()
        self._head: ResultEvent | None = None

    def put(self, event: ResultEvent | MarsError) -> None:
        self._queue.put(event)

    def look(self, wait_s: float | None) -> ResultEvent | None:
        """The next event, which stays; None: none came in so long. Raises what ended them."""
        if self._head is None:
            try:
                found = self._queue.get(timeout=wait_s)
            except queue.Empty:
                return None
            if isinstance(found, MarsError):
                raise found
            self._head = found
        return self._head

    def take(self) -> None:
        self._head = None


def _next_window(events: _Events, say: Callable[[ResultEvent], None] | None) -> _Window:
    """Rows up to the first of another window or revision, or until none came for a while."""
    window = _Window()
    while (event := events.look(None if window.part is None else QUIET_S)) is not None:
        part = _part(event)
        if window.part not in (None, part):
            break
        window.add(part, event.row)
        if say is not None:
            say(event)
        events.take()
    return window


@dataclass(frozen=True, slots=True)
class _Part:
    """What makes a table: a window as it closed, or one revision of it."""

    start: int
    revision: int
    deleted: bool

    def title(self, rows: int) -> str:
        words = f"{clock(self.start)}  {rows} {'row' if rows == 1 else 'rows'}"
        if self.deleted:
            words += " taken back, which HAVING lets pass no more"
        return words + (f" (revision {self.revision}, for late rows)" if self.revision else "")


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


def _print(window: _Window, limit: int | None) -> None:
    if window.part is None:
        return
    columns = [column for column in window.rows[0] if column not in _TIMES]
    kept = window.rows if limit is None else window.rows[:limit]
    cells = [[json.dumps(row[column], ensure_ascii=False) for column in columns] for row in kept]
    output().print(window.part.title(len(window.rows)))
    output().print(table(columns, cells))
    if len(kept) < len(window.rows):
        output().print(f"... and {len(window.rows) - len(kept)} more (--all shows them)")
