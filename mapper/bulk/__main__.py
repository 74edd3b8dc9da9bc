"""Wires a bulk process together and runs it: `python -m mapper.bulk --config FILE`."""

from __future__ import annotations

import threading
import time

from mapper.bulk.answering import QueryAnswerer
from mapper.bulk.loop import ROLE, BulkLoop
from mapper.bulk.queries import QueryWork
from mapper.bulk.query_run import QueryDesk
from mars.adapters.kafka import KafkaQueryRows, KafkaTopicAdmin
from mars.adapters.redis import RedisPartialLog
from mars.adapters.spark.engine import SparkEngine
from mars.adapters.zookeeper import ZooKeeperQueryRegistry
from mars.core.settings import Settings
from mars.process.command import settings_from_command_line
from mars.process.serving import Process, serve
from mars.process.tasks import TaskSource
from mars.process.telemetry import logs
from mars.protocol.backfill.machine import BackfillLimits, BackfillMachine


def run(settings: Settings) -> int:
    """Run a bulk process until it is asked to stop. Returns the exit code."""
    return serve(settings, ROLE, _work)


def _work(process: Process) -> None:
    settings, member, buckets = process.settings, process.member, process.buckets
    life, services, coordinator = process.life, process.services, process.coordinator
    registry, reporter = process.registry(), process.join()
    admin, engine = KafkaTopicAdmin(settings), SparkEngine(settings)
    services.insist(life, "kafka", lambda: admin.ensure_internal(buckets))
    log = RedisPartialLog.open(settings, buckets)
    limits = settings.bulk
    loop = BulkLoop(
        member,
        BackfillMachine(
            BackfillLimits(
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
        tracking=process.tracking(),
    )
    queries = QueryWork(
        member,
        QueryDesk(
            QueryAnswerer(engine, admin, buckets, settings.namespace),
            ZooKeeperQueryRegistry(process.connection, settings.namespace),
            KafkaQueryRows(settings, admin),
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
