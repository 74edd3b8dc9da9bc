"""`mars bench bulk`: the engine on Spark beside plain Spark SQL and DuckDB, on the same rows."""

from __future__ import annotations

import math
import multiprocessing
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec
import polars as pl

from bench.bulk_jobs import WINDOW_MS, run_job
from bench.bulk_results import (
    BulkReport,
    BulkRun,
    Counted,
    JobSpec,
    ProcessMemory,
    SourceKind,
)
from bench.environment import environment
from bench.errors import BenchError
from bench.load import DISORDER_MS, LoadPlan
from bench.processes import PROC, all_stats, descendants, memory_of
from bench.results import FOLDER, save
from bench.session import GROUPS_PER_WINDOW, TOPIC, folder_for, groups_for, loaded
from mars.core.errors import MarsError
from mars.core.plan import Format
from mars.core.settings import BulkSettings
from mars.local.flows import Flows
from mars.local.servers import KafkaServer

ROWS = {SourceKind.JSON: 8_000_000, SourceKind.NDJSON: 20_000_000, SourceKind.PARQUET: 40_000_000}
"""At least 15 s of the fastest on two cores, beside DuckDB."""

ROWS_PER_WINDOW = 3_000_000

FILE_ROWS = 1_000_000
GROUP_ROWS = 250_000
"""Rows of a Parquet file and of its row groups: what Spark itself writes is of this order."""

START_MS = 1_700_000_040_000
"""Event time of the first row of files: the begin of a window, after 1970 as real rows are."""

FILES_MIN = 5
"""The first of them warms the peers up, which read whole files."""

SAMPLE_S = 0.25
"""Between two looks at a contestant's processes."""

STALL_S = 900.0
"""A contestant that says nothing for so long is ended."""

END_S = 30.0
KAFKA_READY_S = 90.0
KAFKA_STOP_S = 20.0

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Bulk:
    """What was asked for; rows of None take the default of each source."""

    sources: tuple[SourceKind, ...] = tuple(SourceKind)
    rows: int | None = None
    peers: bool = True
    driver_memory_mb: int = BulkSettings().driver_memory_mb
    chunk_rows: int = BulkSettings().chunk_rows
    data: Path | None = None
    folder: Path = FOLDER


@dataclass(frozen=True, slots=True)
class Finished:
    """A report, and where it was saved."""

    report: BulkReport
    path: Path


def bulk_session(asked: Bulk, say: Say) -> Finished:
    """Measure all contestants on each source. Raises MarsError when nothing could be measured."""
    about, notes = environment(), list[str]()
    runs: list[BulkRun] = []
    with folder_for(asked.data) as data:
        for source in asked.sources:
            with _prepared(asked, source, data / source.value, say) as (spec, kafka_pid, windows):
                runs += _contest(asked, spec, kafka_pid, windows, notes, say)
    if not runs:
        raise BenchError("Nothing could be measured; the reasons are above.")
    report = BulkReport(
        environment=about,
        rows={source.value: _rows(asked, source) for source in asked.sources},
        rows_per_window=ROWS_PER_WINDOW,
        groups_per_window=GROUPS_PER_WINDOW,
        settings={
            "bulk.master": "local[*]",
            "bulk.driver_memory_mb": str(asked.driver_memory_mb),
            "bulk.chunk_rows": str(asked.chunk_rows),
            "bulk.chunks_ahead": str(BulkSettings().chunks_ahead),
        },
        runs=tuple(runs),
        notes=tuple(notes),
    )
    return Finished(report, save(report, "bulk", asked.folder))


def _rows(asked: Bulk, source: SourceKind) -> int:
    return asked.rows or ROWS[source]


# ------------------------------------------------------------------------------- what is read

Prepared = tuple[JobSpec, int | None, dict[int, int] | None]
"""A job without its contestant, Kafka's pid, and rows by window where they are known."""


