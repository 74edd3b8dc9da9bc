"""`mars verify`: a finished window computed again from its source rows."""

from __future__ import annotations

import json

import click

from mars.cli.completion import task_argument
from mars.cli.shared import Moment, api_address, api_option, json_option, output, print_json
from mars.cli.tables import number, table
from mars.client.answers import DifferentRow
from mars.client.blocking import Client

EXIT_EQUAL = 0
EXIT_DIFFERS = 1


@click.command()
@task_argument
@click.argument("window_start", type=Moment(), required=False)
@click.argument("window_end", type=Moment(), required=False)
@click.option("--partition", type=click.IntRange(min=0), help="Of a window that counts rows.")
@click.option("--window-number", type=click.IntRange(min=0), help="Its number there.")
@api_option
@json_option
def verify(
    name: str,
    window_start: int | None,
    window_end: int | None,
    partition: int | None,
    window_number: int | None,
    api: str | None,
    as_json: bool,
) -> int:
    """Compute the window of task NAME that starts at WINDOW_START again, and compare.

    Without WINDOW_START it is the last finished one; windows that cumulate begin together, so there
    WINDOW_END says which. Windows that count rows are named by --partition and --window-number. Of
    sessions all that begin then are meant, or the newest ones, and so they are of windows PER KEY.
    The rows are those that the headers of the results name; PER KEY, all before. Exit code 0:
    equal, 1: it differs, 3: there is no such window, 4: it cannot be computed again.
    """
    with Client(api_address(api)) as client:
        found = client.verify(
            name, window_start, window_end, partition=partition, window_number=window_number
        )
    if as_json:
        print_json(found)
    else:
        output().print(found.summary)
        if found.differences:
            titles = ("what", "version", "bucket", "key", "emitted", "computed again")
            output().print(table(titles, [_row(each) for each in found.differences]))
        if found.more:
            output().print(f"... and {number(found.more)} more")
    return EXIT_EQUAL if found.equal else EXIT_DIFFERS


def _row(one: DifferentRow) -> tuple[str, ...]:
    values = (one.key, one.emitted, one.recounted)
    cells = ["-" if value is None else json.dumps(value, ensure_ascii=False) for value in values]
    return (one.kind, str(one.version), str(one.bucket), *cells)
