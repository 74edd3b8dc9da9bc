"""Wires a bulk process together and runs it: `python -m mapper.bulk --config FILE`."""

from __future__ import annotations

import threading
import time

from mapper.bulk.answering import Answering
from mapper.bulk.loop import ROLE, BulkLoop
from mapper.bulk.queries import QueryWork
from mapper.bulk.query_run import QueryDesk
from mars.adapters.kafka import KafkaQueryRows, KafkaTopicAdmin
from mars.adapters.redis import RedisPartialLog
from mars.adapters.spark.engine import SparkEngine
from mars.adapters.zookeeper import (
    ZooKeeperConnection,
    ZooKeeperCoordinator,
    ZooKeeperQueryRegistry,
    ZooKeeperRegistry,
)
from mars.machines.backfilling import Backfilling, Limits
from mars.process import logs
from mars.process.command import settings_from_command_line
from mars.process.life import Life, Services
from mars.process.member import Reporter, member_id
from mars.process.tasks import TaskSource
from mars.settings import Settings


def run(settings: Settings) -> int:
    """Run a bulk process until it is asked to stop. Returns the exit code."""
    logs.configure(settings.logging)
    life, services = Life(), Services(ROLE)
    life.stop_on_signals()
    connection = ZooKeeperConnection.open(settings.zookeeper)
    try:
        coordinator = ZooKeeperCoordinator(
            connection, settings.namespace, member_id(settings, ROLE)
        )
        buckets = services.insist(
            life, "zookeeper", lambda: coordinator.buckets(settings.cluster.buckets)
        )
        if buckets is not None:
            _serve(settings, life, services, connection, coordinator, buckets)
    finally:
        connection.close()
    return 0


def _serve(
    settings: Settings,
    life: Life,
    services: Services,
    connection: ZooKeeperConnection,
    coordinator: ZooKeeperCoordinator,
    buckets: int,
) -> None:
    member = member_id(settings, ROLE)
    registry = ZooKeeperRegistry(connection, settings.namespace)
    reporter = Reporter(member, ROLE)
    services.insist(
        life, "zookeeper", lambda: coordinator.join(reporter.report(0, services.missing))
    )
    admin, engine = KafkaTopicAdmin(settings), SparkEngine(settings)
    services.insist(life, "kafka", lambda: admin.ensure_internal(buckets))
    log = RedisPartialLog.open(settings, buckets)
    limits = settings.bulk
    loop = BulkLoop(
        member,
        Backfilling(
            Limits(
                buckets=buckets,
                chunk_rows=limits.chunk_rows,
                ahead=limits.chunks_ahead,
                catch_up_rows_min=limits.catch_up_rows_min,
            )
        ),
        engine=engine,
        log=log,
        registry=registry,
        coordinator=coordinator,
        admin=admin,
        tasks=TaskSource(registry, settings.namespace),
        reporter=reporter,
        services=services,
        jobs=limits.chunks_ahead,
    )
    queries = QueryWork(
        member,
        QueryDesk(
            Answering(engine, admin, buckets, settings.namespace),
            ZooKeeperQueryRegistry(connection, settings.namespace),
            KafkaQueryRows(settings),
            services,
            lambda: int(time.time() * 1000),
        ),
        alive=lambda: coordinator.members(ROLE),
        working=lambda: loop.working,
    )
    asking = threading.Thread(target=queries.run, args=(life,), name="queries")
    asking.start()
    logs.info(logs.logger(ROLE), "bulk process runs", member=member, buckets=buckets)
    try:
        loop.run(life)
    finally:
        life.stop()
        engine.close()
        asking.join()
        coordinator.close()
        log.close()


if __name__ == "__main__":
    raise SystemExit(run(settings_from_command_line(ROLE)))
