"""Whole measurements: a load, the contestants one after the other, a report that is saved."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from bench import latency, throughput
from bench.contestants import DELAY_S, Contestant
from bench.environment import environment
from bench.errors import BenchError
from bench.load import Load, LoadPlan, fill
from bench.mars_side import MarsSide
from bench.peers import PEERS, Peer, Say
from bench.profiling import Profile, Profiler
from bench.results import (
    FOLDER,
    LatencyReport,
    LatencyRun,
    LoadFigures,
    Report,
    ThroughputReport,
    ThroughputRun,
    figures,
    save,
)
from mars.core.errors import MarsError
from mars.core.plan import Format
from mars.local.flows import SKEW
from mars.local.servers import KafkaServer

TOPIC = "bench.flows"
GROUPS_PER_WINDOW = 185_000
SIPS = 10_000

ROWS = {Format.JSON: 24_000_000, Format.NDJSON: 30_000_000}
"""At least 15 s for the fastest; a virtual machine is warm after a fifth of it."""

ROWS_PER_WINDOW = {Format.JSON: 3_000_000, Format.NDJSON: 5_000_000}
"""At these rates a window closes every 2-5 seconds."""

SWEEP_ROWS = {Format.JSON: 4_000_000, Format.NDJSON: 8_000_000}
SWEEP_BATCH_ROWS = (500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000)
SWEEP_MAPPERS = (1, 2)
"""The paper's figures 3 and 4."""

BEHIND_S = 0.25
"""A producer that was later than this once has made a latency that is told as its own."""

KAFKA_READY_S = 90.0
KAFKA_STOP_S = 20.0


@dataclass(frozen=True, slots=True)
class Throughput:
    """What `mars bench throughput` was asked for; None takes the default of the format."""

    format: Format = Format.JSON
    rows: int | None = None
    rows_per_window: int | None = None
    mappers: int = 2
    reducers: int = 2
    batch_rows: int | None = None
    tracker: bool = False
    repeat: int = 1
    peer: str | None = None
    sweep: bool = False
    profile: bool = False
    data: Path | None = None
    folder: Path = FOLDER


@dataclass(frozen=True, slots=True)
class Latency:
    """What `mars bench latency` was asked for."""

    plan: latency.LatencyPlan
    mappers: int = 2
    reducers: int = 2
    peer: str | None = None
    data: Path | None = None
    folder: Path = FOLDER


@dataclass(frozen=True, slots=True)
class Finished:
    """A report, where it was saved, and profiles if there are any."""

    report: Report
    path: Path
    profiles: Sequence[Profile] = ()


def throughput_session(asked: Throughput, say: Say) -> Finished:
    """Measure throughput. Raises MarsError when nothing could be measured."""
    about, notes, profiles = environment(), list[str](), list[Profile]()
    peer = None if asked.peer is None else PEERS[asked.peer]
    if peer is not None and asked.format not in peer.formats:
        raise BenchError(f"{peer.title} is measured with --format json only; leave --peer out.")
    runs: list[ThroughputRun] = []
    with folder_for(asked.data) as data:
        load = loaded(data, load_plan(asked), say)
        for repeat, contestant in _order(asked, peer, data, notes, say):
            profiler = Profiler(asked.folder) if asked.profile else None
            try:
                runs.append(_measured(contestant, load, repeat, profiler, say))
            except MarsError as error:
                _note(notes, f"{contestant.name}: {error}", say)
            if profiler is not None:
                profiles.extend(profiler.finish())
    if not runs:
        raise BenchError("Nothing could be measured; the reasons are above.")
    closed = len(load.closed_windows(DELAY_S * 1000))
    report = ThroughputReport(
        environment=about,
        load=LoadFigures(load.plan, load.rows, load.messages, closed),
        sweep=asked.sweep,
        runs=tuple(runs),
        notes=tuple(notes),
    )
    name = f"{_saved_as(peer)}{'sweep' if asked.sweep else 'throughput'}-{asked.format.value}"
    return Finished(report, save(report, name, asked.folder), profiles)


def _measured(
    contestant: Contestant, load: Load, repeat: int, profiler: Profiler | None, say: Say
) -> ThroughputRun:
    say(f"{contestant.name}: starting ({_short(contestant)})")
    raw = throughput.run_once(
        contestant,
        load,
        _run_name(contestant),
        (lambda running: None) if profiler is None else profiler.begin,
    )
    run = figures(contestant, load, raw, repeat)
    say(
        f"{contestant.name}: {run.steady_rows_per_s:,.0f} rows/s, "
        f"{run.rows_per_cpu_s:,.0f} rows per CPU second, results "
        f"{'; '.join(run.problems) or 'correct'}"
    )
    return run


def _short(contestant: Contestant) -> str:
    shown = (
        "mappers",
        "mapper.batch_rows_max",
        "tracker.enabled",
        "execution.checkpointing.interval",
        "processes",
        "grace",
    )
    settings = contestant.settings()
    return ", ".join(f"{name} {settings[name]}" for name in shown if name in settings)


def _saved_as(peer: Peer | None) -> str:
    return "" if peer is None else peer.saved_as


