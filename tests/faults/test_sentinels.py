"""A primary behind sentinels dies, and comes back as the other's replica; results stay exact.

    primary   ─── rows ──✗ kill -9           ┌── is made a replica
    replica        follows ──┴─ promoted ── rows ──▶

Nobody tells the processes: they ask the sentinels.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.conftest import settings
from tests.support.cluster import MarsCluster
from tests.support.failover import beside_store
from tests.support.load import LONG_S, Load
from tests.support.sentinels import Guarded, guarded

pytestmark = pytest.mark.faults

BUCKETS = 4
WINDOW_S = 1
ROWS = 3_000
"""Read between two blows."""


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Guarded]:
    with guarded(tmp_path / "servers") as found:
        yield found


@pytest.fixture
def mars(servers: Guarded, tmp_path: Path) -> Iterator[MarsCluster]:
    yield from beside_store(tmp_path, servers.url, BUCKETS, settings())


def test_a_primary_behind_sentinels_dies_and_comes_back(
    mars: MarsCluster, servers: Guarded
) -> None:
    with Load(mars, "sentinels", seconds=LONG_S, window_s=WINDOW_S).running() as load:
        load.goes_on(ROWS)
        first = servers.primary()
        servers.servers[first].kill()
        second = servers.promoted(first)
        load.goes_on(ROWS)
        servers.servers[first].start()
        servers.follows(first)
        load.goes_on(ROWS)
        servers.servers[second].kill()
        assert servers.promoted(second) == first
        load.goes_on(ROWS)
        load.end()

    load.check()
