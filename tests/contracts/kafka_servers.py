"""What the suites of the Kafka ports run on: the twins, and a real broker."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

import pytest
from confluent_kafka import KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from mars.adapters.kafka import (
    KafkaControlLog,
    KafkaProgressLog,
    KafkaReader,
    KafkaSink,
    KafkaTopicAdmin,
)
from mars.adapters.kafka.names import Names
from mars.adapters.memory.admin import MemoryTopicAdmin
from mars.adapters.memory.broker import MemoryBroker, MemoryProducer
from mars.adapters.memory.control import MemoryControlLog
from mars.adapters.memory.progress import MemoryProgressLog
from mars.adapters.memory.sink import MemorySink
from mars.adapters.memory.source import MemorySource
from mars.core.settings import KafkaSettings, ReducerSettings, Settings
from mars.core.types import Bucket, MemberId, Topic
from mars.local.network import HOST, free_port
from mars.local.servers import KafkaServer
from mars.protocol.ports import (
    ControlLog,
    ProgressLog,
    ResultSink,
    SavedPanes,
    SourceReader,
    TopicAdmin,
)
from tests.conftest import missing_kafka, need
from tests.contracts.proxy import Proxy
from tests.contracts.waiting import READY_WITHIN_S, eventually, started

BUCKETS = 4
STEP_S = 10.0
"""For each step of the tests' own clients."""

QUICKLY = {
    "topic.metadata.refresh.interval.ms": 500,
    "topic.metadata.propagation.max.ms": 500,
}
"""New topics and partitions, and missing ones, are seen ten times as soon as users see them."""

Headers = Sequence[tuple[str, bytes]]


class Writer(Protocol):
    """A transaction of some other program, or of an older owner of a bucket."""

    def write(self, topic: Topic, partition: int, values: Sequence[bytes]) -> None:
        """Write records; the broker has them when this returns."""

    def commit(self) -> None: ...

    def abort(self) -> None: ...


class Records(ProgressLog, SavedPanes, Protocol):
    """The log of progress, which reads the snapshots that its records name."""


