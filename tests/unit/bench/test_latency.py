"""The arithmetic of latencies."""

from __future__ import annotations

import msgspec
import polars as pl

from bench.latency import Arrival, LatencyPlan, latencies, summary


def value(window_end: int) -> bytes:
    return msgspec.json.encode({"window_end": window_end, "sip": "x"})


def test_latency_counts_from_the_end_of_the_window_and_the_delay() -> None:
    arrivals = [Arrival(at_s=11.25, values=[value(10_000), value(10_000), value(5_000)])]
    found = latencies(arrivals, delay_ms=1_000).sort("window_end")
    assert found.rows() == [(5_000, 5_250.0, 1), (10_000, 250.0, 2)]


def test_every_result_row_counts_once() -> None:
    frame = pl.DataFrame({"latency_ms": [100.0, 900.0], "rows": [99, 1]})
    found = summary(frame)
    assert (found.rows, found.p99_ms, found.highest_ms) == (100, 100.0, 900.0)


def test_at_least_one_window_is_measured() -> None:
    assert LatencyPlan(rate=1, window_s=10, seconds=5, groups=1).windows == 1
    assert LatencyPlan(rate=1, window_s=10, seconds=125, groups=1).windows == 12
