"""A cluster without mapper processes: one streaming query on Spark maps for all tasks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest
import redis

from tests.support.cluster import MarsCluster, running_mars, wait_for
from tests.support.rows import flow_rows
from tests.support.spark_mapper import (
    FEED_S,
    MEMBER,
    PARTITIONS,
    RESULTS_S,
    ROWS_PER_S,
    SELECT,
    SparkMapper,
    assert_all_exact,
    feed,
    register_three,
)

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def mars(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MarsCluster]:
    yield from running_mars(tmp_path_factory.mktemp("on-spark"), "--mappers", "0", "--bulk", "0")


@pytest.fixture(scope="module")
def mapper(mars: MarsCluster) -> Iterator[SparkMapper]:
    process = SparkMapper(mars)
    process.start()
    process.ready()
    yield process
    assert process.stop() == 0, mars.logs()


Strike = Callable[[MarsCluster, SparkMapper], None]


def kill_the_mapper(_mars: MarsCluster, mapper: SparkMapper) -> None:
    mapper.kill()
    mapper.start()


def kill_its_java(_mars: MarsCluster, mapper: SparkMapper) -> None:
    mapper.kill_java()


def flush_the_store(mars: MarsCluster, _mapper: SparkMapper) -> None:
    redis.Redis.from_url(mars.file["redis"]).flushall()


STRIKES: dict[str, Strike] = {
    "kill-the-mapper": kill_the_mapper,
    "kill-its-java": kill_its_java,
    "flushall": flush_the_store,
}


@pytest.mark.parametrize("strike", STRIKES)
def test_three_tasks_are_exact_through(mars: MarsCluster, mapper: SparkMapper, strike: str) -> None:
    name = "s_" + strike.replace("-", "_")
    mars.declare(name, stream=name, partitions=PARTITIONS)
    register_three(mars, name)
    rows = flow_rows(0, ROWS_PER_S * FEED_S, int(time.time() * 1000), rows_per_s=ROWS_PER_S)
    feeding = threading.Thread(target=feed, args=(mars, name, rows))
    feeding.start()

    wait_for(
        "half of the rows to be mapped",
        lambda: mars.client.ledger(f"{name}_tumbling").read > 0 or not feeding.is_alive(),
        seconds=RESULTS_S,
    )
    STRIKES[strike](mars, mapper)
    feeding.join()

    assert_all_exact(mars, name, rows)


def test_the_mapper_on_spark_is_a_member_like_any_other(
    mars: MarsCluster, mapper: SparkMapper
) -> None:
    mars.declare("m_rows", stream="m_rows", partitions=PARTITIONS)
    mars.register("m_task", SELECT.format(stream="m_rows", where="", window="5 s"))

    def reads() -> bool:
        members = [one for one in mars.client.cluster().members if one.pid == mapper.pid]
        return any(
            (part.topic, part.partition) == ("m_rows", 3)
            for member in members
            for part in member.partitions
        )

    wait_for("its report of partition 3", reads)
    (member,) = [one for one in mars.client.cluster().members if one.role == "mapper"]
    assert member.id == MEMBER
