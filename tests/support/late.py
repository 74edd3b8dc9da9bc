"""Rows that come late: each is in a result, or named in `mars.dead`, and never both.

Where a task revises, each is in the newest revision of its group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mars.client.answers import Ledger
from tests.support.cluster import MarsCluster
from tests.support.rows import Group, Result

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


def is_late(row: Mapping[str, Any]) -> bool:
    """Whether it was made by `late_row`, or is the result of such rows."""
    return bool(row["sip"] == LATE)


def apart(
    results: Sequence[Result], late: Callable[[Mapping[str, Any]], bool] = is_late
) -> tuple[list[Result], list[Result]]:
    """The results of rows in time, and those of late ones."""
    in_time = [result for result in results if not late(result[1])]
    return in_time, [result for result in results if late(result[1])]


def assert_late_are_accounted(
    mars: MarsCluster,
    task: str,
    late: Sequence[Mapping[str, Any]],
    results: Sequence[Result],
    window_ms: int,
) -> Ledger:
    """What was emitted for late rows, and what the ledger names late, is what was sent.

    `late` are all rows of some groups, `results` what came for these groups.
    """
    emitted: Counter[int] = Counter()
    groups: set[Group] = set()
    for _key, value, _headers in results:
        group = (value["window_start"], value["sip"], value["type"])
        assert group not in groups, f"emitted twice: {group}"
        groups.add(group)
        emitted[value["window_start"]] += value["count"]
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


def newest_revisions(
    results: Sequence[Result], group: Callable[[Mapping[str, Any]], Group]
) -> list[Result]:
    """Of each group the highest revision, without those deleted. They come in their order."""
    newest: dict[Group, Result] = {}
    for result in results:
        _key, value, headers = result
        place = group(value)
        older = newest.get(place)
        last = -1 if older is None else int(older[2]["mars-revision"])
        assert last < int(headers["mars-revision"]), f"{place}: {headers} after revision {last}"
        newest[place] = result
    return [one for one in newest.values() if one[2].get("mars-deleted") != "1"]
