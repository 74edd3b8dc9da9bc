"""A stale replica of the store takes over, and the old primary comes back; results stay exact.

    primary   ─── rows ───┬─── rows ───┐                  ┌── with what it held ──▶
    replica        synchronised, cut   └─ promoted, rows ─┘

The processes are those of `tests/support/failover.py`, the number is that of the list of faults in
`docs/reports/reliability.md`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from mars.core.types import Lane
from tests.faults.conftest import settings
from tests.support.cluster import MarsCluster, lent, running_mars, wait_for
from tests.support.failover import (
    MAPPERS,
    Failover,
    StoreServer,
    all_work,
    failover,
    reducer,
)
from tests.support.load import LONG_S, Load

pytestmark = pytest.mark.faults

BUCKETS = 4
WINDOW_S = 1
"""Short: windows are emitted of whose rows the replica knows nothing."""

ROWS = 3_000
"""Read between two blows: three seconds of them. The replica is as far behind, at least."""

SPLIT_ROWS = 1_000
"""New ones of one lane at the old primary, four seconds of them, while others use the new one."""

SPLITS = 2
"""The first as the replica takes over, the second when all have used it."""

RAISES_MAX = 8
"""Of the store epoch, in two splits and two reunions: a ping-pong makes one each second."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MarsCluster]:
    """Servers only, without a bulk process: it would stay at the old primary."""
    options = ("--mappers", "0", "--reducers", "0", "--bulk", "0", "--buckets", str(BUCKETS))
    yield from running_mars(tmp_path_factory.mktemp("failover"), *options, settings=settings())


@pytest.fixture(scope="module")
def pair(cluster: MarsCluster) -> Iterator[Failover]:
    with failover(cluster, BUCKETS) as found:
        yield found


@pytest.fixture
def mars(cluster: MarsCluster, pair: Failover) -> Iterator[MarsCluster]:
    """Everybody at the primary, and no task of another test: each mapper gets half of a topic."""
    pair.send(pair.primary)
    yield from lent(cluster)


@pytest.mark.parametrize("mappers_first", [False, True], ids=["together", "mappers-first"])
def test_9_a_stale_replica_takes_over_and_the_old_primary_comes_back(
    mars: MarsCluster, pair: Failover, mappers_first: bool
) -> None:
    task = f"f9_back_{mappers_first:d}"
    with Load(mars, task, seconds=LONG_S, window_s=WINDOW_S).running() as load:
        _grow_stale(pair, load)
        _move(pair, task, pair.replica, mappers_first=mappers_first)
        load.goes_on(ROWS)
        promoted = pair.replica.head(task).epoch
        held = pair.primary.head(task).epoch
        _move(pair, task, pair.primary, mappers_first=mappers_first)
        load.goes_on(ROWS)
        load.end()

    load.check()
    assert held < promoted < pair.primary.head(task).epoch


@pytest.mark.parametrize("leads", [True, False], ids=["leader", "another-reducer"])
def test_9_a_mapper_and_a_reducer_use_the_old_primary_while_others_use_the_new_one(
    mars: MarsCluster, pair: Failover, leads: bool
) -> None:
    """First they stay there, in the same store epoch as the others; later they come back to it."""
    task = f"f9_split_{leads:d}"
    with Load(mars, task, seconds=LONG_S, window_s=WINDOW_S).running() as load:
        wait_for("work for all", lambda: all_work(mars, task))
        _grow_stale(pair, load)
        begun = pair.primary.head(task).epoch
        for _ in range(SPLITS):
            away = {MAPPERS[0], reducer(mars, leads=leads)}
            known = _offsets(pair, task)
            pair.send(pair.primary, away)
            pair.send(pair.replica, pair.names - away)
            _rows_come_to(pair.primary, load, known)
            pair.send(pair.replica)
            load.goes_on(ROWS)
        load.end()

    load.check()
    assert pair.replica.head(task).epoch <= begun + RAISES_MAX


def _grow_stale(pair: Failover, load: Load) -> None:
    """Promote a replica that is some seconds, and some windows, behind."""
    load.goes_on(ROWS)
    pair.follow()
    pair.cut()
    load.goes_on(ROWS)
    wait_for("a stale replica", lambda: _behind(pair, load.name) >= ROWS)
    pair.promote()
    old, new = pair.primary.head(load.name), pair.replica.head(load.name)
    assert new.epoch == old.epoch
    assert new.seq < old.seq


def _behind(pair: Failover, task: str) -> int:
    """How many rows the primary has taken of which the replica does not know."""
    known = pair.replica.head(task).offsets
    return sum(end - known[lane] for lane, end in pair.primary.head(task).offsets.items())


def _offsets(pair: Failover, task: str) -> dict[Lane, int]:
    """How far either of the two is."""
    old, new = pair.primary.head(task).offsets, pair.replica.head(task).offsets
    return {lane: max(offset, old[lane]) for lane, offset in new.items()}


def _move(pair: Failover, task: str, target: StoreServer, *, mappers_first: bool) -> None:
    """Send everybody there.

    Mappers that come first write until SEQ has passed the last one that reducers have read: a look
    at SEQ and offsets then shows nothing of the loss.
    """
    if mappers_first:
        source = pair.replica if target is pair.primary else pair.primary
        before = target.head(task).seq
        pair.send(target, MAPPERS)
        passed = max(before, source.head(task).seq)
        wait_for("entries of mappers", lambda: target.head(task).seq > passed)
    pair.send(target)


def _rows_come_to(server: StoreServer, load: Load, offsets: Mapping[Lane, int]) -> None:
    """Wait until a lane is there so many rows beyond these offsets."""

    def ahead() -> bool:
        now = server.head(load.name).offsets
        return any(now[lane] >= offset + SPLIT_ROWS for lane, offset in offsets.items())

    wait_for(f"rows at port {server.port}", ahead)
