"""`mars up --autoscale` follows a load up and down on real processes; the results stay exact.

It goes by how much of a processor each process uses; one that gets none beside others uses none:
on a busy machine nothing is to be seen here. So `make test` leaves it out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.support.cluster import MarsCluster, running_mars, wait_for
from tests.support.load import LONG_S, Load

pytestmark = [pytest.mark.faults, pytest.mark.bench]

MOST = 2

MODEST = """
[balance]
use_low = 0.10
use_target = 0.13
use_high = 0.15
fewer_after_s = 3.0
"""
"""Of a core. A mapper or reducer without rows takes 0.03 to 0.05; one alone with the tide gets more
than 0.2 even of a machine on which ten others want to run."""

TRICKLE_ROWS_PER_S = 4
TIDE_ROWS_PER_S = 8_000
TIDE_S = 45


@pytest.fixture(scope="module")
def mars(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MarsCluster]:
    options = ("--mappers", "1", "--reducers", "1", "--bulk", "0")
    scaling = ("--autoscale", f"1:{MOST}")
    yield from running_mars(tmp_path_factory.mktemp("scaling"), *options, *scaling, settings=MODEST)


def members(mars: MarsCluster) -> Counter[str]:
    """How many of each of the two roles there are."""
    there = mars.client.cluster().members
    return Counter(member.role for member in there if member.role in ("mapper", "reducer"))


def test_processes_come_with_the_load_and_go_with_it_and_results_stay_exact(
    mars: MarsCluster,
) -> None:
    fewest, most = Counter(mapper=1, reducer=1), Counter(mapper=MOST, reducer=MOST)
    wait_for("one of each", lambda: members(mars) == fewest)
    trickle = Load(mars, "trickle", seconds=4 * LONG_S, rows_per_s=TRICKLE_ROWS_PER_S)
    tide = Load(mars, "tide", seconds=TIDE_S, rows_per_s=TIDE_ROWS_PER_S, window_s=1)
    seen: Counter[str] = Counter()

    def grown() -> bool:
        seen.update(members(mars) - seen)
        return seen == most

    with trickle.running():
        with tide.running():
            wait_for("more of each", grown, seconds=LONG_S)
            tide.end()
        wait_for("one of each again", lambda: members(mars) == fewest, seconds=2 * LONG_S)
        trickle.end()

    tide.check()
    trickle.check()
    said = (mars.data / "logs" / "supervisor.log").read_text()
    for name in ("mapper-2", "reducer-2"):
        assert re.search(rf"{name} is started: mean load .* is above", said), said
        assert re.search(rf"{name} is asked to end: mean load .* is below", said), said
