"""`mars bench`: how fast it is on this machine, beside a peer if asked."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mars.cli.shared import json_option, messages, output, print_json
from mars.core.stopping import sigterm_interrupts

if TYPE_CHECKING:
    from bench.balance import Finished as Balanced
    from bench.balance_real import Finished as BalancedForReal
    from bench.balance_strategies import Finished as Tried
    from bench.session import Finished
    from bench.tables import Grid

PROCESSES = click.IntRange(1, 16)
ROWS = click.IntRange(100_000, 1_000_000_000)
"""Fewer are gone before anything can be measured."""

_DURATION = re.compile(r"^(\d+)\s*(s|min|h)$")
_SECONDS = {"s": 1, "min": 60, "h": 3600}


class Duration(click.ParamType[int]):
    """Whole seconds, written as in SQL: `10s`, `1 min`."""

    name = "duration"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Seconds."""
        match = _DURATION.match(str(value).strip())
        seconds = int(match[1]) * _SECONDS[match[2]] if match else 0
        if seconds < 1:
            self.fail(f"{value!r} is no duration; write 10s, 1min or 1h.", param, ctx)
        return seconds


PEER_NAMES = ("flink", "quix")
"""As in bench.peers, which is not imported before it is needed."""

peer_option = click.option(
    "--peer",
    type=click.Choice(PEER_NAMES),
    help="Measure this system on the same load; it is fetched the first time.",
)
mappers_option = click.option("--mappers", type=PROCESSES, default=2, show_default=True)
reducers_option = click.option("--reducers", type=PROCESSES, default=2, show_default=True)
data_option = click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for the servers' data, kept for the next run [default: a temporary one].",
)
results_option = click.option(
    "--results",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for the figures [default: bench/results].",
)


@click.group()
def bench() -> None:
    """Measure throughput and latency, with servers and data of their own."""
    # As Ctrl-C: servers are stopped and temporary folders removed.
    click.get_current_context().with_resource(sigterm_interrupts())


@bench.command()
@click.option(
    "--format",
    "format_",
    type=click.Choice(["json", "ndjson"]),
    default="json",
    show_default=True,
    help="One object a message, or 1,000 lines.",
)
@click.option("--rows", type=ROWS, help="Rows in the topic [default: 24 M json, 30 M ndjson].")
@click.option(
    "--rows-per-window",
    type=click.IntRange(1_000),
    help="[default: 3 M json, 5 M ndjson, at most a fourth]",
)
@mappers_option
@reducers_option
@click.option("--batch-rows", type=click.IntRange(1), help="Most rows of a mapper's batch.")
@click.option("--repeat", type=click.IntRange(1, 20), default=1, show_default=True)
@peer_option
@click.option("--sweep", is_flag=True, help="Batches of 500 to 50,000 rows, 1 and 2 mappers.")
@click.option("--tracker", is_flag=True, help="With the tuple tracker on.")
@click.option("--profile", is_flag=True, help="Record a mapper and a reducer with py-spy.")
@data_option
@results_option
@json_option
def throughput(
    format_: str,
    rows: int | None,
    rows_per_window: int | None,
    mappers: int,
    reducers: int,
    batch_rows: int | None,
    repeat: int,
    peer: str | None,
    sweep: bool,
    tracker: bool,
    profile: bool,
    data: Path | None,
    results: Path | None,
    as_json: bool,
) -> int:
    """Measure rows per second from a full topic to committed results, per CPU second too."""
    if sweep and batch_rows is not None:
        raise click.UsageError("--sweep tries batch sizes itself; leave --batch-rows out.")
    if sweep and tracker:
        raise click.UsageError("--sweep runs without the tracker; leave --tracker out.")
    from bench.results import FOLDER
    from bench.session import Throughput, throughput_session
    from mars.core.plan import Format

    asked = Throughput(
        format=Format(format_),
        rows=rows,
        rows_per_window=rows_per_window,
        mappers=mappers,
        reducers=reducers,
        batch_rows=batch_rows,
        repeat=repeat,
        peer=peer,
        sweep=sweep,
        tracker=tracker,
        profile=profile,
        data=data,
        folder=results or FOLDER,
    )
    return _show(throughput_session(asked, messages().print), as_json=as_json)


