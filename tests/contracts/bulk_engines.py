"""The engine of bulk jobs on its servers, for the suites of what it promises."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from mars.adapters.memory.bulk import MemoryBulkEngine
from mars.core.errors import JobCancelled, JobFailed, Unavailable
from mars.core.locations import FileRoots
from mars.core.settings import BulkSettings, KafkaSettings, Settings
from mars.core.types import Topic
from mars.protocol.ports import BulkEngine, QueryJob
from tests.contracts.bulk_jobs import flows
from tests.contracts.kafka_servers import Cluster, KafkaCluster, MemoryCluster
from tests.contracts.waiting import eventually
from tests.support.spark import SparkShelf

CANCEL_WITHIN_S = 60.0


ROOTS = FileRoots.of([tempfile.gettempdir()])
"""Where the tests of a run have their folders."""


def spark_settings(bootstrap: str) -> Settings:
    bulk = BulkSettings(task_rows=1_000, files=ROOTS.folders)
    return Settings(kafka=KafkaSettings(bootstrap), bulk=bulk)


class Bulk:
    """An engine on a cluster."""

    def __init__(self, cluster: Cluster, engine: BulkEngine) -> None:
        self.cluster = cluster
        self.engine = engine

    def filled(self, rows: int, partitions: int = 2) -> tuple[Topic, str]:
        """A topic with so many rows, round robin, and its id."""
        topic = self.cluster.topic(partitions)
        for partition in range(partitions):
            self.cluster.append(topic, partition, flows(rows)[partition::partitions])
        return topic, self.topic_id(topic)

    def topic_id(self, topic: Topic) -> str:
        found = self.cluster.admin().describe(topic)
        assert found is not None
        return found.topic_id

    def cancelled(self, job: QueryJob) -> BaseException | None:
        """What a job raises that is cancelled while it runs."""
        if isinstance(self.engine, MemoryBulkEngine):
            engine = self.engine
            engine.meanwhile(lambda: engine.cancel(job.id))
            return raised(lambda: engine.query(job))
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(self.engine.query, job)

            def cancel() -> bool:
                self.engine.cancel(job.id)
                return running.done()

            eventually(cancel, CANCEL_WITHIN_S)
            return running.exception()


def raised(call: Callable[[], object]) -> BaseException | None:
    try:
        call()
    except (JobCancelled, JobFailed, Unavailable) as error:
        return error
    return None


@pytest.fixture(params=["memory", pytest.param("spark", marks=pytest.mark.integration)])
def bulk(request: pytest.FixtureRequest) -> Iterator[Bulk]:
    """The twin, and the engine on Spark with a real Kafka."""
    if request.param == "memory":
        memory = MemoryCluster()
        yield Bulk(memory, MemoryBulkEngine(memory.broker, ROOTS))
        return
    shelf: SparkShelf = request.getfixturevalue("spark_shelf")
    real: KafkaCluster = request.getfixturevalue("kafka_cluster")
    yield Bulk(real, shelf.engine(spark_settings(real.bootstrap)))
