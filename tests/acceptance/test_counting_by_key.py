"""Windows that count the rows of each key, on real processes: through the loss of the store, with
keys that fall silent.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from typing import Any

import pytest

from tests.conftest import missing_java, need
from tests.support.cluster import MarsCluster, wait_for
from tests.support.store import Store

pytestmark = pytest.mark.acceptance

NAME = "counted_by_key"
ASKED = "asked_by_key"
TOPIC = f"mars.results.{NAME}"
PARTITIONS = 2
SIZE = 10
START_MS = 1_700_000_000_000
SQL = (
    f"SELECT sip, count(*) AS n, sum(id) AS ids FROM {NAME} WHERE kept "
    f"GROUP BY sip WINDOWING {SIZE} ROWS PER KEY EXPIRE 1 h"
)

Row = dict[str, Any]


class Flow:
    """What was sent, by partition in the order of offsets."""

    def __init__(self, mars: MarsCluster, topic: str = NAME) -> None:
        self.mars = mars
        self.topic = topic
        self.rows: list[list[Row]] = [[] for _ in range(PARTITIONS)]
        self._chance = random.Random(1)

    def send(self, count: int, hour: int, keys: int) -> None:
        """Rows of one hour, in no order of time, some of which pass no filter."""
        values = []
        for number in range(count):
            at = START_MS + hour * 3_600_000 + self._chance.randrange(10**6)
            row = {
                "timestamp": at,
                "sip": f"10.0.0.{self._chance.randrange(keys)}",
                "id": number,
                "kept": self._chance.random() < 0.7,
            }
            self.rows[number % PARTITIONS].append(row)
            values.append((number % PARTITIONS, json.dumps(row).encode()))
        self.mars.produce(self.topic, values)

    def windows(self) -> tuple[list[Row], list[Row], int]:
        """Full ones, those of keys that fell silent, and how many rows wait, row by row."""
        full, silent, waiting = [], [], 0
        for partition, rows in enumerate(self.rows):
            open_rows: dict[str, list[tuple[int, int, Row]]] = defaultdict(list)
            seen_at: dict[str, int] = {}
            seen, number = 0, 0
            for offset, row in enumerate(rows):
                seen = max(seen, row["timestamp"])
                if not row["kept"]:
                    continue
                own = open_rows[row["sip"]]
                if own and seen - seen_at[row["sip"]] > 3_600_000:
                    silent.append(_window(partition, own))
                    own.clear()
                own.append((number, offset, row))
                seen_at[row["sip"]] = seen
                number += 1
                if len(own) == SIZE:
                    full.append(_window(partition, own))
                    own.clear()
            for sip, own in open_rows.items():
                if own and seen - seen_at[sip] > 3_600_000:
                    silent.append(_window(partition, own))
                else:
                    waiting += len(own)
        return full, silent, waiting


def _window(partition: int, own: list[tuple[int, int, Row]]) -> Row:
    times = [row["timestamp"] for _number, _offset, row in own]
    return {
        "window_start": min(times),
        "window_end": max(times),
        "partition": partition,
        "window_number": own[0][0],
        "window_first_offset": own[0][1],
        "window_last_offset": own[-1][1],
        "sip": own[0][2]["sip"],
        "n": len(own),
        "ids": sum(row["id"] for _number, _offset, row in own),
    }


def _ordered(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row["partition"], row["window_number"]))


def declare(mars: MarsCluster, topic: str) -> None:
    fields = {"timestamp": "timestamp_ms", "sip": "string", "id": "int64", "kept": "bool"}
    stream = {"topic": topic, "format": "json", "fields": fields, "event_time": "timestamp"}
    mars.client.put_stream(topic, stream)


def test_each_window_comes_once_with_its_rows(shared_mars: MarsCluster) -> None:
    mars, flow = shared_mars, Flow(shared_mars)
    mars.topic(NAME, PARTITIONS)
    declare(mars, NAME)
    mars.client.create_task(NAME, SQL, start="earliest")
    flow.send(500, 0, keys=30)
    mars.read_until(TOPIC, len(flow.windows()[0]))
    with Store(mars) as store:
        store.flush()
    flow.send(300, 0, keys=30)
    flow.send(400, 3, keys=5)

    full, silent, waiting = flow.windows()
    assert full
    assert silent
    found = mars.read_until(TOPIC, len(full) + len(silent))
    for complete, wanted in (("1", full), ("0", silent)):
        own = [value for _key, value, headers in found if headers["mars-complete"] == complete]
        assert _ordered(own) == _ordered(wanted)
    assert len({key for key, _value, _headers in found}) == len(full) + len(silent)

    ledger = wait_for("the ledger", lambda: _read(mars.client.ledger(NAME)))
    assert (ledger.late, ledger.open) == (0, waiting)
    shown = mars.client.windows(NAME).windows
    assert sum(row["n"] for window in shown for row in window.rows) == waiting
    assert "No window is full" in mars.client.why(NAME).summary
    verified = mars.client.verify(NAME)
    assert verified.equal, verified.summary
    assert (verified.rows, verified.source_rows) == (len(found), 1_200)
    name = {one: silent[0][one] for one in ("partition", "window_number")}
    assert mars.client.verify(NAME, **name).equal
    equal = mars.mars("verify", NAME)
    assert (equal.returncode, "newest windows of 2 partitions are equal" in equal.stdout) == (
        0,
        True,
    )


def test_a_query_answers_what_a_task_has_emitted(shared_mars: MarsCluster) -> None:
    need(missing_java())
    mars, flow = shared_mars, Flow(shared_mars, ASKED)
    mars.topic(ASKED, PARTITIONS)
    declare(mars, ASKED)
    flow.send(500, 0, keys=30)
    flow.send(400, 3, keys=5)

    query = mars.client.create_query(SQL.replace(NAME, ASKED)).id
    state = wait_for("the query", lambda: _ended(mars, query), seconds=280)
    assert state == "done"
    full, silent, _waiting = flow.windows()
    assert _ordered(mars.client.query_rows(query)) == _ordered([*full, *silent])


def _ended(mars: MarsCluster, query: str) -> str | None:
    found = mars.client.query(query)
    return None if found.goes_on else found.state


def _read(ledger: Any) -> Any:
    return ledger if ledger.read == 1_200 else None
