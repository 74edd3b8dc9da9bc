"""`mars bench soak`: what each process of a cluster holds in memory, for as long as you like.

    rows/s, steady ──▶ four partitions ──▶ three tasks over windows of 5 s
                       every LOOK_S the resident memory of every process

The first minutes are not counted: modules are loaded, buffers grow to the size of the load. Behind
them memory should be flat; a straight line through what is left says by how much it is not.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from bench.clusters import cluster, watched_in
from bench.environment import Environment, environment
from bench.errors import BenchError
from bench.load import PARTITIONS
from bench.pacing import Pace, Pacer
from bench.plots import drawn
from bench.processes import Watched, look
from bench.results import FOLDER, save
from bench.tables import MIB, Grid
from bench.topics import Topics
from mars.client.blocking import Client
from mars.core.plan import Format
from mars.local.cluster import ClusterOptions
from mars.local.flows import declaration
from mars.local.supervisor import Supervisor

NAME = "soak"
WINDOW_S = 5
GROUPS = 5_000

SQLS = {
    "sums": "SELECT sip, type, timestamp, count(*), sum(bytes) AS bytes FROM soak "
    "GROUP BY sip, type, timestamp WINDOWING 5 s",
    "sliding": "SELECT type, timestamp, max(bytes) AS most FROM soak "
    "GROUP BY type, timestamp WINDOWING 5 s SLIDE 1 s",
    "distinct": "SELECT type, timestamp, count(DISTINCT sip) AS sips FROM soak "
    "GROUP BY type, timestamp WINDOWING 5 s",
}

ROLES = ("mapper", "reducer", "api", "bulk")
"""What is ours among the processes; their names begin so."""

LOOK_S = 5.0
TELL_S = 60.0

WARM_S = 600.0
WARM_SHARE = 1 / 3
"""Of a short run; of a long one WARM_S are not counted."""

GROWTH_BYTES_MAX = 5 * MIB
"""What a process may have more at the end than when it was warm."""

Say = Callable[[str], None]


class Memory(msgspec.Struct, frozen=True, array_like=True):
    """Resident bytes of each process, `second` seconds after the first row."""

    second: float
    bytes_of: dict[str, int]


class SoakReport(msgspec.Struct, frozen=True, tag="soak"):
    """One run. `rate`: rows a second; `rows`: how many were sent, None in older reports."""

    environment: Environment
    rate: int
    minutes: int
    samples: list[Memory]
    rows: int | None = None

    @property
    def warm_s(self) -> float:
        """What comes before is not counted."""
        return min(WARM_S, WARM_SHARE * self.samples[-1].second)

    @property
    def processes(self) -> list[str]:
        """Those that were there to the end."""
        return list(self.samples[-1].bytes_of)


@dataclass(frozen=True, slots=True)
class Growth:
    """Of one process: bytes when it was warm, at the end, and per hour between, by a line."""

    warm_bytes: int
    last_bytes: int
    peak_bytes: int
    bytes_per_hour: float

    @property
    def flat(self) -> bool:
        """Whether it holds hardly more than when it was warm."""
        return self.last_bytes - self.warm_bytes <= GROWTH_BYTES_MAX


@dataclass(frozen=True, slots=True)
class Soaked:
    """The report, and where it was saved."""

    report: SoakReport
    path: Path


def soak_session(rate: int, minutes: int, say: Say, folder: Path = FOLDER) -> Soaked:
    """Run it; saves the figures. Raises MarsError."""
    about = environment()
    with tempfile.TemporaryDirectory(prefix="mars-soak-") as data:
        options = ClusterOptions(data=Path(data), mappers=2, reducers=2, bulk=1)
        with cluster(options) as supervisor:
            samples, rows = _under_load(supervisor, rate, minutes * 60, say)
    report = SoakReport(about, rate, minutes, samples, rows)
    return Soaked(report, save(report, NAME, folder, compact=True))


def _under_load(
    supervisor: Supervisor, rate: int, seconds: float, say: Say
) -> tuple[list[Memory], int]:
    """What was seen, and how many rows were sent meanwhile. Raises BenchError."""
    kafka = supervisor.addresses.kafka
    with Client(supervisor.addresses.api) as client:
        Topics(kafka).make(NAME, PARTITIONS)
        client.put_stream(NAME, declaration(NAME, Format.JSON))
        for name, sql in SQLS.items():
            client.create_task(name, sql)
        pacer = Pacer(Pace(kafka, NAME, PARTITIONS, rate, GROUPS, WINDOW_S * 1000))
        pacer.begin()
        try:
            samples = _looks(watched_in(supervisor), pacer, seconds, say)
            return samples, pacer.finish().rows
        finally:
            pacer.stop()


def _looks(watched: Sequence[Watched], pacer: Pacer, seconds: float, say: Say) -> list[Memory]:
    """Raises BenchError when a process has ended: another one begins small again, and memory is
    flat where no rows come.
    """
    samples: list[Memory] = []
    begun_s, told_s = time.monotonic(), 0.0
    while (second := time.monotonic() - begun_s) < seconds:
        uses = look(watched)
        if ended := [one.name for one in watched if one.name not in uses]:
            raise BenchError(f"{', '.join(ended)} ended after {second:.0f} s; see its log.")
        pacer.check()
        held = {name: use.memory.now_bytes for name, use in uses.items()}
        samples.append(Memory(round(second, 1), held))
        if second >= told_s:
            say(f"{(seconds - second) / 60:.0f} min to go; MiB: {_told(held)}")
            told_s += TELL_S
        time.sleep(LOOK_S)
    return samples


def _told(held: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {size // MIB}" for name, size in held.items())


def growth(report: SoakReport, process: str) -> Growth:
    """By a straight line through all that was seen once it was warm."""
    warm = [sample for sample in report.samples if sample.second >= report.warm_s]
    seconds = np.array([sample.second for sample in warm])
    held = np.array([sample.bytes_of[process] for sample in warm], dtype=np.float64)
    slope, begin = np.polyfit(seconds, held, 1) if len(warm) > 1 else (0.0, held[0])
    line = begin + slope * seconds
    return Growth(int(line[0]), int(line[-1]), int(held.max()), slope * 3600)


def grown(report: SoakReport) -> list[str]:
    """Our own processes that hold more than they should."""
    ours = [each for each in report.processes if each.partition("-")[0] in ROLES]
    return [process for process in ours if not growth(report, process).flat]


def grids(report: SoakReport) -> list[Grid]:
    """The table."""
    rows = []
    for process in report.processes:
        found = growth(report, process)
        rows.append(
            [
                process,
                f"{found.warm_bytes / MIB:.1f}",
                f"{found.last_bytes / MIB:.1f}",
                f"{found.peak_bytes / MIB:.1f}",
                f"{found.bytes_per_hour / MIB:+.1f}",
                "yes" if found.flat else "no",
            ]
        )
    columns = (
        "MiB",
        f"after {report.warm_s / 60:.1f} min",
        "at the end",
        "most",
        "an hour",
        "flat",
    )
    title = f"Memory at {report.rate:,} rows/s over {report.minutes} minutes"
    if report.rows is not None:
        title += f", {report.rows:,} rows"
    return [Grid(title, columns, rows)]


def plot(report: SoakReport, folder: Path) -> list[Path]:
    """Each process's memory over time. Raises BenchError where matplotlib is missing."""
    return drawn(folder, (f"bench-soak-{report.rate}", (9, 4), lambda axes: _lines(axes, report)))


def _lines(axes: Any, report: SoakReport) -> None:
    minutes = [sample.second / 60 for sample in report.samples]
    for process in report.processes:
        held = [sample.bytes_of[process] / MIB for sample in report.samples]
        axes.plot(minutes, held, label=process, linewidth=1)
    axes.axvline(report.warm_s / 60, color="grey", linestyle=":", linewidth=1)
    axes.set(xlabel="minutes", ylabel="MiB", ylim=(0, None))
    axes.legend(loc="upper left", fontsize=7, bbox_to_anchor=(1, 1))
