"""`mars bench tasks`: what many tasks, or many partitions, cost at a modest rate of rows.

    rows/s, steady ──▶ partitions ──▶ tasks, windows of 10 s, delay 1 s
                       CPU of every process, rows not yet taken, how late windows close

Task number i takes its keys from i mod 10, its filter from i/10 mod 10, its aggregates from i/100
mod 4: from the 400th on queries come again under other names.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from confluent_kafka import TopicPartition

from bench.clusters import RoleUse, cluster, cores_of, uses_by_role
from bench.environment import Environment, environment
from bench.errors import BenchError
from bench.measures import spread_of
from bench.pacing import Pace, paced
from bench.results import FOLDER, save
from bench.tables import MIB, Grid
from bench.topics import Topics, checked, reader
from mars.client.blocking import Client
from mars.core.plan import Format
from mars.local.cluster import ClusterOptions
from mars.local.flows import declaration
from mars.local.supervisor import Supervisor

NAME = "tasks"
STREAM = "flows"
WINDOW_S = 10
DELAY_S = 1

KEYS = (
    *("sip", "dip", "type", "sport", "sip, type", "dip, type", "vlan", "sip, dport", "dc", "asn"),
)
FILTERS = (
    *("", "ok", "bytes > 500", "type = 't01'", "type IN ('t02', 't03')", "vlan % 7 = 3"),
    *("loss < 0.1", "dc = 4", "dport < 1024", "ttl BETWEEN 30 AND 90"),
)
AGGREGATES = (
    *("count(*)", "count(*), sum(bytes)", "avg(loss), max(rtt)"),
    "count(*), min(bytes), max(bytes)",
)

GROUPS = 8_000
"""500 sips, skewed, times 16 types."""

SAMPLED = 5
"""Tasks whose results are read, to see how late windows close, where each has a topic."""

SET = "bench"
SET_TOPIC = "bench-results"
"""Where all tasks write to, if they are to share an output topic."""

SHARED_PARTITIONS_READ = 2
"""Of eight: the rows of a quarter of the buckets."""

LOOK_S = 0.2

READY_S = 600.0
"""Longest time until all tasks run."""

Say = Callable[[str], None]


class TasksRun(msgspec.Struct, frozen=True):
    """One run. `rate`: rows/s; `cores` by role, busy all the while; memory in bytes by role.

    `registered_s`: until all tasks run. `lag_first` and `lag_last`: rows that the task that is
    furthest behind has not taken, at the begin and at the end of what is measured. `late_s`: for
    each window of the tasks that are read, how long after its end and the delay its rows were
    written.
    """

    tasks: int
    partitions: int
    rate: int
    seconds: float
    registered_s: float
    cores: dict[str, float]
    memory: dict[str, int]
    lag_first: int
    lag_last: int
    late_s: list[float]
    one_topic: bool = False
    one_bucket: bool = False


class TasksReport(msgspec.Struct, frozen=True, tag="tasks"):
    """Runs after each other, each on a cluster of its own."""

    environment: Environment
    runs: list[TasksRun]


@dataclass(frozen=True, slots=True)
class Measured:
    """The report, and where it was saved."""

    report: TasksReport
    path: Path


@dataclass(frozen=True, slots=True)
class Asked:
    """Which runs to make: each number of tasks over each number of partitions."""

    tasks: Sequence[int] = (1, 20, 100)
    partitions: Sequence[int] = (4,)
    rate: int = 2_000
    warm_s: float = 30.0
    seconds: float = 60.0
    one_topic: bool = False
    one_bucket: bool = False


def sql_of(number: int) -> str:
    """The query of a task."""
    keys, rest = KEYS[number % 10], FILTERS[number // 10 % 10]
    where = f" WHERE {rest}" if rest else ""
    aggregates = AGGREGATES[number // 100 % 4]
    return (
        f"SELECT {keys}, {aggregates} FROM {STREAM}{where} GROUP BY {keys} WINDOWING {WINDOW_S} s"
    )


def tasks_session(asked: Asked, say: Say, folder: Path = FOLDER) -> Measured:
    """Run all; saves the figures. Raises MarsError."""
    about = environment()
    runs = [
        _run(tasks, partitions, asked, say)
        for partitions in asked.partitions
        for tasks in asked.tasks
    ]
    report = TasksReport(about, runs)
    return Measured(report, save(report, NAME, folder))


def _run(tasks: int, partitions: int, asked: Asked, say: Say) -> TasksRun:
    say(f"{tasks} tasks over {partitions} partitions: starting a cluster.")
    with tempfile.TemporaryDirectory(prefix="mars-tasks-") as data:
        options = ClusterOptions(data=Path(data), mappers=2, reducers=2, bulk=1)
        with cluster(options) as supervisor, Client(supervisor.addresses.api) as client:
            kafka = supervisor.addresses.kafka
            Topics(kafka).make(STREAM, partitions)
            client.put_stream(STREAM, declaration(STREAM, Format.JSON))
            registered_s = _register(client, tasks, asked)
            say(f"All tasks run after {registered_s:.1f} s.")
            pace = Pace(kafka, STREAM, partitions, asked.rate, GROUPS, WINDOW_S * 1000, narrow=True)
            with _Results(kafka, tasks, one_topic=asked.one_topic) as results, paced(pace):
                results.follow(asked.warm_s)
                begun = _Look.at(supervisor, client)
                late_s = results.follow(asked.seconds)
                ended = _Look.at(supervisor, client)
    seconds = ended.at_s - begun.at_s
    return TasksRun(
        tasks,
        partitions,
        asked.rate,
        round(seconds, 1),
        round(registered_s, 1),
        cores_of(begun.uses, ended.uses, seconds),
        {role: use.memory for role, use in ended.uses.items()},
        begun.lag,
        ended.lag,
        late_s,
        asked.one_topic,
        asked.one_bucket,
    )


def _register(client: Client, tasks: int, asked: Asked) -> float:
    """How long it takes until all tasks run, in seconds. Raises BenchError."""
    begun_s = time.monotonic()
    options = {"delay": f"{DELAY_S}s", "buckets": "one" if asked.one_bucket else "all"}
    client.apply_tasks(
        [{"name": _name(each), "sql": sql_of(each), "options": options} for each in range(tasks)],
        set_name=SET,
        output_topic=SET_TOPIC if asked.one_topic else None,
    )
    while any(one.lag is None for one in client.tasks()):
        if time.monotonic() - begun_s > READY_S:
            raise BenchError(f"Not all tasks run after {READY_S:.0f} s.")
        time.sleep(LOOK_S)
    return time.monotonic() - begun_s


def _name(number: int) -> str:
    return f"t{number:04}"


@dataclass(frozen=True, slots=True)
class _Look:
    """CPU seconds and memory by role, and the lag of the task that is furthest behind."""

    at_s: float
    uses: dict[str, RoleUse]
    lag: int

    @classmethod
    def at(cls, supervisor: Supervisor, client: Client) -> _Look:
        at_s, uses = time.monotonic(), uses_by_role(supervisor)
        lags = [one.lag.rows for one in client.tasks() if one.lag is not None]
        return cls(at_s, uses, max(lags))


class _Results:
    """A reader of what some of the tasks emit; it notes how late each window came.

    Of a topic that tasks share it reads two partitions: all rows of a thousand tasks would keep
    half a core busy, which is then not there for what is measured.
    """

    def __init__(self, kafka: str, tasks: int, *, one_topic: bool) -> None:
        step = max(1, tasks // SAMPLED)
        names = [_name(number) for number in range(0, tasks, step)][:SAMPLED]
        topics = [SET_TOPIC] if one_topic else [f"mars.results.{name}" for name in names]
        self._consumer = reader(kafka)
        places = []
        for topic in topics:
            ends = sorted(Topics(kafka).ends(topic).items())
            read = ends[:SHARED_PARTITIONS_READ] if one_topic else ends
            places += [TopicPartition(topic, number, end) for number, end in read]
        self._consumer.assign(places)

    def __enter__(self) -> _Results:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def follow(self, seconds: float) -> list[float]:
        """Read for so long. For each task and window: when its last row came, in seconds after its
        end and the delay.
        """
        until_s, late_s = time.monotonic() + seconds, dict[tuple[object, int], float]()
        while (left_s := until_s - time.monotonic()) > 0:
            messages = checked(self._consumer.consume(10_000, timeout=min(left_s, LOOK_S)))
            now_s = time.time()
            for message in messages:
                task = dict(message.headers() or ()).get("mars-task")
                end_ms = msgspec.json.decode(message.value() or b"", type=_Row).window_end
                late_s[task, end_ms] = now_s - end_ms / 1000 - DELAY_S
        return [round(one, 3) for one in late_s.values()]


class _Row(msgspec.Struct):
    window_end: int


def grids(report: TasksReport) -> list[Grid]:
    """One column a run."""
    figures = [_figures(run) for run in report.runs]
    headings = (_heading(run) for run in report.runs)
    rows = [[name, *(one[name] for one in figures)] for name in figures[0]]
    title = f"Tasks over one stream at {report.runs[0].rate:,} rows/s"
    return [Grid(title, ("", *headings), rows)]


def _heading(run: TasksRun) -> str:
    told = ((run.one_topic, ", one output topic"), (run.one_bucket, ", a bucket each"))
    which = "".join(words for said, words in told if said)
    return f"{run.tasks:,} tasks, {run.partitions} partitions{which}"


def _figures(run: TasksRun) -> dict[str, str]:
    late = spread_of(run.late_s)
    return {
        "cores, all processes": f"{sum(run.cores.values()):.2f}",
        **{f"cores, {role}": f"{busy:.2f}" for role, busy in sorted(run.cores.items())},
        "rows not taken, first and last": f"{run.lag_first:,} and {run.lag_last:,}",
        "windows closed after, s: median, p99, most": (
            f"{late.p50:.2f}, {late.p99:.2f}, {late.highest:.2f}" if late.count else "none was"
        ),
        "all tasks ran after, s": f"{run.registered_s:.1f}",
        "memory of all, MiB": f"{sum(run.memory.values()) // MIB:,}",
    }