@contextmanager
def _prepared(asked: Bulk, source: SourceKind, data: Path, say: Say) -> Iterator[Prepared]:
    """The rows where they are to be read, and Kafka running where they are in it."""
    spec = JobSpec(
        contestant="",
        source=source,
        rows=_rows(asked, source),
        bootstrap="",
        topic=TOPIC,
        folder=str(data / f"{_rows(asked, source)}-rows"),
        cores=len(os.sched_getaffinity(0)),
        driver_memory_mb=asked.driver_memory_mb,
        chunk_rows=asked.chunk_rows,
    )
    if source is SourceKind.PARQUET:
        _write_parquet(Path(spec.folder), spec.rows, say)
        yield spec, None, None
        return
    data.mkdir(parents=True, exist_ok=True)
    share = min(ROWS_PER_WINDOW, math.ceil(spec.rows / 4))
    plan = LoadPlan(
        TOPIC, Format(source.value), spec.rows, share, groups_for(GROUPS_PER_WINDOW, share)
    )
    load = loaded(data, plan, say)
    kafka = KafkaServer(data / "kafka", log=data / "logs" / "kafka.log")
    try:
        kafka.start()
        kafka.wait_ready(KAFKA_READY_S)
        windows = {window.start_ms: window.rows for window in load.windows}
        full = msgspec.structs.replace(spec, rows=load.rows, bootstrap=kafka.bootstrap)
        yield full, kafka.pid, windows
    finally:
        kafka.stop(KAFKA_STOP_S)


