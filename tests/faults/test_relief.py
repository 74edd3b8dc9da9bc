"""A reducer that falls behind lends a bucket because of pressure, and gets it back."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence

import pytest

from mars.client.answers import Move
from tests.support.cluster import MarsCluster, wait_for
from tests.support.load import LONG_S
from tests.support.skewed import SkewedLoad

pytestmark = pytest.mark.faults

STILL_S = 4.0
"""How long the slow reducer stands still at a time: its session lasts 10 s, so it keeps its
buckets, but more than its room, half of 8 MB, lies unread by then."""

RUNS_S = 1.5
"""And how long it runs in between: it reads and reports."""

KEYS = 1_000
KEY_CHARACTERS = 1_200
"""At random, so that they can hardly be compressed: 1,500 rows a second are some 1.3 MB."""


class HeavyLoad(SkewedLoad):
    """Long keys of the buckets of a reducer that does not lead."""

    def chosen(self, owners: Mapping[int, str]) -> str:
        leader = self.mars.client.cluster().leader
        assert leader is not None
        return min(set(owners.values()) - {leader.member})

    def addresses(self) -> Sequence[str]:
        chance = random.Random(1)
        return [f"{chance.randbytes(KEY_CHARACTERS // 2).hex()}" for _ in range(KEYS)]


def owner_of(mars: MarsCluster, bucket: int) -> str:
    (owner,) = (one.member for one in mars.client.cluster().assignment if one.bucket == bucket)
    return owner


def test_a_reducer_under_pressure_lends_a_bucket_and_gets_it_back(mars: MarsCluster) -> None:
    load = HeavyLoad(mars, "relief", seconds=LONG_S, rows_per_s=1_500)

    def lent() -> dict[int, Move]:
        """By bucket, after another turn of standing still."""
        with mars.stopped(load.hot_member):
            time.sleep(STILL_S)  # how long it lasts
        return {move.bucket: move for move in load.moves("is under pressure")}

    def given_back() -> dict[int, Move]:
        return {move.bucket: move for move in load.moves("has room again")}

    with load.running():
        loans = wait_for("a bucket to be lent", lent, pause_s=RUNS_S)
        wait_for("all to be given back", lambda: given_back().keys() >= loans.keys())
        owners = {bucket: owner_of(mars, bucket) for bucket in loans}
        load.end()

    load.check()
    for bucket, move in loans.items():
        back = given_back()[bucket]
        assert move.source == load.hot_member
        assert f"{move.source} is under pressure" in move.reason
        assert "of its room, growing by" in move.reason
        assert (back.source, back.target) == (move.target, move.source)
        assert owners[bucket] == load.hot_member
