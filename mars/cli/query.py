"""`mars query`: a query that runs once, now."""

from __future__ import annotations

import json
from collections.abc import Sequence
from time import monotonic, sleep

import click
from rich.text import Text

from mars.cli.completion import queries_under_way
from mars.cli.shared import (
    Moment,
    Seconds,
    api_address,
    api_option,
    files_of,
    files_options,
    json_option,
    messages,
    output,
    print_json,
    say_json,
)
from mars.cli.tables import cell, clock, listing, number, table
from mars.client.answers import Query, Row
from mars.client.blocking import Client
from mars.client.calls.queries import trouble_of
from mars.core.errors import JobCancelled, JobFailed, WaitedTooLong
from mars.core.stopping import sigterm_interrupts
from mars.core.words import counted

POLL_S = 0.3
"""Between two looks at a query: what an answer is late by at most."""

ROWS_SHOWN = 50
"""Rows that a table shows; --all and --json show every one."""


@click.command()
@click.argument("sql", required=False)
@click.option("--from", "from_ms", type=Moment(), default=None, help="Leave out earlier rows.")
@click.option("--until", "until_ms", type=Moment(), default=None, help="Leave out later rows.")
@files_options
@click.option("--rows-max", type=int, default=None, help="Most result rows [default: 10000].")
@click.option(
    "--timeout",
    type=Seconds(min=0, min_open=True),
    default=None,
    help="Seconds it may take [default: 300].",
)
@click.option(
    "--wait",
    "wait_s",
    type=Seconds(min=0),
    default=None,
    help="Seconds to wait for its turn and its rows; then it is cancelled [default: any].",
)
@click.option("--output-topic", default=None, help="Write the rows to this topic, too.")
@click.option("--all", "everything", is_flag=True, help="Show every row.")
@click.option("--list", "listed", is_flag=True, help="List the queries that are kept, instead.")
@click.option(
    "--cancel",
    metavar="ID",
    default=None,
    shell_complete=queries_under_way,
    help="Cancel this query, instead.",
)
@api_option
@json_option
def query(
    sql: str | None,
    from_ms: int | None,
    until_ms: int | None,
    files: str | None,
    files_format: str | None,
    csv_header: bool,
    rows_max: int | None,
    timeout: float | None,
    wait_s: float | None,
    output_topic: str | None,
    everything: bool,
    listed: bool,
    cancel: str | None,
    api: str | None,
    as_json: bool,
) -> None:
    """Run SQL once, now, over the rows that lie in the stream's topic (or in files).

    Times are epoch milliseconds or ISO 8601. Ctrl-C, or SIGTERM, cancels the query.
    """
    if sum((sql is not None, listed, cancel is not None)) != 1:
        raise click.UsageError("give a query, or --list, or --cancel ID")
    history = files_of(files, files_format, csv_header=csv_header)
    with Client(api_address(api)) as client:
        if listed:
            _list(client.queries(), as_json)
        elif cancel is not None:
            _cancel(client, cancel, as_json)
        else:
            members = {
                "from": from_ms,
                "until": until_ms,
                "files": history,
                "rows_max": rows_max,
                "timeout": timeout,
                "output_topic": output_topic,
            }
            with sigterm_interrupts():
                asked = client.create_query(str(sql), **members)
                ended = _waited(client, asked, wait_s)
            _show(ended, client.query_rows(ended.id), None if everything else ROWS_SHOWN, as_json)


def _waited(client: Client, asked: Query, wait_s: float | None) -> Query:
    """The query when it is done. Raises JobFailed, JobCancelled, WaitedTooLong."""
    found, begun_s, told = asked, monotonic(), ""
    console = messages()
    try:
        with console.status(_status(found)) as spinner:
            while found.goes_on:
                waited_s = monotonic() - begun_s
                if wait_s is not None and waited_s >= wait_s:
                    why = f" ({found.detail})" if found.detail else ""
                    raise WaitedTooLong(f"Waited {wait_s:g} s for query {found.id} to end{why}.")
                trouble = trouble_of(found, waited_s)
                if trouble not in {"", told}:
                    console.print(trouble)
                    told = trouble
                sleep(POLL_S)
                found = client.query(found.id)
                spinner.update(_status(found))
    except (KeyboardInterrupt, WaitedTooLong):
        client.cancel_query(found.id)
        raise
    if found.state == "cancelled":
        raise JobCancelled(f"Query {found.id} was cancelled.")
    if not found.ended_well:
        raise JobFailed(f"Query {found.id} failed: {found.error}")
    return found


def _status(found: Query) -> Text:
    elapsed = f" for {(found.progress.elapsed_ms or 0) / 1_000:.0f} s" if found.started else ""
    detail = f" ({found.detail})" if found.detail else ""
    amount = found.progress.input
    reads = f", reads {amount:,}" if amount is not None else ""
    return Text(f"Query {found.id}: {found.state}{elapsed}{reads}{detail}")


def _show(found: Query, rows: Sequence[Row], limit: int | None, as_json: bool) -> None:
    if as_json:
        for row in rows:
            say_json(json.dumps(row, ensure_ascii=False))
        return
    kept = rows if limit is None else rows[:limit]
    if kept:
        columns = list(kept[0])
        output().print(table(columns, [[cell(row, name) for name in columns] for row in kept]))
    if len(kept) < len(rows):
        output().print(f"... and {len(rows) - len(kept)} more (--all shows them)")
    messages().print(_account(found))


def _account(found: Query) -> str:
    seconds = (found.progress.elapsed_ms or 0) / 1_000
    text = f"{counted(found.rows or 0, 'row', ',')} in {seconds:.1f} s"
    counts = found.counts
    if counts is not None:
        text += f"; of {number(counts.read)} rows read {number(counts.counted)} counted"
        others = (("filtered", counts.filtered), ("bad", counts.bad), ("future", counts.future))
        text += "".join(f", {number(rows)} {fate}" for fate, rows in others if rows)
    if found.output_topic is not None:
        text += f"; also in topic {found.output_topic}"
    return text + "."


def _list(queries: Sequence[Query], as_json: bool) -> None:
    if as_json:
        print_json(queries)
        return
    rows = [
        (each.id, each.state, clock(each.created), number(each.rows), " ".join(each.sql.split()))
        for each in queries
    ]
    output().print(listing("queries", ("query", "state", "asked", "rows", "sql"), rows))


def _cancel(client: Client, query: str, as_json: bool) -> None:
    client.cancel_query(query)
    if as_json:
        print_json(client.query(query))
    else:
        messages().print(f"Query {query}: {client.query(query).state}.")
