"""`mars bench recovery`: how long after the loss of the store long windows close again.

    rows of some minutes ──▶ 12 hours so far, every 5 s ──▶ FLUSHALL, again and again
    rows/s, steady       ──▶                             time until a window comes that ended since

Windows of a day may end every 8.64 s at most, so these have 12 hours. A window comes `delay`
after its end at the earliest, and one ends every STEP_S: that much of the time is no recovery.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import redis
from confluent_kafka import TopicPartition

from bench.clusters import cluster, cores_of, uses_by_role
from bench.environment import Environment, environment
from bench.errors import BenchError
from bench.load import PARTITIONS, LoadPlan, fill
from bench.pacing import Pace, paced
from bench.results import FOLDER, save
from bench.tables import MIB, Grid
from bench.topics import Topics, checked, reader
from mars.client.blocking import Client
from mars.core.plan import Format
from mars.local.cluster import ClusterOptions
from mars.local.flows import declaration
from mars.local.supervisor import Supervisor

NAME = "recovery"
STREAM = "flows"
TASK = "so_far"
STEP_S = 5
DELAY_S = 1
SQL = (
    f"SELECT sip, type, count(*) AS rows, sum(bytes) AS bytes FROM {STREAM} GROUP BY sip, type "
    f"ORDER BY rows DESC LIMIT 10 WINDOWING 12 h EVERY {STEP_S} s"
)
LOOK_S = 0.1
CLOSES_S = 600.0
"""Longest wait for a window."""

APART_S = 60.0
"""Between two losses, once windows close again."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Asked:
    """What to measure."""

    minutes: int = 15
    rate: int = 20_000
    groups: int = 200_000
    losses: int = 3


class RecoveryReport(msgspec.Struct, frozen=True, tag="recovery"):
    """One run. `rate`: rows/s; `rows`: in the window before the first loss; times in seconds.

    `closed_s`: of each loss, from FLUSHALL until a window came that had ended since. `cores` are
    busy, and `memory` in bytes is held, by role, while rows flow and nothing is lost.
    """

    environment: Environment
    rate: int
    groups: int
    rows: int
    closed_s: list[float]
    cores: dict[str, float]
    memory: dict[str, int]


@dataclass(frozen=True, slots=True)
class Measured:
    """The report, and where it was saved."""

    report: RecoveryReport
    path: Path


def recovery_session(asked: Asked, say: Say, folder: Path = FOLDER) -> Measured:
    """Run it; saves the figures. Raises MarsError."""
    about = environment()
    with tempfile.TemporaryDirectory(prefix="mars-recovery-") as data:
        options = ClusterOptions(data=Path(data), mappers=2, reducers=2)
        with cluster(options) as supervisor, Client(supervisor.addresses.api) as client:
            report = _measured(asked, say, about, supervisor, client)
    return Measured(report, save(report, NAME, folder))


def _measured(
    asked: Asked, say: Say, about: Environment, supervisor: Supervisor, client: Client
) -> RecoveryReport:
    kafka = supervisor.addresses.kafka
    rows = asked.minutes * 60 * asked.rate
    window_ms = asked.minutes * 60_000
    plan = LoadPlan(STREAM, Format.JSON, rows, rows, asked.groups, window_ms)
    client.put_stream(STREAM, declaration(STREAM, Format.JSON))
    Topics(kafka).make(STREAM, PARTITIONS)
    client.create_task(TASK, SQL, options={"delay": f"{DELAY_S}s"})
    load = fill(kafka, plan, lambda messages: say(f"{messages:,} rows are in the topic."))
    _wait_until_read(client, say)
    pace = Pace(kafka, STREAM, PARTITIONS, asked.rate, asked.groups, window_ms)
    with paced(pace):
        windows = _Windows(kafka)
        windows.next_after(time.time())
        say("Windows close; rows flow for a minute.")
        cores, memory = _uses(supervisor)
        closed_s = [_lose(supervisor, windows, say) for _ in range(asked.losses)]
    return RecoveryReport(about, asked.rate, asked.groups, load.rows, closed_s, cores, memory)


def _wait_until_read(client: Client, say: Say) -> None:
    begun_s = time.monotonic()
    while (lag := client.task(TASK).lag) is None or lag.rows:
        if time.monotonic() - begun_s > CLOSES_S:
            raise BenchError(f"The rows were not read within {CLOSES_S:.0f} s.")
        time.sleep(LOOK_S)
    say(f"The rows are read after {time.monotonic() - begun_s:.0f} s.")


def _uses(supervisor: Supervisor) -> tuple[dict[str, float], dict[str, int]]:
    """Cores that are busy, and memory, by role, over a minute."""
    begun_s, begun = time.monotonic(), uses_by_role(supervisor)
    time.sleep(APART_S)
    seconds, ended = time.monotonic() - begun_s, uses_by_role(supervisor)
    return cores_of(begun, ended, seconds), {role: use.memory for role, use in ended.items()}


def _lose(supervisor: Supervisor, windows: _Windows, say: Say) -> float:
    """Empty the store; seconds until a window comes that ended since."""
    with redis.Redis.from_url(supervisor.addresses.redis) as store:
        begun_s, lost_s = time.monotonic(), time.time()
        store.flushall()
    windows.next_after(lost_s)
    closed_s = round(time.monotonic() - begun_s, 1)
    say(f"FLUSHALL: windows close again after {closed_s:.1f} s.")
    until_s = time.monotonic() + APART_S
    while time.monotonic() < until_s:  # the next loss comes once all is as before
        windows.next_after(time.time())
    return closed_s


class _Row(msgspec.Struct):
    window_end: int


class _Windows:
    """A reader of what the task emits."""

    def __init__(self, kafka: str) -> None:
        topic = f"mars.results.{TASK}"
        ends = Topics(kafka).ends(topic)
        self._consumer = reader(kafka)
        self._consumer.assign([TopicPartition(topic, at, end) for at, end in ends.items()])

    def next_after(self, time_s: float) -> None:
        """Return once a window came that ended after a time, in seconds since 1970."""
        begun_s = time.monotonic()
        while time.monotonic() - begun_s < CLOSES_S:
            for message in checked(self._consumer.consume(1_000, timeout=LOOK_S)):
                if msgspec.json.decode(message.value() or b"", type=_Row).window_end > time_s * 1e3:
                    return
        raise BenchError(f"No window came within {CLOSES_S:.0f} s.")


def grids(report: RecoveryReport) -> list[Grid]:
    """One table."""
    rate = f"{report.rate:,} rows/s"
    title = f"12 hours so far of {report.groups:,} groups, every {STEP_S} s, at {rate}"
    times = ", ".join(f"{one:.1f}" for one in report.closed_s)
    rows = [
        ("rows before the first loss", f"{report.rows:,}"),
        ("windows closed again after FLUSHALL, s", times),
        ("cores, all processes", f"{sum(report.cores.values()):.2f}"),
        *((f"cores, {role}", f"{busy:.2f}") for role, busy in sorted(report.cores.items())),
        ("memory of all, MiB", f"{sum(report.memory.values()) // MIB:,}"),
    ]
    return [Grid(title, ("", ""), [list(row) for row in rows])]
