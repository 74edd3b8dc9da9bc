"""Wires a mapper process together and runs it: `python -m mapper --config FILE`."""

from __future__ import annotations

from mapper.loop import MapperLoop
from mars.adapters.kafka import KafkaReader
from mars.adapters.redis import RedisPartialLog
from mars.adapters.zookeeper import ZooKeeperConnection, ZooKeeperCoordinator, ZooKeeperRegistry
from mars.machines.mapping import Mapping
from mars.machines.mapping_events import CATCH_UP, LIVE
from mars.process import logs
from mars.process.command import parser_of, settings_of
from mars.process.life import Life, Services
from mars.process.member import Reporter, member_id
from mars.process.memory import settle_garbage_collection
from mars.process.tasks import TaskSource
from mars.settings import Settings


def run(settings: Settings) -> int:
    """Run a mapper until it is asked to stop. Returns the exit code."""
    logs.configure(settings.logging)
    life, services = Life(), Services("mapper")
    life.stop_on_signals()
    connection = ZooKeeperConnection.open(settings.zookeeper)
    try:
        member = member_id(settings, "mapper")
        coordinator = ZooKeeperCoordinator(connection, settings.namespace, member)
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
    member = member_id(settings, "mapper")
    registry = ZooKeeperRegistry(connection, settings.namespace)
    reporter = Reporter(member, "mapper")
    services.insist(
        life, "zookeeper", lambda: coordinator.join(reporter.report(0, services.missing))
    )
    limits = settings.mapper
    machine = Mapping(
        buckets,
        rows_max=limits.batch_rows_max,
        bytes_max=limits.batch_bytes_max,
        linger_ms=limits.linger_ms_max,
        rest_ms=limits.rest_ms_max,
    )
    log = RedisPartialLog.open(settings, buckets)
    loop = MapperLoop(
        machine,
        readers={
            LIVE: KafkaReader.in_group(settings, member),
            CATCH_UP: KafkaReader.alone(settings, member),
        },
        log=log,
        registry=registry,
        coordinator=coordinator,
        tasks=TaskSource(registry, settings.namespace),
        reporter=reporter,
        services=services,
        poll_s=limits.poll_ms / 1000,
    )
    settle_garbage_collection()
    logs.info(logs.logger("mapper"), "mapper runs", member=member, buckets=buckets)
    try:
        loop.run(life)
    finally:
        coordinator.close()
        log.close()


def main() -> int:
    """The process that the arguments ask for. Returns the exit code."""
    parser = parser_of("mapper")
    parser.add_argument(
        "--engine",
        choices=("python", "spark"),
        default="python",
        help="spark: as a Structured Streaming query on the cluster of [bulk]",
    )
    arguments = parser.parse_args()
    if arguments.engine == "spark":
        # Takes a second to load, and 50 MB that mappers do without.
        from mapper.on_spark.__main__ import run as run_on_spark  # noqa: PLC0415

        return run_on_spark(settings_of(arguments))
    return run(settings_of(arguments))


if __name__ == "__main__":
    raise SystemExit(main())
