"""A whole Mars as a user starts it, and the clients that a user has."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeVar

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from mars.adapters.kafka.read.rows import headers_of
from mars.client.answers import Ledger
from mars.client.blocking import Client
from mars.core.errors import MarsError
from tests.conftest import missing_java, missing_kafka, missing_valkey, need
from tests.support.rows import FIELDS, QUERY, Result

COMMAND_S = 600.0
"""For any command: `mars up` takes 15 s on a quiet machine, a backfill on Spark 30."""

WAIT_S = 120.0
"""For what takes seconds on a quiet machine, a recovery included."""

ROWS_AT_ONCE = 10_000
"""Of a topic that is read."""

PAUSE_S, PAUSE_MAX_S = 0.1, 0.5
PAUSE_SHARE = 0.05
"""Of the time that has gone by, between two looks: each takes a processor some milliseconds."""

Answer = TypeVar("Answer")
Lent = TypeVar("Lent", bound="MarsCluster")


def wait_for(
    what: str,
    look: Callable[[], Answer | Literal[False] | None],
    *,
    seconds: float = WAIT_S,
    pause_s: float | None = None,
) -> Answer:
    """Look until the answer is true; fails, saying `what`, after `seconds`.

    Who waits for long looks less often, unless `pause_s` says how often.
    """
    begun = time.monotonic()
    deadline = begun + seconds
    last: object = None
    while time.monotonic() < deadline:
        try:
            answer = look()
        except MarsError as problem:
            last = problem
        else:
            if answer:
                return answer
            last = answer
        growing_s = min(PAUSE_MAX_S, max(PAUSE_S, PAUSE_SHARE * (time.monotonic() - begun)))
        time.sleep(growing_s if pause_s is None else pause_s)
    raise AssertionError(f"waited {seconds} s for {what}; last seen: {last!r}")


def running_mars(folder: Path, *options: str, settings: str = "") -> Iterator[MarsCluster]:
    """Start one in a folder, yield it, stop it; `settings` are TOML. Skips where it cannot run."""
    need(missing_java() or missing_kafka() or missing_valkey())
    if settings:
        config = folder / "mars.toml"
        config.write_text(settings)
        options = ("--config", str(config), *options)
    mars = MarsCluster(folder / "data", *options)
    yield mars
    mars.down()


def lent(mars: Lent) -> Iterator[Lent]:
    """The same cluster for another file; its tasks are deleted then: idle ones cost as well."""
    yield mars

    def all_deleted() -> bool:
        for task in mars.client.tasks():
            mars.client.delete_task(task.name)
        return True

    wait_for("its tasks to be deleted", all_deleted)


class MarsCluster:
    """`mars up --detach` on free ports, in a folder of its own."""

    copies = 1
    """Of each topic that a test makes."""

    def __init__(self, data: Path, *arguments: str) -> None:
        self.data = data
        self.arguments = arguments
        self._producer: tuple[str, Producer] | None = None
        self._acknowledged: dict[tuple[str, int], int] = {}
        self.up()

    def mars(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run one command of the CLI."""
        return subprocess.run(
            [sys.executable, "-m", "mars.cli", *arguments],
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
            env={**os.environ, **({"MARS_API": self.api} if self.api else {})},
        )

    @property
    def api(self) -> str:
        """The address of the API, empty before the first start."""
        return str(self.file["api"]) if (self.data / "cluster.json").exists() else ""

    def up(self) -> None:
        """Start it; on old data it goes on."""
        ports = [
            part
            for name in ("api", "kafka", "zookeeper", "redis")
            for part in (f"--{name}-port", "0")
        ]
        done = self.mars("up", "--detach", "--data", str(self.data), *ports, *self.arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        self.client = Client(self.api)

    def down(self) -> None:
        """Stop it; the data stays."""
        self.client.close()
        done = self.mars("down", "--data", str(self.data))
        assert done.returncode == 0, done.stdout + done.stderr

    @property
    def file(self) -> dict[str, Any]:
        """What `cluster.json` says."""
        found: dict[str, Any] = json.loads((self.data / "cluster.json").read_text())
        return found

    def pid(self, name: str) -> int:
        """The process id of a child; one that has died is waited for until it runs again."""
        return wait_for(f"{name} to run", lambda: self._pids().get(name, 0))

    def _pids(self) -> dict[str, int]:
        return {each["name"]: int(each["pid"]) for each in self.file["processes"]}

    @property
    def restarts(self) -> dict[str, int]:
        """How often each child was started again."""
        return {each["name"]: each["restarts"] for each in self.file["processes"]}

    def kill(self, name: str, number: int = signal.SIGKILL) -> int:
        """Send a signal to a child; returns its process id."""
        pid = self.pid(name)
        os.kill(pid, number)
        return pid

    @contextmanager
    def stopped(self, *names: str) -> Iterator[None]:
        """SIGSTOP to all of them, so that none takes over, and SIGCONT afterwards."""
        for name in names:
            self.kill(name, signal.SIGSTOP)
        try:
            yield
        finally:
            for name in names:
                self.kill(name, signal.SIGCONT)

    def logs(self, lines: int = 15) -> str:
        """The last lines of every log, for a test that failed."""
        return "\n".join(
            f"--- {path.name}\n" + "\n".join(path.read_text().splitlines()[-lines:])
            for path in sorted((self.data / "logs").glob("*.log"))
        )

    # ----------------------------------------------------------------------------- the job

    def declare(self, topic: str, *, stream: str = "flows", partitions: int = 4) -> None:
        """Make the topic of `tests.support.rows` and declare its stream."""
        self.topic(topic, partitions)
        self.client.put_stream(
            stream,
            {"topic": topic, "format": "json", "fields": FIELDS, "event_time": "timestamp"},
        )

    def register(self, name: str, sql: str = QUERY, **options: str) -> None:
        """Register a task and wait until it takes rows."""
        self.client.create_task(
            name, sql, options={"delay": "500ms", "idle_after": "1s", **options}
        )

    def ledger(self, task: str, read: int, emitted: int = 0) -> Ledger:
        """The ledger once it has at least so many rows read and emitted.

        The API follows what reducers commit as any consumer does, so it may be behind the test.
        """

        def settled() -> Ledger | None:
            found = self.client.ledger(task)
            return found if found.read >= read and found.emitted >= emitted else None

        found = wait_for(f"{read} rows read and {emitted} emitted of {task}", settled)
        assert found is not None
        return found

    # ------------------------------------------------------------------------------- Kafka

    def topic(self, name: str, partitions: int, **config: str) -> None:
        """Make a topic; `max_message_bytes` stands for the property `max.message.bytes`."""
        properties = {key.replace("_", "."): value for key, value in config.items()}
        admin = AdminClient({"bootstrap.servers": self.file["kafka"]})
        made = admin.create_topics([NewTopic(name, partitions, self.copies, config=properties)])
        made[name].result(20)

    def add_partitions(self, name: str, partitions: int) -> None:
        """Give a topic more partitions; `produce` knows them from then on."""
        admin = AdminClient({"bootstrap.servers": self.file["kafka"]})
        admin.create_partitions([NewPartitions(name, partitions)])[name].result(20)
        self._producer = None
        wait_for(
            f"{partitions} partitions of {name}",
            lambda: len(admin.list_topics(name, 10).topics[name].partitions) == partitions,
        )

    def delete_topic(self, name: str) -> None:
        """Delete a topic behind the back of whoever uses it."""
        admin = AdminClient({"bootstrap.servers": self.file["kafka"]})
        admin.delete_topics([name])[name].result(20)

    def _connected(self) -> Producer:
        """One producer for all that a test feeds, made anew when Kafka has another address."""
        kafka = str(self.file["kafka"])
        if self._producer is None or self._producer[0] != kafka:
            self._producer = (
                kafka,
                Producer(
                    {
                        "bootstrap.servers": kafka,
                        "enable.idempotence": True,
                        "linger.ms": 5,
                        "message.max.bytes": 20_000_000,
                        "log_level": 2,  # a broker that is away is part of many tests
                    }
                ),
            )
        return self._producer[1]

    def produce(self, topic: str, messages: Iterable[tuple[int, bytes | None]]) -> None:
        """Write (partition, value) pairs and wait until the broker has them."""
        self.produce_records(topic, ((at, value, None, 0) for at, value in messages))

    def produce_records(
        self, topic: str, records: Iterable[tuple[int, bytes | None, bytes | None, int]]
    ) -> None:
        """The same with a key each, and a time in ms (0: now)."""
        producer = self._connected()
        failures: list[KafkaError] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                failures.append(error)
            else:
                place = topic, message.partition() or 0
                self._acknowledged[place] = (message.offset() or 0) + 1

        for partition, value, key, time_ms in records:
            while True:
                try:
                    producer.produce(
                        topic, value, key, partition, on_delivery=delivered, timestamp=time_ms
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)
        assert producer.flush(120) == 0, "the broker did not take everything"
        assert not failures, failures[:3]

    def acknowledged(self, topic: str) -> dict[int, int]:
        """How far, by partition, the broker surely has what was produced."""
        return {
            partition: end
            for (name, partition), end in list(self._acknowledged.items())
            if name == topic
        }

    def read(self, topic: str) -> list[Result]:
        """Everything committed in a topic now: (key, value, headers)."""
        return [_result(message) for message in self.messages(topic)]

    def messages(self, topic: str) -> list[Message]:
        """The same as the client has it."""
        with self._reader(topic) as (consumer, partitions):
            return list(_to_the_end(consumer, topic, partitions))

    def read_until(self, topic: str, rows: int, seconds: float = 90.0) -> list[Result]:
        """Everything committed in a topic once it holds at least `rows` rows."""
        deadline = time.monotonic() + seconds
        admin = AdminClient({"bootstrap.servers": self.file["kafka"]})
        wait_for(
            f"{topic} to be there", lambda: admin.list_topics(topic, 20).topics[topic].partitions
        )
        found = 0
        with self._reader(topic) as (consumer, _partitions):
            while found < rows:
                if time.monotonic() > deadline:
                    raise AssertionError(f"{found} of {rows} rows in {topic}\n{self.logs()}")
                came = consumer.consume(ROWS_AT_ONCE, timeout=PAUSE_MAX_S)
                found += sum(not _is_end(message) for message in came)
        # From the beginning: what came twice may lie behind what was waited for.
        return self.read(topic)

    @contextmanager
    def _reader(self, topic: str) -> Iterator[tuple[Consumer, int]]:
        """At the beginning of each partition, and how many there are."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.file["kafka"],
                "group.id": "test-reader",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "enable.auto.commit": False,
            }
        )
        try:
            partitions = consumer.list_topics(topic, timeout=20).topics[topic].partitions
            consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
            yield consumer, len(partitions)
        finally:
            consumer.close()


def _result(message: Message) -> Result:
    headers = {name: value.decode() for name, value in headers_of(message).items()}
    return message.key() or b"", json.loads(message.value() or b"{}"), headers


def _to_the_end(consumer: Consumer, topic: str, partitions: int) -> Iterable[Message]:
    ended: set[int | None] = set()
    deadline = time.monotonic() + 60
    while len(ended) < partitions:
        assert time.monotonic() < deadline, f"{topic} could not be read to its end"
        message = consumer.poll(1.0)
        if message is None:
            continue
        if _is_end(message):
            ended.add(message.partition())
        else:
            yield message


def _is_end(message: Message) -> bool:
    """Of a partition, as far as it goes now; everything else that is no row is a failure."""
    error = message.error()
    assert error is None or error.code() == KafkaError._PARTITION_EOF, error
    return error is not None
