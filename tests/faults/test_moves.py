"""Buckets move because of load while rows come and things fail; the results stay exact."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import cycle

import polars as pl
import pytest

from mars.answers import Move
from mars.codec.canonical import buckets_of_keys
from mars.errors import MarsError
from mars.plan import ValueType
from mars.types import TaskName
from tests.faults.conftest import REDUCERS, three_reducers
from tests.faults.nemesis import flush_the_store
from tests.support.cluster import MarsCluster, wait_for
from tests.support.linked import LinkedRole
from tests.support.load import LONG_S, Load, Row

pytestmark = pytest.mark.faults

BUCKETS = 8

COLD_EVERY = 500
"""Of so many rows one is of whatever bucket it falls into, all others are of the hot ones. Most
batches have none for a cold bucket: to read a batch costs a reducer more than its few rows do."""

EAGER = """
[balance]
imbalance_max = 0.005
gain_min = 0.001
cooldown_s = 3.0
bucket_rest_s = 6.0
"""
"""Two thousand rows a second are a small load: what is uneven about it must count."""

STRIKE_EVERY = 5
"""Looks, of one second each, between two strikes."""


@pytest.fixture(scope="module")
def mars(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MarsCluster]:
    yield from three_reducers(tmp_path_factory.mktemp("moves"), BUCKETS, EAGER)


class SkewedLoad(Load):
    """Nearly all rows are of the buckets of one reducer, as they are at the beginning."""

    def declare(self) -> None:
        super().declare()
        owners = wait_for("all reducers to own buckets", lambda: _shared_out(self.mars))
        (busiest, _), *_ = Counter(owners.values()).most_common()
        self._hot = sorted(bucket for bucket, member in owners.items() if member == busiest)
        self.declared_ms = time.time() * 1000

    def made(self, rows: list[Row]) -> list[Row]:
        pairs = pl.DataFrame(
            {
                "sip": [f"10.9.{number // 250}.{number % 250}" for number in range(10_000)],
                "type": ["hot"] * 10_000,
            }
        )
        kinds = [ValueType.STRING, ValueType.STRING]
        buckets = buckets_of_keys(TaskName(self.name), pairs, kinds, BUCKETS)
        hot = cycle(pairs["sip"].filter(buckets.is_in(self._hot)).to_list())
        return [
            row if number % COLD_EVERY == 0 else row | {"sip": next(hot), "type": "hot"}
            for number, row in enumerate(rows)
        ]


def _shared_out(mars: MarsCluster) -> dict[int, str]:
    """Who owns what; nothing as long as a reducer has none."""
    owners = {each.bucket: each.member for each in mars.client.cluster().assignment}
    return owners if len(set(owners.values())) == REDUCERS else {}


def moves_by_load(load: SkewedLoad) -> list[Move]:
    """Those that the leader tells of."""
    balance = load.mars.client.cluster().balance
    return [
        move
        for move in (balance.moves if balance else ())
        if "use is uneven" in move.reason and move.at >= load.declared_ms
    ]


def some_moves(load: SkewedLoad) -> list[Move]:
    """The same; raises MarsError with the figures as long as there are none."""
    moves = moves_by_load(load)
    if not moves:
        shown = load.mars.client.cluster()
        uses = {
            member.id: (member.load.get("cpu_use"), [each.load for each in member.buckets])
            for member in shown.members
            if member.role == "reducer"
        }
        raise MarsError(f"nothing moved: {shown.balance}, {uses}")
    return moves


def test_a_skewed_load_moves_buckets_for_a_stated_reason_and_results_stay_exact(
    mars: MarsCluster,
) -> None:
    load = SkewedLoad(mars, "skewed", seconds=LONG_S, rows_per_s=2_000)
    with load.running():
        (move, *_) = wait_for("a bucket to move", lambda: some_moves(load), seconds=LONG_S)
        loads = [member.load for member in mars.client.cluster().members]
        shown = mars.mars("status", "--data", str(mars.data)).stdout
        load.end()

    load.check()
    assert move.source != move.target
    assert f"{move.source} at" in move.reason
    assert all("cpu_use" in each for each in loads)
    assert f"bucket {move.bucket}, {move.source} -> {move.target}: use is uneven" in shown


def test_moves_under_fire(mars: MarsCluster) -> None:
    """All kinds of faults strike, and buckets move in between."""
    seen: set[tuple[int, int]] = set()
    load = SkewedLoad(mars, "fire", seconds=LONG_S, rows_per_s=2_000)
    with load.running(), LinkedRole(mars, "reducer", "reducer-a") as lonely:
        strikes = blows(mars, lonely)

        def look_and_strike(turn: int) -> None:
            seen.update((move.bucket, move.at) for move in moves_by_load(load))
            if turn % STRIKE_EVERY == 0 and strikes:
                strikes.pop(0)()

        load.every(1, look_and_strike, until=lambda: bool(seen) and not strikes)
        load.check()
    assert seen, "no bucket moved because of load"
    assert not strikes


def blows(mars: MarsCluster, lonely: LinkedRole) -> list[Callable[[], object]]:
    """Faults 8, 4, 3 and 6, one after the other. What lasts does so for longer than a session."""
    return [
        lambda: flush_the_store(mars, 0),
        lambda: mars.kill("mapper-1", signal.SIGSTOP),
        lambda: mars.kill("reducer-1"),
        lambda: mars.kill("mapper-1", signal.SIGCONT),
        lonely.zookeeper.cut,
        lambda: flush_the_store(mars, 1),
        lambda: mars.kill("reducer-2"),
        lonely.zookeeper.heal,
    ]


def told(mars: MarsCluster) -> set[str]:
    """The reasons of the last moves."""
    balance = mars.client.cluster().balance
    return {move.reason for move in balance.moves} if balance else set()


def test_a_reducer_that_is_asked_to_stop_is_emptied_first(mars: MarsCluster) -> None:
    def owned() -> int:
        owners = mars.client.cluster().assignment
        return sum(owner.member == "reducer-a" for owner in owners)

    def working() -> bool:
        """By its own word: asked to stop before it has a bucket it would just end."""
        members = [each for each in mars.client.cluster().members if each.id == "reducer-a"]
        return any(bucket.state == "owning" for each in members for bucket in each.buckets)

    with Load(mars, "leave", seconds=LONG_S).running() as load:
        with LinkedRole(mars, "reducer", "reducer-a") as guest:
            wait_for("it to work on buckets", working)
            guest.stop(15)
            wait_for("the leader to tell of it", lambda: "reducer-a is leaving" in told(mars))
        load.end()

    load.check()
    assert not owned()
