"""Windows that count rows, on real processes: through the loss of the store, and a new version."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import pytest
from confluent_kafka import Producer

from mars.core.types import Bucket, TaskName
from mars.engine.codec.result_headers import result_headers
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


def test_finished_windows_are_found_by_their_numbers(flow: Flow) -> None:
    mars, wanted = flow.mars, flow.wanted()
    mars.read_until(TOPIC, len(wanted))
    listed = mars.client.results(NAME, limit=10_000).windows
    shown = {
        (one.partition, one.window_number, row["sip"]): row for one in listed for row in one.rows
    }
    assert shown == wanted
    assert not any(one.truncated for one in listed)
    (window,) = mars.client.results(NAME, partition=1, window_number=2).windows
    assert (window.partition, window.window_number) == (1, 2)
    assert sum(row["n"] for row in window.rows) == SIZE
    ledger = mars.client.window_ledger(NAME, partition=1, window_number=2)
    assert (ledger.counted, ledger.emitted, ledger.open) == (SIZE, SIZE, 0)


def test_a_finished_window_is_computed_again(flow: Flow) -> None:
    mars = flow.mars
    mars.read_until(TOPIC, len(flow.wanted()))
    done = mars.mars("verify", NAME, "--partition", "1", "--window-number", "2")
    assert (done.returncode, "Window 2 of partition 1 is equal" in done.stdout) == (0, True)
    assert mars.client.verify(NAME).equal


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


def test_a_window_that_somebody_wrote_into_differs(flow: Flow) -> None:
    """Of the second version, so that no other test finds the row."""
    mars = flow.mars
    flow.send(400)
    window = wait_for("a window of version 2", lambda: _of_version(mars, 2))
    place = {"partition": window.partition, "window_number": window.window_number}
    verified = wait_for("the window in every bucket", lambda: mars.client.verify(NAME, **place))
    assert verified.equal
    (value, *_others) = window.rows
    key = [value["window_start"], value["sip"], value["partition"], value["window_number"]]
    headers = result_headers(TaskName(NAME), 2, Bucket(0), 1, complete=True)
    producer = Producer({"bootstrap.servers": mars.file["kafka"]})
    forged = json.dumps({**value, "n": value["n"] + 1}, separators=(",", ":"))
    producer.produce(TOPIC, forged, json.dumps(key, separators=(",", ":")), headers=list(headers))
    assert producer.flush(30) == 0
    found = mars.client.verify(NAME, **place)
    assert (found.equal, "doubled" in {one.kind for one in found.differences}) == (False, True)
    done = mars.mars(
        "verify",
        NAME,
        "--partition",
        str(window.partition),
        "--window-number",
        str(window.window_number),
    )
    assert (done.returncode, "differs" in done.stdout) == (1, True)


def _of_version(mars: MarsCluster, version: int) -> Any:
    found = mars.client.results(NAME).windows
    return next((one for one in found if one.version == version and one.window_number), None)
