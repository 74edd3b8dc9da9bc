"""A task that revises closed windows, on real processes."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from functools import partial
from typing import Any

import pytest

from tests.support.cluster import MarsCluster, wait_for
from tests.support.late import newest_revisions
from tests.support.rows import Result

pytestmark = pytest.mark.acceptance

NAME = "late_rows"
TOPIC = f"mars.results.{NAME}"
PARTITIONS = 2
START_MS = 1_700_000_000_000
WINDOW_MS = 10_000
LATENESS_MS = 60_000
MANY = 1_000
"""Late rows at once, one message each."""

HOT_ROWS_MAX = 50
SQL = (
    f"SELECT sip, timestamp, count(*) AS n, sum(id) AS ids FROM {NAME} "
    f"GROUP BY sip, timestamp HAVING count(*) <= {HOT_ROWS_MAX} OR sip <> 'hot' WINDOWING 10 s"
)
OPTIONS: dict[str, object] = {"idle_after": "1h", "late": "revise", "lateness": "60 s"}
"""No lane is ever idle, so rows alone say when windows close."""

Row = dict[str, Any]


class Flow:
    """What was sent."""

    def __init__(self, mars: MarsCluster) -> None:
        self.mars = mars
        self.rows: list[Row] = []

    def send(self, *placed: tuple[int, str]) -> None:
        """Rows by seconds from the start and key, round robin."""
        first = len(self.rows)
        made: list[Row] = [
            {"timestamp": START_MS + seconds * 1_000, "sip": sip, "id": first + number}
            for number, (seconds, sip) in enumerate(placed)
        ]
        self.rows += made
        self.mars.produce(
            NAME, [(row["id"] % PARTITIONS, json.dumps(row).encode()) for row in made]
        )

    def totals(self, end_s: int) -> dict[tuple[int, str], tuple[int, int]]:
        """Count and sum of ids of each group of the windows that end by then."""
        found: defaultdict[tuple[int, str], list[int]] = defaultdict(list)
        for row in self.rows:
            start = row["timestamp"] // WINDOW_MS * WINDOW_MS
            if start + WINDOW_MS <= START_MS + end_s * 1_000:
                found[start, row["sip"]].append(row["id"])
        return {place: (len(ids), sum(ids)) for place, ids in found.items()}


def newest(results: list[Result]) -> dict[tuple[int, str], tuple[int, int]]:
    """Of each key the highest revision, without the deleted; no revision comes twice."""
    found = newest_revisions(results, lambda value: (value["window_start"], value["sip"]))
    return {
        (value["window_start"], value["sip"]): (value["n"], value["ids"])
        for _key, value, _headers in found
    }


def test_late_rows_revise_their_windows_until_they_are_too_late(shared_mars: MarsCluster) -> None:
    mars, flow = shared_mars, Flow(shared_mars)
    mars.topic(NAME, PARTITIONS)
    fields = {"timestamp": "timestamp_ms", "sip": "string", "id": "int64"}
    stream = {"topic": NAME, "format": "json", "fields": fields, "event_time": "timestamp"}
    mars.client.put_stream(NAME, stream)
    mars.client.create_task(NAME, SQL, start="earliest", options=OPTIONS)

    flow.send(*[(number % 10, f"k{number % 5}") for number in range(40)], (1, "hot"), (2, "hot"))
    flow.send((15, "open"), (15, "k1"))
    first = mars.read_until(TOPIC, len(flow.totals(10)))
    assert {headers["mars-revision"] for _key, _value, headers in first} == {"0"}
    assert newest(first) == flow.totals(10)

    flow.send(*[(number % 10, ("hot", "k1", "new")[number % 3]) for number in range(MANY)])
    wanted = flow.totals(10)
    wanted.pop((START_MS, "hot"))
    wait_for("the revisions", lambda: newest(mars.read(TOPIC)) == wanted, seconds=90)
    results = mars.read(TOPIC)
    revisions = Counter(value["sip"] for _key, value, _headers in results)
    assert all(number < MANY / 20 for number in revisions.values()), revisions
    assert revisions["k2"] == 1, "no late row has touched it"
    counts = {sip: count for (_start, sip), (count, _ids) in wanted.items()}

    def shown() -> dict[str, int]:
        (window,) = mars.client.results(NAME, window_start=START_MS).windows
        return {row["sip"]: row["n"] for row in window.rows}

    wait_for("the revised rows in the API", lambda: shown() == counts)

    flow.send((100, "open"), (100, "open"))
    # What closes the second window in the bucket of k1 also forgets the first one there.
    second = (START_MS + WINDOW_MS, "k1")
    wait_for("the second window of k1", lambda: second in newest(mars.read(TOPIC)))
    kept = len(flow.rows)
    flow.send((5, "k1"), (45, "k1"))
    wait_for("the row that is too late", lambda: mars.client.ledger(NAME).late == 1)
    del flow.rows[kept]
    wanted |= {place: total for place, total in flow.totals(60).items() if place[0] > START_MS}
    wait_for("the other one", lambda: newest(mars.read(TOPIC)) == wanted)

    ledger = mars.ledger(NAME, kept + 2, emitted=kept - 1)
    assert (ledger.read, ledger.counted, ledger.late) == (kept + 2, kept + 1, 1), ledger
    assert (ledger.emitted, ledger.open) == (kept - 1, 2), ledger
    assert mars.client.window_ledger(NAME, START_MS).late == 1
    assert mars.client.window_ledger(NAME, START_MS).counted == MANY + 42
    for start in sorted({start for start, _sip in wanted}):
        # It is refused until the buckets that had no row of these have said that they read so far.
        wait_for("every bucket", partial(mars.client.verify, NAME, start))
        done = mars.mars("verify", NAME, str(start))
        assert done.returncode == 0, done.stdout + done.stderr
