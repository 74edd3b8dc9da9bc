"""A cluster as the store: nodes die, slots move, one node is emptied; results stay exact.

    three primaries ─── rows ──✗ kill -9 ─── rows ──⇄ the task's slot moves ── rows ──∅ FLUSHALL ──▶
    a replica each              └─ promoted

Each blow is to the node that has the task.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from mars.core.settings import Settings
from tests.faults.conftest import settings
from tests.support.cluster import MarsCluster, running_mars
from tests.support.failover import MAPPERS, REDUCERS, beside
from tests.support.load import LONG_S, Load
from tests.support.redis_cluster import ValkeyCluster, valkey_cluster

pytestmark = pytest.mark.faults

BUCKETS = 4
WINDOW_S = 1
ROWS = 3_000
"""Read between two blows."""


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[ValkeyCluster]:
    with valkey_cluster(tmp_path / "nodes") as found:
        yield found


@pytest.fixture
def mars(nodes: ValkeyCluster, tmp_path: Path) -> Iterator[MarsCluster]:
    """Two mappers, two reducers and the API, which are given the cluster's address."""

    def on_the_cluster(own: Settings) -> Settings:
        return replace(own, redis=replace(own.redis, url=nodes.url))

    options = ("--mappers", "0", "--reducers", "0", "--bulk", "0", "--buckets", str(BUCKETS))
    for mars in running_mars(tmp_path, *options, settings=settings()):
        with ExitStack() as stack:
            beside(mars, stack, [*MAPPERS, *REDUCERS], on_the_cluster)
            yield mars


def test_nodes_die_slots_move_and_one_node_is_emptied(
    mars: MarsCluster, nodes: ValkeyCluster
) -> None:
    task = "on_a_cluster"
    slot = nodes.slot(task)
    with Load(mars, task, seconds=LONG_S, window_s=WINDOW_S).running() as load:
        load.goes_on(ROWS)
        first = nodes.owner_of(slot)
        first.kill()
        second = nodes.promoted(first, slot)
        load.goes_on(ROWS)
        third = nodes.other_than(second)
        nodes.move(slot, third)
        load.goes_on(ROWS)
        nodes.move(slot, second)
        load.goes_on(ROWS)
        second.call("FLUSHALL")
        load.goes_on(ROWS)
        load.end()

    load.check()
