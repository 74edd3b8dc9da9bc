"""Brokers of a Kafka of three go away; while two are there, results go on, and they stay exact.

The number is that of the list of faults in `docs/reports/reliability.md`; faults of a single broker
are in `test_processes.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from mars.adapters.kafka.admin import KafkaTopicAdmin
from mars.core.settings import ReducerSettings
from mars.core.types import Topic
from mars.local.servers import KafkaServer
from tests.conftest import READY_S, STOP_S, missing_kafka, missing_valkey, need
from tests.faults.conftest import DRAFT_ROWS_MIN, PROGRESS_INTERVAL_MS, SNAPSHOT_EVERY_MS
from tests.support.brokers import ReplicatedCluster
from tests.support.cluster import lent, wait_for
from tests.support.load import Load

pytestmark = pytest.mark.faults

BUCKETS = 6
"""Two of the progress topic's partitions for each broker to lead."""

LOAD_S = 300.0
"""Rows come at most so long; each test says when it is enough."""

ROWS = 2_000
"""Read between two blows: two seconds of them, or more where the producer had to wait too."""

WINDOW_S = 2


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicatedCluster]:
    need(missing_kafka() or missing_valkey())
    reducer = ReducerSettings(
        progress_interval_ms=PROGRESS_INTERVAL_MS,
        snapshot_every_ms=SNAPSHOT_EVERY_MS,
        draft_rows_min=DRAFT_ROWS_MIN,
    )
    mars = ReplicatedCluster(
        tmp_path_factory.mktemp("brokers") / "data", buckets=BUCKETS, reducer=reducer
    )
    yield mars
    mars.down()


@pytest.fixture
def mars(cluster: ReplicatedCluster) -> Iterator[ReplicatedCluster]:
    """Every broker there, and no task of another test."""
    for broker in cluster.brokers:
        if not broker.running:
            broker.start()
    cluster.wait_in_sync()
    yield from lent(cluster)


def test_11_of_three_brokers_one_is_killed_one_ends_as_asked_and_one_stands_still(
    mars: ReplicatedCluster,
) -> None:
    """After each of them the others lead, and it comes back before the next."""
    with loaded(mars, "f11_each") as load:
        killed, asked, still = mars.brokers
        _kill(mars, killed, load)
        _ask_to_end(mars, asked, load)
        _stand_still(mars, still, load)


def _kill(mars: ReplicatedCluster, broker: KafkaServer, load: Load) -> None:
    number = mars.number(broker)
    assert number in mars.leaders(load.name).values(), "it leads none of the rows"
    broker.kill()
    _others_lead(mars, number, load)
    load.goes_on(ROWS)
    _comes_back(mars, broker)


def _ask_to_end(mars: ReplicatedCluster, broker: KafkaServer, load: Load) -> None:
    """As a broker is brought to another version."""
    admin, topic = KafkaTopicAdmin(mars.settings), Topic(load.name)
    before = admin.ends(topic)
    broker.stop(STOP_S)
    # What the client has heard before names a leader that is gone.
    after = admin.ends(topic)
    assert all(after[partition] >= end for partition, end in before.items())
    load.goes_on(ROWS)
    _comes_back(mars, broker)


def _stand_still(mars: ReplicatedCluster, broker: KafkaServer, load: Load) -> None:
    """It believes for a while that it leads what others lead by then."""
    broker.pause()
    try:
        _others_lead(mars, mars.number(broker), load)
        load.goes_on(ROWS)
    finally:
        broker.resume()
    mars.wait_in_sync()
    load.goes_on(ROWS)


def test_11_two_brokers_of_three_are_killed_and_come_back(mars: ReplicatedCluster) -> None:
    """The third takes nothing: too few copies, and no majority of the controllers."""
    with loaded(mars, "f11_two") as load:
        pair = mars.brokers[1:]
        for broker in pair:
            broker.kill()
        for broker in pair:
            broker.start()
        for broker in pair:
            broker.wait_ready(READY_S)
        load.goes_on(ROWS)


@contextmanager
def loaded(mars: ReplicatedCluster, name: str) -> Iterator[Load]:
    """A load during the block, and the verdict on its results."""
    with Load(mars, name, seconds=LOAD_S, window_s=WINDOW_S).running() as load:
        load.goes_on(ROWS)
        mars.wait_in_sync()
        yield load
        load.end()
    load.check()


def _others_lead(mars: ReplicatedCluster, number: int, load: Load) -> None:
    """Wait until every partition of the rows is led, and none by this broker."""

    def taken_over() -> bool:
        return {number, -1}.isdisjoint(mars.leaders(load.name).values())

    wait_for(f"others to lead in place of broker {number}", taken_over)


def _comes_back(mars: ReplicatedCluster, broker: KafkaServer) -> None:
    broker.start()
    broker.wait_ready(READY_S)
    mars.wait_in_sync()
