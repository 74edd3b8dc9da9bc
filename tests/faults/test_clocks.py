"""The clock of one process jumps ahead by hours, and back behind the right time; results are exact.

The processes are those of `tests/support/failover.py`, all on the second Valkey, the one whose
clock can be put wrong. The number is that of the list of faults in `docs/reports/reliability.md`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

import pytest

from tests.conftest import need
from tests.faults.conftest import NO_BULK, settings
from tests.support.clock import LibraryClock, PythonClock, missing_clock
from tests.support.cluster import MarsCluster, lent, running_mars, wait_for
from tests.support.failover import (
    API,
    MAPPERS,
    REDUCERS,
    REPLICA,
    Failover,
    all_work,
    failover,
    reducer,
)
from tests.support.load import LONG_S, Load

pytestmark = pytest.mark.faults

BUCKETS = 4
WINDOW_S = 1

JUMPS_S = (7_200, -7_200, 0)
"""One after the other: two hours ahead, from there to two hours behind, and right again."""

ROWS = 2_000
"""Read between two jumps: two seconds of them, so windows open and close in each of the times."""

NEAR_S = 60
"""A clock that is as wrong as it was put is so to less than this."""


@pytest.fixture(scope="module")
def store_clock(tmp_path_factory: pytest.TempPathFactory) -> LibraryClock:
    folder = tmp_path_factory.mktemp("clock")
    need(missing_clock(folder))
    return LibraryClock(folder / "store")


@pytest.fixture(scope="module")
def clocks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, PythonClock]:
    """Of each of our own processes."""
    folder = tmp_path_factory.mktemp("clocks")
    return {name: PythonClock(folder / name) for name in (API, *MAPPERS, *REDUCERS)}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MarsCluster]:
    options = ("--mappers", "0", "--reducers", "0", "--buckets", str(BUCKETS), *NO_BULK)
    yield from running_mars(tmp_path_factory.mktemp("mars"), *options, settings=settings())


@pytest.fixture(scope="module")
def pair(
    cluster: MarsCluster, store_clock: LibraryClock, clocks: dict[str, PythonClock]
) -> Iterator[Failover]:
    variables = {name: clock.variables for name, clock in clocks.items()}
    with failover(cluster, BUCKETS, {REPLICA: store_clock.variables, **variables}) as found:
        assert all(clock.used for clock in clocks.values()), "a process keeps the right clock"
        found.promote()
        found.send(found.replica)
        yield found


@pytest.fixture
def mars(cluster: MarsCluster, pair: Failover) -> Iterator[MarsCluster]:
    """Everybody at the second Valkey, and no task of another test."""
    yield from lent(cluster)


def test_16_the_clock_of_the_store_jumps(
    mars: MarsCluster, pair: Failover, store_clock: LibraryClock
) -> None:
    def shows(ahead_s: float) -> bool:
        return abs(pair.replica.clock_s() - time.time() - ahead_s) < NEAR_S

    with Load(mars, "f16_store", seconds=LONG_S, window_s=WINDOW_S).running() as load:
        load.goes_on(ROWS)
        for ahead_s in JUMPS_S:
            store_clock.put(ahead_s)
            wait_for(
                "the store's clock",
                partial(shows, ahead_s),
            )
            load.goes_on(ROWS)
        load.end()

    load.check()


@pytest.mark.parametrize("who", ["mapper", "leader", "api"])
def test_16_the_clock_of_a_process_jumps(
    mars: MarsCluster, clocks: dict[str, PythonClock], who: str
) -> None:
    with Load(mars, f"f16_{who}", seconds=LONG_S, window_s=WINDOW_S).running() as load:
        wait_for("work for all", lambda: all_work(mars, load.name))
        clock = clocks[_name(mars, who)]
        for ahead_s in JUMPS_S:
            clock.put(ahead_s)
            load.goes_on(ROWS)
            wait_for("work for all, then too", lambda: all_work(mars, load.name))
        load.end()

    load.check()


def _name(mars: MarsCluster, who: str) -> str:
    """Of the process that is meant."""
    return {"mapper": MAPPERS[0], "api": API}.get(who) or reducer(mars, leads=True)
