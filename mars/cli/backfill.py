"""`mars backfill`: how far the history of a task is computed, until it is."""

from __future__ import annotations

from datetime import timedelta
from time import sleep

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

from mars.cli.completion import task_argument
from mars.cli.shared import (
    api_address,
    api_option,
    json_option,
    messages,
    say_json,
)
from mars.cli.tables import number
from mars.client.answers import Backfill, Task
from mars.client.blocking import Client
from mars.core.errors import JobFailed, Unavailable

POLL_S = 1.0
"""Between two looks."""

NOBODY_WORKS = "No bulk process runs; start one with `mars bulk --config FILE`."


class _Line(msgspec.Struct, frozen=True):
    """What is printed with `--json`, one line a look; without `backfill` there is no history."""

    task: str
    state: str
    backfill: Backfill | None


@click.command()
@task_argument
@api_option
@json_option
def backfill(name: str, api: str | None, as_json: bool) -> None:
    """Show how far the history of task NAME is computed, until all of it is.

    Histories begin by themselves: with `mars task add ... --start earliest`, or with --files.
    """
    with Client(api_address(api)) as client:
        first = client.task(name)
        if not as_json and _goes_on(first) and _nobody_works(client):
            messages().print(NOBODY_WORKS)
        last = _told(client, first) if as_json else _shown(client, first)
    if last.state == "failed":
        raise JobFailed(f"Task {name} failed: {last.detail}")
    if not as_json:
        done = last.backfill
        what = "has no history of its own" if done is None else f"has {number(done.rows_done)} rows"
        tail = "" if done is None else " of history, all computed"
        messages().print(f"Task {name} {what}{tail}.")


def _goes_on(found: Task) -> bool:
    """Whether there is something left to wait for."""
    if found.state == "failed":
        return False
    if found.backfill is None:
        # Nobody can say how far it is while a server is away.
        return bool(found.missing)
    return any(lane.next < lane.end for lane in found.backfill.lanes)


def _nobody_works(client: Client) -> bool:
    return not any(member.role == "bulk" for member in client.cluster().members)


def _told(client: Client, found: Task) -> Task:
    """One line of JSON a look."""
    while True:
        say_json(msgspec.json.encode(_Line(found.name, found.state, found.backfill)).decode())
        if not _goes_on(found):
            return found
        found = _next(client, found, messages())


def _shown(client: Client, found: Task) -> Task:
    """A bar that moves."""
    name, rest = (
        TextColumn(field, markup=False) for field in ("{task.description}", "{task.fields[rest]}")
    )
    columns = (name, BarColumn(), TaskProgressColumn(), rest)
    console = messages()
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task(found.name, total=100, rest="")
        while True:
            percent = 0.0 if found.backfill is None else found.backfill.percent
            progress.update(bar, completed=percent, rest=_rest(found))
            if not _goes_on(found):
                return found
            found = _next(client, found, console)


def _next(client: Client, found: Task, console: Console) -> Task:
    """The task a moment later; an API that does not answer is asked again, which is told once."""
    told = False
    while True:
        sleep(POLL_S)
        try:
            return client.task(found.name)
        except Unavailable as error:
            if not told:
                console.print(f"{error}; asking again.")
            told = True


def _rest(found: Task) -> str:
    """Rows, rate, and when it should end."""
    progress = found.backfill
    if progress is None:
        return f"{found.state}; how far it is, is not known"
    parts = [f"{number(progress.rows_done)} of {number(progress.rows_total)} rows"]
    if found.state != "backfilling":
        parts.append(found.state)
    rate = progress.rows_per_second
    if rate:
        left_s = (progress.rows_total - progress.rows_done) / rate
        parts.append(f"{number(rate)} a second")
        parts.append(f"about {timedelta(seconds=round(left_s))} left")
    return ", ".join(parts)
