"""`mars mapper | reducer | api | bulk`: one process, for clusters."""

from __future__ import annotations

import importlib
import importlib.util
import traceback
from collections.abc import Callable
from pathlib import Path

import click

from mars.core.errors import MarsError
from mars.core.settings import load

_MODULES = {
    "mapper": "mapper.__main__",
    "mapper on Spark": "mapper.on_spark.__main__",
    "reducer": "reducer.__main__",
    "api": "api.__main__",
    "bulk": "mapper.bulk.__main__",
}


def config_option(command: Callable[..., None]) -> Callable[..., None]:
    """`--config`: the TOML file; without it the defaults and the environment."""
    return click.option(
        "--config",
        type=click.Path(dir_okay=False, path_type=Path),
        default=None,
        help="TOML file; environment variables MARS_<SECTION>_<KEY> come after it.",
    )(command)


@click.command()
@config_option
@click.option(
    "--engine",
    type=click.Choice(["python", "spark"]),
    default="python",
    show_default=True,
    help="spark: a streaming query on the cluster of [bulk] maps instead of this process.",
)
def mapper(config: Path | None, engine: str) -> None:
    """Run one mapper until it is stopped."""
    _run("mapper on Spark" if engine == "spark" else "mapper", config)


@click.command()
@config_option
def reducer(config: Path | None) -> None:
    """Run one reducer until it is stopped."""
    _run("reducer", config)


@click.command()
@config_option
def api(config: Path | None) -> None:
    """Run the REST interface until it is stopped."""
    _run("api", config)


@click.command()
@config_option
def bulk(config: Path | None) -> None:
    """Run the driver of PySpark jobs until it is stopped."""
    _run("bulk", config)


def _run(role: str, config: Path | None) -> None:
    """Hand over to the role's own `run(settings)`, whose result is the exit code, if it has one."""
    settings = load(config)
    module = _MODULES[role]
    package = module.rpartition(".")[0]
    if importlib.util.find_spec(package) is None or importlib.util.find_spec(module) is None:
        raise MarsError(f"This version of Mars has no process of the role {role}.")
    try:
        outcome = importlib.import_module(module).run(settings)
    except BrokenPipeError:
        raise
    except OSError:
        # Of a process that runs for weeks, the place says more than a sentence.
        traceback.print_exc()
        raise click.exceptions.Exit(1) from None
    if isinstance(outcome, int) and outcome != 0:
        raise click.exceptions.Exit(outcome)
