"""How a task that exists gets a new version: what changes is shown; `mars task add` asks first."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from difflib import unified_diff

import click
from rich.text import Text

from mars.cli.shared import messages
from mars.client.answers import Task
from mars.client.blocking import Client
from mars.core.errors import Conflict, NotFound

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
    _show(lines)
    if not yes:
        _ask(name)
    return client.change_task(name, sql, options=options, expected_version=found.version)


def change_named(
    client: Client, name: str, sql: str, named: Mapping[str, object], expected_version: int | None
) -> Task:
    """The task with another query and the options that are named; one named as "" has its default.

    Raises VersionMismatch where somebody else changes it meanwhile.
    """
    found = client.task(name)
    merged = {**found.options, **named}
    options = {option: value for option, value in merged.items() if value != ""}
    _show(list(difference(found, sql, options)))
    expected = found.version if expected_version is None else expected_version
    return client.change_task(name, sql, options=options, expected_version=expected)


def difference(found: Task, sql: str, options: Mapping[str, object]) -> Iterator[str]:
    """Lines of a unified diff from a task to what it would be."""
    return unified_diff(
        _text(found.sql, found.options),
        _text(sql, options),
        f"{found.name} version {found.version}",
        f"{found.name} version {found.version + 1}",
        lineterm="",
    )


def _text(sql: str, options: Mapping[str, object]) -> list[str]:
    given = [f"option {name} = {options[name]}" for name in sorted(options)]
    return [*sql.strip().splitlines(), *given]


def _show(lines: list[str]) -> None:
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
