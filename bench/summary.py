"""What the newest reports come to, in small tables: Mars beside the peer of the same run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from bench.bulk_results import BulkReport
from bench.environment import Environment
from bench.errors import BenchError
from bench.peers import PEERS
from bench.results import LatencyReport, LatencyRun, ThroughputReport, ThroughputRun
from bench.tables import MIB, Grid

OURS, SPARK = "mars", "spark sql"

Run = TypeVar("Run", ThroughputRun, LatencyRun)


def rates(report: ThroughputReport) -> Grid:
    """Rates and memory of one load."""
    mars, peer = _sides(report.runs)
    load = report.load
    return Grid(
        f"{load.rows:,} rows, {load.plan.format.value}; {_where(report.environment)}",
        ("", *_beside(peer)),
        [
            _line("rows/s", mars.steady_rows_per_s, peer.steady_rows_per_s),
            _line("rows per CPU second", mars.rows_per_cpu_s, peer.rows_per_cpu_s),
            _line("end to end rows/s", mars.end_to_end_rows_per_s, peer.end_to_end_rows_per_s),
            _line(
                "memory without Kafka and ZooKeeper, MiB",
                mars.rss_peak_bytes_own // MIB,
                peer.rss_peak_bytes_own // MIB,
            ),
        ],
    )


def latency(report: LatencyReport) -> Grid:
    """How long after its end and the delay a window can be read."""
    mars, peer = _sides(report.runs)
    return Grid(
        f"{report.rate:,} rows/s, windows of {report.window_s} s; {_where(report.environment)}",
        ("", *_beside(peer)),
        [
            _line("half of the result rows, ms", mars.overall.p50_ms, peer.overall.p50_ms),
            _line("99 of 100, ms", mars.overall.p99_ms, peer.overall.p99_ms),
        ],
    )


def histories(report: BulkReport) -> Grid:
    """Rows per second of a history, beside plain Spark SQL."""
    plain = {run.source: run for run in report.runs if run.contestant == SPARK}
    return Grid(
        f"Histories, rows/s; {_where(report.environment)}",
        ("rows from", "Mars", "Spark SQL", "Mars / Spark SQL"),
        [
            _line(run.source.value, run.rows_per_s, plain[run.source].rows_per_s)
            for run in report.runs
            if run.contestant == OURS and run.source in plain
        ],
    )


def _beside(peer: ThroughputRun | LatencyRun) -> Sequence[str]:
    title = PEERS[peer.contestant].title
    return "Mars", title, f"Mars / {title}"


def _line(name: str, mars: float, peer: float) -> Sequence[str]:
    return name, f"{mars:,.0f}", f"{peer:,.0f}", f"{mars / peer:.2f}"


def _where(environment: Environment) -> str:
    return f"{environment.when[:10]}, {environment.cores} cores ({environment.cpu})"


def _sides(runs: Iterable[Run]) -> tuple[Run, Run]:
    """The first run of each. Raises BenchError where one of them was not there."""
    first: dict[str, Run] = {}
    for run in runs:
        first.setdefault(run.contestant, run)
    peers = first.keys() & PEERS.keys()
    if OURS not in first or not peers:
        raise BenchError("The newest report is without a peer: measure with --peer flink.")
    return first[OURS], first[peers.pop()]
