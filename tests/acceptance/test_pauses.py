"""Partitions that pause while their rows are older than now, on real processes.

event time   270 ─▶ 299 ····(pause until the first window has closed)····▶ 300 ─▶ 359
             30 rows of [0, 300)                                          60 rows of [300, 600)
"""

from __future__ import annotations

import json
import time

import pytest

from tests.support.cluster import MarsCluster, wait_for

pytestmark = pytest.mark.acceptance

NAME = "pauses"
TOPIC = f"mars.results.{NAME}"
WINDOW_S = 300
"""A pause may last for so long, on the slowest of machines, before it closes the second window."""

HOUR_MS = 3_600_000
SQL = f"SELECT sip, count(*) AS n FROM {NAME} GROUP BY sip WINDOWING {WINDOW_S} s"
FIELDS = {"timestamp": "timestamp_ms", "sip": "string"}


def send(mars: MarsCluster, start_ms: int, seconds: range) -> None:
    """A row a second, in order, in partition 0 alone."""
    rows = [{"timestamp": start_ms + second * 1_000, "sip": "a"} for second in seconds]
    mars.produce(NAME, [(0, json.dumps(row).encode()) for row in rows])


def test_old_rows_in_order_are_not_late_after_a_pause(shared_mars: MarsCluster) -> None:
    mars, window_ms = shared_mars, WINDOW_S * 1_000
    start_ms = (time.time_ns() // 1_000_000 - HOUR_MS) // window_ms * window_ms
    mars.topic(NAME, 2)
    stream = {"topic": NAME, "format": "json", "fields": FIELDS, "event_time": "timestamp"}
    mars.client.put_stream(NAME, stream)
    mars.client.create_task(NAME, SQL, start="earliest", options={"idle_after": "1s"})

    send(mars, start_ms, range(270, 300))
    # Only the pause can close it: the newest row lies within.
    (first,) = mars.read_until(TOPIC, 1)
    assert (first[1]["window_start"], first[1]["n"]) == (start_ms, 30)

    send(mars, start_ms, range(300, 360))

    def paced() -> bool:
        return "event time goes on at the pace of the clock" in mars.client.why(NAME).summary

    wait_for("event time to go on by the clock", paced)
    assert mars.ledger(NAME, 90).late == 0

    send(mars, start_ms, range(600, 601))
    results = mars.read_until(TOPIC, 2)
    found = [(value["window_start"], value["n"]) for _key, value, _headers in results]
    assert found == [(start_ms, 30), (start_ms + window_ms, 60)]
    assert mars.ledger(NAME, 91, emitted=90).late == 0