def _order(
    asked: Throughput, peer: Peer | None, data: Path, notes: list[str], say: Say
) -> Iterator[tuple[int, Contestant]]:
    """All contestants, `repeat` times, every other time in the opposite order."""
    contestants: list[Contestant] = []
    if asked.sweep:
        contestants = [
            MarsSide(data, mappers, asked.reducers, batch_rows)
            for mappers in SWEEP_MAPPERS
            for batch_rows in SWEEP_BATCH_ROWS
        ]
    else:
        contestants.append(
            MarsSide(data, asked.mappers, asked.reducers, asked.batch_rows, asked.tracker)
        )
    if peer is not None and _is_there(peer, notes, say):
        contestants.append(peer.for_throughput(data, asked.mappers))
    for repeat in range(asked.repeat):
        for contestant in contestants if repeat % 2 == 0 else reversed(contestants):
            yield repeat + 1, contestant


def _is_there(peer: Peer, notes: list[str], say: Say) -> bool:
    try:
        peer.fetch(say)
    except MarsError as error:
        _note(notes, f"{error} The measurement went on without it.", say)
        return False
    return True


def load_plan(asked: Throughput) -> LoadPlan:
    """What to produce."""
    rows = asked.rows or (SWEEP_ROWS if asked.sweep else ROWS)[asked.format]
    share = asked.rows_per_window or min(ROWS_PER_WINDOW[asked.format], math.ceil(rows / 4))
    return LoadPlan(TOPIC, asked.format, rows, share, groups_for(GROUPS_PER_WINDOW, share))


def groups_for(seen: int, rows: int) -> int:
    """How many groups there must be so that `rows` skewed rows hold about `seen` of them.

    As many as `seen` when so few rows cannot hold them.
    """
    for groups in range(seen, 2 * seen, max(1, seen // 100)):
        weights = (np.arange(groups) % SIPS + 1.0) ** -SKEW
        if np.sum(-np.expm1(-rows * weights / weights.sum())) >= seen:
            return groups
    return seen


def loaded(data: Path, plan: LoadPlan, say: Say) -> Load:
    """The topic full of rows: that of an earlier run on the same folder, if it was as planned."""
    memory = data / "load.json"
    if memory.exists():
        load = msgspec.json.decode(memory.read_bytes(), type=Load)
        if load.plan != plan:
            raise BenchError(
                f"{data} holds another load ({load.plan.rows:,} rows of {load.plan.format.value}); "
                "name another folder with --data, or ask for the same."
            )
        say(f"The topic is full from an earlier run: {load.rows:,} rows.")
        return load
    kafka = KafkaServer(data / "kafka", log=data / "logs" / "kafka.log")
    try:
        kafka.start()
        kafka.wait_ready(KAFKA_READY_S)
        say(f"Producing {plan.rows:,} rows as {plan.format.value}")
        load = fill(kafka.bootstrap, plan, lambda _messages: None)
    finally:
        kafka.stop(KAFKA_STOP_S)
    memory.write_bytes(msgspec.json.encode(load))
    return load


def latency_session(asked: Latency, say: Say) -> Finished:
    """Measure latency. Raises MarsError when nothing could be measured."""
    about, notes = environment(), list[str]()
    peer = None if asked.peer is None else PEERS[asked.peer]
    runs: list[LatencyRun] = []
    with folder_for(asked.data) as data:
        contestants: list[Contestant] = [MarsSide(data, asked.mappers, asked.reducers)]
        if peer is not None and _is_there(peer, notes, say):
            contestants.append(peer.for_latency(data, asked.mappers))
        for contestant in contestants:
            try:
                runs.append(_timed(contestant, asked.plan, notes, say))
            except MarsError as error:
                _note(notes, f"{contestant.name}: {error}", say)
    if not runs:
        raise BenchError("Nothing could be measured; the reasons are above.")
    report = LatencyReport(
        environment=about,
        rate=asked.plan.rate,
        window_s=asked.plan.window_s,
        seconds=asked.plan.seconds,
        delay_s=DELAY_S,
        groups=asked.plan.groups,
        runs=tuple(runs),
        notes=tuple(notes),
    )
    return Finished(report, save(report, f"{_saved_as(peer)}latency", asked.folder))


def _timed(
    contestant: Contestant, plan: latency.LatencyPlan, notes: list[str], say: Say
) -> LatencyRun:
    say(f"{contestant.name}: starting")
    run = latency.run_once(contestant, plan, _run_name(contestant), say)
    if run.producer_behind_s > BEHIND_S:
        late = f"{contestant.name}: the producer was {run.producer_behind_s:.2f} s late once"
        _note(notes, f"{late}; the machine was busy with something else, measure again", say)
    return run


def _run_name(contestant: Contestant) -> str:
    """New for each run: a task, a topic and a consumer group are called by it."""
    return f"{contestant.name}_{time.time_ns() // 1_000_000}"


def _note(notes: list[str], text: str, say: Say) -> None:
    notes.append(text)
    say(text)


@contextmanager
def folder_for(data: Path | None) -> Iterator[Path]:
    """The folder that was named, which stays; else one that is removed afterwards."""
    if data is not None:
        data.mkdir(parents=True, exist_ok=True)
        yield data.absolute()
        return
    with tempfile.TemporaryDirectory(prefix="mars-bench-") as name:
        yield Path(name)
