"""Entries vanish from a log of the real store: with what is noted of them, and without."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from mars.client.answers import Incident
from tests.faults.conftest import NO_BULK
from tests.support.cluster import MarsCluster, running_mars, wait_for
from tests.support.rows import QUERY, Result, assert_exactly_once, expected, flow_rows, messages

pytestmark = pytest.mark.faults

PARTITIONS = 4
WINDOW_MS = 60_000
FIRST_ROWS = 1_000
LATER_ROWS = 1_000
SETTINGS = """
[reducer]
progress_interval_ms = 1000

[tracker]
enabled = true
deadline_ms = 4000
"""

Lose = Callable[[redis.Redis, str, bytes], None]


@pytest.fixture(scope="module")
def mars(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MarsCluster]:
    folder = tmp_path_factory.mktemp("tracking")
    yield from running_mars(folder, "--reducers", "1", *NO_BULK, settings=SETTINGS)


@pytest.fixture
def client(mars: MarsCluster) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(mars.file["redis"]) as found:
        yield found


def figure(mars: MarsCluster, name: str) -> float:
    """The sum of a figure of all members' loads."""
    return sum(member.load.get(name, 0.0) for member in mars.client.cluster().members)


def incidents(mars: MarsCluster, kind: str) -> list[Incident]:
    """Those of a kind."""
    return [one for one in mars.client.incidents() if one.kind == kind]


def newest_entries(client: redis.Redis, task: str) -> dict[str, bytes]:
    """The newest entry of each log of a task."""
    found: dict[str, bytes] = {}
    for key in client.scan_iter(f"mars:{{{task}}}:log:*"):
        for number, _fields in client.xrevrange(key, count=1) or []:
            assert isinstance(number, bytes)
            found[key.decode()] = number
    return found


def lose_entry(client: redis.Redis, log: str, number: bytes) -> None:
    """Delete an entry; its size stays on record."""
    assert client.xdel(log, number) == 1


def lose_entry_and_size(client: redis.Redis, log: str, number: bytes) -> None:
    """Delete an entry, and what the store has noted of it."""
    lose_entry(client, log, number)
    assert client.hdel(log.replace(":log:", ":sizes:"), number.partition(b"-")[0]) == 1


class Loss:
    """Rows of one window of a task, an entry of which is lost before the reducer reads it."""

    def __init__(self, mars: MarsCluster, client: redis.Redis, task: str) -> None:
        self._mars, self._client, self._task = mars, client, task
        self.start_ms = int(time.time() * 1000) // WINDOW_MS * WINDOW_MS - 4 * WINDOW_MS
        self.rows = flow_rows(0, 2 * FIRST_ROWS, self.start_ms + 1_000, rows_per_s=100)
        self.bucket = self.seq = -1

    def happen(self, lose: Lose) -> None:
        """Feed all rows, and lose an entry of the second half; waits for the next store epoch."""
        mars, task = self._mars, self._task
        mars.declare(task, stream=task)
        sql = QUERY.replace("5 s", "60 s").replace("FROM flows", f"FROM {task}")
        mars.register(task, sql, idle_after="5min")
        self._feed(self.rows[:FIRST_ROWS])
        mars.ledger(task, FIRST_ROWS)
        epoch, before = mars.client.cluster().store_epoch, newest_entries(self._client, task)
        with mars.stopped("reducer-1"):
            self._feed(self.rows[FIRST_ROWS:])
            log, number = wait_for("an entry that is not read", lambda: self._unread(before))
            lose(self._client, log, number)
        self.bucket, self.seq = int(log.rpartition(":")[2]), int(number.partition(b"-")[0])
        wait_for("the store's next life", lambda: mars.client.cluster().store_epoch != epoch)

    def _unread(self, before: dict[str, bytes]) -> tuple[str, bytes] | None:
        now = newest_entries(self._client, self._task).items()
        return next(((log, number) for log, number in now if before.get(log) != number), None)

    def assert_exact(self) -> None:
        """Let the window close: its results have all rows."""
        count, later_ms = len(self.rows), self.start_ms + WINDOW_MS + 1_000
        self._feed(flow_rows(count, LATER_ROWS, later_ms, rows_per_s=10))
        wanted = expected(self.rows, WINDOW_MS)
        found: list[Result] = []

        def closed() -> bool:
            rows = self._mars.read(f"mars.results.{self._task}")
            found[:] = [one for one in rows if one[1]["window_start"] == self.start_ms]
            return len(found) >= len(wanted)

        wait_for("all groups of the window", closed, pause_s=0.5)
        assert_exactly_once(found, wanted)

    def _feed(self, rows: list[dict[str, Any]]) -> None:
        self._mars.produce(self._task, messages(rows, PARTITIONS))


def test_an_entry_that_the_store_itself_misses_is_read_again_before_anything_counts(
    mars: MarsCluster, client: redis.Redis
) -> None:
    lost = figure(mars, "tracker_lost_total")
    loss = Loss(mars, client, "missed")

    loss.happen(lose_entry)
    loss.assert_exact()

    ledger = mars.ledger("missed", len(loss.rows) + LATER_ROWS)
    assert (ledger.read, ledger.late) == (len(loss.rows) + LATER_ROWS, 0)
    assert figure(mars, "tracker_lost_total") == lost
    wait_for("the recovery to be told", lambda: incidents(mars, "rewound"))


def test_a_partial_that_vanished_is_found_named_and_read_again(
    mars: MarsCluster, client: redis.Redis
) -> None:
    loss = Loss(mars, client, "tracked")

    loss.happen(lose_entry_and_size)
    assert figure(mars, "tracker_proven_total") > 0
    (incident,) = wait_for("the loss to be told", lambda: incidents(mars, "partial_lost"))
    loss.assert_exact()

    told = [line for line in mars.logs(200).splitlines() if "partial_lost" in line]
    assert len(told) == 1
    assert f"seq={loss.seq}" in told[0]
    assert f"[{loss.bucket}]" in told[0]
    assert "ranges=" in told[0]
    assert (incident.task, incident.bucket) == ("tracked", loss.bucket)
    assert f"entry {loss.seq} " in incident.what
