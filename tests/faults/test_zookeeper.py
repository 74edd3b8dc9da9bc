"""ZooKeeper is away, forgets who was there, or comes back empty; results stay exact.

The numbers are those of the list of faults in `docs/reports/reliability.md`.
"""

from __future__ import annotations

import shutil
import signal
import time

import pytest

from mars.client.answers import Leader
from mars.core.errors import MarsError
from tests.faults.nemesis import members, wait_until_missed
from tests.support.cluster import MarsCluster, wait_for
from tests.support.load import LONG_S, Load

pytestmark = pytest.mark.faults

NAME = "f23"
BACK_S = 60.0
"""Sessions end first, then processes connect anew, then a leader is elected."""


AWAY_S = 15.0
"""Longer than the sessions of 10 s: whether they are over when it goes on, it decides itself."""

WINDOW_S = 1
"""So that results come while ZooKeeper is away."""


def test_12_zookeeper_is_away_for_longer_than_a_session_and_results_go_on(
    mars: MarsCluster,
) -> None:
    load = Load(mars, "f12_away", seconds=LONG_S, window_s=WINDOW_S)
    with load.running():
        load.goes_on(1)
        before = _epochs(mars)
        with mars.stopped("zookeeper"):
            stopped_ms = time.time_ns() // 1_000_000
            time.sleep(AWAY_S)  # how long it lasts
            newest = max(
                value["window_start"] for _, value, _ in mars.read("mars.results.f12_away")
            )
        load.goes_on(1)
        load.end()

    load.check()
    assert newest > stopped_ms, "nothing that came while it was away was emitted meanwhile"
    after = _epochs(mars)
    assert after[0] >= before[0]
    assert after[1] >= before[1]


def test_12_the_session_of_the_leader_ends_while_it_stands_still(mars: MarsCluster) -> None:
    load = Load(mars, "f12_leader", seconds=LONG_S)
    with load.running():
        load.goes_on(1)
        before = _leader(mars)
        assert before.member is not None
        mars.kill(before.member, signal.SIGSTOP)
        try:
            wait_until_missed(mars, before.member)
            after = wait_for("another leader", lambda: _leader_but(mars, before))
        finally:
            pid = mars.kill(before.member, signal.SIGCONT)
        wait_for("it to be back", lambda: before.member in members(mars))
        load.goes_on(1)
        load.end()

    load.check()
    assert _leader(mars) == after
    assert mars.pid(before.member) == pid, "it was to go on, not to be started again"


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
    wait_for("the tasks", lambda: not _lost(mars), seconds=BACK_S)

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
    epoch = _leader(mars).epoch
    store_epoch = wait_for("a store epoch", lambda: mars.client.cluster().store_epoch)
    return epoch, store_epoch


def _leader(mars: MarsCluster) -> Leader:
    return wait_for("a leader", lambda: _leader_but(mars))


def _leader_but(mars: MarsCluster, *former: Leader) -> Leader | None:
    """Who leads, unless it is one of those, or in no later epoch."""
    leader = mars.client.cluster().leader
    if leader is None or leader.member is None:
        return None
    news = all(leader.member != one.member and leader.epoch > one.epoch for one in former)
    return leader if news else None
