"""The servers behind an API process, as the ports that its services work on."""

from __future__ import annotations

import time
from dataclasses import dataclass

from api.services.context import ClusterContext, Ports
from mars.adapters.kafka import (
    KafkaControlLog,
    KafkaIncidentLog,
    KafkaProgressLog,
    KafkaQueryRows,
    KafkaReader,
    KafkaTopicAdmin,
)
from mars.adapters.kafka.read.results import KafkaDeadLetters, KafkaResultTail
from mars.adapters.redis import RedisPartialLog
from mars.adapters.source_rows import RowsAgain
from mars.adapters.zookeeper import (
    ZooKeeperConnection,
    ZooKeeperCoordinator,
    ZooKeeperKeyRegistry,
    ZooKeeperQueryRegistry,
    ZooKeeperRegistry,
)
from mars.core.settings import Settings
from mars.core.types import MemberId
from mars.protocol.ports import ListHistory


@dataclass(frozen=True, slots=True)
class Servers:
    """Clients of all servers; nothing is asked of any of them yet."""

    settings: Settings
    member: MemberId
    connection: ZooKeeperConnection
    coordinator: ZooKeeperCoordinator
    registry: ZooKeeperRegistry
    admin: KafkaTopicAdmin
    log: RedisPartialLog

    @staticmethod
    def open(settings: Settings, connection: ZooKeeperConnection, member: MemberId) -> Servers:
        """Clients for a process; `close` them, and then the connection."""
        return Servers(
            settings=settings,
            member=member,
            connection=connection,
            coordinator=ZooKeeperCoordinator(connection, settings.namespace, member),
            registry=ZooKeeperRegistry(connection, settings.namespace),
            admin=KafkaTopicAdmin(settings),
            # The number of buckets matters for writing only, and the API does not write there.
            log=RedisPartialLog.open(settings, settings.cluster.buckets),
        )

    def ports(self, list_history: ListHistory) -> Ports:
        """What services work on."""
        settings = self.settings
        progress = KafkaProgressLog(settings, self.admin)
        return Ports(
            registry=self.registry,
            coordinator=self.coordinator,
            control=KafkaControlLog(settings, self.admin),
            admin=self.admin,
            log=self.log,
            progress=progress,
            saved=progress,
            dead=KafkaDeadLetters(settings),
            results=KafkaResultTail(settings),
            source_rows=RowsAgain(settings),
            incidents=KafkaIncidentLog(settings, self.admin),
            queries=ZooKeeperQueryRegistry(self.connection, settings.namespace),
            answers=KafkaQueryRows(settings, self.admin),
            keys=ZooKeeperKeyRegistry(self.connection, settings.namespace),
            list_history=list_history,
            open_reader=lambda: KafkaReader.alone(settings, self.member, self.admin),
            now_ms=lambda: time.time_ns() // 1_000_000,
            sleep=time.sleep,
        )

    def close(self) -> None:
        """Leave, and free what is held."""
        self.coordinator.close()
        self.log.close()


def cluster_of(settings: Settings) -> ClusterContext:
    """What the settings fix for the namespace."""
    return ClusterContext(
        namespace=settings.namespace,
        buckets_wanted=settings.cluster.buckets,
        results_partitions=settings.kafka.results_partitions,
        history_rows_min=settings.bulk.history_rows_min,
        chunk_rows=settings.bulk.chunk_rows,
        tasks_max=settings.api.tasks_max,
        log_bytes_max=settings.cluster.log_bytes_max,
    )
