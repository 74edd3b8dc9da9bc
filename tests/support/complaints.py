"""The ten commonest complaints, brought about on a running Mars: a stream and a task each.

docs/guides/troubleshooting.md shows what Mars says of each.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from tests.support.cluster import MarsCluster, wait_for

FIELDS = {"at": "timestamp_ms", "page": "string", "ms": "int64"}
QUERY = "SELECT page, count(*), sum(ms) FROM {name} GROUP BY page WINDOWING 10 s"

HOUR_MS = 3_600_000

Row = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Complaint:
    """A task called `name` over a topic of that name, with two partitions, and what it gets."""

    name: str
    rows: tuple[Row, ...] = ()
    options: Mapping[str, object] = field(default_factory=lambda: {"idle_after": "1s"})
    partition: int = 0
    after: tuple[Row, ...] = ()
    """What comes once windows of `rows` are closed."""


def click(at: int, page: str | None = "/home", ms: object = 20) -> Row:
    return {"at": at, "page": page, "ms": ms}


def complaints(now_ms: int) -> list[Complaint]:
    """All of them but a stopped mapper; `paused` still has to be paused."""
    return [
        Complaint("one_quiet", (click(now_ms - 60_000), click(now_ms)), {"idle_after": "1h"}),
        Complaint("from_tomorrow", (click(now_ms), click(now_ms + 24 * HOUR_MS))),
        Complaint("in_seconds", (click(now_ms // 1000),)),
        Complaint("in_microseconds", (click(now_ms * 1000),)),
        Complaint("no_time", ({"time": now_ms, "page": "/home", "ms": 20},)),
        Complaint("renamed", ({"at": now_ms, "url": "/home", "ms": 20},)),
        Complaint("wrong_type", (click(now_ms, ms="20 ms"),)),
        Complaint("nothing_comes"),
        Complaint("all_late", (click(now_ms),), after=(click(now_ms - HOUR_MS),) * 3),
        Complaint("paused", (click(now_ms),)),
        Complaint(
            "too_many",
            tuple(click(now_ms - 60_000, f"/{page}") for page in range(9)),
            {"idle_after": "1s", "max_keys": 5},
        ),
    ]


def bring_about(mars: MarsCluster) -> None:
    """Make all topics, streams and tasks, and send their rows."""
    for one in complaints(0):
        mars.topic(one.name, 2)
        declared = {"topic": one.name, "format": "json", "event_time": "at", "fields": FIELDS}
        mars.client.put_stream(one.name, declared)
        mars.client.create_task(one.name, QUERY.format(name=one.name), options=dict(one.options))
    # Their times are those of the moment, whatever it took until here.
    found = complaints(time.time_ns() // 1_000_000)
    for one in found:
        _send(mars, one, one.rows)
    mars.client.pause_task("paused")
    for one in found:
        if one.after:
            wait_for(f"a result of {one.name}", partial(_results, mars, one.name))
            _send(mars, one, one.after)


def _send(mars: MarsCluster, one: Complaint, rows: tuple[Row, ...]) -> None:
    mars.produce(one.name, [(one.partition, json.dumps(row).encode()) for row in rows])


def _results(mars: MarsCluster, name: str) -> int:
    ledger = mars.client.task(name).ledger
    return 0 if ledger is None else ledger.emitted