@bench.command()
@click.option("--rate", type=click.IntRange(10, 1_000_000), default=20_000, show_default=True)
@click.option("--window", type=Duration(), default="10s", show_default=True)
@click.option("--seconds", type=click.IntRange(1), default=120, show_default=True)
@click.option("--groups", type=click.IntRange(1), default=80_000, show_default=True)
@mappers_option
@reducers_option
@peer_option
@data_option
@results_option
@json_option
def latency(
    rate: int,
    window: int,
    seconds: int,
    groups: int,
    mappers: int,
    reducers: int,
    peer: str | None,
    data: Path | None,
    results: Path | None,
    as_json: bool,
) -> int:
    """Measure the time from a window's end until its results can be read, at a steady rate."""
    if seconds < window:
        raise click.UsageError(f"--seconds {seconds} holds no window of {window} s.")
    from bench.latency import LatencyPlan
    from bench.results import FOLDER
    from bench.session import Latency, latency_session

    asked = Latency(
        plan=LatencyPlan(rate, window, seconds, groups),
        mappers=mappers,
        reducers=reducers,
        peer=peer,
        data=data,
        folder=results or FOLDER,
    )
    return _show(latency_session(asked, messages().print), as_json=as_json)


@bench.command()
@click.option(
    "--from",
    "sources",
    type=click.Choice(["json", "ndjson", "parquet"]),
    multiple=True,
    help="Where the rows are; several times for several [default: all].",
)
@click.option("--rows", type=ROWS, help="Rows of each [default: 8 M json, 20 M ndjson, 40 M].")
@click.option("--peers/--no-peers", default=True, help="Plain Spark SQL and DuckDB beside Mars.")
@click.option("--driver-memory", type=click.IntRange(256), help="Heap of Mars's driver, MiB.")
@click.option("--chunk-rows", type=click.IntRange(1_000), help="Rows of a chunk.")
@data_option
@results_option
@json_option
def bulk(
    sources: tuple[str, ...],
    rows: int | None,
    peers: bool,
    driver_memory: int | None,
    chunk_rows: int | None,
    data: Path | None,
    results: Path | None,
    as_json: bool,
) -> int:
    """Measure rows per second of a backfill on Spark, beside plain Spark SQL and DuckDB."""
    from bench.bulk import Bulk, bulk_session
    from bench.bulk_results import SourceKind, grids
    from bench.results import FOLDER

    usual = Bulk()
    asked = Bulk(
        sources=tuple(map(SourceKind, sources)) or usual.sources,
        rows=rows,
        peers=peers,
        driver_memory_mb=driver_memory or usual.driver_memory_mb,
        chunk_rows=chunk_rows or usual.chunk_rows,
        data=data,
        folder=results or FOLDER,
    )
    finished = bulk_session(asked, messages().print)
    problems = [
        f"{run.contestant}: {text}" for run in finished.report.runs for text in run.problems
    ]
    _print(finished.report, grids(finished.report), finished.path, problems, as_json=as_json)
    return 1 if problems else 0


@bench.command()
@click.option(
    "--real",
    is_flag=True,
    help="Wandering keys on four reducers of a real cluster: takes 13 minutes.",
)
@click.option(
    "--strategies",
    is_flag=True,
    help="Skewed keys and each strategy, on four real reducers: takes 25 minutes.",
)
@results_option
@json_option
def balance(real: bool, strategies: bool, results: Path | None, as_json: bool) -> int:
    """Simulate what moving buckets is worth: wandering keys, bursts, a load that rises and falls.

    The decisions and load figures are those of the leader; takes a minute and no servers.
    """
    if real and strategies:
        raise click.UsageError("--real and --strategies are two measurements; ask for one.")
    from bench import balance as simulated
    from bench import balance_real, balance_strategies
    from bench.balance_plots import plot_balance, plot_real
    from bench.plots import REPORTS
    from bench.results import FOLDER

    folder, pictures = results or FOLDER, results or REPORTS
    if real:
        on_servers = balance_real.real_session(messages().print, folder)
        grids = balance_real.grids(on_servers.report)
        _tell(on_servers, grids, plot_real(on_servers.report, pictures), as_json=as_json)
        return 1 if any(run.problems for run in on_servers.report.runs) else 0
    if strategies:
        tried = balance_strategies.strategies_session(messages().print, folder)
        _tell(tried, balance_strategies.grids(tried.report), [], as_json=as_json)
        return 1 if any(run.problems for run in tried.report.runs) else 0
    finished = simulated.balance_session(messages().print, folder)
    grids = simulated.grids(finished.report)
    _tell(finished, grids, plot_balance(finished.report, pictures), as_json=as_json)
    return 1 if any(run.problems for run in finished.report.runs) else 0


