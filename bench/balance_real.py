"""`mars bench balance --real`: four reducers of a real cluster while the keys of the rows wander.

The same stages as in the simulated experiment, once without moves and once with them. What mappers
have grouped is nearly even, however the keys are distributed; so the query counts different
numbers, each of which comes once, and a reducer has something to do for each row.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, pstdev

import msgspec
import polars as pl

from bench.clusters import cluster
from bench.environment import Environment, environment
from bench.errors import BenchError
from bench.flows import declaration
from bench.pacing import Pace, Pacer, Sent
from bench.processes import Watched, look
from bench.results import FOLDER, save
from bench.rows import WindowResult, by_window, decode_results
from bench.tables import Grid
from bench.topics import Topics
from bench.wandering import Stage, keys_of, stages
from mars.answers import Move
from mars.client import Client
from mars.local.cluster import Options
from mars.local.supervisor import Supervisor
from mars.plan import Format
from mars.settings import BalanceSettings, Settings, to_toml

Say = Callable[[str], None]

NAME = "wandering"
REDUCERS, MAPPERS, BUCKETS, PARTITIONS = 4, 2, 16, 4
RATE = 60_000
ROWS_PER_MESSAGE = 150
"""A message for each partition every 10 ms."""

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

LOOK_S = 2.0
TELL_S = 30.0
"""Between two words about how long it takes."""

SETTLE_S = 20.0
"""After the first row: processes warm up, tasks are taken up. The stages begin with the rows."""

DRAIN_S = 60.0
"""From the last row until the last window that can close has come."""


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
    with tempfile.TemporaryDirectory(prefix="mars-balance-") as name:
        folder = Path(name)
        config = folder / "balance.toml"
        balance = BALANCE if moving else replace(BALANCE, enabled=False)
        config.write_text(to_toml(Settings(balance=balance)), "utf-8")
        options = Options(
            data=folder / "data",
            mappers=MAPPERS,
            reducers=REDUCERS,
            bulk=0,
            buckets=BUCKETS,
            config=config,
        )
        with cluster(options) as supervisor, Client(supervisor.addresses.api) as client:
            Topics(supervisor.addresses.kafka).make(NAME, PARTITIONS)
            client.put_stream(NAME, declaration(NAME, Format.NDJSON))
            client.create_task(NAME, QUERY)
            seconds = steps[-1].second + stage_s
            return _measured(supervisor, client, steps, seconds, say, moving=moving)


def _measured(
    supervisor: Supervisor,
    client: Client,
    steps: list[Stage],
    seconds: int,
    say: Say,
    *,
    moving: bool,
) -> RealRun:
    pace = Pace(
        supervisor.addresses.kafka,
        NAME,
        PARTITIONS,
        RATE,
        groups=0,
        window_ms=WINDOW_S * 1000,
        rows_per_message=ROWS_PER_MESSAGE,
        keys=tuple(map(keys_of, steps)),
    )
    pacer, watch = Pacer(pace), _Watch(supervisor, client)
    try:
        pacer.begin()
        begun, told = time.monotonic(), 0.0
        while (second := time.monotonic() - begun) < seconds:
            time.sleep(LOOK_S)
            watch.look(time.monotonic() - begun)
            if second >= told:
                say(f"{'with' if moving else 'without'} moves: {seconds - second:.0f} s to go")
                told += TELL_S
        sent = pacer.finish()
    finally:
        pacer.stop()
    problems = wrong_windows(Topics(supervisor.addresses.kafka), NAME, sent)
    return RealRun(
        name="with moves" if moving else "without moves",
        moving=moving,
        rows=sent.rows,
        producer_behind_s=round(sent.behind_s, 2),
        moves=len(watch.moves),
        reasons=[move.reason for _, move in sorted(watch.moves.items())][:5],
        points=watch.points,
        problems=problems,
    )


class _Watch:
    """What the reducers use, and which buckets move."""

    def __init__(self, supervisor: Supervisor, client: Client) -> None:
        self._client = client
        self._watched = [
            Watched(one.name, one.pid, server=False)
            for one in supervisor.roles
            if one.role == "reducer" and one.pid is not None
        ]
        self._before = self._used()
        self._at_s = time.monotonic()
        self.points: list[RealPoint] = []
        self.moves: dict[tuple[int, int], Move] = {}

    def _used(self) -> dict[str, float]:
        return {name: use.cpu_s for name, use in look(self._watched).items()}

    def look(self, second: float) -> None:
        """One look."""
        now_s, used = time.monotonic(), self._used()
        uses = [
            round((used[name] - before) / (now_s - self._at_s), 4)
            for name, before in self._before.items()
        ]
        self._before, self._at_s = used, now_s
        self.points.append(RealPoint(round(second, 1), uses))
        balance = self._client.cluster().balance
        for move in balance.moves if balance else ():
            if "use is uneven" in move.reason:
                self.moves[move.at, move.bucket] = move


def wrong_windows(topics: Topics, task: str, sent: Sent, drain_s: float = DRAIN_S) -> list[str]:
    """What is wrong with the windows that must have closed, a sentence each. Raises BenchError
    when the last of them has not come after `drain_s`.
    """
    *closed, _last_but_one, _last = sorted(sent.windows)
    found = _results(topics, task, closed[-1], drain_s)
    said = []
    for start in closed:
        result = found.get(start)
        if result is None:
            said.append(f"window {start} is missing")
        elif result.doubled or result.rows != sent.windows[start]:
            said.append(f"window {start} had {sent.windows[start]} rows, and came as {result}")
    return said


def _results(topics: Topics, task: str, last: int, drain_s: float) -> Mapping[int, WindowResult]:
    """By window, once the `last` one is there with all its buckets."""
    output, deadline = f"mars.results.{task}", time.monotonic() + drain_s
    before = -1
    while True:
        frames = [
            decode_results(message.value() or b"" for message in messages)
            for messages in topics.read(output, topics.ends(output))
        ]
        found = by_window(pl.concat(frames)) if frames else {}
        rows = found[last].rows if last in found else 0
        if rows and rows == before:
            return found
        if time.monotonic() > deadline:
            raise BenchError(f"Window {last} has not come {drain_s:.0f} s after the last row.")
        before = rows
        time.sleep(LOOK_S)


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
