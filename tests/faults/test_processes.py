"""Real processes are killed, stopped and emptied while rows come; the results stay exact.

Each test: rows of the last seconds arrive at a steady rate, a nemesis strikes every few seconds,
then everything heals, and each group of each window must have come exactly once, with the sums that
DuckDB computes. The numbers are those of the list of faults in `docs/reports/reliability.md`.
"""

from __future__ import annotations

import signal

import pytest

from tests.faults.nemesis import (
    Strike,
    anything,
    flush_the_store,
    kill_a_mapper,
    kill_a_reducer,
    kill_kafka,
    kill_the_store,
    kill_zookeeper,
    wait_until_missed,
)
from tests.support.cluster import MarsCluster, wait_for
from tests.support.load import LONG_S, Load

pytestmark = pytest.mark.faults

FEED_S = 14
STRIKE_S = 4.0

FLUSHES = 20
FLUSH_EVERY_S = 0.6
"""Shorter than a recovery: most strike in the middle of one."""


def stop_a_process_past_its_session(name: str) -> Strike:
    """SIGSTOP until others have taken over, then let it go on as a zombie."""

    def strike(mars: MarsCluster, turn: int) -> None:
        if turn != 0:
            return
        pid = mars.kill(name, signal.SIGSTOP)
        try:
            wait_until_missed(mars, name)
        finally:
            mars.kill(name, signal.SIGCONT)
        assert mars.pid(name) == pid, "it was to go on, not to be started again"

    return strike


FAULTS: dict[str, Strike] = {
    "1-kill-a-mapper": kill_a_mapper,
    "3-stop-a-mapper": stop_a_process_past_its_session("mapper-1"),
    "4-kill-a-reducer": kill_a_reducer,
    "5-stop-a-reducer": stop_a_process_past_its_session("reducer-1"),
    "9-kill-valkey": kill_the_store,
    "11-kill-kafka": kill_kafka,
    "12-kill-zookeeper": kill_zookeeper,
    "22-anything": anything,
}


@pytest.mark.parametrize("fault", FAULTS)
def test_results_are_exact_through(mars: MarsCluster, fault: str) -> None:
    name = "f" + fault.replace("-", "_")
    with Load(mars, name, seconds=FEED_S).running() as load:
        load.every(STRIKE_S, lambda turn: FAULTS[fault](mars, turn))
    load.check()


def test_8_twenty_times_flushall(mars: MarsCluster) -> None:
    flushed: list[int] = []

    def flush(turn: int) -> None:
        flush_the_store(mars, turn)
        flushed.append(turn)

    with Load(mars, "f8_flushall", seconds=LONG_S).running() as load:
        load.every(FLUSH_EVERY_S, flush, until=lambda: len(flushed) == FLUSHES)
    load.check()
    assert len(flushed) == FLUSHES


def test_a_child_that_dies_is_started_again(mars: MarsCluster) -> None:
    before = mars.kill("mapper-1")

    wait_for("another mapper-1", lambda: mars.pid("mapper-1") != before)
