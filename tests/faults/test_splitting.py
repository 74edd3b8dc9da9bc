"""Reducers merge logs of a bucket whose owner stands still; one is killed; results are exact.

Who assists is written into the assignment by the test, as the leader would: the load of a test
makes no bucket hotter than a reducer.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from dataclasses import replace

import msgspec
import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError

from mars.adapters.zookeeper.paths import Paths
from mars.core.types import MemberId
from mars.protocol.ports import Assignment
from tests.faults.conftest import REDUCERS, three_reducers
from tests.support.cluster import MarsCluster, wait_for
from tests.support.load import LONG_S, Load

pytestmark = pytest.mark.faults

BUCKETS = 4

PATIENT = """
[balance]
strategy = "split"
cooldown_s = 3600.0
"""
"""The leader has just begun, for as long as this runs: assistants that are there stay."""

STILL_S = 3.0
"""How long an owner stands still: some segments are whole by then; its session lasts 10 s."""

STRIKES_MIN = 4


@pytest.fixture(scope="module")
def mars(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MarsCluster]:
    yield from three_reducers(tmp_path_factory.mktemp("splitting"), BUCKETS, PATIENT)


@pytest.fixture
def zookeeper(mars: MarsCluster) -> Iterator[KazooClient]:
    client = KazooClient(mars.file["zookeeper"])
    client.start()
    yield client
    client.stop()
    client.close()


def name_assistants(mars: MarsCluster, zookeeper: KazooClient) -> bool:
    """All reducers that live, for the buckets of all others; False if the leader was faster."""
    path = Paths("default").assignment
    raw, stat = zookeeper.get(path)
    found = msgspec.json.decode(raw, type=Assignment)
    living = sorted(
        MemberId(one.id) for one in mars.client.cluster().members if one.role == "reducer"
    )
    helped = {
        bucket: tuple(name for name in living if name != owner.member)
        for bucket, owner in found.owners.items()
    }
    try:
        zookeeper.set(path, msgspec.json.encode(replace(found, assistants=helped)), stat.version)
    except BadVersionError:
        return False
    return True


def segments_merged(mars: MarsCluster) -> float:
    """By those reducers that live, since they were started."""
    members = mars.client.cluster().members
    return sum(member.load.get("assisted_segments_total", 0) for member in members)


def test_assistants_are_killed_while_owners_stand_still_and_results_stay_exact(
    mars: MarsCluster, zookeeper: KazooClient
) -> None:
    merged: list[float] = []
    load = Load(mars, "split", seconds=LONG_S, rows_per_s=2_000)

    def strike(turn: int) -> None:
        still, killed = (f"reducer-{(turn + each) % REDUCERS + 1}" for each in (0, 1))
        wait_for("assistants to be named", lambda: name_assistants(mars, zookeeper))
        time.sleep(1.0)  # they come to know of it, and the owners clear their logs
        with mars.stopped(still):
            time.sleep(STILL_S / 2)
            mars.kill(killed, signal.SIGKILL)
            time.sleep(STILL_S / 2)
        time.sleep(1.0)  # the members report once a second
        merged.append(segments_merged(mars))

    with load.running():
        load.every(1, strike, until=lambda: sum(merged) > 0 and len(merged) >= STRIKES_MIN)

    load.check()
    assert len(merged) >= STRIKES_MIN
    assert sum(merged) > 0, "nobody merged anything for anybody"
