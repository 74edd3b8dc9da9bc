"""`mars tail`: results as they are committed."""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import click
import msgspec

from mars.cli.completion import task_argument
from mars.cli.shared import (
    HALTED,
    api_address,
    api_option,
    halted_until,
    json_option,
    messages,
    output,
    say_json,
)
from mars.cli.tables import cell, table, window_name
from mars.client.answers import MissedResults, ResultEvent, Task
from mars.client.blocking import Client
from mars.core.errors import MarsError, TooMany, Unavailable
from mars.core.words import counted

ROWS_SHOWN = 20
"""Rows of a window that a table shows; --all and --json show every one."""

QUIET_S = 2.0
"""A window is shown once no row of it came for so long: its buckets emit it one after another. Not
only when the next one begins, which may be an hour later, or never."""

AGAIN_S = 1.0
"""Between two tries to reach an API that has gone away."""

_BEGIN_TOGETHER = ("cumulating", "landmark")
"""Kinds of windows of which several have one start."""

_TIMES = ("window_start", "window_end")
_NUMBERS = ("partition", "window_number")


@click.command()
@task_argument
@click.option(
    "--windows",
    type=click.IntRange(min=1),
    default=None,
    help="Stop after this many; a revision counts as one.",
)
@click.option("--all", "everything", is_flag=True, help="Show every row of a window.")
@click.option("--sources", is_flag=True, help="With --json: where each row was counted from, too.")
@api_option
@json_option
def tail(
    name: str, windows: int | None, everything: bool, sources: bool, api: str | None, as_json: bool
) -> None:
    """Show results of task NAME as they come: a table a window, or with --json one line a row.

    With --sources a line is {"row": ..., "source": {"bucket", "rows", "ranges", "revision",
    "deleted"}}. Where late rows revise a window, the groups that they changed come again. An API
    that goes away is asked again, until Ctrl-C: no row is left out meanwhile, and none comes twice.
    """
    limit = None if everything else ROWS_SHOWN
    with Client(api_address(api)) as client:
        found = client.task(name)
        _tell_if_halted(found)
        together = found.plan is not None and found.plan.window.kind in _BEGIN_TOGETHER
        messages().print(_waiting(name, windows))
        events = _Events()
        follower = _Follower(client, name, events)
        threading.Thread(target=follower.run, name=f"tail-{name}", daemon=True).start()
        try:
            for _ in itertools.count() if windows is None else range(windows):
                window = _next_window(
                    events, (lambda event: _say(event, sources)) if as_json else None
                )
                if not as_json:
                    _print(window, limit, together)
        finally:
            follower.over.set()


def _tell_if_halted(found: Task) -> None:
    """Why no window may come. It is waited for all the same: somebody may resume the task."""
    if found.state not in HALTED:
        return
    why = f" ({found.detail.rstrip('.')})" if found.detail else ""
    state = "has failed" if found.state == "failed" else f"is {found.state}"
    messages().print(f"Task {found.name} {state}{why} and takes no rows {halted_until(found)}.")


def _waiting(name: str, windows: int | None) -> str:
    if windows is None:
        return f"Waiting for the next window of {name}; Ctrl-C ends this."
    if windows == 1:
        return f"Waiting for 1 window of {name}; Ctrl-C ends this sooner."
    return f"Waiting for {windows} windows of {name}; Ctrl-C ends this sooner."


def _say(event: ResultEvent, sources: bool) -> None:
    say_json(_line(event) if sources else event.raw.decode())


def _line(event: ResultEvent) -> str:
    """A row and its source, as JSON."""
    return msgspec.json.encode({"row": msgspec.Raw(event.raw), "source": event.source}).decode()


class _Events:
    """A queue of events, ended by an error, that can be looked into without taking."""

    def __init__(self) -> None:
        self.away = False
        """Whether the API is: that no event comes means nothing then."""
        self._queue: queue.SimpleQueue[ResultEvent | MarsError] = queue.SimpleQueue()
        self._head: ResultEvent | MarsError | None = None

    def put(self, event: ResultEvent | MarsError) -> None:
        self._queue.put(event)

    def look(self, wait_s: float | None) -> ResultEvent | None:
        """The next event, which stays; None: none came in so long. Raises what ended them."""
        while self._head is None:
            away = self.away
            try:
                self._head = self._queue.get(timeout=wait_s)
            except queue.Empty:
                if not (away or self.away):
                    return None
        if isinstance(self._head, MarsError):
            raise self._head
        return self._head

    def take(self) -> None:
        self._head = None


