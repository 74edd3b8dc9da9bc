"""The beginning and the end that all processes with a role share."""

from __future__ import annotations

import faulthandler
import threading
from collections.abc import Callable
from dataclasses import dataclass

from mars.adapters.redis import RedisNoteBox
from mars.adapters.zookeeper import ZooKeeperConnection, ZooKeeperCoordinator, ZooKeeperRegistry
from mars.core.settings import Settings
from mars.core.types import MemberId
from mars.process import cut_off
from mars.process.life import Life, ServiceHealth
from mars.process.telemetry import logs
from mars.process.telemetry.member import Reporter, member_id
from mars.process.telemetry.metrics import Exposition, ProcessMetrics
from mars.process.tracking import Outbox


@dataclass(frozen=True, slots=True)
class Process:
    """What a process of a namespace with B `buckets` begins with."""

    settings: Settings
    role: str
    life: Life
    services: ServiceHealth
    connection: ZooKeeperConnection
    coordinator: ZooKeeperCoordinator
    member: MemberId
    buckets: int
    metrics: ProcessMetrics

    def registry(self) -> ZooKeeperRegistry:
        """Streams and tasks."""
        return ZooKeeperRegistry(self.connection, self.settings.namespace)

    def start_over_when_cut_off(self, asks: cut_off.Asks) -> None:
        """From now on, see `mars.process.cut_off`; `asks` has the servers that count."""
        cut_off.watch(self.member, self.role, self.coordinator, self.services, self.life, asks)

    def tracking(self) -> Outbox | None:
        """Where notes for the tuple tracker go, with a thread that posts them; None: it is off."""
        if not self.settings.tracker.enabled:
            return None
        outbox = Outbox(RedisNoteBox.open(self.settings), self.coordinator)
        threading.Thread(target=outbox.run, args=(self.life,), name="tracker", daemon=True).start()
        return outbox

    def join(self) -> Reporter:
        """Become a member, once ZooKeeper answers; what is reported from then on.

        Call it when all servers have answered: a member has a part of the work.
        """
        reporter = Reporter(self.member, self.role, self.metrics.reported)
        self.services.insist(
            self.life,
            "zookeeper",
            lambda: self.coordinator.join(reporter.report(0, self.services.missing)),
        )
        return reporter


def serve(settings: Settings, role: str, work: Callable[[Process], None]) -> int:
    """Do the work of a role until asked to stop. Returns the exit code.

    A crash of a library written in C leaves the Python calls of all threads in the log.
    """
    faulthandler.enable()
    logs.configure(settings.logging)
    life, services = Life(), ServiceHealth(role)
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
    if life.to_start_over:
        cut_off.start_over()
    return 0
