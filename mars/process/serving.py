"""The beginning and the end that all processes with a role share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mars.adapters.zookeeper import ZooKeeperConnection, ZooKeeperCoordinator, ZooKeeperRegistry
from mars.process import logs
from mars.process.life import Life, Services
from mars.process.member import Reporter, member_id
from mars.process.metrics import Exposition, ProcessMetrics
from mars.settings import Settings
from mars.types import MemberId


@dataclass(frozen=True, slots=True)
class Process:
    """What a process of a namespace with B `buckets` begins with."""

    settings: Settings
    role: str
    life: Life
    services: Services
    connection: ZooKeeperConnection
    coordinator: ZooKeeperCoordinator
    member: MemberId
    buckets: int
    metrics: ProcessMetrics

    def registry(self) -> ZooKeeperRegistry:
        """Streams and tasks."""
        return ZooKeeperRegistry(self.connection, self.settings.namespace)

    def join(self) -> Reporter:
        """Become a member, once ZooKeeper answers; what is reported from then on."""
        reporter = Reporter(self.member, self.role, self.metrics.reported)
        self.services.insist(
            self.life,
            "zookeeper",
            lambda: self.coordinator.join(reporter.report(0, self.services.missing)),
        )
        return reporter


def serve(settings: Settings, role: str, work: Callable[[Process], None]) -> int:
    """Do the work of a role until asked to stop. Returns the exit code."""
    logs.configure(settings.logging)
    life, services = Life(), Services(role)
    life.stop_on_signals()
    member = member_id(settings, role)
    metrics = ProcessMetrics(member, role, services)
    exposition = Exposition(settings.metrics, metrics)
    connection = ZooKeeperConnection.open(settings.zookeeper)
    try:
        coordinator = ZooKeeperCoordinator(connection, settings.namespace, member)
        buckets = services.insist(
            life, "zookeeper", lambda: coordinator.buckets(settings.cluster.buckets)
        )
        if buckets is not None:
            work(
                Process(
                    settings=settings,
                    role=role,
                    life=life,
                    services=services,
                    connection=connection,
                    coordinator=coordinator,
                    member=member,
                    buckets=buckets,
                    metrics=metrics,
                )
            )
    finally:
        connection.close()
        exposition.close()
    return 0
