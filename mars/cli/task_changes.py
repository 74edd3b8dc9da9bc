"""How tasks change, and what of it is shown: `mars task add` asks before it changes one that
exists, `mars task apply` makes the tasks of a folder as they stand in its files.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import unified_diff
from pathlib import Path

import click
from rich.text import Text

from mars.cli.shared import (
    api_address,
    api_option,
    json_option,
    messages,
    print_json,
    read_text,
)
from mars.cli.streams import read_object
from mars.client.answers import Task, TaskBefore, TaskChange, TaskSet, TaskSummary
from mars.client.blocking import Client
from mars.core.errors import Conflict, NotFound

SUFFIXES = (".sql", ".json")
"""Of files with a query, and with a request of the API; others are passed over."""

DONE = {"create": "created", "change": "changed", "remove": "removed", "unchanged": "unchanged"}

_STYLES = {"+": "green", "-": "red", "@": "cyan"}


def change_existing(
    client: Client,
    name: str,
    sql: str,
    options: Mapping[str, object],
    refused: Conflict,
    *,
    yes: bool,
) -> Task:
    """The task as it is after its user has agreed. Raises Conflict where he cannot be asked.

    `refused` is raised again if the name was not what the API minded.
    """
    try:
        found = client.task(name)
    except NotFound:
        raise refused from None
    lines = list(difference(found, sql, options))
    if not lines:
        return found
    _show_lines(lines)
    if not yes:
        _ask(name)
    return client.change_task(name, sql, options=options, expected_version=found.version)


def change_named(
    client: Client,
    name: str,
    sql: str | None,
    named: Mapping[str, object],
    expected_version: int | None,
) -> Task:
    """The task with another query, if there is one, and the options that are named; one named as ""
    has its default.

    Raises VersionMismatch where somebody else changes it meanwhile.
    """
    found = client.task(name)
    merged = {**found.options, **named}
    options = {option: value for option, value in merged.items() if value != ""}
    query = found.sql if sql is None else sql
    _show_lines(list(difference(found, query, options)))
    expected = found.version if expected_version is None else expected_version
    return client.change_task(name, query, options=options, expected_version=expected)


def difference(found: TaskSummary, sql: str, options: Mapping[str, object]) -> Iterator[str]:
    """Lines of a unified diff from a task to what it would be."""
    return _lines(found.name, TaskBefore(found.version, found.sql, found.options), sql, options)


def _set_difference(
    change: TaskChange, task: Mapping[str, object], output_topic: str | None
) -> Iterator[str]:
    """The same of a task that a set changes; `output_topic` is the set's."""
    given = task.get("options")
    options = dict(given) if isinstance(given, dict) else {}
    if output_topic is not None:
        options.setdefault("output_topic", output_topic)
    before = change.before or TaskBefore(change.version, "", {})
    return _lines(change.name, before, str(task["sql"]), options)


def _lines(name: str, before: TaskBefore, sql: str, options: Mapping[str, object]) -> Iterator[str]:
    return unified_diff(
        _text(before.sql, before.options),
        _text(sql, options),
        f"{name} version {before.version}",
        f"{name} version {before.version + 1}",
        lineterm="",
    )


def _text(sql: str, options: Mapping[str, object]) -> list[str]:
    given = [f"option {name} = {options[name]}" for name in sorted(options)]
    return [*sql.strip().splitlines(), *given]


def _show_lines(lines: Iterable[str]) -> None:
    """Print lines of a diff, each in its colour."""
    console = messages()
    for line in lines:
        console.print(Text(line, style=_STYLES.get(line[:1], "")))


def _ask(name: str) -> None:
    if not sys.stdin.isatty():
        raise Conflict(
            f"Task {name} exists and would change as shown; add --yes to change it, or choose "
            "another --name."
        )
    click.confirm(
        f"Make this a new version of {name}? Windows that are open now end incomplete.",
        abort=True,
        err=True,
    )


# ------------------------------------------------------------------------------ task apply


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@click.option("--prune", is_flag=True, help="Remove tasks of the set that FOLDER no longer has.")
@click.option("--set", "set_name", default=None, help="Name of the set [default: the folder's].")
@click.option("--output-topic", default=None, help="Topic of all tasks of the set that name none.")
@api_option
@json_option
def apply(
    folder: Path,
    dry_run: bool,
    prune: bool,
    set_name: str | None,
    output_topic: str | None,
    api: str | None,
    as_json: bool,
) -> None:
    """Register the tasks in the files of FOLDER: .sql, a query, and .json, a request of the API.

    A file's name is its task's, unless a .json names another. All are checked before anything is
    done; what has not changed stays as it is, and what has gets a new version. Folders in it count,
    too, and what begins with a dot does not.
    """
    tasks = _tasks(folder)
    with Client(api_address(api)) as client:
        found = client.apply_tasks(
            tasks,
            set_name=folder.resolve().name if set_name is None else set_name,
            output_topic=output_topic,
            prune=prune,
            dry_run=dry_run,
        )
    if as_json:
        print_json(found)
    else:
        _tell(found, {str(task["name"]): task for task in tasks}, output_topic)


def _tasks(folder: Path) -> list[dict[str, object]]:
    """What all files say. Raises UsageError, naming two that say the same task."""
    said_by: dict[str, Path] = {}
    tasks = []
    for file in _files(folder):
        task = _task(file)
        name = str(task["name"])
        if name in said_by:
            raise click.UsageError(
                f"{said_by[name]} and {file} both define the task {name}: rename or remove one of "
                "them"
            )
        said_by[name] = file
        tasks.append(task)
    return tasks


def _files(folder: Path) -> Iterator[Path]:
    """Those that say a task. Raises UsageError for what bears such a name and cannot be read: to
    pass over it would prune its task.
    """
    for file in sorted(folder.rglob("*")):
        hidden = any(part.startswith(".") for part in file.relative_to(folder).parts)
        if file.suffix.lower() not in SUFFIXES or hidden or file.is_dir():
            continue
        if file.exists() and not file.is_file():
            raise click.UsageError(f"{file} is not a file: remove it, or give it another ending")
        yield file


def _task(file: Path) -> dict[str, object]:
    """What a file says. Raises UsageError, Rejected, naming the file."""
    if file.suffix.lower() == ".sql":
        return {"name": file.stem, "sql": read_text(file)}
    return {"name": file.stem, **read_object(file)}


def _tell(
    found: TaskSet, tasks: Mapping[str, Mapping[str, object]], output_topic: str | None
) -> None:
    console = messages()
    for change in found.tasks:
        if change.action != "unchanged":
            console.print(f"{change.action} {change.name}")
        if change.action == "change" and change.before is not None:
            task = tasks[change.name]
            _show_lines(_set_difference(change, task, output_topic))
    console.print(_summary(found.tasks, dry_run=found.dry_run))


def _summary(changes: Sequence[TaskChange], *, dry_run: bool) -> str:
    counts = Counter(change.action for change in changes)
    told = ", ".join(f"{counts[action]} {word}" for action, word in DONE.items() if counts[action])
    verb = "would be " if dry_run else ""
    return f"Tasks: {verb}{told or 'none'}."
