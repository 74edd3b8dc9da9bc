"""History through Spark, live rows through mappers: one task, each row once, windows in order."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import redis

from tests.support.cluster import MarsCluster, running_mars, wait_for
from tests.support.late import apart, assert_late_are_accounted, late_row
from tests.support.rows import (
    QUERY,
    Result,
    assert_exactly_once,
    expected,
    flow_rows,
    messages,
)

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(600)]

PARTITIONS = 4
HISTORY_ROWS = 60_000

SETTINGS = """
[bulk]
files = ["{files}"]
history_rows_min = 10000
chunk_rows = 6000
catch_up_rows_min = 20000
driver_memory_mb = 512

[reducer]
progress_interval_ms = 2000
"""

LATE_EVERY, LATE_MS = 50, 20_000
"""Of so many rows one has another behind it that is so late: its window was closed chunks ago."""

DONE_S = 300.0
"""For a backfill, the start of a Java machine on a busy computer and replays included."""


@pytest.fixture(scope="module")
def mars(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MarsCluster]:
    settings = SETTINGS.format(files=tmp_path_factory.getbasetemp())
    yield from running_mars(tmp_path_factory.mktemp("bulk"), settings=settings)


class Feed:
    """Rows of a topic: some before a task is registered, then more as time goes on."""

    def __init__(self, mars: MarsCluster, topic: str, history: int = HISTORY_ROWS) -> None:
        self.mars = mars
        self.topic = topic
        self.rate = 1_000
        begin_ms = int(time.time() * 1000) - history * 1000 // self.rate - 5_000
        self.rows: list[dict[str, Any]] = []
        self._begin_ms = begin_ms
        mars.declare(topic, stream=topic.replace("-", "_"))
        self.send(history)

    def send(self, count: int, *, begin_ms: int | None = None, rows_per_s: int = 1_000) -> None:
        """More rows, behind those before unless `begin_ms` says when."""
        first = len(self.rows)
        start_ms = self._begin_ms + first * 1000 // self.rate if begin_ms is None else begin_ms
        rows = flow_rows(first, count, start_ms, rows_per_s=rows_per_s)
        self.mars.produce(self.topic, messages(rows, PARTITIONS))
        self.rows += rows

    def register(self, name: str, **options: str) -> None:
        """From the earliest offset on; rows may be as late as the feed lets them be."""
        self.mars.client.create_task(
            name,
            QUERY.replace("FROM flows", f"FROM {self.topic.replace('-', '_')}"),
            options={"delay": "500ms", "idle_after": "2s", **options},
            start="earliest",
        )

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """Rows come at a modest rate meanwhile."""
        stop = threading.Event()

        def run() -> None:
            while not stop.wait(0.2):
                self.send(100)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()


def state(mars: MarsCluster, name: str) -> str:
    return str(mars.client.task(name).state)


def wait_until_done(mars: MarsCluster, name: str) -> None:
    wait_for(
        f"the backfill of {name}",
        lambda: state(mars, name) == "running",
        seconds=DONE_S,
        pause_s=0.3,
    )


def check(mars: MarsCluster, name: str, rows: list[dict[str, Any]]) -> list[Result]:
    """Every window once and right, and the ledger accounts for every row."""
    wanted = expected(rows)
    results = mars.read_until(f"mars.results.{name}", len(wanted), seconds=120)
    assert_exactly_once(results, wanted)
    ledger = mars.ledger(name, len(rows))
    assert ledger.late == ledger.bad == ledger.future == 0
    assert ledger.counted == ledger.emitted + ledger.open == len(rows)
    return results


def test_history_is_backfilled_behind_a_fence_while_live_rows_keep_coming(
    mars: MarsCluster,
) -> None:
    feed = Feed(mars, "history")
    feed.register("history")
    assert state(mars, "history") == "backfilling"

    with feed.going_on():
        shown = mars.mars("backfill", "history", "--json")

    assert shown.returncode == 0, shown.stderr
    lines = [json.loads(line) for line in shown.stdout.splitlines()]
    assert lines[-1]["backfill"]["percent"] == 100
    wait_until_done(mars, "history")
    results = check(mars, "history", feed.rows)
    by_bucket: dict[str, list[int]] = {}
    for _key, value, headers in results:
        by_bucket.setdefault(headers["mars-bucket"], []).append(value["window_start"])
    assert all(starts == sorted(starts) for starts in by_bucket.values())


def test_a_backfill_is_exact_though_everything_dies_on_the_way(mars: MarsCluster) -> None:
    feed = Feed(mars, "broken")
    feed.register("broken")
    with feed.going_on():
        wait_for("some chunks", lambda: _rows_done(mars, "broken") > 0, seconds=DONE_S)
        mars.kill("bulk-1")
        mars.kill("mapper-1")
        before = _rows_done(mars, "broken")
        wait_for("more chunks", lambda: _rows_done(mars, "broken") > before, seconds=DONE_S)
        redis.Redis.from_url(str(mars.file["redis"])).flushall()
        mars.kill("reducer-1")
        wait_until_done(mars, "broken")

    check(mars, "broken", feed.rows)


def test_late_rows_of_a_history_are_in_a_result_or_named_and_never_both(mars: MarsCluster) -> None:
    mars.declare("laggards", stream="laggards")
    begin_ms = int(time.time() * 1000) - 60_000
    rows = flow_rows(0, 40_000, begin_ms, rows_per_s=1_000)
    late = [late_row(row, LATE_MS) for row in rows[::LATE_EVERY]]
    behind = {row["id"]: row for row in late}
    sent = [one for row in rows for one in (row, behind.get(row["id"] + 10_000_000)) if one]
    before, after = sent[: len(sent) * 3 // 4], sent[len(sent) * 3 // 4 :]
    mars.produce("laggards", messages(before, PARTITIONS))

    sql = QUERY.replace("FROM flows", "FROM laggards")
    options = {"delay": "500ms", "idle_after": "2s"}
    mars.client.create_task("laggards", sql, options=options, start="earliest")
    assert state(mars, "laggards") == "backfilling"
    mars.produce("laggards", messages(after, PARTITIONS))
    wait_until_done(mars, "laggards")

    def accounted() -> bool:
        ledger = mars.client.ledger("laggards")
        return ledger.read == len(sent) and not ledger.open

    wait_for("all rows", accounted, seconds=120)
    results = mars.read("mars.results.laggards")
    in_time, too_late = apart(results)
    assert_exactly_once(in_time, expected(rows))
    assert_late_are_accounted(mars, "laggards", late, too_late, 5_000)


def _rows_done(mars: MarsCluster, name: str) -> int:
    backfill = mars.client.task(name).backfill
    return backfill.rows_done if backfill is not None else 0


def test_a_task_far_behind_is_caught_up_by_spark(mars: MarsCluster) -> None:
    feed = Feed(mars, "paused", history=1_000)
    feed.register("paused")
    wait_for("its first rows", lambda: mars.client.ledger("paused").read == 1_000)
    mars.client.pause_task("paused")
    # What was read before may be emitted by now: these are no late rows.
    feed.send(40_000, begin_ms=int(time.time() * 1000) + 1_000, rows_per_s=10_000)
    log = mars.data / "logs" / "bulk-1.log"
    # Mappers would read so little before Spark begins.
    with mars.stopped("mapper-1", "mapper-2"):
        mars.client.resume_task("paused")
        wait_for("Spark", lambda: "has caught up" in log.read_text(), seconds=DONE_S)

    check(mars, "paused", feed.rows)


def test_files_are_the_history_of_what_the_topic_no_longer_holds(
    mars: MarsCluster, tmp_path: Path
) -> None:
    begin_ms = int(time.time() * 1000) // 5_000 * 5_000 - 60_000
    old = flow_rows(0, 20_000, begin_ms, rows_per_s=1_000)
    fence_ms = begin_ms + 20_000
    # Shuffled over the files: each covers all of the time.
    for number in range(4):
        pq.write_table(pa.Table.from_pylist(old[number::4]), tmp_path / f"part-{number}.parquet")
    mars.declare("recent", stream="recent")
    new = flow_rows(20_000, 10_000, fence_ms + 500, rows_per_s=1_000)
    mars.produce("recent", messages(new, PARTITIONS))

    added = mars.mars(
        "task", "add", "--name", "recent", "--sql", QUERY.replace("FROM flows", "FROM recent"),
        "--start", "earliest", "--files", str(tmp_path), "--files-format", "parquet",
        "--until", str(fence_ms + 500), "--option", "delay=500ms", "--option", "idle_after=2s",
    )  # fmt: skip

    assert added.returncode == 0, added.stderr
    check(mars, "recent", [*old, *new])


def test_a_query_over_the_topic_equals_what_duckdb_computes(mars: MarsCluster) -> None:
    mars.declare("asked", stream="asked")
    begin_ms = int(time.time() * 1000) // 10_000 * 10_000 - 60_000
    rows = flow_rows(0, 20_000, begin_ms, rows_per_s=1_000)
    mars.produce("asked", messages(rows, PARTITIONS))
    inside = [row for row in rows if begin_ms <= row["timestamp"] < begin_ms + 10_000]
    arrived = pa.Table.from_pylist(inside)  # noqa: F841 -- DuckDB finds it
    computed = duckdb.sql(
        "SELECT type, count(*)::BIGINT AS count, sum(bytes)::BIGINT AS sum_bytes FROM arrived "
        "GROUP BY type ORDER BY type"
    )
    assert computed is not None
    wanted = computed.fetchall()

    asked = mars.mars(
        "query", "SELECT type, count(*), sum(bytes) FROM asked GROUP BY type WINDOWING 10 s",
        "--from", str(begin_ms), "--until", str(begin_ms + 10_000), "--json",
    )  # fmt: skip

    assert asked.returncode == 0, asked.stderr
    found = [json.loads(line) for line in asked.stdout.splitlines()]
    assert [(row["type"], row["count"], row["sum_bytes"]) for row in found] == wanted
