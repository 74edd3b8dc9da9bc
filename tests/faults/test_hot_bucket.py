"""One bucket is nearly all there is to do: the leader finds assistants for its owner, by itself."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from mars.client.answers import Assisted
from mars.core.types import Bucket
from tests.faults.conftest import three_reducers
from tests.support.cluster import MarsCluster, wait_for
from tests.support.load import LONG_S, Load

pytestmark = pytest.mark.faults

BUCKET = Bucket(0)

TASKS = 12
"""Over the same rows: each is work for the one who has the bucket, and for nobody else."""

SOON_BUSY = """
[balance]
use_low = 0.01
use_target = 0.03
use_high = 0.04
cooldown_s = 3.0
"""
"""Some thousand rows a second are a small load: what is hot about it must count. The owner uses
0.1 to 0.3 of a core, as fast as the machine is; those who have no bucket 0.01 to 0.02."""

STILL_S = 5.0
"""How long the owner stands still: segments are whole by then; its session lasts 10 s."""


@pytest.fixture(scope="module")
def mars(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MarsCluster]:
    yield from three_reducers(tmp_path_factory.mktemp("hot"), 1, SOON_BUSY)


def assisted(mars: MarsCluster) -> list[Assisted]:
    """What the leader tells of."""
    balance = mars.client.cluster().balance
    return balance.assisted if balance else []


def segments_merged(mars: MarsCluster) -> float:
    """By all reducers."""
    members = mars.client.cluster().members
    return sum(member.load.get("assisted_segments_total", 0) for member in members)


def test_the_leader_names_assistants_of_a_hot_bucket_who_merge_and_go_with_the_load(
    mars: MarsCluster,
) -> None:
    others = [f"hot_{number}" for number in range(1, TASKS)]
    load = Load(mars, "hot", seconds=2 * LONG_S, rows_per_s=3_000, window_s=1)
    with load.running():
        for name in others:
            mars.register(name, load.sql, idle_after="2min")
        (named, *_) = wait_for("assistants", lambda: assisted(mars), seconds=60)
        (owner,) = (each.member for each in mars.client.cluster().assignment)
        shown = mars.mars("status", "--data", str(mars.data)).stdout

        def stand_still(_turn: int) -> None:
            with mars.stopped(owner):
                time.sleep(STILL_S)  # how long it lasts

        load.every(1, stand_still, until=lambda: segments_merged(mars) > 0)
        assert segments_merged(mars) > 0, "nobody merged anything"

    load.check()
    assert named.bucket == BUCKET
    assert owner not in named.assistants
    assert f"{owner} at" in named.reason
    assert "has little else to give away than bucket 0" in named.reason
    assert named.reason in shown
    for name in others:
        mars.client.delete_task(name)
    wait_for("the assistants to go", lambda: not assisted(mars), seconds=90)
