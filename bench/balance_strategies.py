"""`mars bench balance --strategies`: skewed keys on four real reducers, with each strategy.

Four busy reducers do not fit on two cores beside everything else. So each is stopped and goes on in
turn, and runs only a part of the time, as on a slow machine: the part at which all of them together
have 90 % of what they can do. It is found first, for each stream, without the stops. Whoever gets
more than its part falls behind, its log fills the budget, and mappers hold rows back.

*Zipf*: 10,000 keys by a Zipf law of exponent 1.2. *Half*: every second row is of one key. Mappers
have grouped both before a reducer sees them. *Half in a bucket*: every second row is of one of the
many keys of one bucket, so that reducers have it as uneven as the rows are.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import get_args

import msgspec
import numpy as np
import polars as pl

from bench.balance_skew import ONE_KEY, STREAMS, ZIPF
from bench.environment import Environment, environment
from bench.errors import BenchError
from bench.loaded_reducers import BUCKETS, LOOK_S, RATE, Job, Loaded, Say, loaded
from bench.results import FOLDER, save
from bench.tables import Grid
from bench.wandering import KEYS, Keys, names_of_keys
from mars.client.answers import Balance
from mars.core.plan import ValueType
from mars.core.settings import (
    BalanceSettings,
    ClusterSettings,
    ReducerSettings,
    Settings,
    StrategyName,
)
from mars.core.types import TaskName
from mars.engine.codec.canonical import buckets_of_keys
from mars.protocol.ports.loads import MoveKind

NAME = "skewed"
HOT_BUCKET = 0
WINDOW_S = 2
QUERY = (
    f"SELECT sip, type, timestamp, count(*) FROM {NAME} "
    f"GROUP BY sip, type, timestamp WINDOWING {WINDOW_S} s"
)

BUCKET_KEYS = 400_000
"""Of the third stream: nearly every row of a window is a group."""

SHARE = 0.9
"""Of what the reducers can do together: an even load leaves some room, an uneven one none."""

FREE_S = 20.0
"""How long reducers run without stops: in the second half it is seen what they use."""

COMING_S = 60.0
"""How long rows come after that, while reducers run in turn; figures are of the second half."""

CYCLE_S = 0.2
"""In which each reducer has its turn: less than anybody waits for."""

PART_MIN = 0.02
"""Shorter turns than 4 ms are not kept."""

LOG_BYTES_MAX = 16_000_000
"""Little, so that it is full within the time of a run."""

JOB = Job(NAME, QUERY, WINDOW_S, drain_s=240.0)
"""A reducer may be far behind at the end."""

BALANCE = BalanceSettings(imbalance_max=0.03, gain_min=0.002, cooldown_s=5.0, bucket_rest_s=15.0)
"""Quicker than by default, for a run of a minute; in cores, of which a reducer here has little."""

HALF_IN_A_BUCKET = "half in a bucket"


class StrategyRun(msgspec.Struct, frozen=True):
    """One run. `part`: of the time in which a reducer may run. `rows_per_second` are those whose
    windows were committed in the second half; `behind_s`: how far they were behind at the end.
    Ratios are max/min over reducers: of the rows a second that they tell the leader, and of their
    CPU time by /proc. `moves`: of all kinds, but those because reducers came.
    """

    stream: str
    strategy: str
    part: float
    rows_per_second: float
    behind_s: float
    rows_ratio: float
    use_ratio: float
    moves: int
    assistants: int
    segments: int
    ended_with: str
    reasons: list[str]
    problems: list[str]

    @property
    def name(self) -> str:
        """Of the run, in tables."""
        return f"{self.stream}, {self.strategy}"


class StrategiesReport(msgspec.Struct, frozen=True, tag="balance-strategies"):
    """All of it."""

    environment: Environment
    runs: list[StrategyRun]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Finished:
    """The report, and where it was saved."""

    report: StrategiesReport
    path: Path


def strategies_session(
    say: Say,
    folder: Path = FOLDER,
    streams: Sequence[str] = (ZIPF, ONE_KEY, HALF_IN_A_BUCKET),
    strategies: Sequence[StrategyName] = get_args(StrategyName),
) -> Finished:
    """Every stream with every strategy; saves the figures. Raises MarsError."""
    about, runs = environment(), []
    for stream in streams:
        keys = keys_of_stream(stream)
        part = _part(keys)
        say(f"{stream}: each reducer may run {100 * part:.1f} % of the time")
        for strategy in strategies:
            settings = _settings(replace(BALANCE, strategy=strategy), capacity=part)
            with loaded(JOB, settings, [keys]) as found, in_turn(found.pids, part):
                runs.append(_measured(found, stream, strategy, part))
            say(f"{runs[-1].name}: {runs[-1].rows_per_second:,.0f} rows/s")
    report = StrategiesReport(about, runs)
    return Finished(report, save(report, "balance-strategies", folder, compact=True))


def keys_of_stream(stream: str) -> Keys:
    """How likely each key of a stream is."""
    if stream != HALF_IN_A_BUCKET:
        shares, _capacities = STREAMS[stream]
        return Keys(0, shares(KEYS).tolist())
    pairs = pl.DataFrame({"sip": names_of_keys(BUCKET_KEYS), "type": ["t"] * BUCKET_KEYS})
    kinds = [ValueType.STRING, ValueType.STRING]
    hot = (buckets_of_keys(TaskName(NAME), pairs, kinds, BUCKETS) == HOT_BUCKET).to_numpy()
    return Keys(0, np.where(hot, 0.5 / hot.sum(), 0.5 / (~hot).sum()).tolist())


@contextmanager
def in_turn(pids: Sequence[int], part: float) -> Iterator[None]:
    """Each process runs `part` of the time, one after the other; at the end all run."""
    ended = threading.Event()
    turns = threading.Thread(target=_turns, args=(pids, part, ended), name="turns")
    turns.start()
    try:
        yield
    finally:
        ended.set()
        turns.join()


def _turns(pids: Sequence[int], part: float, ended: threading.Event) -> None:
    begins = [number / len(pids) for number in range(len(pids))]
    # When within a cycle whose turn begins and ends; with long parts some run at once.
    marks = sorted(
        (at % 1.0, pid, number)
        for begin, pid in zip(begins, pids, strict=True)
        for at, number in ((begin, signal.SIGCONT), (begin + part, signal.SIGSTOP))
    )
    cycle = time.monotonic()
    while not ended.is_set():
        for at, pid, number in marks:
            ended.wait(max(0.0, cycle + at * CYCLE_S - time.monotonic()))
            _signal(pid, number)
        # One that came late does not shorten those that follow.
        cycle = max(cycle + CYCLE_S, time.monotonic() - CYCLE_S)
    for pid in pids:
        _signal(pid, signal.SIGCONT)


def _signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):  # the run fails by itself when one has died
        os.kill(pid, number)


def _settings(balance: BalanceSettings, capacity: float) -> Settings:
    return Settings(
        balance=balance,
        reducer=ReducerSettings(capacity=capacity),
        cluster=ClusterSettings(log_bytes_max=LOG_BYTES_MAX),
    )


def _part(keys: Keys) -> float:
    """Of the time, in which reducers together can do what they do without stops, by SHARE."""
    with loaded(JOB, _settings(BALANCE, capacity=1.0), [keys]) as found:
        time.sleep(FREE_S / 2)
        found.uses()
        time.sleep(FREE_S / 2)
        return min(1.0, max(PART_MIN, fmean(found.uses()) / SHARE))


def _measured(found: Loaded, stream: str, strategy: str, part: float) -> StrategyRun:
    """Rows come for COMING_S; then what has come out is compared with what went in.

    Raises BenchError where no leader has told of the balance.
    """
    time.sleep(COMING_S / 2)
    emitted, begun_s = found.client.ledger(NAME).emitted, time.monotonic()
    found.uses()
    seen: list[Balance] = []
    while time.monotonic() - begun_s < COMING_S / 2:
        time.sleep(LOOK_S)
        if (balance := found.client.cluster().balance) is not None:
            seen.append(balance)
    uses = found.uses()
    ledger, took_s = found.client.ledger(NAME), time.monotonic() - begun_s
    sent = found.pacer.finish()
    if not seen:
        raise BenchError(f"No reducer led for {COMING_S / 2:.0f} s; run it on a quieter machine.")
    members = found.client.cluster().members
    last = seen[-1]
    return StrategyRun(
        stream=stream,
        strategy=strategy,
        part=round(part, 4),
        rows_per_second=(ledger.emitted - emitted) / took_s,
        behind_s=round((sent.rows - ledger.emitted) / RATE, 1),
        rows_ratio=round(fmean(balance.rows_ratio for balance in seen), 2),
        use_ratio=round(max(uses) / max(min(uses), 0.001), 2),
        moves=sum(n for kind, n in last.moves_by_kind.items() if kind != MoveKind.MEMBERS),
        assistants=max(
            (len(each.assistants) for balance in seen for each in balance.assisted), default=0
        ),
        segments=round(sum(one.load.get("assisted_segments_total", 0) for one in members)),
        ended_with=last.strategy,
        reasons=[move.reason for move in last.moves if move.kind != MoveKind.MEMBERS][:5],
        problems=found.wrong_windows(sent),
    )


def grids(report: StrategiesReport) -> list[Grid]:
    """The table."""
    rows = [
        [
            run.name,
            f"{100 * run.part:.1f}",
            f"{run.rows_per_second:,.0f}",
            f"{run.behind_s:.1f}",
            f"{run.rows_ratio:.2f}",
            f"{run.use_ratio:.2f}",
            str(run.moves),
            str(run.assistants),
            str(run.segments),
            run.ended_with,
            "no" if run.problems else "yes",
        ]
        for run in report.runs
    ]
    columns = [
        "keys, strategy",
        "% of time",
        "rows/s",
        "behind s",
        "rows max/min",
        "use max/min",
        "moves",
        "assistants",
        "segments merged",
        "at the end",
        "exact",
    ]
    return [Grid("Strategies on four reducers (real processes that run in turn)", columns, rows)]
