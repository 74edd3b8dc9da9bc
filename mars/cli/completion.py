"""`mars completion bash|zsh|fish`: what makes a shell complete commands, options and names."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import click
from click.shell_completion import CompletionItem, get_completion_class

from mars.cli.shared import api_address
from mars.client import Client
from mars.errors import MarsError

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


def task_names(
    context: click.Context, _parameter: click.Parameter, begun: str
) -> list[CompletionItem]:
    """Names of tasks that begin like this; none where the API does not answer."""
    try:
        with Client(api_address(context.params.get("api")), timeout_s=WAIT_S) as client:
            names = [task.name for task in client.tasks()]
    except MarsError:
        return []
    return [CompletionItem(name) for name in names if name.startswith(begun)]


def task_argument(command: Callable[P, R]) -> Callable[P, R]:
    """`NAME`, the name of a task, which shells complete."""
    return click.argument("name", shell_complete=task_names)(command)
