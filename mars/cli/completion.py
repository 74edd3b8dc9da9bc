"""`mars completion bash|zsh|fish`: what makes a shell complete commands, options and names."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import click
from click.shell_completion import CompletionItem, get_completion_class

from mars.cli.shared import api_address
from mars.client.blocking import Client
from mars.core.errors import MarsError

P = ParamSpec("P")
R = TypeVar("R")

SHELLS = ("bash", "zsh", "fish")

VARIABLE = "_MARS_COMPLETE"
"""By which a shell asks `mars` for completions; click's rule for the name."""

WAIT_S = 1.0
"""Longest wait for names: somebody has pressed a key."""


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print a script for SHELL; `eval "$(mars completion bash)"` in ~/.bashrc reads it.

    For zsh the same in ~/.zshrc; for fish: mars completion fish | source
    """
    made = get_completion_class(shell)
    root = click.get_current_context().find_root().command
    if made is None:
        raise click.UsageError(f"no completion for {shell}")
    sys.stdout.write(made(root, {}, "mars", VARIABLE).source())


Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def _completing(names_of: Callable[[Client], list[str]]) -> Complete:
    """Names of the API that begin as the word does; none where it does not answer."""

    def complete(
        context: click.Context, _parameter: click.Parameter, begun: str
    ) -> list[CompletionItem]:
        try:
            with Client(api_address(context.params.get("api")), timeout_s=WAIT_S) as client:
                names = names_of(client)
        except MarsError:
            return []
        return [CompletionItem(name) for name in names if name.startswith(begun)]

    return complete


task_names = _completing(lambda client: [task.name for task in client.tasks()])
stream_names = _completing(lambda client: [stream.name for stream in client.streams()])
key_ids = _completing(lambda client: [key.id for key in client.keys()])  # noqa: SIM118 -- no dict
queries_under_way = _completing(
    lambda client: [query.id for query in client.queries() if query.goes_on]
)


def task_argument(command: Callable[P, R]) -> Callable[P, R]:
    """`NAME`, the name of a task, which shells complete."""
    return click.argument("name", shell_complete=task_names)(command)


def stream_argument(command: Callable[P, R]) -> Callable[P, R]:
    """`NAME`, the name of a stream, in the same way."""
    return click.argument("name", shell_complete=stream_names)(command)
