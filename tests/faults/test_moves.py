"""Buckets move because of load while rows come and things fail; the results stay exact."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from mars.answers import Move
from mars.codec.canonical import buckets_of_keys
from mars.errors import MarsError
from mars.plan import ValueType
from mars.types import TaskName
from tests.conftest import missing_kafka, missing_valkey, need
from tests.faults.conftest import SETTINGS
from tests.faults.nemesis import flush_the_store, kill_a_reducer
from tests.support.cluster import MarsCluster, wait_for
from tests.support.linked import LinkedRole
from tests.support.load import Load, Row

pytestmark = pytest.mark.faults

BUCKETS = 8
HOT_SHARE = 20
"""All rows but every twentieth are of the hot buckets."""

EAGER = """
[balance]
imbalance_max = 0.005
gain_min = 0.001
cooldown_s = 3.0
bucket_rest_s = 6.0
"""
"""A thousand rows a second are a small load: what is uneven about it must count."""

STRIKE_S = 5.0


@pytest.fixture(scope="module")
def mars(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MarsCluster]:
    need(missing_kafka())
    need(missing_valkey())
    folder: Path = tmp_path_factory.mktemp("moves")
    config = folder / "eager.toml"
    config.write_text(SETTINGS + EAGER)
    cluster = MarsCluster(
        folder / "data", "--config", str(config), "--reducers", "3", "--buckets", str(BUCKETS)
    )
    yield cluster
    cluster.down()


class SkewedLoad(Load):
    """Most groups are of the buckets that one reducer owned at the beginning."""

    def declare(self) -> None:
        super().declare()
        owners = wait_for("owners", lambda: self.mars.client.cluster().assignment)
        self._hot = {each.bucket for each in owners if each.member == owners[0].member}

    def made(self, rows: list[Row]) -> list[Row]:
        pairs = pl.DataFrame(
            {
                "sip": [f"10.9.{n // 250}.{n % 250}" for n in range(20_000)],
                "type": ["hot"] * 20_000,
            }
        )
        kinds = [ValueType.STRING, ValueType.STRING]
        owned = pairs.with_columns(b=buckets_of_keys(TaskName(self.name), pairs, kinds, BUCKETS))
        hot = owned.filter(pl.col("b").is_in(list(self._hot)))["sip"].to_list()
        return [
            row if number % HOT_SHARE == 0 else row | {"sip": hot[number % len(hot)], "type": "hot"}
            for number, row in enumerate(rows)
        ]


def moves_by_load(mars: MarsCluster) -> list[Move]:
    """Those that the leader tells of."""
    balance = mars.client.cluster().balance
    return [move for move in balance.moves if "use is uneven" in move.reason] if balance else []


def some_moves(mars: MarsCluster) -> list[Move]:
    """The same; raises MarsError with the figures as long as there are none."""
    moves = moves_by_load(mars)
    if not moves:
        shown = mars.client.cluster()
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
    with SkewedLoad(mars, "skewed", seconds=40, rows_per_s=2_000).running() as load:
        (move, *_) = wait_for("a bucket to move", lambda: some_moves(mars), seconds=45)
        loads = [member.load for member in mars.client.cluster().members]
        shown = mars.mars("status", "--data", str(mars.data)).stdout

    load.check()
    assert move.source != move.target
    assert f"{move.source} at" in move.reason
    assert all("cpu_use" in each for each in loads)
    assert f"bucket {move.bucket}, {move.source} -> {move.target}: use is uneven" in shown


def test_moves_under_fire(mars: MarsCluster) -> None:
    """A reducer is killed, the store is flushed, and buckets move in between."""
    seen: set[tuple[int, int]] = set()

    def strike(turn: int) -> None:
        seen.update((move.bucket, move.at) for move in moves_by_load(mars))
        (kill_a_reducer if turn % 2 else flush_the_store)(mars, turn)

    with SkewedLoad(mars, "fire", seconds=40, rows_per_s=2_000).running() as load:
        load.every(STRIKE_S, strike)

    load.check()
    wait_for("every process to be told of", lambda: len(mars.client.cluster().members) >= 6)
    assert seen or moves_by_load(mars), "no bucket moved because of load"


def test_a_reducer_that_is_asked_to_stop_is_emptied_first(mars: MarsCluster) -> None:
    def owned() -> int:
        owners = mars.client.cluster().assignment
        return sum(owner.member == "reducer-a" for owner in owners)

    with Load(mars, "leave", seconds=15).running() as load:
        with LinkedRole(mars, "reducer", "reducer-a") as guest:
            wait_for("it to own buckets", owned)
            guest.stop(15)
            balance = mars.client.cluster().balance

    load.check()
    assert balance is not None
    assert "reducer-a is leaving" in {move.reason for move in balance.moves}
    assert not owned()
