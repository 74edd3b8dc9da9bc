"""The main thread of the mapper on Spark, on the twins; and how it is asked for."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping

import pytest
from click.testing import CliRunner

from mapper.on_spark import __main__ as on_spark
from mapper.on_spark.__main__ import SparkMapperLoop
from mars.adapters.memory.admin import MemoryTopicAdmin
from mars.adapters.memory.broker import MemoryBroker
from mars.adapters.memory.coordinator import MemoryCoordinator, MemoryEnsemble
from mars.cli.running.roles import mapper
from mars.core.errors import JobFailed, Unavailable
from mars.core.settings import Settings
from mars.core.types import MemberId, TaskName, live_lane
from mars.process.telemetry.member import Reporter
from mars.protocol.runnable import RunnableTask
from tests.unit.machines.mapping_world import TOPIC, make_task
from tests.unit.on_spark.spark_world import SparkWorld

MEMBER = MemberId("mapper-1")


class Tasks:
    """Stands for `TaskSource`: tells of its tasks once."""

    def __init__(self, tasks: Mapping[TaskName, RunnableTask]) -> None:
        self._tasks: Mapping[TaskName, RunnableTask] | None = tasks

    def poll(self) -> Mapping[TaskName, RunnableTask] | None:
        tasks, self._tasks = self._tasks, None
        return tasks


class Process:
    """A loop in a world with one task and one empty partition."""

    def __init__(self) -> None:
        self.world = SparkWorld({0: []})
        self.world.add(make_task("a"))
        broker = MemoryBroker(lambda: self.world.now_ms)
        broker.create_topic(TOPIC, 1)
        self.admin = MemoryTopicAdmin(broker)
        self.ensemble = MemoryEnsemble()
        coordinator = MemoryCoordinator(self.ensemble, MEMBER)
        reporter = Reporter(MEMBER, "mapper")
        coordinator.join(reporter.report(0, ()))
        self.loop = SparkMapperLoop(
            self.world.watch,
            log=self.world.store,
            admin=self.admin,
            coordinator=coordinator,
            tasks=Tasks(self.world.tasks),  # type: ignore[arg-type]
            reporter=reporter,
            services=self.world.services,
        )

    def idle(self) -> set[str]:
        head = self.world.store.head([TaskName("a")])[TaskName("a")]
        assert head is not None
        return set(head.idle)

    def after(self, elapsed_ms: int) -> None:
        self.world.now_ms = self.world.world.now_ms = self.world.now_ms + elapsed_ms
        self.loop.round()


def test_a_silent_lane_has_a_lease_for_as_long_as_the_process_looks() -> None:
    process = Process()
    process.after(0)
    assert process.idle() == set()
    for _look in range(10):
        process.after(1_000)
    assert process.idle() == {live_lane(0)}

    process.world.now_ms = process.world.world.now_ms = process.world.now_ms + 3_001
    assert process.idle() == set()


def test_no_lease_is_renewed_while_the_broker_does_not_confirm_the_end() -> None:
    process = Process()
    process.after(0)
    process.admin.fail_next("ends")
    process.after(10_000)
    assert process.idle() == set()
    process.after(0)
    assert process.idle() == {live_lane(0)}


def test_the_member_tells_of_its_partitions_and_of_what_is_missing() -> None:
    process = Process()
    process.loop.noticed(Unavailable("spark", "no Java"))
    process.after(0)
    told = process.ensemble.registered[MEMBER]
    assert (told.role, told.missing) == ("mapper", ("spark",))
    assert [(one.topic, one.partition, one.state) for one in told.partitions] == [
        (TOPIC, 0, "starting")
    ]

    process.loop.noticed(None)
    process.after(0)
    told = process.ensemble.registered[MEMBER]
    assert told.missing == ()
    assert [one.state for one in told.partitions] == ["reading"]


def test_whatever_ends_a_query_is_told_as_spark_missing() -> None:
    process = Process()
    process.loop.noticed(JobFailed("a worker died"))
    assert process.world.services.missing == ("spark",)


def test_the_command_line_runs_the_engine_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ran: list[str] = []

    def run(settings: Settings) -> int:
        ran.append(settings.namespace)
        return 0

    monkeypatch.setattr(on_spark, "run", run)
    assert CliRunner().invoke(mapper, ["--engine", "spark"]).exit_code == 0
    assert ran == ["default"]


def test_an_engine_that_does_not_exist_is_refused_by_name() -> None:
    asked = [sys.executable, "-m", "mapper", "--engine", "flink"]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "invalid choice: 'flink'" in done.stderr
