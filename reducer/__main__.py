"""Wires a reducer process together and runs it: `python -m reducer --config FILE`."""

from __future__ import annotations

import threading

from mars.adapters.kafka import KafkaControlLog, KafkaProgressLog, KafkaSink, KafkaTopicAdmin
from mars.adapters.redis import RedisPartialLog
from mars.machines.owning import OwningLimits
from mars.machines.reducing import Reducing
from mars.process import logs
from mars.process.command import settings_from_command_line
from mars.process.member import Reporter
from mars.process.memory import settle_garbage_collection
from mars.process.serving import Process, serve
from mars.process.tasks import TaskSource
from mars.settings import Settings
from mars.types import Topic
from reducer.leader import LeaderLoop
from reducer.loop import ReducerLoop

COMMIT_THREADS_MAX = 8
"""Buckets that claim, audit or commit at the same time: they mostly wait for Kafka."""


def run(settings: Settings) -> int:
    """Run a reducer until it is asked to stop. Returns the exit code."""
    return serve(settings, "reducer", lambda process: _Reducer(process).serve())


class _Reducer:
    """The parts of one reducer process."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._settings = process.settings
        self._services = process.services
        self._coordinator = process.coordinator
        self._buckets = process.buckets
        self._member = process.member
        self._admin = KafkaTopicAdmin(process.settings)
        self._registry = process.registry()

    def serve(self) -> None:
        life = self._process.life
        self._services.insist(life, "kafka", lambda: self._admin.ensure_internal(self._buckets))
        if life.stopping:
            return
        reporter = self._process.join()
        log = RedisPartialLog.open(self._settings, self._buckets)
        leader = threading.Thread(target=self._leader(log).run, args=(life,), name="leader")
        leader.start()
        settle_garbage_collection()
        logs.info(
            logs.logger("reducer"), "reducer runs", member=self._member, buckets=self._buckets
        )
        try:
            self._loop(log, reporter).run(life)
        finally:
            life.stop()
            leader.join()
            self._coordinator.close()
            log.close()

    def _leader(self, log: RedisPartialLog) -> LeaderLoop:
        return LeaderLoop(
            self._buckets,
            log=log,
            progress=KafkaProgressLog(self._settings),
            control=KafkaControlLog(self._settings),
            registry=self._registry,
            coordinator=self._coordinator,
            admin=self._admin,
            namespace=self._settings.namespace,
            services=self._services,
        )

    def _loop(self, log: RedisPartialLog, reporter: Reporter) -> ReducerLoop:
        limits = self._settings.reducer
        machine = Reducing(
            self._member,
            OwningLimits(
                progress_interval_ms=limits.progress_interval_ms,
                large_task_rows=limits.large_task_rows,
                log_bytes_max=self._settings.cluster.log_bytes_max,
                buckets=self._buckets,
                snapshot_every_ms=limits.snapshot_every_ms,
            ),
        )
        turn = threading.Lock()
        return ReducerLoop(
            self._member,
            machine,
            log=log,
            sink=KafkaSink(self._settings, self._member, turn),
            registry=self._registry,
            coordinator=self._coordinator,
            tasks=TaskSource(self._registry, self._settings.namespace, self._output_partitions),
            reporter=reporter,
            services=self._services,
            poll_s=limits.poll_ms / 1000,
            threads=min(COMMIT_THREADS_MAX, self._buckets),
            turn=turn,
        )

    def _output_partitions(self, topic: str) -> int:
        """How many partitions an output topic has; one that was deleted is made again."""
        wanted = self._settings.kafka.results_partitions or self._buckets
        return self._admin.ensure_output(Topic(topic), wanted).partitions


if __name__ == "__main__":
    raise SystemExit(run(settings_from_command_line("reducer")))
