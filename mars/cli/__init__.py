"""The command line `mars`: one module per family of commands, loaded when one of it is used."""

from __future__ import annotations

import errno
import importlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import click

from mars.core.errors import MarsError, NotFound, RequestError, SettingsError
from mars.core.extras import not_installed
from mars.core.printable import LINES, printable

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_NOT_FOUND = 3
EXIT_REJECTED = 4

_OURS = {"mars", "mapper", "reducer", "api", "bench"}
"""Packages that no extra brings: one of their modules missing is a fault of ours."""

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a command is defined, and what `mars --help` says of it without loading it."""

    module: str
    attribute: str
    help: str


_COMMANDS = {
    "up": _Place("mars.cli.running.cluster", "up", "Start Mars on this machine."),
    "down": _Place("mars.cli.running.cluster", "down", "Stop what `mars up --detach` started."),
    "status": _Place("mars.cli.running.cluster", "status", "Show what runs, and how busy it is."),
    "mapper": _Place("mars.cli.running.roles", "mapper", "Run one mapper (for clusters)."),
    "reducer": _Place("mars.cli.running.roles", "reducer", "Run one reducer (for clusters)."),
    "api": _Place("mars.cli.running.roles", "api", "Run the REST interface (for clusters)."),
    "bulk": _Place(
        "mars.cli.running.roles", "bulk", "Run the driver of PySpark jobs (for clusters)."
    ),
    "stream": _Place("mars.cli.streams", "stream", "Declare, list and remove streams."),
    "task": _Place("mars.cli.tasks", "task", "Register, list and change tasks."),
    "key": _Place("mars.cli.keys", "key", "Make, list and remove API keys."),
    "tail": _Place("mars.cli.tail", "tail", "Show results of a task as they come."),
    "why": _Place("mars.cli.why", "why", "Say why no result comes, and who holds each window."),
    "windows": _Place("mars.cli.why", "windows", "Show open windows with their values as of now."),
    "top": _Place("mars.cli.top", "top", "Show the cluster and its tasks, live."),
    "verify": _Place("mars.cli.verify", "verify", "Compute a finished window again, and compare."),
    "dead": _Place("mars.cli.audits", "dead", "Show rows that were not counted, and why."),
    "incidents": _Place("mars.cli.audits", "incidents", "Show losses, gaps and failures."),
    "backfill": _Place(
        "mars.cli.backfill", "backfill", "Show how far a task's history is computed."
    ),
    "query": _Place("mars.cli.query", "query", "Run a query once, now."),
    "bench": _Place("bench.cli", "bench", "Measure throughput and latency."),
    "completion": _Place(
        "mars.cli.completion", "completion", "Complete commands and names in your shell."
    ),
}


class _Lazy(click.Group):
    """A group that knows its commands by name and imports one when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Those that are part of this version."""
        return [name for name, place in _COMMANDS.items() if _exists(place.module)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command itself; None if there is none of that name."""
        place = _COMMANDS.get(cmd_name)
        if place is None or not _exists(place.module):
            return None
        command = getattr(importlib.import_module(place.module), place.attribute)
        return command if isinstance(command, click.Command) else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the first argument names; a misspelt one is told the nearest."""
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as error:
            raise click.NoSuchCommand(
                error.command_name, possibilities=self.list_commands(ctx), ctx=ctx
            ) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list in `mars --help`, without an import."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, _COMMANDS[name].help) for name in self.list_commands(ctx)])


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # nor does its package
        return False


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="mars-statistics", prog_name="mars")
def cli() -> None:
    """Exact windowed statistics over Kafka streams."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and exit: 0 done, 1 failed, 2 usage, 3 not found, 4 rejected input."""
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command; errors become one sentence on standard error. Returns the exit code."""
    try:
        outcome = cli.main(args=arguments, prog_name="mars", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        click.echo("Stopped.", err=True)
        return EXIT_FAILED
    except MarsError as error:
        click.echo(printable(str(error), LINES), err=True)
        return exit_code_of(error)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in _OURS:
            raise
        click.echo(not_installed(package, "cluster"), err=True)
        return EXIT_FAILED
    except OSError as error:  # not of a reader that has gone: click ends that by itself
        click.echo(printable(_refused(error), LINES), err=True)
        return EXIT_FAILED
    return outcome if isinstance(outcome, int) else 0


def exit_code_of(error: MarsError) -> int:
    """The exit code for an error of ours."""
    match error:
        case NotFound():
            return EXIT_NOT_FOUND
        case RequestError():
            return EXIT_REJECTED
        case SettingsError():
            return EXIT_USAGE
        case _:
            return EXIT_FAILED


def _refused(error: OSError) -> str:
    """What the system has refused, in a sentence."""
    why = error.strerror or str(error) or type(error).__name__
    blocked = _output_blocked()
    if error.filename is not None:
        return f"{error.filename} cannot be used ({why})."
    if blocked or error.errno in _NO_ROOM:
        return f"Standard output cannot be written ({why}); direct it elsewhere, or free some room."
    return f"The system has refused what this command needs ({why})."


def _output_blocked() -> bool:
    """Whether standard output takes nothing; what waits for it is then thrown away.

    Python would try again, and complain, when it exits.
    """
    if sys.stdout is None:
        return False
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return True
    return False
