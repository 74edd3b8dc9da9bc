"""Wires the mapper on Spark together and runs it: `python -m mapper --engine spark`."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress

from mapper.on_spark.planning import MakeRangePlanner, look_at
from mapper.on_spark.taking import Taking, again_by
from mapper.on_spark.watching import Watch
from mars.adapters.kafka import KafkaTopicAdmin
from mars.adapters.redis import RedisPartialLog
from mars.adapters.spark.lane_work import LaneWork
from mars.adapters.spark.rounds import Rounds
from mars.core.errors import MarsError, Unavailable
from mars.core.settings import Settings
from mars.core.types import Lane, Range, TaskName, Topic
from mars.process.command import settings_from_command_line
from mars.process.life import Life, ServiceHealth
from mars.process.outliving import Outliving
from mars.process.serving import Process, serve
from mars.process.tasks import TaskSource
from mars.process.telemetry import logs
from mars.process.telemetry.member import REPORT_INTERVAL_S, Reporter
from mars.protocol.ports import Coordinator, MapperLog, TopicAdmin
from mars.protocol.runnable import RunnableTask

ROLE = "mapper"

LOOK_INTERVAL_S = REPORT_INTERVAL_S
"""Between two looks at heads and ends. Idle leases last 3 s, so one that is renewed each time
outlives a look that fails."""

STOP_S = 60.0
"""How long the rounds may take to end; then the process ends without them, which harms nothing."""


class SparkMapperLoop:
    """The main thread: tasks, idle leases, the member's report. The rounds run beside it."""

    def __init__(
        self,
        watch: Watch,
        *,
        log: MapperLog,
        admin: TopicAdmin,
        coordinator: Coordinator,
        tasks: TaskSource,
        reporter: Reporter,
        services: ServiceHealth,
    ) -> None:
        self._watch = watch
        self._partial_log = log
        self._admin = admin
        self._coordinator = coordinator
        self._source = tasks
        self._reporter = reporter
        self._services = services
        self._tasks: Mapping[TaskName, RunnableTask] = {}

    @property
    def tasks(self) -> Mapping[TaskName, RunnableTask]:
        """The tasks as last seen."""
        return self._tasks

    def run(self, life: Life) -> None:
        """Go round until asked to stop."""
        while not life.wait(LOOK_INTERVAL_S):
            self.round()

    def round(self) -> None:
        """One turn."""
        tasks = self._services.attempt("zookeeper", self._source.poll)
        if tasks is not None:
            self._tasks = tasks
        look = look_at(self._services, self._tasks, self._partial_log, self._admin)
        if look is not None:
            leases = self._watch.looked(look)
            self._services.attempt("redis", lambda: self._partial_log.renew_idle(leases))
        self._report()

    def _report(self) -> None:
        info = self._reporter.report(
            self._watch.rows, self._services.missing, partitions=self._watch.readings()
        )
        with suppress(Unavailable):  # best effort; the next one comes in a second
            self._coordinator.report(info)

    def noticed(self, problem: MarsError | None) -> None:
        """A query runs on Spark now, or has failed."""
        self._watch.runs(running=problem is None)
        if problem is None:
            self._services.found("spark")
            return
        lost = problem if isinstance(problem, Unavailable) else Unavailable("spark", str(problem))
        self._services.lost(lost)


def run(settings: Settings) -> int:
    """Run the mapper on Spark until it is asked to stop. Returns the exit code."""
    return serve(settings, ROLE, _work)


def _work(process: Process) -> None:
    settings, member, buckets = process.settings, process.member, process.buckets
    life, services, coordinator = process.life, process.services, process.coordinator
    services.lost(Unavailable("spark", "its session is being opened, that takes some seconds"))
    registry, reporter = process.registry(), process.join()
    log, watch = RedisPartialLog.open(settings, buckets), Watch()
    loop = SparkMapperLoop(
        watch,
        log=log,
        admin=KafkaTopicAdmin(settings),
        coordinator=coordinator,
        tasks=TaskSource(registry, settings.namespace),
        reporter=reporter,
        services=services,
    )
    again = again_by(_work_here(settings, buckets))
    taking = Taking(log, registry, services, watch, lambda: loop.tasks, again, process.tracking())
    rounds = Rounds(settings, MakeRangePlanner(settings, buckets), taking.take, loop.noticed)
    # Spark takes SIGINT to itself in the main thread, and a call of it may take long.
    beside = threading.Thread(target=_go_on, args=(rounds, life), name="rounds", daemon=True)
    beside.start()
    logs.info(logs.logger(ROLE), "mapper on Spark runs", member=member, buckets=buckets)
    try:
        loop.run(life)
    finally:
        life.stop()
        beside.join(STOP_S)
        coordinator.close()
        log.close()


def _go_on(rounds: Rounds, life: Life) -> None:
    outliving = Outliving("the query on Spark", life.wait)
    while not life.stopping:
        outliving.round(lambda: rounds.run(life))


def _work_here(settings: Settings, buckets: int) -> LaneWork:
    """How this process maps what the store wants cut; topic and rows are filled in each time."""
    kafka = Settings(namespace=settings.namespace, kafka=settings.kafka)
    nothing = Range(Lane("0"), 0, 0)
    return LaneWork(kafka, Topic(""), nothing, buckets, settings.mapper.batch_bytes_max, ())


if __name__ == "__main__":
    raise SystemExit(run(settings_from_command_line(ROLE)))
