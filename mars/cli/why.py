"""`mars why`: which partition, mapper or reducer the next windows wait for.

`mars windows`: what they hold so far.
"""

from __future__ import annotations

import click

from mars.cli.completion import task_argument
from mars.cli.shared import api_address, api_option, json_option, output, print_json
from mars.cli.tables import begin_together, cell, clock, number, table, window_name
from mars.client.answers import HeldBy, WindowWhy
from mars.client.blocking import Client
from mars.core.words import counted


@click.command()
@task_argument
@api_option
@json_option
def why(name: str, api: str | None, as_json: bool) -> None:
    """Say why no result of task NAME comes, and who holds each open window."""
    with Client(api_address(api)) as client:
        found = client.why(name)
    if as_json:
        print_json(found)
        return
    output().print(found.summary)
    if found.windows:
        titles = ("window", "closes", "waits for", "because", "member", "lag")
        starts = (window.window_start for window in found.windows)
        together = begin_together([start for start in starts if start is not None])
        output().print(table(titles, [_row(window, together) for window in found.windows]))
    dropped = found.dropped
    if dropped.bad or dropped.future or dropped.late:
        output().print(
            f"Not counted: {number(dropped.bad)} bad, {number(dropped.future)} future, "
            f"{number(dropped.late)} late rows."
        )
        rows = [
            (str(each.partition), str(each.offset), str(each.rows), each.reason)
            for each in dropped.samples
        ]
        if rows:
            output().print(table(("partition", "offset", "rows", "reason"), rows))


@click.command()
@task_argument
@click.option("--key", default=None, help="The first key, or a JSON array of the first keys.")
@click.option("--order", default=None, help="An item of the query; -item for descending.")
@click.option("--limit", type=int, default=None, help="Most rows of a window [default: 100].")
@click.option(
    "--partition", type=click.IntRange(min=0), help="Where windows count rows: of this partition."
)
@api_option
@json_option
def windows(
    name: str,
    key: str | None,
    order: str | None,
    limit: int | None,
    partition: int | None,
    api: str | None,
    as_json: bool,
) -> None:
    """Show the open windows of task NAME with their values as of now."""
    with Client(api_address(api)) as client:
        found = client.windows(name, key=key, order=order, limit=limit, partition=partition)
    if as_json:
        print_json(found)
        return
    rows = [row for window in found.windows for row in window.rows]
    if rows:
        columns = list(dict.fromkeys(column for row in rows for column in row))
        cells = [[cell(row, one) if one in row else "-" for one in columns] for row in rows]
        output().print(table(columns, cells))
    left = " Some rows are left out (--limit)." if found.truncated else ""
    more = f" {counted(found.more, 'later window', ',')} not shown." if found.more else ""
    output().print(f"{counted(len(found.windows), 'open window', ',')}.{left}{more}")


def _row(window: WindowWhy, together: bool) -> tuple[str, ...]:
    held = window.held_by
    return (
        _name(window, together),
        clock(window.expected_close),
        _place(held),
        held.reason,
        held.member or "-",
        number(held.lag),
    )


def _name(window: WindowWhy, together: bool) -> str:
    if window.window_start is None or window.window_end is None:
        return f"{window.window_number} of partition {window.partition}"
    return window_name(window.window_start, window.window_end, together=together)


def _place(held: HeldBy) -> str:
    if held.lane is not None and "@" in held.lane:
        return f"backfill {held.lane}"
    if held.partition is not None:
        return f"partition {held.partition}"
    return "-" if held.bucket is None else f"bucket {held.bucket}"
