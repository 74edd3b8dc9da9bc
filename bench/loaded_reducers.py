"""Four reducers of a real cluster under a load of chosen keys, for the measurements of balance."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from bench.clusters import cluster
from bench.errors import BenchError
from bench.pacing import Pace, Pacer, Sent
from bench.processes import Watched, look
from bench.rows import WindowResult, by_window, decode_results
from bench.topics import Topics
from bench.wandering import Keys
from mars.client.blocking import Client
from mars.core.plan import Format
from mars.core.settings import Settings, to_toml
from mars.local.cluster import ClusterOptions
from mars.local.flows import declaration
from mars.local.supervisor import Supervisor

Say = Callable[[str], None]

REDUCERS, MAPPERS, BUCKETS, PARTITIONS = 4, 2, 16, 4
RATE = 60_000
ROWS_PER_MESSAGE = 150
"""A message for each partition every 10 ms."""

LOOK_S = 2.0


@dataclass(frozen=True, slots=True)
class Job:
    """A task over the stream of its own name, how long its windows are, and how long the last of
    them may take to come after the last row.
    """

    name: str
    query: str
    window_s: int
    drain_s: float


@contextmanager
def loaded(job: Job, settings: Settings, keys: Sequence[Keys]) -> Iterator[Loaded]:
    """A cluster that gets rows from now on. Raises MarsError."""
    with tempfile.TemporaryDirectory(prefix="mars-balance-") as name:
        folder = Path(name)
        config = folder / "balance.toml"
        config.write_text(to_toml(settings), "utf-8")
        options = ClusterOptions(
            data=folder / "data",
            mappers=MAPPERS,
            reducers=REDUCERS,
            bulk=0,
            buckets=BUCKETS,
            config=config,
        )
        with cluster(options) as supervisor, Client(supervisor.addresses.api) as client:
            Topics(supervisor.addresses.kafka).make(job.name, PARTITIONS)
            client.put_stream(job.name, declaration(job.name, Format.NDJSON))
            client.create_task(job.name, job.query)
            found = Loaded(job, supervisor, client, keys)
            try:
                found.pacer.begin()
                yield found
            finally:
                found.pacer.stop()


class Loaded:
    """One cluster with its load, and what is seen of it."""

    def __init__(
        self, job: Job, supervisor: Supervisor, client: Client, keys: Sequence[Keys]
    ) -> None:
        self.client = client
        self._job = job
        self._topics = Topics(supervisor.addresses.kafka)
        self._reducers = [
            Watched(one.name, one.pid, server=False)
            for one in supervisor.roles
            if one.role == "reducer" and one.pid is not None
        ]
        self.pacer = Pacer(
            Pace(
                supervisor.addresses.kafka,
                job.name,
                PARTITIONS,
                RATE,
                groups=0,
                window_ms=job.window_s * 1000,
                rows_per_message=ROWS_PER_MESSAGE,
                keys=tuple(keys),
            )
        )
        self._used = self._cpu_s()
        self._at_s = time.monotonic()

    @property
    def pids(self) -> list[int]:
        """Of the reducers."""
        return [each.pid for each in self._reducers]

    def _cpu_s(self) -> dict[str, float]:
        return {name: use.cpu_s for name, use in look(self._reducers).items()}

    def uses(self) -> list[float]:
        """What each reducer has used of a core since the last time that this was asked.

        Raises BenchError when one has ended meanwhile.
        """
        now_s, used = time.monotonic(), self._cpu_s()
        if ended := sorted(self._used.keys() - used.keys()):
            raise BenchError(
                f"{', '.join(ended)} ended while it was measured; see its log, and run it "
                "once more."
            )
        uses = [(used[name] - before) / (now_s - self._at_s) for name, before in self._used.items()]
        self._used, self._at_s = used, now_s
        return uses

    def wrong_windows(self, sent: Sent) -> list[str]:
        """What is wrong with the windows that must have closed, a sentence each.

        Raises BenchError when the last of them does not come.
        """
        *closed, _last_but_one, _last = sorted(sent.windows)
        found = self._results(closed[-1])
        said = []
        for start in closed:
            result = found.get(start)
            if result is None:
                said.append(f"window {start} is missing")
            elif result.doubled or result.rows != sent.windows[start]:
                said.append(f"window {start} had {sent.windows[start]} rows, and came as {result}")
        return said

    def _results(self, last: int) -> Mapping[int, WindowResult]:
        """By window, once the `last` one is there with all its buckets."""
        output = f"mars.results.{self._job.name}"
        deadline = time.monotonic() + self._job.drain_s
        before = -1
        while True:
            frames = [
                decode_results(message.value() or b"" for message in messages)
                for messages in self._topics.read(output, self._topics.ends(output))
            ]
            found = by_window(pl.concat(frames)) if frames else {}
            rows = found[last].rows if last in found else 0
            if rows and rows == before:
                return found
            if time.monotonic() > deadline:
                raise BenchError(
                    f"Window {last} has not come {self._job.drain_s:.0f} s after the last row."
                )
            before = rows
            time.sleep(LOOK_S)