class Cluster(Protocol):
    """A Kafka with a namespace of its own, and what tests do to it from outside."""

    names: Names

    def topic(self, partitions: int = 1) -> Topic:
        """A new topic."""

    def grow(self, topic: Topic, partitions: int) -> None:
        """Let the topic have so many partitions."""

    def delete(self, topic: Topic) -> None:
        """Delete it; it is gone when this returns."""

    def append(
        self,
        topic: Topic,
        partition: int,
        values: Sequence[bytes | None],
        *,
        key: bytes | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> None:
        """Write records outside of any transaction."""

    def writer(self, transactional_id: str | None = None) -> Writer:
        """Begin a transaction; with an id, as that producer."""

    def truncate(self, topic: Topic, partition: int, before: int) -> None:
        """Delete the records below `before`, as retention does."""

    def settled_end(self, topic: Topic, partition: int) -> int:
        """The end of a partition, once no transaction is open in it.

        Markers are written some time after a commit or an abort is answered.
        """

    def alone(self) -> SourceReader:
        """A reader outside of any group."""

    def member(self) -> SourceReader:
        """A reader in the mappers' group."""

    def kill(self, member: SourceReader) -> None:
        """Let a member vanish without a word; the group gives it up after its session time-out."""

    def sink(self) -> ResultSink:
        """The sink of one more process."""

    def progress(self) -> Records: ...

    def control(self) -> ControlLog: ...

    def admin(self) -> TopicAdmin: ...

    def close(self) -> None: ...


@dataclass
class MemoryWriter:
    producer: MemoryProducer

    def write(self, topic: Topic, partition: int, values: Sequence[bytes]) -> None:
        for value in values:
            self.producer.produce(topic, partition, value)

    def commit(self) -> None:
        self.producer.commit()

    def abort(self) -> None:
        self.producer.abort()


class MemoryCluster:
    """The twins, on one broker in memory."""

    def __init__(self) -> None:
        self.names = Names("default")
        self.broker = MemoryBroker(clock=lambda: time.time_ns() // 1_000_000)
        self._control = MemoryControlLog()

    def topic(self, partitions: int = 1) -> Topic:
        name = Topic(f"topic_{len(self.broker.topics)}")
        self.broker.create_topic(name, partitions)
        return name

    def grow(self, topic: Topic, partitions: int) -> None:
        self.broker.add_partitions(topic, partitions)

    def delete(self, topic: Topic) -> None:
        self.broker.delete_topic(topic)

    def append(
        self,
        topic: Topic,
        partition: int,
        values: Sequence[bytes | None],
        *,
        key: bytes | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> None:
        for value in values:
            self.broker.append(
                topic, partition, value, key=key, headers=headers, timestamp_ms=timestamp_ms
            )

    def writer(self, transactional_id: str | None = None) -> MemoryWriter:
        return MemoryWriter(self.broker.producer(transactional_id or uuid.uuid4().hex))

    def truncate(self, topic: Topic, partition: int, before: int) -> None:
        self.broker.partition(topic, partition).truncate(before)

    def settled_end(self, topic: Topic, partition: int) -> int:
        log = self.broker.partition(topic, partition)
        assert log.stable_end == log.end
        return log.end

    def alone(self) -> MemorySource:
        return MemorySource(self.broker)

    def member(self) -> MemorySource:
        return MemorySource(self.broker, "mappers")

    def kill(self, member: SourceReader) -> None:
        assert isinstance(member, MemorySource)
        member.expire()

    def sink(self) -> MemorySink:
        return MemorySink(self.broker)

    def progress(self) -> MemoryProgressLog:
        return MemoryProgressLog(self.broker)

    def control(self) -> MemoryControlLog:
        return self._control

    def admin(self) -> MemoryTopicAdmin:
        return MemoryTopicAdmin(self.broker)

    def close(self) -> None:
        pass


@dataclass
class ProxiedKafka:
    """A broker with two addresses: its own, and one that leads through a proxy."""

    server: KafkaServer
    proxy: Proxy

    @property
    def direct(self) -> str:
        return f"{HOST}:{self.server.port}"

    @property
    def proxied(self) -> str:
        return f"{HOST}:{self.proxy.port}"

    @classmethod
    def start(cls, data: Path) -> ProxiedKafka:
        port, behind, controller = free_port(), free_port(), free_port()
        proxy = Proxy(behind)
        own, far = f"PLAINTEXT://{HOST}:{port}", f"PROXIED://{HOST}"
        properties = {
            "listeners": f"{own},{far}:{behind},CONTROLLER://{HOST}:{controller}",
            "advertised.listeners": f"{own},{far}:{proxy.port}",
            "controller.quorum.voters": f"1@{HOST}:{controller}",
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,PROXIED:PLAINTEXT,CONTROLLER:PLAINTEXT"
            ),
        }
        return cls(started(KafkaServer(data, port, properties=properties)), proxy)


def delivered(error: KafkaError | None, _message: Message) -> None:
    """The broker has taken a record."""
    assert error is None, error


@dataclass
class KafkaWriter:
    producer: Producer

    def write(self, topic: Topic, partition: int, values: Sequence[bytes]) -> None:
        for value in values:
            self.producer.produce(topic, value, b"key", partition, on_delivery=delivered)
        assert self.producer.flush(STEP_S) == 0

    def commit(self) -> None:
        self.producer.commit_transaction(STEP_S)

    def abort(self) -> None:
        self.producer.abort_transaction(STEP_S)


Closable = KafkaReader | KafkaSink | KafkaProgressLog | KafkaControlLog
Client = TypeVar("Client", bound=Closable)


@dataclass
class KafkaCluster:
    """The real adapters, in a namespace of their own."""

    bootstrap: str
    transaction_timeout_ms: int = 60_000
    opened: list[Closable] = field(default_factory=list)

    def __post_init__(self) -> None:
        namespace = f"test_{uuid.uuid4().hex}"
        self.names = Names(namespace)
        self.settings = Settings(
            namespace=namespace,
            kafka=KafkaSettings(bootstrap=self.bootstrap, extra=dict(QUICKLY)),
            reducer=ReducerSettings(transaction_timeout_ms=self.transaction_timeout_ms),
        )
        quiet: dict[str, str | int | float | bool] = {
            "bootstrap.servers": self.bootstrap,
            "log_level": 0,
        }
        self._client = AdminClient(quiet)
        self._producer = Producer({**quiet, "enable.idempotence": True, "linger.ms": 1})

    def topic(self, partitions: int = 1, config: Mapping[str, str] | None = None) -> Topic:
        name = Topic(f"{self.settings.namespace}.{uuid.uuid4().hex}")
        if config is not None:
            self.create(name, partitions, config)
        self.admin().ensure_output(name, partitions)
        return name

    def create(self, name: Topic, partitions: int, config: Mapping[str, str]) -> None:
        """A topic of that name, as somebody else has made it."""
        wanted = NewTopic(name, partitions, 1, config=dict(config))
        self._client.create_topics([wanted])[name].result(STEP_S)

    def grow(self, topic: Topic, partitions: int) -> None:
        self._client.create_partitions([NewPartitions(topic, partitions)])[topic].result(STEP_S)
        # Whoever writes to them next would look for them once in five minutes.
        told = self._producer.list_topics
        eventually(lambda: len(told(topic, STEP_S).topics[topic].partitions) == partitions)

    def delete(self, topic: Topic) -> None:
        self._client.delete_topics([topic], operation_timeout=STEP_S)[topic].result(STEP_S)

    def append(
        self,
        topic: Topic,
        partition: int,
        values: Sequence[bytes | None],
        *,
        key: bytes | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> None:
        now_ms = time.time_ns() // 1_000_000
        for value in values:
            self._producer.produce(
                topic,
                value,
                key,
                partition,
                timestamp=now_ms if timestamp_ms is None else timestamp_ms,
                headers=[*headers],
                on_delivery=delivered,
            )
        assert self._producer.flush(STEP_S) == 0

    def writer(self, transactional_id: str | None = None) -> KafkaWriter:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "transactional.id": transactional_id or uuid.uuid4().hex,
                "log_level": 0,
            }
        )
        producer.init_transactions(STEP_S)
        producer.begin_transaction()
        return KafkaWriter(producer)

    def truncate(self, topic: Topic, partition: int, before: int) -> None:
        place = TopicPartition(topic, partition, before)
        # What it has not met it may crash on: see `offsets`.
        self._client.list_topics(topic, STEP_S)
        self._client.delete_records([place])[place].result(STEP_S)

    def settled_end(self, topic: Topic, partition: int) -> int:
        admin = self.admin()
        eventually(lambda: admin.end(topic, partition) == admin.written_end(topic, partition))
        return admin.end(topic, partition)

    def alone(self) -> KafkaReader:
        return self._opened(KafkaReader.alone(self.settings, MemberId("test")))

    def member(self) -> KafkaReader:
        return self._opened(KafkaReader.in_group(self.settings, MemberId("test")))

    def kill(self, member: SourceReader) -> None:
        """A real process is killed in `test_source_kafka.py`; here the member leaves."""
        assert isinstance(member, KafkaReader)
        self.opened.remove(member)
        member.close()

    def sink(self, turn: AbstractContextManager[object] | None = None) -> KafkaSink:
        return self._opened(KafkaSink(self.settings, MemberId(f"test-{len(self.opened)}"), turn))

    def progress(self) -> KafkaProgressLog:
        return self._opened(KafkaProgressLog(self.settings))

    def control(self) -> KafkaControlLog:
        return self._opened(KafkaControlLog(self.settings))

    def admin(self) -> KafkaTopicAdmin:
        return KafkaTopicAdmin(self.settings)

    def close(self) -> None:
        for one in self.opened:
            one.close()

    def _opened(self, client: Client) -> Client:
        self.opened.append(client)
        return client


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxiedKafka]:
    """A broker for these suites alone: tests cut its proxied address off."""
    need(missing_kafka())
    kafka = ProxiedKafka.start(tmp_path_factory.mktemp("kafka"))
    yield kafka
    kafka.server.stop(READY_WITHIN_S)
    kafka.proxy.close()


@pytest.fixture
def kafka_cluster(kafka: ProxiedKafka) -> Iterator[KafkaCluster]:
    """A new namespace on the real broker."""
    cluster = KafkaCluster(kafka.direct)
    yield cluster
    cluster.close()


@pytest.fixture
def proxied_cluster(kafka: ProxiedKafka) -> Iterator[KafkaCluster]:
    """A new namespace on the real broker, reached through its proxy."""
    cluster = KafkaCluster(kafka.proxied, transaction_timeout_ms=10_000)
    yield cluster
    kafka.proxy.heal()
    cluster.close()


@pytest.fixture(params=["memory", pytest.param("kafka", marks=pytest.mark.integration)])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """The twins, and the real adapters."""
    if request.param == "kafka":
        yield request.getfixturevalue("kafka_cluster")
    else:
        yield MemoryCluster()


ALL_BUCKETS = tuple(Bucket(number) for number in range(BUCKETS))
