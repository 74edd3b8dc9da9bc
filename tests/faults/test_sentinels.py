"""A primary behind sentinels dies, and comes back as the other's replica; results stay exact.

    primary   ─── rows ──✗ kill -9           ┌── is made a replica
    replica        follows ──┴─ promoted ── rows ──▶

Nobody tells the processes: they ask the sentinels.
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
    """Two mappers, two reducers and the API, which are given the sentinels' addresses."""

    def behind_sentinels(own: Settings) -> Settings:
        return replace(own, redis=replace(own.redis, url=servers.url))

    options = ("--mappers", "0", "--reducers", "0", "--bulk", "0", "--buckets", str(BUCKETS))
    for mars in running_mars(tmp_path, *options, settings=settings()):
        with ExitStack() as stack:
            beside(mars, stack, [*MAPPERS, *REDUCERS], behind_sentinels)
            yield mars


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
