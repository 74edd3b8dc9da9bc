"""What all commands share: their common options, consoles, and where the API is."""

from __future__ import annotations

import math
from codecs import BOM_UTF8
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import click
import msgspec
from rich.console import Console
from rich.text import Text

from mars.client.answers import Task
from mars.client.cluster_file import DATA, find_api
from mars.core.definitions import resume_helps
from mars.core.errors import LocalClusterError, Rejected
from mars.core.printable import LINES, printable, printable_json

P = ParamSpec("P")
R = TypeVar("R")

FILE_FORMATS = ("parquet", "ndjson", "csv")
"""What files can be; the first is meant unless another is named."""

HALTED = {"paused", "failed"}
"""States of a task that takes no rows until it is resumed."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def halted_until(task: Task) -> str:
    """Until when a task takes no rows that is in one of these states."""
    if resume_helps(task.detail or ""):
        return f"until `mars task resume {task.name}`"
    return f"until it is removed (`mars task rm {task.name}`) and added again"


def data_option(command: Callable[P, R]) -> Callable[P, R]:
    """`--data`: the folder of the embedded cluster."""
    return click.option(
        "--data",
        type=click.Path(file_okay=False, path_type=Path),
        default=DATA,
        show_default=True,
        help="Folder of the cluster on this machine.",
    )(command)


def api_option(command: Callable[P, R]) -> Callable[P, R]:
    """`--api`: the address of the API, see `api_address`."""
    return click.option(
        "--api",
        metavar="URL",
        default=None,
        help="Address of the API [default: MARS_API, else the cluster that runs on .mars].",
    )(command)


def json_option(command: Callable[P, R]) -> Callable[P, R]:
    """`--json`, as the parameter `as_json`: output for programs."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def api_address(api: str | None, data: Path = DATA) -> str:
    """The API's address, see `find_api`. Raises LocalClusterError when nothing names one."""
    found = find_api(api, data)
    if found is None:
        raise LocalClusterError(
            f"No cluster runs on {data}; start one with `mars up`, or name its API with --api or "
            "MARS_API."
        )
    return found


def output() -> Console:
    """For results: standard output. Text is shown as it is: `[x]` and `:x:` mean nothing."""
    return _literal(stderr=False)


def messages() -> Console:
    """For everything else: standard error, in the same way."""
    return _literal(stderr=True)


class _Escaping(Console):
    """Prints texts as they are, and nothing in them is obeyed by the terminal."""

    def print(self, *objects: Any, **options: Any) -> None:
        """Print, as rich does."""
        super().print(*(_escaped(one) for one in objects), **options)


def _escaped(one: Any) -> Any:
    if isinstance(one, Text):
        shown = printable(one.plain, LINES)
        return one if shown == one.plain else Text(shown, style=one.style)
    return printable(one, LINES) if isinstance(one, str) else one


def say(text: str, *, err: bool = False) -> None:
    """A text that others may have written, in lines of its own."""
    click.echo(printable(text, LINES), err=err)


def say_json(text: str) -> None:
    """JSON for programs, which a terminal may be shown too."""
    click.echo(printable_json(text))


def _literal(*, stderr: bool) -> Console:
    return _Escaping(highlight=False, soft_wrap=True, markup=False, emoji=False, stderr=stderr)


def warn(warnings: Sequence[str]) -> None:
    """What a person should know besides."""
    for one in warnings:
        messages().print(f"Warning: {one}.")


def print_json(value: object) -> None:
    """Any value that msgspec can encode, indented, to standard output."""
    say_json(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def read_text(file: Path) -> str:
    """A whole file. Raises UsageError where it cannot be read, Rejected where it is no text."""
    try:
        return text_of(file.read_bytes(), str(file))
    except FileNotFoundError as error:
        raise click.UsageError(f"there is no file {file}") from error
    except IsADirectoryError as error:
        raise click.UsageError(f"{file} is a folder, not a file") from error
    except OSError as error:
        raise click.UsageError(f"{file} cannot be read ({error.strerror})") from error


def text_of(raw: bytes, where: str) -> str:
    """What somebody has written, without the mark with which some editors begin a file. Raises
    Rejected, naming the place, where it is no text.
    """
    try:
        return raw.removeprefix(BOM_UTF8).decode()
    except UnicodeDecodeError as error:
        raise Rejected(f"{where} is not UTF-8: see byte {error.start}") from error


def files_options(command: Callable[P, R]) -> Callable[P, R]:
    """`--files`, `--files-format` and `--csv-header`, to be read by `files_of`."""
    for option in (
        click.option("--csv-header", is_flag=True, help="Each CSV file begins with a header."),
        click.option(
            "--files-format",
            type=click.Choice(FILE_FORMATS),
            default=None,
            help="Format of the files [default: parquet].",
        ),
        click.option(
            "--files",
            metavar="DIR",
            default=None,
            help="A folder or pattern of files, as the API and Spark see it.",
        ),
    ):
        command = option(command)
    return command


def files_of(
    location: str | None, format: str | None, *, csv_header: bool, until_ms: int | None = None
) -> dict[str, object] | None:
    """What a request says of files; None without any. Raises UsageError."""
    if location is None:
        if format is not None or csv_header:
            raise click.UsageError("--files-format and --csv-header are for --files DIR")
        return None
    absolute = location if "://" in location else str(Path(location).absolute())
    members: dict[str, object] = {
        "files": absolute,
        "format": format or FILE_FORMATS[0],
        "csv_header": csv_header,
    }
    if until_ms is not None:
        members["until"] = until_ms
    return members


class Seconds(click.FloatRange):
    """A number of seconds: finite, which click's own type does not ask for."""

    name = "seconds"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Seconds."""
        seconds = float(super().convert(value, param, ctx))
        if not math.isfinite(seconds):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return seconds


class Moment(click.ParamType[int]):
    """A time: epoch milliseconds, or ISO 8601 (UTC unless it names an offset)."""

    name = "time"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Epoch milliseconds."""
        text = str(value)
        if text.removeprefix("-").isdecimal():
            return int(text)
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            self.fail(f"{text!r} is neither epoch milliseconds nor a time in ISO 8601", param, ctx)
        zoned = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        return (zoned - EPOCH) // timedelta(milliseconds=1)