class _Follower:
    """Reads the events of a task in a thread, from an API that may be away now and then."""

    def __init__(self, client: Client, name: str, events: _Events) -> None:
        self.over = threading.Event()
        """The command ends, and its client with it."""
        self._client = client
        self._name = name
        self._events = events
        self._place: str | None = None
        """Where to go on; None: the API has not said yet where the results begin."""

    def run(self) -> None:
        """Until the command is over, or something is wrong that waiting does not help."""
        while True:
            try:
                lost = self._read()
            except MarsError as error:
                self._events.put(error)
                return
            if self.over.is_set():
                return
            if not self._events.away:
                self._events.away = True
                messages().print(f"{lost}; asking again.")
            if self.over.wait(AGAIN_S):
                return

    def _read(self) -> MarsError:
        """Events until the API goes away; how. Raises what is wrong, also if it has not begun."""
        lost: MarsError = Unavailable("api", "it has ended the stream of results")
        try:
            for event in self._client.tail(
                self._name, after=self._place, reached=self._reached, missed=_missed
            ):
                self._events.put(event)
        except (Unavailable, TooMany) as error:
            lost = error
        if self._place is None:
            raise lost
        return lost

    def _reached(self, place: str) -> None:
        self._place = place
        self._events.away = False


def _missed(gap: MissedResults) -> None:
    messages().print(
        f"Kafka has deleted offsets {gap.first} to {gap.next - 1} of partition {gap.partition} "
        "before they were read, and rows that lay there are left out: lengthen the retention of "
        "the output topic."
    )


def _next_window(events: _Events, say: Callable[[ResultEvent], None] | None) -> _Window:
    """Rows up to the first of another window or revision, or until none came for a while.

    Raises what ended the events, once there are no more rows before it.
    """
    window = _Window()
    try:
        while (event := events.look(None if window.part is None else QUIET_S)) is not None:
            part = _part(event)
            if window.part not in (None, part):
                break
            window.add(part, event.row)
            if say is not None:
                say(event)
            events.take()
    except MarsError:
        if window.part is None:
            raise
    return window


@dataclass(frozen=True, slots=True)
class _Part:
    """What makes a table: a window as it closed, or one revision of it."""

    start: int
    end: int
    revision: int
    deleted: bool
    counted: tuple[int, int] | None = None
    """Partition and number of one that counts rows: its groups have times of their own."""

    def title(self, rows: int, together: bool) -> str:
        name = window_name(self.start, self.end, together=together)
        if self.counted is not None:
            name = f"window {self.counted[1]} of partition {self.counted[0]}"
        words = f"{name}  {counted(rows, 'row')}"
        if self.deleted:
            words += " taken back, which HAVING no longer lets pass"
        return words + (f" (revision {self.revision}, for late rows)" if self.revision else "")


def _part(event: ResultEvent) -> _Part:
    source = event.source
    counted = _counted(event.row)
    if counted is not None:
        return _Part(0, 0, 0, deleted=False, counted=counted)
    start, end = int(str(event.row["window_start"])), event.row.get("window_end")
    ends = end if isinstance(end, int) else start
    return _Part(start, ends, source.revision if source else 0, source.deleted if source else False)


def _counted(row: Mapping[str, object]) -> tuple[int, int] | None:
    partition, number = row.get("partition"), row.get("window_number")
    if not isinstance(partition, int) or not isinstance(number, int):
        return None
    return (partition, number) if "window_first_offset" in row else None


class _Window:
    """The rows of one table, as far as they have come."""

    def __init__(self) -> None:
        self.part: _Part | None = None
        self.rows: list[Mapping[str, object]] = []

    def add(self, part: _Part, row: Mapping[str, object]) -> None:
        self.part = part
        self.rows.append(row)


def _print(window: _Window, limit: int | None, together: bool) -> None:
    if window.part is None:
        return
    said = _TIMES if window.part.counted is None else _NUMBERS
    columns = [column for column in window.rows[0] if column not in said]
    kept = window.rows if limit is None else window.rows[:limit]
    cells = [[cell(row, column) for column in columns] for row in kept]
    output().print(window.part.title(len(window.rows), together))
    output().print(table(columns, cells))
    if len(kept) < len(window.rows):
        output().print(f"... and {len(window.rows) - len(kept)} more (--all shows them)")
