"""What the README promises, as its reader does it: up, stream, task, rows, results, down."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.support.cluster import MarsCluster
from tests.support.rows import assert_exactly_once, closing_rows, expected, flow_rows, messages

pytestmark = pytest.mark.acceptance

PARTITIONS = 4
WINDOW_MS = 5_000
"""Of the query in `tests.support.rows`."""

LONG = "1h"
"""`idle_after` where rows close the windows: no lane is called idle, however slow the machine."""


@pytest.fixture(scope="module")
def mars(shared_mars: MarsCluster) -> MarsCluster:
    return shared_mars


def test_results_in_kafka_equal_what_duckdb_computes(mars: MarsCluster) -> None:
    mars.declare("exact")
    mars.register("exact", output_topic="exact-results", idle_after=LONG)
    rows = flow_rows(0, 20_000, int(time.time() * 1000) - 60_000, rows_per_s=1_000)
    wanted = expected(rows)

    mars.produce("exact", messages(rows, PARTITIONS))
    mars.produce("exact", messages(closing_rows(rows, PARTITIONS, WINDOW_MS), PARTITIONS))
    results = mars.read_until("exact-results", len(wanted))

    assert_exactly_once(results, wanted)
    key, value, headers = results[0]
    assert json.loads(key) == [value["window_start"], value["sip"], value["type"]]
    assert value["window_end"] == value["window_start"] + 5_000
    assert headers["mars-task"] == "exact"
    assert headers["mars-revision"] == "0"


def test_the_ledger_balances_and_counts_every_row(mars: MarsCluster) -> None:
    rows = 20_000 + PARTITIONS
    ledger = mars.ledger("exact", rows)

    assert ledger.counted == rows
    assert ledger.emitted + ledger.open == ledger.counted
    assert ledger.bad == ledger.late == ledger.future == ledger.filtered == 0


def test_down_and_up_on_old_data_goes_on_exactly(tmp_path: Path) -> None:
    mars = MarsCluster(tmp_path / "data")
    try:
        mars.declare("again")
        mars.register("again", idle_after=LONG)
        start_ms = int(time.time() * 1000) - 60_000
        rows = flow_rows(0, 10_000, start_ms, rows_per_s=1_000)
        mars.produce("again", messages(rows[:6_000], PARTITIONS))
        mars.read_until("mars.results.again", 1)
        mars.down()
        mars.up()
        mars.produce("again", messages(rows[6_000:], PARTITIONS))
        mars.produce("again", messages(closing_rows(rows, PARTITIONS, WINDOW_MS), PARTITIONS))
        wanted = expected(rows)
        assert_exactly_once(mars.read_until("mars.results.again", len(wanted)), wanted)
    finally:
        mars.down()


def test_the_command_line_does_the_main_job(mars: MarsCluster, tmp_path: Path) -> None:
    mars.topic("typed", 2)
    declaration = tmp_path / "typed.json"
    declaration.write_text(
        json.dumps(
            {
                "topic": "typed",
                "format": "json",
                "fields": {"timestamp": "timestamp_ms", "sip": "string"},
                "event_time": "timestamp",
            }
        )
    )
    sql = "SELECT sip, timestamp, count(*) FROM typed GROUP BY sip, timestamp WINDOWING 2 s"

    assert mars.mars("stream", "put", str(declaration)).returncode == 0
    added = mars.mars("task", "add", "--name", "typed", "--sql", sql, "--option", "idle_after=1s")
    assert added.returncode == 0, added.stderr
    now = int(time.time() * 1000)
    rows = [(n % 2, b'{"timestamp":%d,"sip":"a"}' % (now - 10_000)) for n in range(10)]
    mars.produce("typed", rows)
    results = mars.read_until("mars.results.typed", 1)

    assert results[0][1]["count"] == 10
    listed = json.loads(mars.mars("task", "list", "--json").stdout)
    assert "typed" in {task["name"] for task in listed}
    assert "typed" in mars.mars("why", "typed").stdout or mars.mars("why", "typed").returncode == 0
    assert mars.mars("task", "show", "nobody").returncode == 3
    wrong = mars.mars("task", "add", "--name", "wrong", "--sql", "SELECT nothing FROM typed")
    assert wrong.returncode == 4
    assert "line 1" in wrong.stderr
    assert mars.mars("task", "rm", "typed").returncode == 0
