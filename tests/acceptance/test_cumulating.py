"""Windows that cumulate, on real processes: through the loss of the store, and checked."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from tests.support.cluster import MarsCluster, wait_for
from tests.support.rows import Result, assert_same_groups, computed
from tests.support.store import Store

pytestmark = pytest.mark.acceptance

NAME = "cumulated"
TOPIC = f"mars.results.{NAME}"
PARTITIONS = 3
SIZE_MS, STEP_MS = 40_000, 10_000
START_MS = 1_700_000_000_000 // SIZE_MS * SIZE_MS
SQL = (
    f"SELECT sip, count(*) AS n, sum(id) AS ids, min(timestamp) AS earliest FROM {NAME} "
    "GROUP BY sip WINDOWING 40 s EVERY 10 s"
)
LOST_AT_S = 20
"""Into the first cycle: two of its steps are emitted."""

END_S = 80
"""Of the second cycle, which is the last one that closes."""

WANTED = f"""
WITH windows AS (
    SELECT {START_MS} + cycle * {SIZE_MS} AS window_start,
           {START_MS} + cycle * {SIZE_MS} + step * {STEP_MS} AS window_end
    FROM range(2) AS cycles(cycle), range(1, 5) AS steps(step)
)
SELECT window_start, window_end, sip, count(*)::BIGINT AS n, sum(id)::BIGINT AS ids,
       min(timestamp) AS earliest
FROM arrived JOIN windows ON timestamp >= window_start AND timestamp < window_end
WHERE NOT late OR window_end > {START_MS + LOST_AT_S * 1_000}
GROUP BY ALL
"""
"""Rows that are late for some steps count in the later ones."""

Row = dict[str, Any]


class Flow:
    """What was sent to the topic of a stream, from a moment on."""

    begin_ms = START_MS

    def __init__(self, mars: MarsCluster, name: str = NAME) -> None:
        self.mars = mars
        self.rows: list[Row] = []
        self._name = name
        self._chance = random.Random(1)

    def declare(self, sql: str) -> None:
        """The stream, and a task of the same name over all of it."""
        fields = {"timestamp": "timestamp_ms", "sip": "string", "id": "int64"}
        stream = {"topic": self._name, "format": "json", "fields": fields}
        self.mars.topic(self._name, PARTITIONS)
        self.mars.client.put_stream(self._name, {**stream, "event_time": "timestamp"})
        options = {"idle_after": "1h"}
        self.mars.client.create_task(self._name, sql, start="earliest", options=options)

    def send(self, first_s: float, end_s: float, count: int, *, late: bool = False) -> None:
        """Rows of a span of time, in order within each partition."""
        times = sorted(self._chance.uniform(first_s, end_s) for _ in range(count))
        self._send([(at, f"10.0.0.{self._chance.randrange(20)}") for at in times], late)

    def go_on(self, at_s: float) -> None:
        """Event time is there in all partitions."""
        self._send([(at_s, "clock")] * PARTITIONS, False)

    def _send(self, placed: list[tuple[float, str]], late: bool) -> None:
        first = len(self.rows)
        made: list[Row] = [
            {"timestamp": START_MS + int(at_s * 1_000), "sip": sip, "id": first + number}
            for number, (at_s, sip) in enumerate(placed)
        ]
        self.rows += [{**row, "late": late} for row in made]
        values = [(row["id"] % PARTITIONS, json.dumps(row).encode()) for row in made]
        self.mars.produce(self._name, values)

    def wanted(self, end_s: int) -> dict[tuple[Any, ...], Row]:
        """What DuckDB computes of the windows that end by then."""
        lines = computed(WANTED, self.rows)
        ended = [line for line in lines if line["window_end"] <= START_MS + end_s * 1_000]
        return {place_of(line): line for line in ended}


def place_of(row: Row) -> tuple[Any, ...]:
    return row["window_start"], row["window_end"], row["sip"]


def emitted(results: list[Result]) -> dict[tuple[Any, ...], Row]:
    """The rows by window and group, each of which comes once and has a key of its own."""
    found: dict[tuple[Any, ...], Row] = {}
    for key, value, headers in results:
        start, end, sip = place = place_of(value)
        assert json.loads(key) == [start, sip, end]
        assert place not in found, f"emitted twice: {place}"
        assert (headers["mars-revision"], headers["mars-complete"]) == ("0", "1")
        found[place] = value
    return found


@pytest.fixture(scope="module")
def flow(shared_mars: MarsCluster) -> Flow:
    """Two cycles of rows; the store is lost in the midst of the first."""
    mars, flow = shared_mars, Flow(shared_mars)
    flow.declare(SQL)
    flow.send(0, LOST_AT_S, 600)
    flow.go_on(LOST_AT_S)
    mars.read_until(TOPIC, len(flow.wanted(LOST_AT_S)))
    with Store(mars) as store:
        store.flush()
    flow.send(0, LOST_AT_S, 90, late=True)
    flow.send(LOST_AT_S, END_S, 900)
    flow.go_on(END_S)
    return flow


def test_each_step_has_all_groups_of_its_cycle_as_a_batch_engine_has_them(flow: Flow) -> None:
    wanted = flow.wanted(END_S)
    results = flow.mars.read_until(TOPIC, len(wanted))
    assert_same_groups(emitted(results), wanted)
    ledger = wait_for("the ledger", lambda: settled(flow.mars.client.ledger(NAME), len(flow.rows)))
    assert (ledger.late, ledger.late_partly) == (0, 90)


def settled(ledger: Any, rows: int) -> Any:
    """The ledger, once the last row of each partition alone is open; None before."""
    return ledger if (ledger.read, ledger.open) == (rows, PARTITIONS) else None


def test_each_step_is_verified_and_has_a_ledger(flow: Flow) -> None:
    mars = flow.mars
    wanted = flow.wanted(END_S)
    mars.read_until(TOPIC, len(wanted))
    windows = sorted({place[:2] for place in wanted})
    assert len(windows) == 8
    for start, end in windows:
        rows = [row["n"] for place, row in wanted.items() if place[:2] == (start, end)]
        done = mars.mars("verify", NAME, str(start), str(end), "--json")
        answer = json.loads(done.stdout)
        assert (done.returncode, answer["equal"], answer["rows"]) == (0, True, len(rows)), answer
        ledger = mars.client.window_ledger(NAME, start, end)
        assert (ledger.emitted, ledger.open) == (sum(rows), 0), (start, end, ledger)
        (shown,) = mars.client.results(NAME, window_start=start, window_end=end).windows
        assert sum(row["n"] for row in shown.rows) == sum(rows)
    assert mars.mars("verify", NAME).returncode == 0


def test_a_start_alone_names_no_step(flow: Flow) -> None:
    done = flow.mars.mars("verify", NAME, str(START_MS))
    assert done.returncode == 4
    assert "give window_end, too" in done.stderr


def test_steps_to_come_are_open_and_explained(flow: Flow) -> None:
    mars = flow.mars
    mars.read_until(TOPIC, len(flow.wanted(END_S)))
    next_cycle = START_MS + END_S * 1_000
    ends = [next_cycle + step * STEP_MS for step in range(1, 5)]
    opened = mars.client.windows(NAME).windows
    assert [(one.window_start, one.window_end) for one in opened] == [
        (next_cycle, end) for end in ends
    ]
    assert [[row["n"] for row in one.rows] for one in opened] == [[PARTITIONS]] * 4
    assert [one.window_end for one in mars.client.why(NAME).windows] == ends
