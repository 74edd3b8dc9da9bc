"""A Mars on a Kafka of three brokers: each record has three copies, and two must have it.

    mapper-1, mapper-2, reducer-1, reducer-2, api ──▶ broker-1, broker-2, broker-3
                                                      (each a controller as well)

The settings of the brokers are those that `docs/operate/kafka.md` asks for.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from mars.client.blocking import Client
from mars.core.settings import (
    ApiSettings,
    ClusterSettings,
    KafkaSettings,
    RedisSettings,
    ReducerSettings,
    Settings,
    ZooKeeperSettings,
    to_toml,
)
from mars.local.network import HOST, free_port
from mars.local.roles import ApiProcess, RoleProcess
from mars.local.servers import KafkaServer, ValkeyServer, ZooKeeperServer, new_kafka_id
from tests.conftest import READY_S, STOP_S
from tests.support.cluster import MarsCluster, wait_for

BROKERS = 3
IN_SYNC_MIN = 2
SILENT_MS = 4_000
"""After which others lead what a silent broker led; 9 s by default, which a test would wait for."""

PATIENCE_MS = 600_000
"""How long a broker asks to be let in before it ends by itself; a minute by default."""

ANSWER_S = 20
WORKERS = ("mapper-1", "mapper-2", "reducer-1", "reducer-2")


class ReplicatedCluster(MarsCluster):
    """Brokers, ZooKeeper, Valkey and our processes, each a child of the test."""

    copies = BROKERS

    def __init__(self, data: Path, *, buckets: int, reducer: ReducerSettings) -> None:
        (data / "logs").mkdir(parents=True)
        self.brokers = _brokers(data)
        self._zookeeper = ZooKeeperServer(data / "zookeeper", log=data / "logs" / "zookeeper.log")
        self._valkey = ValkeyServer(data / "redis", log=data / "logs" / "redis.log")
        bootstrap = ",".join(broker.bootstrap for broker in self.brokers)
        self.settings = Settings(
            kafka=KafkaSettings(bootstrap=bootstrap, replication_factor=BROKERS),
            redis=RedisSettings(url=self._valkey.url),
            zookeeper=ZooKeeperSettings(hosts=self._zookeeper.hosts),
            cluster=ClusterSettings(buckets=buckets),
            reducer=reducer,
            api=ApiSettings(port=free_port()),
        )
        config = data / "mars.toml"
        config.write_text(to_toml(self.settings), "utf-8")
        self._roles: list[RoleProcess] = [
            RoleProcess(name, name.partition("-")[0], config, data / "logs" / f"{name}.log")
            for name in WORKERS
        ]
        self._roles.append(ApiProcess(self.settings.api, config, data / "logs" / "api.log"))
        super().__init__(data)

    @property
    def api(self) -> str:
        """Where the API listens."""
        return f"http://{HOST}:{self.settings.api.port}"

    @property
    def file(self) -> dict[str, Any]:
        """What clients of a test need."""
        return {"kafka": self.settings.kafka.bootstrap}

    def up(self) -> None:
        """Start everything; what was started ends if one of them does not come up."""
        try:
            for group in ([*self.brokers, self._zookeeper, self._valkey], self._roles):
                for child in group:
                    child.start()
                for child in group:
                    child.wait_ready(READY_S)
            self.client = Client(self.api)
        except BaseException:
            self._stop()
            raise

    def down(self) -> None:
        """Stop everything."""
        self.client.close()
        self._stop()

    def _stop(self) -> None:
        for role in self._roles:
            role.stop(STOP_S)
        # A broker that is asked to end looks for others that take its partitions.
        for broker in self.brokers:
            broker.kill()
        for server in (self._zookeeper, self._valkey):
            server.stop(STOP_S)

    # ----------------------------------------------------------------------------- the brokers

    def number(self, broker: KafkaServer) -> int:
        """The id of a broker."""
        return self.brokers.index(broker) + 1

    def leaders(self, topic: str) -> dict[int, int]:
        """The broker that leads each partition, -1 for none, as one of the living says."""
        found = self._admin().list_topics(topic, ANSWER_S).topics[topic].partitions
        return {number: partition.leader for number, partition in found.items()}

    def wait_in_sync(self) -> None:
        """Wait until every partition has all its copies: another broker may go then."""
        admin = self._admin()

        def all_there() -> bool:
            try:
                topics = admin.list_topics(timeout=ANSWER_S).topics.values()
            except KafkaException:
                return False
            partitions = [one for topic in topics for one in topic.partitions.values()]
            return all(len(one.isrs) == BROKERS and one.leader > 0 for one in partitions)

        wait_for("all copies of all partitions", all_there)

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.settings.kafka.bootstrap})


def _brokers(data: Path) -> list[KafkaServer]:
    ports = {number: (free_port(), free_port()) for number in range(1, BROKERS + 1)}
    voters = [f"{number}@{HOST}:{controller}" for number, (_, controller) in ports.items()]
    cluster = new_kafka_id()
    return [
        KafkaServer(
            data / f"kafka-{number}",
            port,
            log=data / "logs" / f"kafka-{number}.log",
            cluster=cluster,
            properties={
                "node.id": str(number),
                "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller}",
                "controller.quorum.voters": ",".join(voters),
                "broker.session.timeout.ms": str(SILENT_MS),
                "broker.heartbeat.interval.ms": str(SILENT_MS // 4),
                # Where all wait for a processor, a leader of the controllers is silent for longer
                # than the default of 2 s, and none led for long enough to let a broker in.
                "controller.quorum.fetch.timeout.ms": str(SILENT_MS),
                "controller.quorum.election.timeout.ms": str(SILENT_MS // 2),
                "initial.broker.registration.timeout.ms": str(PATIENCE_MS),
                "min.insync.replicas": str(IN_SYNC_MIN),
                "offsets.topic.replication.factor": str(BROKERS),
                "transaction.state.log.replication.factor": str(BROKERS),
                "transaction.state.log.min.isr": str(IN_SYNC_MIN),
            },
        )
        for number, (port, controller) in ports.items()
    ]
