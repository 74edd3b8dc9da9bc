"""Real processes are killed, stopped and emptied while rows come; the results stay exact.

Each test: rows of the last seconds arrive at a steady rate, a nemesis strikes every few seconds,
then everything heals, and each group of each window must have come exactly once, with the sums that
DuckDB computes. The numbers are those of the list of faults in `docs/RELIABILITY.md`.
"""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Callable, Iterator

import pytest
import redis

from tests.support.cluster import MarsCluster, wait_for
from tests.support.rows import assert_exactly_once, expected, flow_rows, messages

pytestmark = pytest.mark.faults

PARTITIONS = 4
ROWS_PER_S = 1_000
FEED_S = 20
STRIKE_S = 4.0

Strike = Callable[[MarsCluster, int], None]


@pytest.fixture(scope="module")
def mars(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MarsCluster]:
    cluster = MarsCluster(tmp_path_factory.mktemp("faults") / "data")
    yield cluster
    cluster.down()


def kill_a_mapper(mars: MarsCluster, turn: int) -> None:
    mars.kill(f"mapper-{turn % 2 + 1}")


def kill_a_reducer(mars: MarsCluster, turn: int) -> None:
    mars.kill(f"reducer-{turn % 2 + 1}")


def flush_the_store(mars: MarsCluster, _turn: int) -> None:
    redis.Redis.from_url(mars.file["redis"]).flushall()


def kill_the_store(mars: MarsCluster, _turn: int) -> None:
    mars.kill("redis")


def kill_zookeeper(mars: MarsCluster, _turn: int) -> None:
    mars.kill("zookeeper")


def kill_kafka(mars: MarsCluster, turn: int) -> None:
    if turn == 1:
        mars.kill("kafka")


def stop_a_process_past_its_session(name: str) -> Strike:
    """SIGSTOP until others have taken over, then let it go on as a zombie."""

    def strike(mars: MarsCluster, turn: int) -> None:
        if turn != 0:
            return
        pid = mars.kill(name, signal.SIGSTOP)
        try:
            wait_for(
                f"{name} to be missed",
                lambda: name not in {member.id for member in mars.client.cluster().members},
                seconds=60,
            )
        finally:
            mars.kill(name, signal.SIGCONT)
        assert mars.pid(name) == pid, "it was to go on, not to be started again"

    return strike


def anything(mars: MarsCluster, turn: int) -> None:
    chance = random.Random(turn)
    chance.choice([kill_a_mapper, kill_a_reducer, flush_the_store, kill_the_store])(mars, turn)


FAULTS: dict[str, Strike] = {
    "1-kill-a-mapper": kill_a_mapper,
    "3-stop-a-mapper": stop_a_process_past_its_session("mapper-1"),
    "4-kill-a-reducer": kill_a_reducer,
    "5-stop-a-reducer": stop_a_process_past_its_session("reducer-1"),
    "8-flushall": flush_the_store,
    "9-kill-valkey": kill_the_store,
    "11-kill-kafka": kill_kafka,
    "12-kill-zookeeper": kill_zookeeper,
    "22-anything": anything,
}


@pytest.mark.parametrize("fault", FAULTS)
def test_results_are_exact_through(mars: MarsCluster, fault: str) -> None:
    name = "f" + fault.replace("-", "_")
    mars.declare(name, stream=name, partitions=PARTITIONS)
    sql = (
        "SELECT sip, type, timestamp, count(*), sum(bytes) AS bytes, sum(id) AS ids, "
        f"sum(hash) AS hashes FROM {name} GROUP BY sip, type, timestamp WINDOWING 5 s"
    )
    mars.register(name, sql, idle_after="5s")
    rows = flow_rows(0, ROWS_PER_S * FEED_S, int(time.time() * 1000), rows_per_s=ROWS_PER_S)
    feeding = threading.Thread(target=_feed, args=(mars, name, rows))
    feeding.start()

    turn = 0
    while feeding.is_alive():
        feeding.join(STRIKE_S)
        if feeding.is_alive():
            FAULTS[fault](mars, turn)
            turn += 1

    wanted = expected(rows)
    found = mars.read_until(f"mars.results.{name}", len(wanted), seconds=120)
    assert_exactly_once(found, wanted)
    _assert_ledger(mars, name, len(rows))


def _feed(mars: MarsCluster, topic: str, rows: list[dict[str, object]]) -> None:
    """Send each row when its time has come."""
    begun = time.monotonic()
    step = ROWS_PER_S // 10
    for first in range(0, len(rows), step):
        wait = begun + first / ROWS_PER_S - time.monotonic()
        if wait > 0:
            time.sleep(wait)  # the pace of the load, not a way to synchronise
        mars.produce(topic, messages(rows[first : first + step], PARTITIONS))


def _assert_ledger(mars: MarsCluster, task: str, rows: int) -> None:
    wait_for(f"{rows} rows in the ledger", lambda: mars.client.ledger(task).read >= rows)
    ledger = mars.client.ledger(task)
    assert ledger.read == rows
    assert (
        ledger.read == ledger.counted + ledger.filtered + ledger.bad + ledger.future + ledger.late
    )
    assert ledger.counted == rows
    assert ledger.counted == ledger.emitted + ledger.open


def test_a_child_that_dies_is_started_again(mars: MarsCluster) -> None:
    before = mars.kill("mapper-1")

    wait_for("another mapper-1", lambda: mars.pid("mapper-1") != before)