@bench.command()
@click.option("--minutes", type=click.IntRange(1), default=120, show_default=True)
@click.option("--rate", type=click.IntRange(10, 1_000_000), default=6_000, show_default=True)
@results_option
@json_option
def soak(minutes: int, rate: int, results: Path | None, as_json: bool) -> int:
    """Measure what each process holds in memory, at a steady rate of rows over three tasks.

    Exit code 1: a process of Mars went on growing once it was warm.
    """
    from bench import soak as soaking
    from bench.plots import REPORTS
    from bench.results import FOLDER

    done = soaking.soak_session(rate, minutes, messages().print, results or FOLDER)
    _print(done.report, soaking.grids(done.report), done.path, as_json=as_json)
    for path in soaking.plot(done.report, results or REPORTS):
        messages().print(f"Plot: {path}")
    return 1 if soaking.grown(done.report) else 0


@bench.command()
@click.option(
    "--tasks", "counts", type=click.IntRange(1), multiple=True, help="[default: 1 20 100]"
)
@click.option(
    "--partitions", type=click.IntRange(1), multiple=True, help="Of the stream [default: 4]."
)
@click.option("--rate", type=click.IntRange(10, 1_000_000), default=2_000, show_default=True)
@click.option("--seconds", type=click.IntRange(10), default=60, show_default=True)
@click.option("--one-topic", is_flag=True, help="The tasks, a set, write to one output topic.")
@click.option("--one-bucket", is_flag=True, help="The groups of each task lie in one bucket.")
@results_option
@json_option
def tasks(
    counts: tuple[int, ...],
    partitions: tuple[int, ...],
    rate: int,
    seconds: int,
    one_topic: bool,
    one_bucket: bool,
    results: Path | None,
    as_json: bool,
) -> int:
    """Measure what each process takes for many tasks over one stream, or over many partitions.

    Each number of tasks over each number of partitions is a run on a cluster of its own.
    """
    from bench import tasks as many
    from bench.results import FOLDER

    usual = many.Asked()
    asked = many.Asked(
        counts or usual.tasks,
        partitions or usual.partitions,
        rate,
        seconds=seconds,
        one_topic=one_topic,
        one_bucket=one_bucket,
    )
    done = many.tasks_session(asked, messages().print, results or FOLDER)
    _print(done.report, many.grids(done.report), done.path, as_json=as_json)
    return 0


@bench.command()
@click.option("--rate", type=click.IntRange(10, 1_000_000), default=80_000, show_default=True)
@click.option("--window", type=Duration(), default="60s", show_default=True)
@click.option("--windows", type=click.IntRange(1), default=3, show_default=True)
@click.option("--warm", type=Duration(), help="Before they are measured [default: one window].")
@click.option(
    "--format",
    "format_",
    type=click.Choice(["ndjson", "json"]),
    default="ndjson",
    show_default=True,
    help="Up to 1,000 lines a message, or one object.",
)
@click.option("--keys", type=click.Choice(["string", "int64"]), default="string", show_default=True)
@click.option(
    "--budget",
    type=click.IntRange(1),
    default=1_024,
    show_default=True,
    help="cluster.log_bytes_max, MiB.",
)
@results_option
@json_option
def groups(
    rate: int,
    window: int,
    windows: int,
    warm: int | None,
    format_: str,
    keys: str,
    budget: int,
    results: Path | None,
    as_json: bool,
) -> int:
    """Measure what a task costs whose windows have a group for each row, beside a small task.

    Exit code 1: some window of it was not exact.
    """
    from bench import groups as many
    from bench.groups_results import grids
    from bench.results import FOLDER
    from mars.core.plan import FieldType, Format

    asked = many.Asked(
        rate, window, windows, warm or window, Format(format_), FieldType(keys), budget
    )
    done = many.groups_session(asked, messages().print, results or FOLDER)
    problems = done.report.problems
    _print(done.report, grids(done.report), done.path, problems, as_json=as_json)
    return 1 if problems else 0


