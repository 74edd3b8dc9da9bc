"""The cluster's page: what its members use, how many are wanted, and which buckets moved why."""

from __future__ import annotations

import pytest

from mars.core.types import Bucket, MemberId
from mars.protocol.ports import Balance, BucketLoad, Move, Wanted
from tests.support.browser import Browser
from tests.unit.api.twins import World

pytestmark = pytest.mark.browser

CELLS = """
return [...document.querySelectorAll(`[aria-label="${arguments[0]}"] tbody tr`)]
  .map((row) => [...row.cells].map((cell) => cell.innerText))
"""
BECAUSE = "reducer-1 uses 95 % of its CPU, reducer-2 38 %"
AT_MS = 1_767_225_600_000


@pytest.fixture
def balance() -> Balance:
    first, second = MemberId("reducer-1"), MemberId("reducer-2")
    return Balance(
        wanted=(
            Wanted("mapper", 1, 1, "they keep up"),
            Wanted("reducer", 1, 2, "reducers use 95 % of their CPU"),
        ),
        moves=(
            Move(Bucket(0), None, first, "nobody had it", AT_MS),
            Move(Bucket(3), first, second, BECAUSE, AT_MS + 60_000),
        ),
        strategy="weighted",
        strategy_reason="loads differ by a factor of 3",
    )


def join_leader(world: World, balance: Balance) -> None:
    load = {"cpu_use": 0.375, "rows_per_second": 5.0, "leader_epoch": 4.0}
    loads = (BucketLoad(Bucket(1), 0.25, 1_200.0, 9_000.0, 2_048),)
    world.join_reducer("reducer-2", load=load, loads=loads, balance=balance)


def test_the_cluster_shows_use_load_wanted_members_and_moves(
    page: Browser, site: str, world: World, balance: Balance
) -> None:
    join_leader(world, balance)
    page.go(f"{site}/#/cluster")
    page.until_text("Spread by")
    page.until_text("weighted: loads differ by a factor of 3", ".facts")

    members = {cells[0].split()[0]: cells for cells in page.run(CELLS, "Members")}
    titles = page.run("return [...document.querySelectorAll('th')].map((one) => one.innerText)")
    assert members["reducer-2"][titles.index("CPU, of a core")] == "37.5 %"

    assert page.run(CELLS, "Members that the load asks for") == [
        ["mappers", "1", "1", "they keep up"],
        ["reducers", "1", "2", "reducers use 95 % of their CPU"],
    ]
    assert page.run(CELLS, "Latest moves of buckets") == [
        ["2026-01-01 00:01:00", "3", "reducer-1", "reducer-2", BECAUSE],
        ["2026-01-01 00:00:00", "0", "nobody", "reducer-1", "nobody had it"],
    ]
    buckets = page.run(
        "return [...document.querySelectorAll('.buckets li')].map((o) => o.innerText)"
    )
    assert "25 % of a core, 1,200/s, 2 KiB to read" in buckets[1]
    assert "next to no load" in buckets[0]


def test_a_cluster_says_that_no_leader_says_how_many_are_wanted(
    page: Browser, site: str, world: World, balance: Balance
) -> None:
    page.go(f"{site}/#/cluster")
    page.until_text("There is no leader at the moment")
    join_leader(world, balance)
    page.until_text("reducers use 95 % of their CPU")
    assert "There is no leader" not in page.text()
