"""`mars dead` and `mars incidents`: what was not counted, and what happened."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import click
import msgspec

from mars.cli.completion import task_argument, task_names
from mars.cli.shared import (
    Moment,
    api_address,
    api_option,
    json_option,
    output,
    print_json,
    say_json,
)
from mars.cli.tables import clock, table
from mars.client.answers import DeadRow
from mars.client.blocking import Client

PAGE = 1_000
"""Rows of one request: the most that the API gives at once."""

SHOWN = 100
"""Rows that are shown unless more are asked for."""

SAMPLE_CHARACTERS = 60
"""Of a sample in a table."""


@click.command()
@task_argument
@click.option(
    "--reason", default=None, help="Only rows left out for this reason (late, future, ...)."
)
@click.option("--limit", type=click.IntRange(min=1), default=SHOWN, show_default=True)
@click.option("--all", "everything", is_flag=True, help="Show all of them.")
@api_option
@json_option
def dead(
    name: str, reason: str | None, limit: int, everything: bool, api: str | None, as_json: bool
) -> None:
    """Show rows of task NAME that were not counted: a table, or with --json one line each."""
    with Client(api_address(api)) as client:
        rows = _rows(client, name, reason, None if everything else limit + 1)
        if as_json:
            for row in rows if everything else islice(rows, limit):
                say_json(msgspec.json.encode(row).decode())
            return
        titles = ("reason", "where", "offsets", "rows", "window", "sample")
        listed = [_cells(row) for row in rows]
    if not listed:
        how = f"as {reason} so far" if reason else "so far, except by WHERE"
        output().print(f"No row was left out {how}.")
        return
    shown = listed if everything else listed[:limit]
    output().print(table(titles, shown))
    if len(listed) > len(shown):
        output().print(f"These are the first {limit}. There are more: --all lists them.")


def _rows(client: Client, name: str, reason: str | None, limit: int | None) -> Iterator[DeadRow]:
    """At most `limit` (None: all), page by page."""
    after: str | None = None
    left = limit
    while left is None or left > 0:
        page = client.dead(
            name, reason=reason, after=after, limit=PAGE if left is None else min(left, PAGE)
        )
        yield from page.rows
        after = page.next
        left = None if left is None else left - len(page.rows)
        if after is None:
            return


def _cells(row: DeadRow) -> tuple[str, ...]:
    where = row.lane if row.lane is not None else str(row.partition)
    offsets = str(row.offset) if row.next == row.offset + 1 else f"{row.offset}..{row.next - 1}"
    what = row.detail if row.sample is None else f"{row.detail}: {row.sample}"
    return (
        row.reason,
        f"{row.topic}[{where}]",
        offsets,
        str(row.rows),
        clock(row.window_start),
        what[:SAMPLE_CHARACTERS],
    )


@click.command()
@click.option(
    "--task",
    default=None,
    shell_complete=task_names,
    help="Only those of this task, and those that concern all.",
)
@click.option("--since", type=Moment(), default=None, help="Only those since this time.")
@click.option("--limit", type=click.IntRange(1, PAGE), default=SHOWN, show_default=True)
@api_option
@json_option
def incidents(
    task: str | None, since: int | None, limit: int, api: str | None, as_json: bool
) -> None:
    """Show losses, gaps and failures, newest first."""
    with Client(api_address(api)) as client:
        found = client.incidents(task=task, since=since, limit=limit)
    if as_json:
        print_json(found)
        return
    if not found:
        output().print("There are no incidents.")
    for each in found:
        who = "all tasks" if each.task is None else each.task
        output().print(f"{clock(each.time)}  {each.kind}  {who}")
        for sentence in (each.what, each.means, each.do):
            output().print(f"  {sentence}")
