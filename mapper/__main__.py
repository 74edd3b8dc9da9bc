"""Wires a mapper process together and runs it: `python -m mapper --config FILE`."""

from __future__ import annotations

from mapper.loop import MapperLoop
from mars.adapters.kafka import KafkaReader, KafkaTopicAdmin
from mars.adapters.redis import RedisPartialLog
from mars.core.garbage import settle_garbage_collection
from mars.core.settings import Settings
from mars.process.command import parser_of, settings_of
from mars.process.serving import Process, serve
from mars.process.tasks import TaskSource
from mars.process.telemetry import logs
from mars.protocol.mapper.events import CATCH_UP, LIVE
from mars.protocol.mapper.machine import MapperMachine


def run(settings: Settings) -> int:
    """Run a mapper until it is asked to stop. Returns the exit code."""
    return serve(settings, "mapper", _map)


def _map(process: Process) -> None:
    settings, member, services = process.settings, process.member, process.services
    log = RedisPartialLog.open(settings, process.buckets)
    # Whoever cannot reach it must not be given partitions, which would stand still.
    services.insist(process.life, "redis", log.identity)
    registry, reporter = process.registry(), process.join()
    # Of one that does not reach Kafka the group takes the partitions by itself.
    process.start_over_when_cut_off({"redis": log.identity})
    limits, admin = settings.mapper, KafkaTopicAdmin(settings)
    machine = MapperMachine(
        process.buckets,
        rows_max=limits.batch_rows_max,
        bytes_max=limits.batch_bytes_max,
        linger_ms=limits.linger_ms_max,
        rest_ms=limits.rest_ms_max,
    )
    loop = MapperLoop(
        machine,
        readers={
            LIVE: KafkaReader.in_group(settings, member, admin),
            CATCH_UP: KafkaReader.alone(settings, member, admin),
        },
        log=log,
        registry=registry,
        coordinator=process.coordinator,
        tasks=TaskSource(registry, settings.namespace),
        reporter=reporter,
        services=services,
        poll_s=limits.poll_ms / 1000,
        records_max=limits.batch_rows_max,
        tracking=process.tracking(),
        capacity=limits.capacity,
    )
    settle_garbage_collection()
    logs.info(logs.logger("mapper"), "mapper runs", member=member, buckets=process.buckets)
    try:
        loop.run(process.life)
    finally:
        process.coordinator.close()
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
