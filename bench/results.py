"""What the benchmarks save: one JSON file a measurement, and how it is made from raw runs."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from bench.contestants import Contestant
from bench.environment import Environment
from bench.errors import BenchError
from bench.load import Load, LoadPlan
from bench.measures import (
    Sample,
    Spread,
    committed_rate,
    committed_s,
    cpu_between,
    rss_total_peak,
    started_s,
    steady,
)
from bench.processes import Memory, Watched
from bench.throughput import RawRun

Saved = TypeVar("Saved")

FOLDER = Path(__file__).with_name("results")

SHARED = frozenset({"kafka", "zookeeper"})
"""Servers that many systems would use at once; Valkey is Mars's own."""


class ProcessFigures(msgspec.Struct, frozen=True):
    """One process of a contestant. CPU is that of the steady part, or of the measured windows."""

    name: str
    server: bool
    cpu_s: float
    rss_peak_bytes: int


class ThroughputRun(msgspec.Struct, frozen=True):
    """One run of a contestant.

    `steady_*`: between 20 % and 90 % of the rows. `end_to_end_*`: from the last look at which no
    row had been taken to the commit of the last closed window; its rows are those of the closed
    windows. `committed_rows_per_s`: rows of the windows committed after the first commit, by the
    time from the first commit to the last; None with one commit. `rows_per_cpu_s`: of the steady
    part, with and without the servers.
    """

    contestant: str
    version: str
    settings: dict[str, str]
    repeat: int
    steady_rows_per_s: float
    steady_s: float
    end_to_end_rows_per_s: float
    end_to_end_s: float
    committed_rows_per_s: float | None
    start_up_s: float
    rows_per_cpu_s: float
    rows_per_cpu_s_without_servers: float
    cores_busy: float
    rss_peak_bytes: int
    rss_peak_bytes_own: int
    """All but Kafka and ZooKeeper, which a contestant shares with others."""
    processes: tuple[ProcessFigures, ...]
    windows: int
    results: int
    groups_per_window: int
    problems: tuple[str, ...]
    samples: tuple[tuple[float, int], ...]
    """Seconds since the query was submitted, rows taken."""


class LoadFigures(msgspec.Struct, frozen=True):
    """What was in the topic."""

    plan: LoadPlan
    rows: int
    messages: int
    closed_windows: int


class ThroughputReport(msgspec.Struct, frozen=True, tag="throughput"):
    """`mars bench throughput`; with `sweep` the runs differ in mappers and batch rows."""

    environment: Environment
    load: LoadFigures
    sweep: bool
    runs: tuple[ThroughputRun, ...]
    notes: tuple[str, ...] = ()


class Percentiles(msgspec.Struct, frozen=True):
    """Of a latency, in milliseconds; each result row counts once."""

    rows: int
    p50_ms: float
    p90_ms: float
    p99_ms: float
    highest_ms: float


class WindowLatency(msgspec.Struct, frozen=True):
    """One window."""

    window_end_ms: int
    latency: Percentiles


class LatencyRun(msgspec.Struct, frozen=True):
    """One contestant; `problems` are sentences, none when all rows of all windows came once.

    `producer_behind_s`: the most that a burst of rows was late. It is part of the latency of that
    moment and not the contestant's doing.
    """

    contestant: str
    version: str
    settings: dict[str, str]
    overall: Percentiles
    windows: tuple[WindowLatency, ...]
    rows_sent: int
    cores_busy: float
    rss_peak_bytes: int
    processes: tuple[ProcessFigures, ...]
    producer_behind_s: float
    problems: tuple[str, ...]


class LatencyReport(msgspec.Struct, frozen=True, tag="latency"):
    """`mars bench latency`."""

    environment: Environment
    rate: int
    window_s: int
    seconds: int
    delay_s: int
    groups: int
    runs: tuple[LatencyRun, ...]
    notes: tuple[str, ...] = ()


Report = ThroughputReport | LatencyReport


