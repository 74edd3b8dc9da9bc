"""Entries vanish from a log of the real store, and the tuple tracker finds that they did."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator

import pytest
import redis

from tests.conftest import missing_kafka, missing_valkey, need
from tests.support.cluster import MarsCluster, wait_for
from tests.support.rows import QUERY, assert_exactly_once, expected, flow_rows, messages

pytestmark = pytest.mark.faults

PARTITIONS = 4
WINDOW_MS = 60_000
FIRST_ROWS = 1_000
SETTINGS = """
[reducer]
progress_interval_ms = 1000

[tracker]
enabled = true
deadline_ms = 4000
"""


@pytest.fixture(scope="module")
def mars(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MarsCluster]:
    need(missing_kafka())
    need(missing_valkey())
    folder = tmp_path_factory.mktemp("tracking")
    config = folder / "tracker.toml"
    config.write_text(SETTINGS)
    cluster = MarsCluster(folder / "data", "--config", str(config), "--reducers", "1")
    yield cluster
    cluster.down()


def figure(mars: MarsCluster, name: str) -> float:
    """The sum of a figure of all members' loads."""
    return sum(member.load.get(name, 0.0) for member in mars.client.cluster().members)


def newest_entries(client: redis.Redis, task: str) -> dict[str, bytes]:
    """The newest entry of each log of a task."""
    found = {}
    for key in client.scan_iter(f"mars:{{{task}}}:log:*"):
        for number, _fields in client.xrevrange(key, count=1):
            found[key.decode()] = number
    return found


def lose_one(client: redis.Redis, log: str, number: bytes) -> None:
    """Delete an entry and what the store has noted of it."""
    assert client.xdel(log, number) == 1
    assert client.hdel(log.replace(":log:", ":sizes:"), number.partition(b"-")[0]) == 1


def test_a_partial_that_vanished_is_found_named_and_read_again(mars: MarsCluster) -> None:
    start_ms = int(time.time() * 1000) // WINDOW_MS * WINDOW_MS - 4 * WINDOW_MS
    rows = flow_rows(0, 2 * FIRST_ROWS, start_ms + 1_000, rows_per_s=100)
    later = flow_rows(len(rows), 1_000, start_ms + WINDOW_MS + 1_000, rows_per_s=10)
    mars.declare("tracked")
    mars.register("tracked", QUERY.replace("5 s", "60 s"), idle_after="5min")
    client = redis.Redis.from_url(mars.file["redis"])

    mars.produce("tracked", messages(rows[:FIRST_ROWS], PARTITIONS))
    wait_for("the first rows", lambda: mars.client.ledger("tracked").read == FIRST_ROWS)
    wait_for("proven batches", lambda: figure(mars, "tracker_proven_total") > 0)
    assert figure(mars, "tracker_lost_total") == 0
    epoch = mars.client.cluster().store_epoch
    before = newest_entries(client, "tracked")

    mars.kill("reducer-1", signal.SIGSTOP)
    try:
        mars.produce("tracked", messages(rows[FIRST_ROWS:], PARTITIONS))
        log, number = wait_for(
            "an entry that is not read",
            lambda: next(
                (
                    (log, number)
                    for log, number in newest_entries(client, "tracked").items()
                    if before.get(log) != number
                ),
                None,
            ),
        )
        lose_one(client, log, number)
    finally:
        mars.kill("reducer-1", signal.SIGCONT)

    wait_for("the loss to be found", lambda: figure(mars, "tracker_lost_total") == 1)
    wait_for("the store's next life", lambda: mars.client.cluster().store_epoch != epoch)
    mars.produce("tracked", messages(later, PARTITIONS))
    wanted = expected(rows, WINDOW_MS)
    results = mars.read_until("mars.results.tracked", len(wanted))
    client.close()

    assert_exactly_once([one for one in results if one[1]["window_start"] == start_ms], wanted)
    told = [line for line in mars.logs(200).splitlines() if "partial_lost" in line]
    seq, bucket = number.partition(b"-")[0].decode(), log.rpartition(":")[2]
    assert len(told) == 1
    assert f"seq={seq}" in told[0]
    assert f"[{bucket}]" in told[0]
    assert "ranges=" in told[0]