@bench.command()
@click.option("--minutes", type=click.IntRange(1), default=15, show_default=True)
@click.option("--rate", type=click.IntRange(100, 1_000_000), default=20_000, show_default=True)
@click.option("--groups", type=click.IntRange(1), default=200_000, show_default=True)
@click.option("--losses", type=click.IntRange(1), default=3, show_default=True)
@results_option
@json_option
def recovery(
    minutes: int, rate: int, groups: int, losses: int, results: Path | None, as_json: bool
) -> int:
    """Measure how long after a loss of the store the windows of a day close again.

    Rows of some minutes are in the window before the first loss.
    """
    from bench import recovery as recovering
    from bench.results import FOLDER

    asked = recovering.Asked(minutes, rate, groups, losses)
    done = recovering.recovery_session(asked, messages().print, results or FOLDER)
    _print(done.report, recovering.grids(done.report), done.path, as_json=as_json)
    return 0


@bench.command()
@click.option("--rows", type=ROWS, default=4_000_000, show_default=True)
@click.option("--rounds", type=click.IntRange(1), default=2, show_default=True)
@results_option
@json_option
def shapes(rows: int, rounds: int, results: Path | None, as_json: bool) -> int:
    """Measure what windows of each shape cost, beside tumbling ones over the same rows."""
    from bench import shapes as shaping
    from bench.results import FOLDER

    done = shaping.shapes_session(rows, rounds, messages().print, results or FOLDER)
    _print(done.report, shaping.grids(done.report), done.path, as_json=as_json)
    return 0


def _tell(
    finished: Balanced | BalancedForReal | Tried,
    grids: list[Grid],
    plots: list[Path],
    *,
    as_json: bool,
) -> None:
    """Print the report, what was wrong, and where everything is."""
    problems = [f"{run.name}: {text}" for run in finished.report.runs for text in run.problems]
    _print(finished.report, grids, finished.path, problems, as_json=as_json)
    for path in plots:
        messages().print(f"Plot: {path}")


def _print(
    report: object, grids: list[Grid], path: Path, problems: Sequence[str] = (), *, as_json: bool
) -> None:
    """Print the report, what was wrong, and where it was saved."""
    from bench.tables import on_terminal

    if as_json:
        print_json(report)
    else:
        for grid in grids:
            output().print(on_terminal(grid))
    for text in problems:
        messages().print(text)
    messages().print(f"Saved: {path}")


def _show(finished: Finished, *, as_json: bool) -> int:
    """Print the report; 1 when a contestant's results were wrong."""
    from bench.plots import REPORTS, plot_sweep
    from bench.results import FOLDER, ThroughputReport
    from bench.tables import grids, on_terminal, profile_grid

    report = finished.report
    if as_json:
        print_json(report)
    else:
        screen = output()
        for grid in [*grids(report), *map(profile_grid, finished.profiles)]:
            screen.print(on_terminal(grid))
    for run in report.runs:
        for text in run.problems:
            messages().print(f"{run.contestant}: {text}")
    messages().print(f"Saved: {finished.path}")
    if isinstance(report, ThroughputReport) and report.sweep:
        beside = finished.path.parent
        for path in plot_sweep(report, REPORTS if beside == FOLDER else beside):
            messages().print(f"Plot: {path}")
    return 1 if any(run.problems for run in report.runs) else 0
