"""Flink as a contestant: a broker, a job manager and a task manager."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.contestants import DELAY_S, OUTPUT_PARTITIONS, Workload
from bench.errors import BenchError
from bench.flink.parts import (
    CONNECTOR_VERSION,
    VERSION,
    JobManager,
    SqlClient,
    TaskManager,
    compile_ndjson,
    configure,
)
from bench.flink.query import PARALLELISM, TASK_HEAP, Query, Tuning, configuration, statements
from bench.flink.rest import FlinkJob
from bench.processes import Watched
from bench.topics import Topics
from mars.core.errors import MarsError
from mars.local import jars
from mars.local.child import Child
from mars.local.network import free_port
from mars.local.servers import KafkaServer

READY_S = 90.0
"""Longest start of a process."""

SUBMIT_S = 120.0
"""Longest planning and start of the job: JVM, planner and class loading take about 10 s."""

POLL_S = 0.1
"""Between two looks at whether the job runs."""

STOP_S = 10.0
"""What a process gets to end by itself."""


def fetch(say: Callable[[str], None]) -> None:
    """Get Flink's jars, once. Raises BenchError that begins with "Flink is not installed"."""
    if not jars.location("flink").is_dir():
        say(f"Fetching Flink {VERSION} (200 MB), this once.")
    try:
        jars.ensure("flink")
    except MarsError as error:
        raise BenchError(f"Flink is not installed: {error}") from error


@dataclass(slots=True)
class FlinkSide:
    """`data` holds Kafka's folder, as made by `mars up`, and gets one of Flink's own."""

    data: Path
    tuning: Tuning
    delay_s: float = DELAY_S
    _children: list[Child] = field(default_factory=list)
    _classes: Path | None = None
    _kafka: KafkaServer | None = None
    _rest: str = ""
    _job: FlinkJob | None = None

    @property
    def name(self) -> str:
        """As it is called in tables."""
        return "flink"

    @property
    def version(self) -> str:
        """Flink's, and that of its connector."""
        return f"Flink {VERSION}, Kafka connector {CONNECTOR_VERSION}"

    @property
    def commit_interval_s(self) -> float:
        """Results are committed with checkpoints."""
        return self.tuning.checkpoint_s

    @property
    def _folder(self) -> Path:
        return self.data / "flink"

    def settings(self) -> Mapping[str, str]:
        """The configuration, less what names this machine."""
        found = configuration(self.tuning, Path("/flink"), 0, 0)
        own = {key: value for key, value in found.items() if "address" not in key}
        return {**own, "heap of the task manager": TASK_HEAP, "parallelism": str(PARALLELISM)}

    @contextmanager
    def running(self) -> Iterator[str]:
        """Kafka first, then both of Flink's processes."""
        kafka = KafkaServer(self.data / "kafka", log=self.data / "logs" / "kafka.log")
        self._kafka = kafka
        manager, worker = self._prepare()
        self._children = [kafka, manager, worker]
        try:
            for child in self._children:
                child.start()
            for child in self._children:
                child.wait_ready(READY_S)
            yield kafka.bootstrap
        finally:
            for child in reversed(self._children):
                child.stop(STOP_S)
            self._children = []

    def _prepare(self) -> tuple[JobManager, TaskManager]:
        """Write the configuration and compile what is ours."""
        folder, rest_port = self._folder, free_port()
        (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
        configure(folder, configuration(self.tuning, folder, free_port(), rest_port))
        self._rest = f"http://127.0.0.1:{rest_port}"
        self._classes = compile_ndjson(folder)
        return (
            JobManager(folder, self._classes, self._rest),
            TaskManager(folder, self._classes, self._rest),
        )

    def submit(self, workload: Workload) -> None:
        """Plan and submit; returns when the job runs."""
        if self._kafka is None:
            raise BenchError("Flink has not been started.")
        bootstrap = self._kafka.bootstrap
        topics = Topics(bootstrap)
        topics.make(workload.output, OUTPUT_PARTITIONS)
        query = Query(
            name=workload.name,
            bootstrap=bootstrap,
            topic=workload.topic,
            output=workload.output,
            format=workload.format,
            window_s=workload.window_s,
            delay_s=DELAY_S,
            earliest=workload.earliest,
        )
        (self._folder / "job.sql").write_text(statements(query), "utf-8")
        client = SqlClient(self._folder, self._classes)
        client.start()
        self._job = FlinkJob(self._rest, workload.name, len(topics.ends(workload.topic)))
        try:
            self._wait_running(client, self._job)
        finally:
            client.stop(STOP_S)

    def _wait_running(self, client: Child, job: FlinkJob) -> None:
        deadline = time.monotonic() + SUBMIT_S
        while job.state() != "RUNNING":
            if time.monotonic() > deadline or (not client.running and not job.state()):
                raise BenchError(
                    f"Flink did not take the query ({client.how_it_ended()}); see {client.log}."
                )
            time.sleep(POLL_S)

    def messages_taken(self) -> int:
        """From the metrics of Flink's Kafka source."""
        return 0 if self._job is None else self._job.messages()

    def watched(self) -> Sequence[Watched]:
        """Kafka, job manager, task manager."""
        for child in self._children:
            child.check_alive()
        if self._job is not None and (state := self._job.state()) not in {"RUNNING", "FINISHED"}:
            raise BenchError(f"Flink's job is {state or 'gone'}; see the logs in {self._folder}.")
        return [
            Watched(child.name, child.pid, server=child is self._kafka)
            for child in self._children
            if child.pid is not None
        ]

    def withdraw(self) -> None:
        """Its processes are ended after each run, and the job with them."""
        self._job = None