def figures(contestant: Contestant, load: Load, raw: RawRun, repeat: int) -> ThroughputRun:
    """Everything that is told of a run. Raises BenchError for one too short to be measured."""
    try:
        return _figures(contestant, load, raw, repeat)
    except ValueError as error:
        raise BenchError(
            f"The run of {contestant.name} cannot be evaluated: {error}; its results: "
            f"{'; '.join(raw.outcome.problems) or 'correct'}."
        ) from error


def _figures(contestant: Contestant, load: Load, raw: RawRun, repeat: int) -> ThroughputRun:
    part = steady(raw.samples, load.rows)
    due = load.closed_windows(contestant.delay_s * 1000)
    closed = [window for window in due if window.start_ms in raw.outcome.windows]
    commits = [
        (committed_s(raw.samples, raw.outcome.last_offsets[window.start_ms]), window.rows)
        for window in closed
    ]
    begun_s = started_s(raw.samples)
    took_s = max((at_s for at_s, _ in commits), default=math.nan) - begun_s
    processes = process_figures(raw.watched, raw.memory, raw.samples, part.first_s, part.last_s)
    cpu_s = sum(process.cpu_s for process in processes)
    own_cpu_s = sum(process.cpu_s for process in processes if not process.server)
    found = raw.outcome.windows
    names = [process.name for process in processes]
    return ThroughputRun(
        contestant=contestant.name,
        version=contestant.version,
        settings=dict(contestant.settings()),
        repeat=repeat,
        steady_rows_per_s=part.rows_per_s,
        steady_s=part.last_s - part.first_s,
        end_to_end_rows_per_s=sum(window.rows for window in closed) / took_s,
        end_to_end_s=took_s,
        committed_rows_per_s=committed_rate(commits),
        start_up_s=begun_s,
        rows_per_cpu_s=part.rows / cpu_s,
        rows_per_cpu_s_without_servers=part.rows / own_cpu_s,
        cores_busy=cpu_s / (part.last_s - part.first_s),
        rss_peak_bytes=rss_total_peak(raw.samples, names),
        rss_peak_bytes_own=rss_total_peak(raw.samples, [n for n in names if n not in SHARED]),
        processes=processes,
        windows=len(closed),
        results=sum(window.groups for window in found.values()),
        groups_per_window=max((found[w.start_ms].groups for w in closed), default=0),
        problems=tuple(raw.outcome.problems),
        samples=tuple((round(sample.at_s, 2), sample.rows) for sample in raw.samples),
    )


def process_figures(
    watched: Sequence[Watched],
    memory: Mapping[str, Memory],
    samples: Sequence[Sample],
    first_s: float,
    last_s: float,
) -> tuple[ProcessFigures, ...]:
    """CPU seconds between two times, and the peak of memory, of each process."""
    return tuple(
        ProcessFigures(
            name=process.name,
            server=process.server,
            cpu_s=cpu_between(samples, process.name, first_s, last_s),
            rss_peak_bytes=memory[process.name].peak_bytes,
        )
        for process in watched
        if process.name in memory
    )


def percentiles(found: Spread) -> Percentiles:
    """The same as it is saved."""
    return Percentiles(found.count, found.p50, found.p90, found.p99, found.highest)


def save(report: object, name: str, folder: Path = FOLDER, *, compact: bool = False) -> Path:
    """Write a report under a name that says what and when; returns where."""
    folder.mkdir(parents=True, exist_ok=True)
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    path = folder / f"{name}-{stamp}.json"
    encoded = msgspec.json.encode(report)
    path.write_bytes((encoded if compact else msgspec.json.format(encoded, indent=1)) + b"\n")
    return path


def newest(kind: type[Saved], name: str, folder: Path = FOLDER) -> Saved | None:
    """The newest report of a name; None when there is none. Raises BenchError."""
    paths = sorted(folder.glob(f"{name}-[0-9]*.json"))
    if not paths:
        return None
    try:
        return msgspec.json.decode(paths[-1].read_bytes(), type=kind)
    except msgspec.MsgspecError as error:
        raise BenchError(
            f"{paths[-1]} is not of this release ({error}); measure again or remove it."
        ) from error
