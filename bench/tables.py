"""Reports as tables: for the terminal, and in Markdown for the documentation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.table import Table

from bench.profiling import Profile
from bench.results import LatencyReport, ProcessFigures, Report, ThroughputReport, ThroughputRun

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Grid:
    """A title, columns, and rows of as many cells; the first column is text, the others figures."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


def grids(report: Report) -> list[Grid]:
    """The tables of a report."""
    match report:
        case ThroughputReport(sweep=True):
            return [_sweep(report)]
        case ThroughputReport():
            return [_throughput(report), *_processes(report)]
        case LatencyReport():
            return [_latency(report), _windows(report)]


def _throughput(report: ThroughputReport) -> Grid:
    """One column a run: there are more figures than runs."""
    load = report.load
    told = [_told(run) for run in report.runs]
    return Grid(
        f"{load.rows:,} rows, {load.plan.format.value}, {load.plan.rows_per_window:,} a window",
        ("", *(_heading(run) for run in report.runs)),
        [[name, *(figures[name] for figures in told)] for name in told[0]],
    )


def _heading(run: ThroughputRun) -> str:
    return run.contestant if run.repeat == 1 else f"{run.contestant} ({run.repeat})"


def _told(run: ThroughputRun) -> Mapping[str, str]:
    committed = run.committed_rows_per_s
    return {
        "steady rows/s": f"{run.steady_rows_per_s:,.0f}",
        "rows per CPU second": f"{run.rows_per_cpu_s:,.0f}",
        "the same without Kafka, ZooKeeper, Valkey": f"{run.rows_per_cpu_s_without_servers:,.0f}",
        "cores busy": f"{run.cores_busy:.2f}",
        "end to end rows/s": f"{run.end_to_end_rows_per_s:,.0f}",
        "committed rows/s": "one commit" if committed is None else f"{committed:,.0f}",
        "memory of all, MiB": f"{run.rss_peak_bytes // MIB:,}",
        "memory without Kafka and ZooKeeper, MiB": f"{run.rss_peak_bytes_own // MIB:,}",
        "groups of a window": f"{run.groups_per_window:,}",
        "results": f"{run.results:,}",
        "correct": "no" if run.problems else "yes",
    }


def _sweep(report: ThroughputReport) -> Grid:
    return Grid(
        f"Batches and mappers: {report.load.rows:,} rows, {report.load.plan.format.value}",
        ("mappers", "rows of a batch", "steady rows/s", "rows per CPU s", "correct"),
        [
            (
                run.settings["mappers"],
                f"{int(run.settings['mapper.batch_rows_max']):,}",
                f"{run.steady_rows_per_s:,.0f}",
                f"{run.rows_per_cpu_s:,.0f}",
                "no" if run.problems else "yes",
            )
            for run in report.runs
        ],
    )


def _processes(report: ThroughputReport) -> list[Grid]:
    last = {run.contestant: run for run in report.runs}
    return [
        Grid(
            f"Processes of {name} in the steady part ({run.steady_s:.1f} s)",
            ("process", "CPU s", "share %", "memory, peak MiB"),
            _process_rows(run.processes),
        )
        for name, run in last.items()
    ]


def _process_rows(processes: Sequence[ProcessFigures]) -> list[Sequence[str]]:
    total = sum(process.cpu_s for process in processes) or 1.0
    return [
        (
            process.name,
            f"{process.cpu_s:.2f}",
            f"{100 * process.cpu_s / total:.0f}",
            f"{process.rss_peak_bytes // MIB:,}",
        )
        for process in processes
    ]


def _latency(report: LatencyReport) -> Grid:
    return Grid(
        f"Milliseconds beyond the delay: {report.rate:,} rows/s, {report.window_s} s windows",
        ("system", "p50", "p90", "p99", "max", "results", "cores busy", "memory MiB", "correct"),
        [
            (
                run.contestant,
                f"{run.overall.p50_ms:,.0f}",
                f"{run.overall.p90_ms:,.0f}",
                f"{run.overall.p99_ms:,.0f}",
                f"{run.overall.highest_ms:,.0f}",
                f"{run.overall.rows:,}",
                f"{run.cores_busy:.2f}",
                f"{run.rss_peak_bytes // MIB:,}",
                "no" if run.problems else "yes",
            )
            for run in report.runs
        ],
    )


def _windows(report: LatencyReport) -> Grid:
    return Grid(
        "By window, ms",
        ("system", "window", "p50", "p90", "p99", "max", "results"),
        [
            (
                run.contestant,
                str(number),
                f"{window.latency.p50_ms:,.0f}",
                f"{window.latency.p90_ms:,.0f}",
                f"{window.latency.p99_ms:,.0f}",
                f"{window.latency.highest_ms:,.0f}",
                f"{window.latency.rows:,}",
            )
            for run in report.runs
            for number, window in enumerate(run.windows, start=1)
        ],
    )


def profile_grid(profile: Profile) -> Grid:
    """The functions that take the most time."""
    return Grid(
        f"Where {profile.process} spends its time (stacks: {profile.stacks.name})",
        ("function", "own %", "with what it calls %"),
        [
            (line.function, f"{100 * line.own:.1f}", f"{100 * line.total:.1f}")
            for line in profile.lines
        ],
    )


def on_terminal(grid: Grid) -> Table:
    """As rich shows it."""
    table = Table(title=grid.title, title_justify="left")
    for number, column in enumerate(grid.columns):
        table.add_column(column, justify="left" if number == 0 else "right")
    for row in grid.rows:
        table.add_row(*row)
    return table


def markdown(grid: Grid) -> str:
    """As a Markdown table under its title."""
    dashes = ["---", *["---:"] * (len(grid.columns) - 1)]
    lines = [grid.columns, dashes, *grid.rows]
    return f"**{grid.title}**\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
