"""Rows that come late: each is in a result, or named in `mars.dead`, and never both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from mars.answers import Ledger
from tests.support.cluster import MarsCluster
from tests.support.rows import Result

LATE = "late"
"""The sip of such rows, which no other row has."""


def late_row(row: Mapping[str, Any], by_ms: int) -> dict[str, Any]:
    """Another row in the place of this one, of a time before it."""
    return {
        **row,
        "id": row["id"] + 10_000_000,
        "sip": LATE,
        "type": "dns",
        "timestamp": row["timestamp"] - by_ms,
    }


def without_late(results: Sequence[Result]) -> list[Result]:
    """The results of rows that came in time."""
    return [result for result in results if result[1]["sip"] != LATE]


def assert_late_are_accounted(
    mars: MarsCluster,
    task: str,
    late: Sequence[Mapping[str, Any]],
    results: Sequence[Result],
    window_ms: int,
) -> Ledger:
    """What was emitted for late rows, and what the ledger names late, is what was sent."""
    values = [value for _key, value, _headers in results if value["sip"] == LATE]
    emitted = Counter({value["window_start"]: value["count"] for value in values})
    assert len(emitted) == len(values), "a window of late rows was emitted twice"
    named: Counter[int] = Counter()
    for _key, record, _headers in mars.read("mars.dead"):
        if record["task"] == task:
            assert record["reason"] == "late"
            named[record["window_start"]] += record["rows"]
    assert emitted + named == Counter(row["timestamp"] // window_ms * window_ms for row in late)
    ledger = mars.client.ledger(task)
    assert ledger.late == named.total()
    assert ledger.late > 0, "nothing came late: the test showed nothing"
    return ledger
