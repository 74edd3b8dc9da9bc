"""The engine on a real standalone cluster: one master, two workers, one of which is killed."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from mars.adapters.spark.engine import SparkEngine
from mars.core.errors import Unavailable
from mars.core.settings import BulkSettings, KafkaSettings, Settings
from mars.core.types import Mapped, RowCounts
from mars.local.servers import KafkaServer
from mars.protocol.ports import MapJob
from tests.conftest import missing_java, need
from tests.contracts.bulk_jobs import counts_of, expected, flows, groups_of, map_job, whole
from tests.contracts.kafka_servers import KafkaCluster
from tests.contracts.waiting import eventually
from tests.support.spark import SparkShelf
from tests.support.spark_cluster import SparkWorker, on_cluster, spark_cluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

ROWS = 24_000
PARTITIONS = 2
JOB_WITHIN_S = 240.0


@dataclass(frozen=True, slots=True)
class OnCluster:
    """An engine on the cluster, and a full topic."""

    engine: SparkEngine
    workers: list[SparkWorker]
    topic: str
    topic_id: str

    def job(self) -> MapJob:
        return map_job(self.topic, self.topic_id, *whole([ROWS // PARTITIONS] * PARTITIONS))

    def executors(self) -> int:
        context = self.engine._session.sparkContext  # type: ignore[union-attr]
        return int(context._jsc.sc().getExecutorMemoryStatus().size()) - 1

    def under_way(self) -> bool:
        """Whether some tasks of a stage are done and others still run."""
        tracker = self.engine._session.sparkContext.statusTracker()  # type: ignore[union-attr]
        stages = [tracker.getStageInfo(one) for one in tracker.getActiveStageIds()]
        return any(one and one.numCompletedTasks > 2 and one.numActiveTasks for one in stages)


def filled(bootstrap: str) -> tuple[str, str]:
    """A topic with ROWS rows, and its id."""
    cluster = KafkaCluster(bootstrap)
    topic = cluster.topic(PARTITIONS)
    for partition in range(PARTITIONS):
        cluster.append(topic, partition, flows(ROWS)[partition::PARTITIONS])
    found = cluster.admin().describe(topic)
    assert found is not None
    cluster.close()
    return topic, found.topic_id


@pytest.fixture
def on_spark(
    kafka_server: KafkaServer, spark_shelf: SparkShelf, tmp_path: Path
) -> Iterator[OnCluster]:
    need(missing_java())
    with spark_cluster(tmp_path) as (master, workers):
        settings = Settings(kafka=KafkaSettings(kafka_server.bootstrap), bulk=on_cluster(master))
        engine = spark_shelf.engine(settings)
        try:
            yield OnCluster(engine, workers, *filled(kafka_server.bootstrap))
        finally:
            spark_shelf.close()


def test_a_killed_worker_and_speculation_change_nothing(on_spark: OnCluster) -> None:
    job = on_spark.job()
    calm = on_spark.engine.map(job)
    assert groups_of(job, calm) == expected(range(ROWS))
    assert counts_of(calm) == RowCounts(counted=ROWS)
    eventually(lambda: on_spark.executors() == 2, JOB_WITHIN_S)
    assert _code_of_executors(on_spark.engine).endswith("/mars/engine/kernel.py")
    assert ".zip/" in _code_of_executors(on_spark.engine)

    results: list[Mapped] = []
    thread = threading.Thread(target=lambda: results.append(on_spark.engine.map(on_spark.job())))
    thread.start()
    eventually(on_spark.under_way, JOB_WITHIN_S)
    on_spark.workers[1].kill_all()
    thread.join(JOB_WITHIN_S)
    assert results == [calm]
    assert on_spark.engine.map(on_spark.job()) == calm


def _code_of_executors(engine: SparkEngine) -> str:
    context = engine._session.sparkContext  # type: ignore[union-attr]
    found = context.parallelize([0], 1).map(
        lambda _: __import__("mars.engine.kernel").engine.kernel.__file__
    )
    return str(found.collect()[0])


def test_a_lost_driver_is_replaced(kafka_server: KafkaServer, spark_shelf: SparkShelf) -> None:
    settings = Settings(kafka=KafkaSettings(kafka_server.bootstrap), bulk=BulkSettings())
    engine = spark_shelf.engine(settings)
    topic, topic_id = filled(kafka_server.bootstrap)
    job = map_job(topic, topic_id, *whole([ROWS // PARTITIONS] * PARTITIONS))
    before = engine.map(job)
    gateway = engine._session.sparkContext._gateway  # type: ignore[union-attr]
    assert gateway is not None
    os.kill(gateway.proc.pid, signal.SIGKILL)
    gateway.proc.wait()
    with pytest.raises(Unavailable):
        engine.map(job)
    assert engine.map(job) == before
