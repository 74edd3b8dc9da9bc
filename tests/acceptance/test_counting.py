"""Windows that count rows, on real processes: through the loss of the store, and a new version."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import pytest

from tests.support.cluster import MarsCluster, wait_for
from tests.support.rows import Result
from tests.support.store import Store

pytestmark = pytest.mark.acceptance

NAME = "counted"
TOPIC = f"mars.results.{NAME}"
PARTITIONS = 2
SIZE, SLIDE = 50, 20
START_MS = 1_700_000_000_000
SQL = (
    f"SELECT sip, count(*) AS n, sum(id) AS ids FROM {NAME} WHERE kept "
    f"GROUP BY sip WINDOWING {SIZE} ROWS SLIDE {SLIDE} ROWS"
)

Row = dict[str, Any]
Place = tuple[int, int, str]


class Flow:
    """What was sent, by partition in the order of offsets."""

    def __init__(self, mars: MarsCluster) -> None:
        self.mars = mars
        self.rows: list[list[Row]] = [[] for _ in range(PARTITIONS)]
        self._chance = random.Random(1)

    def send(self, count: int) -> None:
        """Rows in no order of time, of which some pass no filter and some cannot be read."""
        values = []
        for number in range(count):
            partition, sip = number % PARTITIONS, f"10.0.0.{self._chance.randrange(5)}"
            at, kept = START_MS + self._chance.randrange(10**6), self._chance.random() < 0.7
            row = {"timestamp": at, "sip": sip, "id": number, "kept": kept}
            is_bad = self._chance.random() < 0.02
            self.rows[partition].append({**row, "kept": kept and not is_bad})
            values.append((partition, b"?" if is_bad else json.dumps(row).encode()))
        self.mars.produce(NAME, values)

    def wanted(self) -> dict[Place, Row]:
        """Of each group of each window that is full, row by row."""
        found: dict[Place, Row] = {}
        for partition, rows in enumerate(self.rows):
            kept = [(offset, row) for offset, row in enumerate(rows) if row["kept"]]
            for number, begin in enumerate(range(0, len(kept) - SIZE + 1, SLIDE)):
                window = kept[begin : begin + SIZE]
                for sip in {row["sip"] for _offset, row in window}:
                    own = [(offset, row) for offset, row in window if row["sip"] == sip]
                    found[partition, number, sip] = _group(partition, number, sip, own)
        return found


def _group(partition: int, number: int, sip: str, own: list[tuple[int, Row]]) -> Row:
    times = [row["timestamp"] for _offset, row in own]
    return {
        "window_start": min(times),
        "window_end": max(times),
        "partition": partition,
        "window_number": number,
        "window_first_offset": own[0][0],
        "window_last_offset": own[-1][0],
        "sip": sip,
        "n": len(own),
        "ids": sum(row["id"] for _offset, row in own),
    }


def emitted(results: list[Result], complete: str = "1") -> dict[Place, Row]:
    """The rows by window and group, each of which comes once and has a key of its own."""
    found: dict[Place, Row] = {}
    for key, value, headers in results:
        place = value["partition"], value["window_number"], value["sip"]
        assert json.loads(key) == [value["window_start"], value["sip"], *place[:2]]
        assert place not in found, f"emitted twice: {place}"
        assert headers["mars-complete"] == complete
        found[place] = value
    return found


@pytest.fixture(scope="module")
def flow(shared_mars: MarsCluster) -> Flow:
    """Rows; the store is lost between them, where windows are open in both partitions."""
    mars, flow = shared_mars, Flow(shared_mars)
    mars.topic(NAME, PARTITIONS)
    fields = {"timestamp": "timestamp_ms", "sip": "string", "id": "int64", "kept": "bool"}
    stream = {"topic": NAME, "format": "json", "fields": fields, "event_time": "timestamp"}
    mars.client.put_stream(NAME, stream)
    mars.client.create_task(NAME, SQL, start="earliest")
    flow.send(777)
    mars.read_until(TOPIC, len(flow.wanted()))
    with Store(mars) as store:
        store.flush()
    flow.send(1_111)
    return flow


def test_each_window_has_the_rows_of_its_numbers(flow: Flow) -> None:
    wanted = flow.wanted()
    assert emitted(flow.mars.read_until(TOPIC, len(wanted))) == wanted
    rows = sum(map(len, flow.rows))
    ledger = wait_for("the ledger", lambda: _read(flow.mars.client.ledger(NAME), rows))
    assert ledger.late == 0


def _read(ledger: Any, rows: int) -> Any:
    return ledger if ledger.read == rows else None


def test_windows_that_are_not_full_are_shown_and_explained(flow: Flow) -> None:
    mars = flow.mars
    mars.read_until(TOPIC, len(flow.wanted()))
    kept = [sum(row["kept"] for row in rows) for rows in flow.rows]
    first = [max(0, (count - SIZE) // SLIDE + 1) for count in kept]
    opened = wait_for("open windows", lambda: _open(mars, set(range(PARTITIONS))))
    held: Counter[tuple[int, int]] = Counter()
    for window in opened:
        held[window.partition, window.window_number] += sum(row["n"] for row in window.rows)
    for partition, count in enumerate(kept):
        numbers = range(first[partition], -(-count // SLIDE))
        shown = {number: held[partition, number] for number in numbers}
        assert shown == {number: min(SIZE, count - number * SLIDE) for number in numbers}
    why = mars.client.why(NAME)
    assert f" of its {SIZE} rows" in why.summary, why.summary
    done = mars.mars("why", NAME)
    assert (done.returncode, "of partition" in done.stdout) == (0, True)


def _open(mars: MarsCluster, partitions: set[int]) -> Any:
    found = mars.client.windows(NAME).windows
    return found if {one.partition for one in found} == partitions else None


def test_what_is_by_times_alone_says_so(flow: Flow) -> None:
    done = flow.mars.mars("verify", NAME)
    assert done.returncode == 4
    assert "not verified here yet" in done.stderr


def test_a_new_version_begins_anew_and_the_rest_of_the_old_one_comes(flow: Flow) -> None:
    mars = flow.mars
    wanted = flow.wanted()
    mars.read_until(TOPIC, len(wanted))
    mars.client.change_task(NAME, f"{SQL} -- once more")
    wait_for("the rest", lambda: mars.client.ledger(NAME).open == 0)
    found = mars.read_until(TOPIC, len(wanted) + 1)
    results = [one for one in found if one[2]["mars-complete"] == "0"]
    kept = [sum(row["kept"] for row in rows) for rows in flow.rows]
    rest = emitted(results, "0")
    held: Counter[tuple[int, int]] = Counter()
    for (partition, number, _sip), row in rest.items():
        held[partition, number] += row["n"]
    assert held == {
        (partition, number): count - number * SLIDE
        for partition, count in enumerate(kept)
        for number in range((count - SIZE) // SLIDE + 1, -(-count // SLIDE))
    }
