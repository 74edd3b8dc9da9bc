"""`mars up --autoscale` follows a load up and down on real processes; the results stay exact."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.faults.conftest import NO_BULK
from tests.support.cluster import MarsCluster, running_mars, wait_for
from tests.support.load import LONG_S, STEPS_PER_S, Load
from tests.support.rows import flow_rows

pytestmark = pytest.mark.faults

MOST = 2

MODEST = """
[balance]
use_low = 0.10
use_target = 0.13
use_high = 0.15
fewer_after_s = 3.0
"""
"""Of a core. A mapper or reducer without rows takes 0.03 to 0.06; one with the tides gets more than
0.2 even of a machine on which ten others want to run."""

TRICKLE_ROWS_PER_S = 4
TIDE_ROWS_PER_S = 8_000
NEXT_TIDE_S = 8.0
TIDES_MAX = 10
"""A fast machine has more to do than a slow one before it grows: topics and tasks are added."""

GROWN_S = 2 * LONG_S
"""On a busy machine new processes take long to start, and the load is measured over seconds."""


@pytest.fixture(scope="module")
def mars(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MarsCluster]:
    options = ("--mappers", "1", "--reducers", "1", *NO_BULK)
    scaling = ("--autoscale", f"1:{MOST}")
    yield from running_mars(tmp_path_factory.mktemp("scaling"), *options, *scaling, settings=MODEST)


class Tide(Load):
    """Rows of now until it is enough."""

    def __init__(self, mars: MarsCluster, name: str) -> None:
        super().__init__(mars, name, seconds=0, window_s=1)

    def pour(self, enough: threading.Event) -> None:
        """A tenth of a second's rows at a time; a step that comes too late is not made up for."""
        while not enough.wait(1 / STEPS_PER_S):
            now_ms, count = time.time_ns() // 1_000_000, TIDE_ROWS_PER_S // STEPS_PER_S
            rows = flow_rows(len(self.rows), count, now_ms, rows_per_s=TIDE_ROWS_PER_S)
            self.rows += rows
            self.send(rows)
        self.close_windows(self.rows)


def members(mars: MarsCluster) -> Counter[str]:
    """How many of each of the two roles there are."""
    there = mars.client.cluster().members
    return Counter(member.role for member in there if member.role in ("mapper", "reducer"))


def seen_by(look: Callable[[], bool], seconds: float) -> bool:
    """Whether it becomes true within that time."""
    deadline = time.monotonic() + seconds
    while not look():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.3)
    return True


def test_processes_come_with_the_load_and_go_with_it_and_results_stay_exact(
    mars: MarsCluster,
) -> None:
    fewest, most = Counter(mapper=1, reducer=1), Counter(mapper=MOST, reducer=MOST)
    wait_for("one of each", lambda: members(mars) == fewest)
    trickle = Load(mars, "trickle", seconds=4 * LONG_S, rows_per_s=TRICKLE_ROWS_PER_S)
    tides: list[Tide] = []
    seen: Counter[str] = Counter()

    def grown() -> bool:
        seen.update(members(mars) - seen)
        return seen == most

    with trickle.running():
        with ExitStack() as running:
            while len(tides) < TIDES_MAX and not grown():
                tides.append(Tide(mars, f"tide_{len(tides)}"))
                running.enter_context(tides[-1].running())
                seen_by(grown, NEXT_TIDE_S)
            assert seen_by(grown, GROWN_S), f"{seen} after {len(tides)} tides"
            for tide in tides:
                tide.end()
        wait_for("one of each again", lambda: members(mars) == fewest, seconds=2 * LONG_S)
        trickle.end()

    for tide in tides:
        tide.check()
    trickle.check()
    said = (mars.data / "logs" / "supervisor.log").read_text()
    for name in ("mapper-2", "reducer-2"):
        assert re.search(rf"{name} is started: mean load .* is above", said), said
        assert re.search(rf"{name} is asked to end: mean load .* is below", said), said
