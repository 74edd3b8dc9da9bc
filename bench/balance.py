"""`mars bench balance`: what moving buckets is worth: the real decisions in simulated clusters.

Four experiments. *Drift*: keys of a normal distribution whose mean steps from 2000 to 8000, then
whose deviation steps from 100 to 25, on 15 reducers at 150,000 rows/s (Zhang et al., SPSPS, figure
8). *Bursts*: skewed bursts on three reducers, moving against holding the source back only. *Tide*:
a load that rises and falls, and the number of reducers that is asked for. *Skew*: each strategy on
skewed keys and uneven machines (`balance_skew`). And how long one decision takes for 1,000 buckets
of 100 reducers (`deciding`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import numpy as np
import polars as pl

from bench.balance_skew import BUCKETS as SKEW_BUCKETS
from bench.balance_skew import SkewRun, run_skew, skew_grid
from bench.deciding import decision_ms
from bench.environment import Environment, environment
from bench.errors import BenchError
from bench.results import FOLDER, save
from bench.simulated_reducers import (
    ROW_BYTES,
    TASK,
    Moment,
    Rows,
    SimulatedReducers,
    settings_without_moves,
)
from bench.tables import Grid
from bench.wandering import Stage, names_of_keys, shares_of_keys, stages
from mars.core.plan import ValueType
from mars.engine.codec.canonical import buckets_of_keys
from mars.protocol.balance.placement import SpreadLimits
from mars.protocol.balance.steering import SteeringLimits

Say = Callable[[str], None]

SEED = 2015

DRIFT_REDUCERS = 15
DRIFT_BUCKETS = 256
DRIFT_ROWS = 150_000
DRIFT_USE = 0.5
STAGE_S = 120

BURST_REDUCERS = 3
BURST_BUCKETS = 64
BURST_ROW_S = 1e-5
BURST_BUDGET_ROWS = 640_000
BURST_S, LULL_S = 40, 20
BURST_ROWS, LULL_ROWS = 220_000, 140_000
BURST_SHARE = 0.6
BURST_SIZES = (5_000_000, 10_000_000, 20_000_000, 50_000_000)
"""Rows of 100 bytes: 0.5, 1, 2 and 5 GB."""

TIDE_ROWS_MAX = 500_000
TIDE_ROW_S = 1e-5
TIDE_S = 1_800
START_S = 5
"""What a new process takes until it is a member."""

TOO_LONG_S = 10_000


class Point(msgspec.Struct, frozen=True, array_like=True):
    """One second of a run."""

    second: int
    deviation: float
    mean_use: float
    done: float
    members: int
    wanted: int


class Run(msgspec.Struct, frozen=True):
    """One simulated run. `rows` arrived; `seconds` until all were done. Delays are those of rows,
    the percentiles in whole seconds: 0 is within the second in which a row came.
    """

    name: str
    moving: bool
    rows: float
    seconds: int
    mean_delay_s: float
    mean_deviation: float
    moves: int
    steps: int
    reasons: list[str]
    points: list[Point]
    problems: list[str]
    p50_delay_s: int = 0
    p99_delay_s: int = 0


class BalanceReport(msgspec.Struct, frozen=True, tag="balance"):
    """All of it."""

    environment: Environment
    stages: list[Stage]
    drift: list[Run]
    bursts: list[Run]
    tide: list[Run]
    decision_ms: float
    skew: list[SkewRun] = []
    notes: tuple[str, ...] = ()

    @property
    def runs(self) -> list[Run]:
        """Every run."""
        return [*self.drift, *self.bursts, *self.tide]


@dataclass(frozen=True, slots=True)
class Finished:
    """The report, and where it was saved."""

    report: BalanceReport
    path: Path


def balance_session(say: Say, folder: Path = FOLDER) -> Finished:
    """Run everything; saves the figures."""
    about = environment()
    say("drift: 15 reducers, without and with moves")
    drift = [run_drift(moving=moving) for moving in (False, True)]
    say("bursts: 3 reducers, holding back only and moving")
    bursts = [run_bursts(rows, moving=m) for rows in BURST_SIZES for m in (False, True)]
    say("tide: reducers come and go")
    tide = [run_tide()]
    say("skew: 4 reducers, each strategy")
    skew = run_skew(_buckets_of_keys(SKEW_BUCKETS).astype(float))
    report = BalanceReport(about, stages(STAGE_S), drift, bursts, tide, decision_ms(), skew)
    return Finished(report, save(report, "balance", folder, compact=True))


# --------------------------------------------------------------------------------------- drift


def run_drift(*, moving: bool) -> Run:
    """Keys that wander: 15 reducers, 150,000 rows/s, a mean use of one half."""
    limits = SteeringLimits() if moving else settings_without_moves()
    row_s = DRIFT_USE * DRIFT_REDUCERS / DRIFT_ROWS
    cluster = SimulatedReducers(DRIFT_BUCKETS, DRIFT_REDUCERS, limits, row_s=row_s)
    return _run("drift", cluster, _drifting(), moving=moving)


def _drifting() -> Iterator[Rows]:
    chance = np.random.default_rng(SEED)
    buckets = _buckets_of_keys(DRIFT_BUCKETS)
    for stage in stages(STAGE_S):
        shares = np.bincount(buckets, weights=shares_of_keys(stage), minlength=DRIFT_BUCKETS)
        for _ in range(STAGE_S):
            yield chance.multinomial(DRIFT_ROWS, shares).astype(float)


def _buckets_of_keys(buckets: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """As the mappers do it: telephone numbers, hashed."""
    numbers = pl.DataFrame({"number": names_of_keys()})
    return buckets_of_keys(TASK, numbers, [ValueType.STRING], buckets).to_numpy().astype(np.int64)


# -------------------------------------------------------------------------------------- bursts


def run_bursts(rows: int, *, moving: bool) -> Run:
    """Bursts that fall on the buckets of one reducer, another one each time, until `rows` came."""
    limits = SteeringLimits() if moving else settings_without_moves()
    limits = replace(limits, room_bytes=BURST_BUDGET_ROWS * ROW_BYTES)
    cluster = SimulatedReducers(
        BURST_BUCKETS,
        BURST_REDUCERS,
        limits,
        row_s=BURST_ROW_S,
        budget_rows=BURST_BUDGET_ROWS,
    )
    return _run(f"bursts {rows // 10_000_000 or 0.5} GB", cluster, _bursts(rows), moving=moving)


def _bursts(rows: int) -> Iterator[Rows]:
    chance = np.random.default_rng(SEED)
    left, second = float(rows), 0
    while left > 0:
        turn, within = divmod(second, BURST_S + LULL_S)
        bursting = within < BURST_S
        shares = np.full(BURST_BUCKETS, 1 / BURST_BUCKETS)
        if bursting:
            # Of 64 buckets that three have taken in turn, every third is of the same one.
            hot = np.arange(turn % BURST_REDUCERS, BURST_BUCKETS, BURST_REDUCERS)[:6]
            shares *= 1 - BURST_SHARE
            shares[hot] += BURST_SHARE / len(hot)
        wanted = BURST_ROWS if bursting else LULL_ROWS
        arriving = chance.poisson(shares * min(wanted, left)).astype(float)
        left -= float(arriving.sum()) or 1.0
        second += 1
        yield arriving


# ---------------------------------------------------------------------------------------- tide


def run_tide() -> Run:
    """A load that rises to five full processors and falls; what is wanted is there 5 s later."""
    cluster = SimulatedReducers(
        BURST_BUCKETS, 1, SteeringLimits(), row_s=TIDE_ROW_S, budget_rows=10 * TIDE_ROWS_MAX
    )
    due: list[tuple[int, int]] = []
    steps: list[int] = []

    def follow(moment: Moment) -> None:
        if moment.wanted != moment.members and not due:
            due.append((moment.second + START_S, moment.wanted))
        if due and due[0][0] <= moment.second:
            cluster.scale(due.pop(0)[1])
            steps.append(moment.second)

    run = _run("tide", cluster, _tide(), moving=True, after=follow)
    return msgspec.structs.replace(run, steps=len(steps))


def _tide() -> Iterator[Rows]:
    chance = np.random.default_rng(SEED)
    for second in range(TIDE_S):
        level = TIDE_ROWS_MAX * (0.02 + 0.98 * np.sin(np.pi * second / TIDE_S) ** 2)
        yield chance.poisson(np.full(BURST_BUCKETS, level / BURST_BUCKETS)).astype(float)


# --------------------------------------------------------------------------------------- shared


def _run(
    name: str,
    cluster: SimulatedReducers,
    arriving: Iterator[Rows],
    *,
    moving: bool,
    after: Callable[[Moment], None] = lambda moment: None,
) -> Run:
    """Until everything is done that arrived."""
    moments: list[Moment] = []
    nothing = np.zeros(len(cluster.owners))
    rows = next(arriving, None)
    while rows is not None or cluster.waiting_rows > 0.5:
        moments.append(cluster.step(nothing if rows is None else rows))
        after(moments[-1])
        rows = next(arriving, None)
        if len(moments) > TOO_LONG_S:
            raise BenchError(f"{name} does not come to an end")
    arrived, done = sum(m.arrived for m in moments), sum(m.done for m in moments)
    return Run(
        name=name,
        moving=moving,
        rows=arrived,
        seconds=len(moments),
        mean_delay_s=cluster.delay_row_s / arrived,
        mean_deviation=sum(m.deviation for m in moments) / len(moments),
        moves=sum(m.moves for m in moments),
        steps=0,
        reasons=[move.reason for move in cluster.moves[:5]],
        points=[_point(moment) for moment in moments],
        p50_delay_s=cluster.delays.percentile_s(50),
        p99_delay_s=cluster.delays.percentile_s(99),
        problems=[] if abs(arrived - done) < 1 else [f"{arrived:.0f} came, {done:.0f} were done"],
    )


def _point(moment: Moment) -> Point:
    return Point(
        moment.second,
        round(moment.deviation, 4),
        round(moment.mean_use, 4),
        round(moment.done),
        moment.members,
        moment.wanted,
    )


def grids(report: BalanceReport) -> list[Grid]:
    """The tables."""
    skew = [skew_grid(report.skew)] if report.skew else []
    return [_drift_grid(report), _burst_grid(report), _tide_grid(report), *skew]


def _drift_grid(report: BalanceReport) -> Grid:
    rows = [
        [
            "with moves" if run.moving else "without",
            f"{run.mean_deviation:.3f}",
            f"{max(point.deviation for point in run.points):.3f}",
            f"{100 * _share_above(run):.0f}",
            str(run.moves),
            f"{run.mean_delay_s:.2f}",
        ]
        for run in report.drift
    ]
    columns = ["15 reducers", "mean deviation", "highest", "% of time > 0.1", "moves", "delay s"]
    return Grid("Deviation of the reducers' use while the keys wander (simulated)", columns, rows)


def _share_above(run: Run, limit: float = SpreadLimits().imbalance_max) -> float:
    return sum(point.deviation > limit for point in run.points) / len(run.points)


def _burst_grid(report: BalanceReport) -> Grid:
    rows = []
    for held, moved in zip(report.bursts[::2], report.bursts[1::2], strict=True):
        rows.append(
            [
                held.name.removeprefix("bursts "),
                str(held.seconds),
                str(moved.seconds),
                f"{100 * (1 - moved.seconds / held.seconds):.1f}",
                _delays(held),
                _delays(moved),
                str(moved.moves),
            ]
        )
    columns = [
        "rows of 100 B",
        "done after s, holding back",
        "moving",
        "% less",
        "delay s (mean, p50, p99), holding back",
        "moving",
        "moves",
    ]
    return Grid("Skewed bursts on three reducers (simulated)", columns, rows)


def _delays(run: Run) -> str:
    return f"{run.mean_delay_s:.1f}, {run.p50_delay_s}, {run.p99_delay_s}"


def _tide_grid(report: BalanceReport) -> Grid:
    (run,) = report.tide
    most = max(point.members for point in run.points)
    cells = [
        "1 to 5 processors of load and back",
        str(most),
        str(run.steps),
        f"{run.mean_delay_s:.2f}",
        f"{report.decision_ms:.1f}",
    ]
    columns = ["load", "reducers at most", "changes of number", "delay s", "decision ms"]
    return Grid(
        "Reducers that come and go (simulated); one decision for 1,000 buckets of 100 reducers",
        columns,
        [cells],
    )
