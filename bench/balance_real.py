"""`mars bench balance --real`: four reducers of a real cluster while the keys of the rows wander.

The same stages as in the simulated experiment, once without moves and once with them. What mappers
have grouped is nearly even, however the keys are distributed; so the query counts different
numbers, each of which comes once, and a reducer has something to do for each row.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, pstdev

import msgspec

from bench.environment import Environment, environment
from bench.loaded_reducers import LOOK_S, REDUCERS, Job, Loaded, Say, loaded
from bench.results import FOLDER, save
from bench.tables import Grid
from bench.wandering import Stage, keys_of, stages
from mars.client.answers import Move
from mars.core.settings import BalanceSettings, Settings

NAME = "wandering"
WINDOW_S = 5
STAGE_S = 30

QUERY = (
    f"SELECT sip, type, timestamp, count(*), count(DISTINCT seq) AS numbers FROM {NAME} "
    f"GROUP BY sip, type, timestamp WINDOWING {WINDOW_S} s"
)

IMBALANCE_MAX = 0.01
"""Of a core. The default is made for reducers that are busy, and these have two cores in all."""

BALANCE = BalanceSettings(
    imbalance_max=IMBALANCE_MAX, gain_min=0.002, cooldown_s=10.0, bucket_rest_s=20.0
)

TELL_S = 30.0
"""Between two words about how long it takes."""

SETTLE_S = 20.0
"""After the first row: processes warm up, tasks are taken up. The stages begin with the rows."""

JOB = Job(NAME, QUERY, WINDOW_S, drain_s=60.0)


class RealPoint(msgspec.Struct, frozen=True, array_like=True):
    """What reducers used of a core in some seconds, by /proc."""

    second: float
    uses: list[float]

    @property
    def deviation(self) -> float:
        """Of the uses, as the leader measures it."""
        return pstdev(self.uses)


class RealRun(msgspec.Struct, frozen=True):
    """One run. `moves`: because of load; `reasons` those of the first ones."""

    name: str
    moving: bool
    rows: int
    producer_behind_s: float
    moves: int
    reasons: list[str]
    points: list[RealPoint]
    problems: list[str]


class RealBalanceReport(msgspec.Struct, frozen=True, tag="balance-real"):
    """Both runs."""

    environment: Environment
    stages: list[Stage]
    runs: list[RealRun]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Finished:
    """The report, and where it was saved."""

    report: RealBalanceReport
    path: Path


def real_session(say: Say, folder: Path = FOLDER, stage_s: int = STAGE_S) -> Finished:
    """Run both; saves the figures. Raises MarsError."""
    about, steps = environment(), stages(stage_s)
    runs = [_run(steps, stage_s, say, moving=moving) for moving in (False, True)]
    report = RealBalanceReport(about, steps, runs)
    return Finished(report, save(report, "balance-real", folder, compact=True))


def _run(steps: list[Stage], stage_s: int, say: Say, *, moving: bool) -> RealRun:
    balance = BALANCE if moving else replace(BALANCE, enabled=False)
    with loaded(JOB, Settings(balance=balance), list(map(keys_of, steps))) as found:
        return _measured(found, steps[-1].second + stage_s, say, moving=moving)


def _measured(found: Loaded, seconds: int, say: Say, *, moving: bool) -> RealRun:
    watch = _Watch(found)
    begun, told = time.monotonic(), 0.0
    while (second := time.monotonic() - begun) < seconds:
        time.sleep(LOOK_S)
        watch.look(time.monotonic() - begun)
        if second >= told:
            say(f"{'with' if moving else 'without'} moves: {seconds - second:.0f} s to go")
            told += TELL_S
    sent = found.pacer.finish()
    return RealRun(
        name="with moves" if moving else "without moves",
        moving=moving,
        rows=sent.rows,
        producer_behind_s=round(sent.behind_s, 2),
        moves=len(watch.moves),
        reasons=[move.reason for _, move in sorted(watch.moves.items())][:5],
        points=watch.points,
        problems=found.wrong_windows(sent),
    )


class _Watch:
    """What the reducers use, and which buckets move."""

    def __init__(self, found: Loaded) -> None:
        self._found = found
        self.points: list[RealPoint] = []
        self.moves: dict[tuple[int, int], Move] = {}

    def look(self, second: float) -> None:
        """One look."""
        uses = [round(use, 4) for use in self._found.uses()]
        self.points.append(RealPoint(round(second, 1), uses))
        balance = self._found.client.cluster().balance
        for move in balance.moves if balance else ():
            if "use is uneven" in move.reason:
                self.moves[move.at, move.bucket] = move


def grids(report: RealBalanceReport) -> list[Grid]:
    """The table."""
    rows = []
    for run in report.runs:
        settled = [point for point in run.points if point.second > SETTLE_S]
        deviations = [point.deviation for point in settled]
        rows.append(
            [
                run.name,
                f"{fmean(fmean(point.uses) for point in settled):.3f}",
                f"{fmean(deviations):.4f}",
                f"{fmean(max(p.uses) / max(min(p.uses), 0.001) for p in settled):.2f}",
                f"{100 * fmean(each > IMBALANCE_MAX for each in deviations):.0f}",
                str(run.moves),
                f"{run.rows:,}",
                "no" if run.problems else "yes",
            ]
        )
    columns = [
        f"{REDUCERS} reducers",
        "mean use",
        "mean deviation",
        "most/least",
        f"% of time > {IMBALANCE_MAX}",
        "moves",
        "rows",
        "exact",
    ]
    title = "Deviation of the reducers' use while the keys wander (real processes)"
    return [Grid(title, columns, rows)]
