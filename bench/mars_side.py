"""Mars as a contestant: what `mars up` starts, asked over REST as a user would."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path

from bench.clusters import on_free_ports
from bench.contestants import DELAY_S, OUTPUT_PARTITIONS, Workload
from bench.errors import BenchError
from bench.processes import Watched
from mars.adapters.redis.connection import connect, translated
from mars.adapters.redis.keys import TaskKeys
from mars.client.blocking import Client
from mars.core.settings import (
    BulkSettings,
    MapperSettings,
    RedisSettings,
    Settings,
    TrackerSettings,
    to_toml,
)
from mars.core.types import TaskName
from mars.local.cluster import ClusterOptions, running
from mars.local.flows import declaration
from mars.local.supervisor import Supervisor

STREAM = "S"
"""As in the paper's query."""

SERVERS = frozenset({"kafka", "zookeeper", "redis"})
"""Roles of the parts that are not ours."""

COMMIT_INTERVAL_S = 1.0
"""Due windows are committed as soon as they are; this is for a machine that is busy."""


def query(window_s: int) -> str:
    """The query of the Mars paper."""
    return (
        f"SELECT sip, type, timestamp, count(*) FROM {STREAM} GROUP BY sip, type, timestamp "
        f"WINDOWING {window_s} s"
    )


ALL_BY_MAPPERS = BulkSettings(history_rows_min=2**62)
"""What lies in the topic before the task is what a mapper's speed is measured on."""


@dataclass(slots=True)
class MarsSide:
    """A cluster of its own on the folder `data`; `batch_rows` of None leaves the default."""

    data: Path
    mappers: int = 2
    reducers: int = 2
    batch_rows: int | None = None
    tracked: bool = False
    delay_s: float = DELAY_S
    _supervisor: Supervisor | None = None
    _task: TaskName | None = None
    _stop: threading.Event = field(default_factory=threading.Event)

    @property
    def name(self) -> str:
        """As it is called in tables."""
        return "mars"

    @property
    def version(self) -> str:
        """Of the package."""
        return f"Mars {metadata.version('mars-statistics')}"

    @property
    def commit_interval_s(self) -> float:
        """See COMMIT_INTERVAL_S."""
        return COMMIT_INTERVAL_S

    def settings(self) -> Mapping[str, str]:
        """What is not the default, and how many processes there are."""
        return {
            "mappers": str(self.mappers),
            "reducers": str(self.reducers),
            "buckets": str(OUTPUT_PARTITIONS),
            "mapper.batch_rows_max": str(self._mapper_settings().batch_rows_max),
            "delay": f"{DELAY_S}s",
            **({"tracker.enabled": "true"} if self.tracked else {}),
        }

    def _mapper_settings(self) -> MapperSettings:
        chosen = MapperSettings()
        return (
            chosen if self.batch_rows is None else replace(chosen, batch_rows_max=self.batch_rows)
        )

    @contextmanager
    def running(self) -> Iterator[str]:
        """The whole cluster, on free ports; nothing is started again if it dies."""
        self.data.mkdir(parents=True, exist_ok=True)
        config = self.data / "bench.toml"
        settings = Settings(
            mapper=self._mapper_settings(),
            bulk=ALL_BY_MAPPERS,
            tracker=TrackerSettings(enabled=self.tracked),
        )
        config.write_text(to_toml(settings), "utf-8")
        options = ClusterOptions(
            data=self.data,
            mappers=self.mappers,
            reducers=self.reducers,
            bulk=0,
            buckets=OUTPUT_PARTITIONS,
            config=config,
        )
        with running(on_free_ports(options), lambda _line: None, self._stop) as supervisor:
            self._supervisor = supervisor
            try:
                yield supervisor.addresses.kafka
            finally:
                self._supervisor = None

    def _cluster(self) -> Supervisor:
        if self._supervisor is None:
            raise BenchError("Mars has not been started.")
        return self._supervisor

    def submit(self, workload: Workload) -> None:
        """Declare the stream and register the task."""
        with Client(self._cluster().addresses.api) as client:
            client.put_stream(STREAM, declaration(workload.topic, workload.format))
            client.create_task(
                workload.name,
                query(workload.window_s),
                start="earliest" if workload.earliest else "latest",
                options={"delay": f"{DELAY_S}s", "output_topic": workload.output},
            )
        self._task = TaskName(workload.name)

    def messages_taken(self) -> int:
        """From the offsets that mappers compare and set in Redis: every batch moves them."""
        if self._task is None:
            return 0
        cluster = self._cluster()
        key = TaskKeys.of(cluster.addresses.namespace, self._task).offsets
        client = connect(RedisSettings(url=cluster.addresses.redis))
        with translated():
            try:
                offsets = client.hvals(key)
            finally:
                client.close()
        return sum(int(offset) for offset in offsets)

    def watched(self) -> Sequence[Watched]:
        """All processes of cluster.json."""
        cluster = self._cluster()
        children = [*cluster.servers, *cluster.roles]
        for child in children:
            child.check_alive()
        return [
            Watched(child.name, child.pid, server=child.role in SERVERS)
            for child in children
            if child.pid is not None
        ]

    def withdraw(self) -> None:
        """Delete the task; its results stay."""
        if self._task is not None:
            with Client(self._cluster().addresses.api) as client:
                client.delete_task(self._task)
            self._task = None