def _write_parquet(folder: Path, rows: int, say: Say) -> None:
    """Files of equal size, five at least, in order of event time; those that are there stay."""
    folder.mkdir(parents=True, exist_ok=True)
    share = min(ROWS_PER_WINDOW, math.ceil(rows / 4))
    rate = share * 1000 / WINDOW_MS
    flows = Flows(groups=groups_for(GROUPS_PER_WINDOW, share), disorder_ms=DISORDER_MS)
    say(f"Writing {rows:,} rows as Parquet")
    size = min(FILE_ROWS, math.ceil(rows / FILES_MIN))
    for first in range(0, rows, size):
        count = min(size, rows - first)
        lines = flows.messages(count, START_MS + first * WINDOW_MS // share, rate)
        path = folder / f"{first // size:05}.parquet"
        if not path.exists():
            frame = pl.read_ndjson(b"\n".join(lines))
            frame.write_parquet(path, row_group_size=GROUP_ROWS, compression="zstd")


# --------------------------------------------------------------------------------- contestants


def _contest(
    asked: Bulk,
    spec: JobSpec,
    kafka_pid: int | None,
    windows: dict[int, int] | None,
    notes: list[str],
    say: Say,
) -> list[BulkRun]:
    """Each contestant on one source; the first that succeeds says what is right if nobody knows."""
    runs: list[BulkRun] = []
    for name in _contestants(asked, spec.source):
        say(f"{name} on {spec.rows:,} rows of {spec.source.value}")
        try:
            seen = measured(msgspec.structs.replace(spec, contestant=name), kafka_pid)
        except MarsError as error:
            notes.append(f"{name} on {spec.source.value}: {error}")
            say(notes[-1])
            continue
        windows = windows or seen.counted.windows
        runs.append(_run(name, spec.source, seen, windows))
    return runs


def _contestants(asked: Bulk, source: SourceKind) -> Sequence[str]:
    if not asked.peers:
        return ["mars"]
    return (
        ["duckdb", "mars", "spark sql"] if source is SourceKind.PARQUET else ["mars", "spark sql"]
    )


def _run(name: str, source: SourceKind, seen: Seen, windows: dict[int, int]) -> BulkRun:
    counted = seen.counted
    wrong = sorted(
        start
        for start in windows.keys() | counted.windows.keys()
        if windows.get(start) != counted.windows.get(start)
    )
    return BulkRun(
        contestant=name,
        source=source,
        rows=counted.rows,
        seconds=seen.seconds,
        cpu_s=seen.cpu_s,
        kafka_cpu_s=seen.kafka_cpu_s,
        start_s=seen.start_s,
        peak_bytes=seen.peak_bytes,
        memory=tuple(ProcessMemory(kind, size) for kind, size in sorted(seen.by_kind.items())),
        partials=counted.partials,
        states=counted.states,
        bytes=counted.bytes,
        problems=tuple(
            f"window {start} has {counted.windows.get(start)} rows, not {windows.get(start)}"
            for start in wrong
        ),
    )


# ----------------------------------------------------------------------------------- measuring


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen of a process, and what it answered."""

    counted: Counted
    seconds: float
    cpu_s: float
    kafka_cpu_s: float
    start_s: float
    peak_bytes: int
    by_kind: dict[str, int]


def measured(spec: JobSpec, kafka_pid: int | None) -> Seen:
    """Run a contestant in a process of its own and look at it while it runs. Raises BenchError."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_child, args=(theirs, spec), daemon=False)
    process.start()
    theirs.close()
    try:
        return _watched(spec, ours, process.pid or 0, kafka_pid)
    finally:
        process.join(END_S)
        if process.is_alive():
            process.kill()
        ours.close()


def _child(pipe: Connection, spec: JobSpec) -> None:
    """In the contestant's process: say when, then what was counted or what went wrong."""
    try:
        counted = run_job(spec, lambda what: pipe.send((what, None)))
        pipe.send(("counted", msgspec.json.encode(counted)))
    except Exception as error:  # noqa: BLE001 -- whatever it is, the other process tells it
        pipe.send(("failed", f"{type(error).__name__}: {error}"[:500]))
    finally:
        pipe.close()


def _watched(spec: JobSpec, pipe: Connection, pid: int, kafka_pid: int | None) -> Seen:
    begun = time.monotonic()
    marks: dict[str, tuple[float, float, float]] = {}
    by_kind: defaultdict[str, int] = defaultdict(int)
    peak = 0
    content: bytes | None = None
    while True:
        if pipe.poll(SAMPLE_S):
            what, content = _received(pipe)
            if what == "counted":
                break
            if what == "failed":
                raise BenchError(f"{spec.contestant} failed: {content!r}")
            marks[what] = (time.monotonic(), _cpu(pid), _cpu(kafka_pid))
        held = _memory_by_kind(pid)
        peak = max(peak, sum(held.values()))
        for kind, size in held.items():
            by_kind[kind] = max(size, by_kind[kind])
        if time.monotonic() - begun > STALL_S:
            raise BenchError(f"{spec.contestant} was not done after {STALL_S:.0f} s.")
    first, last = marks["begin"], marks["end"]
    return Seen(
        counted=msgspec.json.decode(content or b"", type=Counted),
        seconds=last[0] - first[0],
        cpu_s=last[1] - first[1],
        kafka_cpu_s=last[2] - first[2],
        start_s=first[0] - begun,
        peak_bytes=peak,
        by_kind=dict(by_kind),
    )


def _received(pipe: Connection) -> tuple[str, bytes | None]:
    try:
        what, content = pipe.recv()
    except EOFError:
        return "failed", b"its process ended"
    return what, content


def _cpu(pid: int | None) -> float:
    """CPU seconds so far of a process and all below it."""
    if pid is None:
        return 0.0
    stats = all_stats()
    below = descendants(stats.values(), pid)
    return sum(stats[one].cpu_s for one in below if one in stats)


def _memory_by_kind(pid: int) -> dict[str, int]:
    """Memory held now: of the driver, of Java, of the Python processes of executors."""
    held: defaultdict[str, int] = defaultdict(int)
    for one in descendants(all_stats().values(), pid):
        kind = "driver" if one == pid else _kind(one)
        held[kind] += memory_of(one).now_bytes
    return dict(held)


def _kind(pid: int) -> str:
    try:
        name = (PROC / str(pid) / "comm").read_text("utf-8").strip()
    except OSError:
        return "other"
    return "Java" if name.startswith("java") else "executors' Python"
