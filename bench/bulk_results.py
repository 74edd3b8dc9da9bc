"""What `mars bench bulk` asks, finds and saves."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from bench.environment import Environment
from bench.tables import MIB, Grid
from mars.core.plan import Format


class SourceKind(StrEnum):
    """Where the rows are."""

    JSON = "json"
    NDJSON = "ndjson"
    PARQUET = "parquet"


class JobSpec(msgspec.Struct, frozen=True):
    """One contestant on one source; what its process is told."""

    contestant: str
    source: SourceKind
    rows: int
    bootstrap: str
    topic: str
    folder: str
    cores: int
    driver_memory_mb: int
    chunk_rows: int

    @property
    def format(self) -> Format:
        """Of the topic's messages."""
        return Format.NDJSON if self.source is SourceKind.NDJSON else Format.JSON


class Counted(msgspec.Struct, frozen=True):
    """What a contestant has counted: rows by window, of all; the rest of the timed part only.

    `partials`, `states` (rows of all partials) and `bytes` are what Mars would send to Redis.
    """

    windows: dict[int, int]
    rows: int
    partials: int = 0
    states: int = 0
    bytes: int = 0


class ProcessMemory(msgspec.Struct, frozen=True):
    """The most that a kind of process held at once, all of that kind together."""

    kind: str
    peak_bytes: int


class BulkRun(msgspec.Struct, frozen=True):
    """One contestant on one source, without its start and its first rows.

    `cpu_s` is that of its own processes; Kafka's is beside it. `peak_bytes` is the most that its
    own processes held at once, by samples; pages that forked processes share count in each.
    """

    contestant: str
    source: SourceKind
    rows: int
    seconds: float
    cpu_s: float
    kafka_cpu_s: float
    start_s: float
    """Until the timed part began: starting, and the warming part of the rows."""
    peak_bytes: int
    memory: tuple[ProcessMemory, ...]
    partials: int
    states: int
    bytes: int
    problems: tuple[str, ...] = ()

    @property
    def rows_per_s(self) -> float:
        """Steady rate."""
        return self.rows / self.seconds


class BulkReport(msgspec.Struct, frozen=True, tag="bulk"):
    """`mars bench bulk`. `groups_per_window`: how many there are to be found, about."""

    environment: Environment
    rows: dict[str, int]
    rows_per_window: int
    groups_per_window: int
    settings: dict[str, str]
    runs: tuple[BulkRun, ...]
    notes: tuple[str, ...] = ()


def grids(report: BulkReport) -> list[Grid]:
    """The tables of a report."""
    return [_rates(report), _sent(report), _memory(report)]


def _rates(report: BulkReport) -> Grid:
    cores = report.environment.cores
    slowest = {run.source: run.rows_per_s for run in report.runs if run.contestant == "spark sql"}
    return Grid(
        f"Rows per second, {cores} cores",
        ("rows from", "system", "rows/s", "per core", "per CPU s", "x plain Spark", "MiB", "right"),
        [
            (
                _named(run.source),
                run.contestant,
                f"{run.rows_per_s:,.0f}",
                f"{run.rows_per_s / cores:,.0f}",
                f"{run.rows / run.cpu_s:,.0f}" if run.cpu_s else "-",
                f"{run.rows_per_s / slowest[run.source]:.2f}" if run.source in slowest else "-",
                f"{run.peak_bytes // MIB:,}",
                "no" if run.problems else "yes",
            )
            for run in report.runs
        ],
    )


def _named(source: SourceKind) -> str:
    return "Parquet" if source is SourceKind.PARQUET else f"Kafka, {source.value}"


def _sent(report: BulkReport) -> Grid:
    return Grid(
        "What Mars sends to Redis",
        ("rows from", "rows read", "partials", "groups in them", "rows per group", "MiB"),
        [
            (
                _named(run.source),
                f"{run.rows:,}",
                f"{run.partials:,}",
                f"{run.states:,}",
                f"{run.rows / max(1, run.states):.1f}",
                f"{run.bytes / MIB:.1f}",
            )
            for run in report.runs
            if run.contestant == "mars"
        ],
    )


def _memory(report: BulkReport) -> Grid:
    kinds = sorted({one.kind for run in report.runs for one in run.memory})
    rows = []
    for run in report.runs:
        held = {one.kind: f"{one.peak_bytes // MIB:,}" for one in run.memory}
        rows.append((_named(run.source), run.contestant, *(held.get(kind, "-") for kind in kinds)))
    return Grid("Peak of memory, MiB", ("rows from", "system", *kinds), rows)
