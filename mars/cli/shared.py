"""What all commands share: their common options, consoles, and where the API is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

import click
import msgspec
from rich.console import Console

from mars.errors import LocalClusterError
from mars.local.state import running_cluster
from mars.settings import surroundings

P = ParamSpec("P")
R = TypeVar("R")

DATA = Path(".mars")
"""Where `mars up` keeps everything unless told otherwise."""


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
    """The API's address without a slash at its end: `--api`, MARS_API, the cluster that runs.

    Raises LocalClusterError when none of them names one.
    """
    named = api or surroundings().api_url
    if named is not None:
        return named.rstrip("/")
    cluster = running_cluster(data)
    if cluster is None:
        raise LocalClusterError(
            f"No cluster runs on {data}; start one with `mars up`, or name its API with --api or "
            "MARS_API."
        )
    return cluster.api


def output() -> Console:
    """For results: standard output."""
    return Console(highlight=False, soft_wrap=True)


def messages() -> Console:
    """For everything else: standard error."""
    return Console(highlight=False, soft_wrap=True, stderr=True)


def print_json(value: object) -> None:
    """Any value that msgspec can encode, indented, to standard output."""
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())
