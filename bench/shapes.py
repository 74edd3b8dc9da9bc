"""`mars bench shapes`: what windows of each shape cost, beside tumbling ones over the same rows.

    a full topic ──▶ a task of one shape, from the first row on ──▶ CPU of mappers and reducers
                     then the next shape, tumbling first and last

All are of one minute or of five, by the same keys, so what differs is the shape. Rows are the same.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from bench.clusters import cluster, uses_by_role
from bench.environment import Environment, environment
from bench.errors import BenchError
from bench.load import PARTITIONS, LoadPlan, fill
from bench.mars_side import ALL_BY_MAPPERS
from bench.results import FOLDER, save
from bench.tables import Grid
from bench.topics import Topics
from mars.client.blocking import Client
from mars.core.plan import Format
from mars.core.settings import Settings, to_toml
from mars.local.cluster import ClusterOptions
from mars.local.flows import declaration
from mars.local.supervisor import Supervisor

NAME = "shapes"
STREAM = "flows"
GROUPS = 5_000
MINUTE_MS = 60_000
ROWS_A_MINUTE = 200_000

TUMBLING = "1 min"
SHAPES = (
    TUMBLING,
    "1 min SLIDE 10 s",
    "5 min SLIDE 10 s",
    "5 min EVERY 1 min",
    "1 min OFFSET 30 s",
    "1 min TIMEZONE 'Europe/Berlin'",
)

LOOK_S = 0.25
SILENCE_S = 5.0
"""Without a new result, once all rows are taken, all windows are out that close."""

STALL_S = 300.0

Say = Callable[[str], None]


class ShapeRun(msgspec.Struct, frozen=True):
    """One task over all rows: CPU seconds, and the results that came of them."""

    shape: str
    mapper_s: float
    reducer_s: float
    results: int


class ShapesReport(msgspec.Struct, frozen=True, tag="shapes"):
    """Runs after each other on one cluster, each over so many rows."""

    environment: Environment
    rows: int
    groups: int
    runs: list[ShapeRun]


@dataclass(frozen=True, slots=True)
class Finished:
    """The report, and where it was saved."""

    report: ShapesReport
    path: Path


def shapes_session(rows: int, rounds: int, say: Say, folder: Path = FOLDER) -> Finished:
    """All shapes, so many rounds, and tumbling once more; saves the figures. Raises MarsError."""
    about = environment()
    with tempfile.TemporaryDirectory(prefix="mars-shapes-") as data:
        config = Path(data) / "bench.toml"
        config.write_text(to_toml(Settings(bulk=ALL_BY_MAPPERS)), "utf-8")
        options = ClusterOptions(
            data=Path(data) / "data", mappers=2, reducers=2, bulk=0, config=config
        )
        with cluster(options) as supervisor, Client(supervisor.addresses.api) as client:
            client.put_stream(STREAM, declaration(STREAM))
            plan = LoadPlan(STREAM, Format.JSON, rows, ROWS_A_MINUTE, GROUPS, MINUTE_MS)
            loaded = fill(supervisor.addresses.kafka, plan, lambda _messages: None)
            say(f"{loaded.rows:,} rows in {PARTITIONS} partitions.")
            asked = [*SHAPES * rounds, TUMBLING]
            runs = [
                _run(number, shape, supervisor, client, say) for number, shape in enumerate(asked)
            ]
    report = ShapesReport(about, loaded.rows, GROUPS, runs)
    return Finished(report, save(report, NAME, folder))


def sql_of(shape: str) -> str:
    """The query with windows of a shape."""
    return (
        f"SELECT sip, type, count(*), sum(bytes) AS bytes FROM {STREAM} GROUP BY sip, type "
        f"WINDOWING {shape}"
    )


def _run(number: int, shape: str, supervisor: Supervisor, client: Client, say: Say) -> ShapeRun:
    name = f"shape{number}"
    topics = Topics(supervisor.addresses.kafka)
    begun = uses_by_role(supervisor)
    client.create_task(name, sql_of(shape), start="earliest", options={"delay": "1s"})
    results = _until_silent(client, name, topics)
    ended = uses_by_role(supervisor)
    client.delete_task(name)
    run = ShapeRun(
        shape,
        round(ended["mapper"].cpu_s - begun["mapper"].cpu_s, 2),
        round(ended["reducer"].cpu_s - begun["reducer"].cpu_s, 2),
        results,
    )
    say(f"{shape}: mappers {run.mapper_s} s, reducers {run.reducer_s} s, {results:,} results.")
    return run


def _until_silent(client: Client, name: str, topics: Topics) -> int:
    """How many results there are once no more come. Raises BenchError."""
    begun_s = changed_s = time.monotonic()
    results = 0
    while True:
        lag = client.task(name).lag
        found = sum(topics.ends(f"mars.results.{name}").values())
        now_s = time.monotonic()
        if found != results or lag is None or lag.rows:
            results, changed_s = found, now_s
        if results and now_s - changed_s > SILENCE_S:
            return results
        if now_s - begun_s > STALL_S:
            raise BenchError(f"Not all windows of {name} came within {STALL_S:.0f} s.")
        time.sleep(LOOK_S)


def grids(report: ShapesReport) -> list[Grid]:
    """A row for each shape: its runs, and the CPU time of all of them beside tumbling windows."""
    by_shape: dict[str, list[ShapeRun]] = {}
    for run in report.runs:
        by_shape.setdefault(run.shape, []).append(run)
    usual = _mean(by_shape[TUMBLING])
    title = f"Windows of each shape over {report.rows:,} rows of {report.groups:,} groups"
    rows = [
        [
            shape,
            " ".join(f"{run.mapper_s:.1f}" for run in runs),
            " ".join(f"{run.reducer_s:.1f}" for run in runs),
            f"{runs[0].results:,}",
            f"{_mean(runs) / usual:.2f}",
        ]
        for shape, runs in by_shape.items()
    ]
    heading = ("WINDOWING", "mappers, CPU s", "reducers, CPU s", "results", "all, to tumbling")
    return [Grid(title, heading, rows)]


def _mean(runs: Sequence[ShapeRun]) -> float:
    return sum(run.mapper_s + run.reducer_s for run in runs) / len(runs)
