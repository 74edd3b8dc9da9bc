"""`mars task add | apply | list | show | change | pause | resume | rm | validate | preview`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from mars.cli.completion import task_argument
from mars.cli.preview import print_preview, read_lines
from mars.cli.shared import (
    HALTED,
    Moment,
    Seconds,
    api_address,
    api_option,
    files_of,
    files_options,
    halted_until,
    json_option,
    messages,
    output,
    print_json,
    read_text,
    text_of,
    warn,
)
from mars.cli.streams import read_object
from mars.cli.tables import clock, listing, number, table
from mars.cli.task_changes import apply, change_existing, change_named
from mars.client.answers import Task
from mars.client.blocking import Client
from mars.core.errors import Conflict, Rejected


@click.group()
def task() -> None:
    """Register, list and change tasks."""


task.add_command(apply)

_BEGINNINGS = ("latest", "earliest")

_LAST_MS = 2**53
"""The last time that the API takes; its first is 0."""


class _Source(click.ParamType[Path]):
    """A file with a definition, whatever can be read; `-` is standard input."""

    name = "file"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Path:
        if value == "":
            self.fail("the name of the file is empty; name one, or - for stdin", param, ctx)
        return Path(str(value))

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return click.Path().shell_complete(ctx, param, incomplete)


class _Beginning(click.ParamType[str | int]):
    """Where a task begins: `latest`, `earliest`, or a time as `Moment` takes it."""

    name = "start"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str | int:
        if value in _BEGINNINGS:
            return str(value)
        try:
            time_ms = Moment().convert(value, param, ctx)
        except click.BadParameter:
            time_ms = -1
        if not 0 <= time_ms <= _LAST_MS:
            self.fail(
                f"{str(value)!r} is not a place to start at; write latest, earliest, epoch "
                "milliseconds, or a time in ISO 8601 such as 2026-01-31T12:00:00",
                param,
                ctx,
            )
        return time_ms


def _file_argument(command: Callable[..., None]) -> Callable[..., None]:
    return click.argument("file", required=False, type=_Source())(command)


def _options_option(command: Callable[..., None]) -> Callable[..., None]:
    return click.option(
        "--option",
        "options",
        multiple=True,
        metavar="NAME=VALUE",
        help="An option of the task, such as delay=1s; may be repeated.",
    )(command)


@task.command()
@_file_argument
@click.option("--sql", default=None, help="The query, instead of a file.")
@click.option("--name", default=None, help="Name of the task [default: the file's name].")
@click.option(
    "--start",
    type=_Beginning(),
    default=None,
    help="latest (default), earliest, epoch milliseconds or a time in ISO 8601.",
)
@files_options
@click.option("--until", type=Moment(), default=None, help="Leave out later rows of the files.")
@_options_option
@click.option("--yes", is_flag=True, help="Change a task that exists without asking.")
@api_option
@json_option
def add(
    file: Path | None,
    sql: str | None,
    name: str | None,
    start: str | int | None,
    files: str | None,
    files_format: str | None,
    csv_header: bool,
    until: int | None,
    options: tuple[str, ...],
    yes: bool,
    api: str | None,
    as_json: bool,
) -> None:
    """Register the task in FILE (.sql: a query; .json: a request of the API; -: stdin).

    --start earliest, or a time, counts what already lies in the topic, too. --files counts what the
    topic no longer holds. `mars backfill NAME` shows how far that is. If the task exists, this
    shows what would change, and asks whether to make that a new version.
    """
    if until is not None and files is None:
        raise click.UsageError("--until is for --files DIR")
    history = files_of(files, files_format, csv_header=csv_header, until_ms=until)
    body = _definition(file, sql)
    # What is no regular file, such as a pipe, has a name that says nothing.
    chosen = name or body.get("name") or (file.stem if file is not None and file.is_file() else "")
    if not chosen or chosen == "-":
        raise click.UsageError("name the task with --name")
    settings = {**_object(body.get("options")), **_pairs(options)}
    query, begin = str(body["sql"]), _start(body.get("start") if start is None else start)
    past = history or _object(body.get("history")) or None
    with Client(api_address(api)) as client:
        try:
            found = client.create_task(
                str(chosen), query, start=begin, options=settings, history=past
            )
            text = f"Task {found.name} runs; `mars tail {found.name}` shows its results."
        except Conflict as refused:
            if start is not None or past is not None:
                raise  # a history is of a new task only
            found = change_existing(client, str(chosen), query, settings, refused, yes=yes)
            text = _at_version(found)
    if found.backfill is not None:
        text += f" `mars backfill {found.name}` shows how far its history is."
    _tell(found, as_json, text)


@task.command()
@task_argument
@_file_argument
@click.option("--sql", default=None, help="The query, instead of a file.")
@click.option(
    "--expect", type=int, default=None, help="Change it only if this is its current version."
)
@_options_option
@api_option
@json_option
def change(
    name: str,
    file: Path | None,
    sql: str | None,
    expect: int | None,
    options: tuple[str, ...],
    api: str | None,
    as_json: bool,
) -> None:
    """Give a task a new version, from FILE or --sql, and show what changes.

    With options alone the query stays as it is. Options that are not named stay as they are; NAME=
    (with nothing behind it) returns one to its default.
    """
    only_options = file is None and sql is None and bool(options)
    body = {} if only_options else _definition(file, sql)
    query = None if only_options else str(body["sql"])
    named = {**_object(body.get("options")), **_pairs(options)}
    with Client(api_address(api)) as client:
        found = change_named(client, name, query, named, expect)
    _tell(found, as_json, _at_version(found))


@task.command("list")
@api_option
@json_option
def list_tasks(api: str | None, as_json: bool) -> None:
    """List all tasks."""
    with Client(api_address(api)) as client:
        found = client.tasks()
    if as_json:
        print_json(found)
        return
    rows = [
        (each.name, str(each.version), each.state, each.stream, " ".join(each.sql.split()))
        for each in found
    ]
    output().print(listing("tasks", ("task", "version", "state", "stream", "query"), rows))


@task.command()
@task_argument
@api_option
@json_option
def show(name: str, api: str | None, as_json: bool) -> None:
    """Show a task: its query, how far it is, and where its rows went."""
    with Client(api_address(api)) as client:
        found = client.task(name)
    if as_json:
        print_json(found)
        return
    output().print(found.sql)
    output().print(table(("", ""), _facts(found)))
    warn(found.warnings)


def _facts(found: Task) -> list[tuple[str, str]]:
    facts = [
        ("state", found.state + (f": {found.detail}" if found.detail else "")),
        ("version", str(found.version)),
        ("stream", found.stream),
        *([("set", found.set)] if found.set else []),
        ("results", found.output.topic if found.output else "-"),
        ("options", ", ".join(f"{key}={value}" for key, value in found.options.items()) or "-"),
        ("rows a second", number(found.rates.rows_per_second)),
        ("lag", number(found.lag.rows) + " messages" if found.lag else "-"),
        ("watermark", clock(found.watermark)),
    ]
    if found.ledger is not None:
        ledger = found.ledger
        facts += [
            ("rows read", number(ledger.read)),
            ("  counted", f"{number(ledger.counted)} (open {number(ledger.open)})"),
            (
                "  filtered, bad, future, late",
                ", ".join(
                    number(value)
                    for value in (ledger.filtered, ledger.bad, ledger.future, ledger.late)
                ),
            ),
        ]
    return facts


@task.command()
@task_argument
@api_option
@json_option
def pause(name: str, api: str | None, as_json: bool) -> None:
    """Pause a task: it takes no rows until it is resumed, and loses none."""
    with Client(api_address(api)) as client:
        found = client.pause_task(name)
    _tell(found, as_json, f"Task {name} is paused.")


@task.command()
@task_argument
@api_option
@json_option
def resume(name: str, api: str | None, as_json: bool) -> None:
    """Resume a paused or failed task where it stopped."""
    with Client(api_address(api)) as client:
        found = client.resume_task(name)
    _tell(found, as_json, f"Task {name} goes on.")


@task.command()
@task_argument
@api_option
@json_option
def rm(name: str, api: str | None, as_json: bool) -> None:
    """Delete a task. Its results stay."""
    with Client(api_address(api)) as client:
        client.delete_task(name)
    if as_json:
        print_json({"removed": name})
    else:
        messages().print(f"Task {name} is removed; its results stay.")


@task.command()
@_file_argument
@click.option("--sql", default=None, help="The query, instead of a file.")
@_options_option
@api_option
@json_option
def validate(
    file: Path | None, sql: str | None, options: tuple[str, ...], api: str | None, as_json: bool
) -> None:
    """Check a query and show what its results would look like; nothing is registered."""
    body = _definition(file, sql)
    settings = {**_object(body.get("options")), **_pairs(options)}
    with Client(api_address(api)) as client:
        found = client.validate(str(body["sql"]), options=settings)
    if as_json:
        print_json(found)
        return
    rows = [(each.name, each.type) for each in found.output.columns]
    output().print(table(("column", "type"), rows))
    warn(found.warnings)


@task.command()
@_file_argument
@click.option("--sql", default=None, help="The query, instead of a file.")
@click.option(
    "--seconds",
    type=Seconds(min=0, max=60, min_open=True),
    default=None,
    help="How far back to look [default: 10].",
)
@click.option(
    "--rows",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    default=None,
    help="A file of JSON lines to try the query on, instead of the topic.",
)
@_options_option
@api_option
@json_option
def preview(
    file: Path | None,
    sql: str | None,
    seconds: float | None,
    rows: Path | None,
    options: tuple[str, ...],
    api: str | None,
    as_json: bool,
) -> None:
    """Try a query on the last seconds of its topic, and say what it would cost.

    Nothing is registered.
    """
    body = _definition(file, sql)
    settings = {**_object(body.get("options")), **_pairs(options)}
    given = None if rows is None else read_lines(rows)
    with Client(api_address(api)) as client:
        found = client.preview(str(body["sql"]), options=settings, seconds=seconds, rows=given)
    if as_json:
        print_json(found)
    else:
        print_preview(found)


def _at_version(found: Task) -> str:
    text = f"Task {found.name} is at version {found.version}"
    if found.state not in HALTED:
        return f"{text}."
    return f"{text}; it stays {found.state} {halted_until(found)}."


def _tell(found: Task, as_json: bool, text: str) -> None:
    if as_json:
        print_json(found)
    else:
        messages().print(text)
    warn(found.warnings)


def _definition(file: Path | None, sql: str | None) -> dict[str, object]:
    """What to register: at least a member `sql`."""
    if (file is None) == (sql is None):
        raise click.UsageError("give either a file or --sql")
    if sql is not None:
        return {"sql": sql}
    if file is None or str(file) == "-":
        return {"sql": text_of(sys.stdin.buffer.read(), "standard input")}
    if file.suffix != ".json":
        return {"sql": read_text(file)}
    body = read_object(file)
    if "sql" not in body:
        raise Rejected(f'{file} has no member "sql"')
    return body


def _object(value: object) -> dict[str, object]:
    return dict(value) if isinstance(value, dict) else {}


def _pairs(options: tuple[str, ...]) -> dict[str, object]:
    pairs: dict[str, object] = {}
    for option in options:
        name, equals, value = option.partition("=")
        if not equals:
            raise click.UsageError(f"--option {option}: write NAME=VALUE")
        pairs[name] = value
    return pairs


def _start(value: object) -> str | int:
    """`latest`, `earliest` or a time; the API refuses everything else."""
    if isinstance(value, dict) and isinstance(value.get("timestamp"), int):
        return int(value["timestamp"])
    text = "latest" if value is None else str(value)
    return int(text) if text.isdigit() else text
