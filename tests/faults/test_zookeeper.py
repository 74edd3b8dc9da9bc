"""ZooKeeper comes back without anything that was in it; all goes on from what is in Kafka."""

from __future__ import annotations

import shutil

import pytest

from mars.errors import MarsError
from tests.support.cluster import MarsCluster, wait_for
from tests.support.load import Load

pytestmark = pytest.mark.faults

NAME = "f23"
BACK_S = 60.0
"""Sessions end first, then processes connect anew, then a leader is elected."""


def wipe_zookeeper(mars: MarsCluster) -> None:
    """Delete its data, and let it be started again on nothing."""
    shutil.rmtree(mars.data / "zookeeper" / "snapshots")
    mars.kill("zookeeper")


def test_23_zookeeper_comes_back_empty_and_nothing_is_lost_or_doubled(mars: MarsCluster) -> None:
    load = Load(mars, NAME, seconds=40)
    with load.running():
        wait_for("results", lambda: mars.client.ledger(NAME).emitted > 0)
        before = mars.client.task(NAME)
        streams = {stream.name for stream in mars.client.streams()}
        epochs = _epochs(mars)

        wipe_zookeeper(mars)
        wait_for("the loss", lambda: _lost(mars))
        wait_for("the tasks", lambda: NAME in _names(mars), seconds=BACK_S)

        assert mars.client.task(NAME).version == before.version
        assert {stream.name for stream in mars.client.streams()} == streams
        with pytest.raises(MarsError, match="there is a task"):
            mars.register(NAME, load.sql)

    load.check()
    leader_epoch, store_epoch = _epochs(mars)
    assert leader_epoch > epochs[0]
    assert store_epoch > epochs[1]


def test_23_a_deleted_task_stays_deleted_and_its_versions_do_not_restart(mars: MarsCluster) -> None:
    load = Load(mars, "f23_gone", seconds=1)
    load.declare()
    mars.client.delete_task("f23_gone")

    wipe_zookeeper(mars)
    wait_for("the loss", lambda: _lost(mars))
    wait_for("the tasks", lambda: _names(mars), seconds=BACK_S)

    assert "f23_gone" not in _names(mars)
    mars.register("f23_gone", load.sql)
    assert mars.client.task("f23_gone").version == 2
    mars.client.delete_task("f23_gone")


def _names(mars: MarsCluster) -> set[str]:
    return {task.name for task in mars.client.tasks()}


def _lost(mars: MarsCluster) -> bool:
    """Whether the API says that it cannot answer."""
    try:
        mars.client.tasks()
    except MarsError:
        return True
    return False


def _epochs(mars: MarsCluster) -> tuple[int, int]:
    """Of the leader and of the store, as a cluster that is whole tells them."""

    def told() -> tuple[int, int] | None:
        cluster = mars.client.cluster()
        if cluster.leader is None or cluster.store_epoch is None:
            return None
        return cluster.leader.epoch, cluster.store_epoch

    found = wait_for("a leader", told)
    assert found is not None
    return found
