"""The mapper on Spark whose executors are on other machines, one of which dies."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import missing_java, missing_kafka, missing_valkey, need
from tests.support.cluster import MarsCluster, wait_for
from tests.support.rows import flow_rows
from tests.support.spark_cluster import SparkWorker, on_cluster, spark_cluster
from tests.support.spark_mapper import (
    FEED_S,
    PARTITIONS,
    RESULTS_S,
    ROWS_PER_S,
    SparkMapper,
    assert_all_exact,
    feed,
    register_three,
)

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


@dataclass(frozen=True, slots=True)
class OnCluster:
    """A cluster of ours whose only mapper runs on a cluster of Spark's."""

    mars: MarsCluster
    mapper: SparkMapper
    workers: list[SparkWorker]


@pytest.fixture
def on_spark(tmp_path: Path) -> Iterator[OnCluster]:
    need(missing_java() or missing_kafka() or missing_valkey())
    mars = MarsCluster(tmp_path / "data", "--mappers", "0", "--bulk", "0")
    try:
        with spark_cluster(tmp_path) as (master, workers):
            mapper = SparkMapper(mars, on_cluster(master))
            mapper.start()
            mapper.ready()
            yield OnCluster(mars, mapper, workers)
            assert mapper.stop() == 0, mars.logs()
    finally:
        mars.down()


def test_tasks_are_exact_though_a_worker_dies(on_spark: OnCluster) -> None:
    mars, name = on_spark.mars, "s_cluster"
    mars.declare(name, stream=name, partitions=PARTITIONS)
    register_three(mars, name)
    rows = flow_rows(0, ROWS_PER_S * FEED_S, int(time.time() * 1000), rows_per_s=ROWS_PER_S)
    feeding = threading.Thread(target=feed, args=(mars, name, rows))
    feeding.start()

    wait_for(
        "some rows to be mapped",
        lambda: mars.client.ledger(f"{name}_tumbling").read > 0 or not feeding.is_alive(),
        seconds=RESULTS_S,
    )
    on_spark.workers[1].kill_all()
    feeding.join()

    assert_all_exact(mars, name, rows)
