"""A cluster as the store: nodes die, slots move, one node is emptied; results stay exact.

    three primaries ─── rows ──✗ kill -9 ─── rows ──⇄ the task's slot moves ── rows ──∅ FLUSHALL ──▶
    a replica each              └─ promoted

Each blow is to the node that has the task.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.conftest import settings
from tests.support.cluster import MarsCluster
from tests.support.failover import beside_store
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
    yield from beside_store(tmp_path, nodes.url, BUCKETS, settings())


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
