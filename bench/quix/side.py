"""Quix Streams as a contestant: Kafka and some processes that run the same program."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.contestants import DELAY_S, OUTPUT_PARTITIONS, Workload
from bench.errors import BenchError
from bench.processes import Watched
from bench.quix import install
from bench.topics import Topics
from mars.local.child import Child
from mars.local.servers import KafkaServer

READY_S = 90.0
"""Longest start of Kafka, and of all processes until partitions are shared out between them."""

POLL_S = 0.2
"""Between two looks at that."""

STOP_S = 30.0
"""What a process gets to commit and to end by itself."""

PRODUCER = {
    "compression.type": "lz4",
    "batch.size": 262_144,
    "linger.ms": 5,
    "queue.buffering.max.messages": 500_000,
}
"""As Flink's; the queue holds the changelog of a checkpoint."""


class _Process(Child):
    """One of the processes; all have the same work and share partitions out between them."""

    def __init__(self, number: int, folder: Path, asked: Mapping[str, object]) -> None:
        super().__init__(f"quix-{number}", "quix", folder / f"quix-{number}.log")
        self._count = folder / f"quix-{number}.count"
        state = folder / f"state-{number}"
        self._asked = {**asked, "count": str(self._count), "state": str(state)}

    def command(self) -> Sequence[str]:
        """The program, in Quix's own environment: of ours it sees nothing."""
        job = Path(__file__).with_name("job.py")
        return [str(install.python()), "-I", str(job), json.dumps(self._asked)]

    def processed(self) -> int:
        """Messages that it is done with; 0 before it has told of any."""
        try:
            return int(self._count.read_text("utf-8"))
        except FileNotFoundError:
            return 0


@dataclass(slots=True)
class QuixSide:
    """`data` holds Kafka's folder, as made by `mars up`, and gets one of Quix's own."""

    data: Path
    commit_interval_s: float
    processes: int = 2
    delay_s: float = DELAY_S
    _kafka: KafkaServer | None = None
    _running: list[_Process] = field(default_factory=list)

    @property
    def name(self) -> str:
        """As it is called in tables."""
        return "quix"

    @property
    def version(self) -> str:
        """Of the library."""
        return f"Quix Streams {install.version()}"

    def settings(self) -> Mapping[str, str]:
        """What was chosen."""
        return {
            "processes": str(self.processes),
            "processing_guarantee": "exactly-once",
            "commit_interval": f"{self.commit_interval_s:g} s",
            "grace": f"{self.delay_s:g} s",
            "closing_strategy": "partition",
            **{key: str(value) for key, value in PRODUCER.items()},
        }

    @contextmanager
    def running(self) -> Iterator[str]:
        """Kafka only: the processes begin with the query, which is their program."""
        kafka = KafkaServer(self.data / "kafka", log=self.data / "logs" / "kafka.log")
        try:
            kafka.start()
            kafka.wait_ready(READY_S)
            self._kafka = kafka
            yield kafka.bootstrap
        finally:
            self.withdraw()
            kafka.stop(STOP_S)
            self._kafka = None

    def submit(self, workload: Workload) -> None:
        """Start the processes; returns when partitions have been shared out between them."""
        if self._kafka is None:
            raise BenchError("Quix Streams has not been started.")
        bootstrap = self._kafka.bootstrap
        topics = Topics(bootstrap)
        topics.make(workload.output, OUTPUT_PARTITIONS)
        folder = self.data / "quix" / workload.name
        folder.mkdir(parents=True)
        asked = {
            "name": workload.name,
            "bootstrap": bootstrap,
            "topic": workload.topic,
            "output": workload.output,
            "window_ms": workload.window_s * 1000,
            "grace_ms": round(self.delay_s * 1000),
            "commit_interval_s": self.commit_interval_s,
            "producer": PRODUCER,
        }
        self._running = [_Process(number + 1, folder, asked) for number in range(self.processes)]
        for process in self._running:
            process.start()
        self._wait_shared_out(topics, workload.name)

    def _wait_shared_out(self, topics: Topics, group: str) -> None:
        deadline = time.monotonic() + READY_S
        while (members := topics.members(group)) < self.processes:
            self.watched()
            if time.monotonic() > deadline:
                raise BenchError(
                    f"{members} of {self.processes} processes of Quix Streams had partitions "
                    f"within {READY_S:.0f} s; see the logs in {self.data / 'quix' / group}."
                )
            time.sleep(POLL_S)

    def messages_taken(self) -> int:
        """Half of what was processed: a row is regrouped first, then counted, and is work twice."""
        return sum(process.processed() for process in self._running) // 2

    def watched(self) -> Sequence[Watched]:
        """Kafka and the processes."""
        children: list[Child] = [*([self._kafka] if self._kafka else []), *self._running]
        for child in children:
            child.check_alive()
        return [
            Watched(child.name, child.pid, server=child is self._kafka)
            for child in children
            if child.pid is not None
        ]

    def withdraw(self) -> None:
        """End the processes."""
        for process in self._running:
            process.ask_to_end()
        for process in self._running:
            process.wait_ended(STOP_S)
        self._running = []
