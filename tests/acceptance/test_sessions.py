"""Sessions on real processes: rows that come late, and the loss of the store."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest

from tests.support.cluster import MarsCluster, wait_for
from tests.support.rows import Result
from tests.support.store import Store

pytestmark = pytest.mark.acceptance

NAME = "visits_in_sessions"
TOPIC = f"mars.results.{NAME}"
PARTITIONS = 2
START_MS = 1_700_000_000_000
GAP_MS, MAX_MS, DELAY_MS = 10_000, 14_400_000, 2_000
SQL = (
    f"SELECT sip, count(*) AS n, sum(id) AS ids FROM TABLE(SESSION(TABLE {NAME} PARTITION BY sip, "
    f"DESCRIPTOR(at), INTERVAL '10' SECOND)) GROUP BY sip, window_start, window_end"
)
CLOSING = "closing"
BUSY = "busy"


@dataclass(frozen=True, slots=True)
class Visit:
    """A row: a host and when; its bit is its own among those of the host."""

    sip: str
    at_ms: int
    bit: int


class Visits:
    """What was sent."""

    def __init__(self, mars: MarsCluster) -> None:
        self.mars = mars
        self.sent: dict[tuple[str, int], Visit] = {}
        self._bits: dict[str, int] = {}
        self._now_ms = START_MS
        self._chance = random.Random(1)

    def send(self, count: int, *, back_ms: int = 0) -> None:
        """Rows in bursts and pauses, as far as that behind those before them."""
        visits = []
        for _ in range(count):
            self._now_ms += self._chance.choice((0, 500, 3_000, 9_000, 25_000))
            visits.append(self._visit(f"10.0.0.{self._chance.randrange(20)}", -back_ms))
        self._produce(visits)

    def stay(self, count: int) -> None:
        """So many rows of one host that go on in one session."""
        visits = []
        for _ in range(count):
            self._now_ms += 3_000
            visits.append(self._visit(BUSY, 0))
        self._produce(visits)

    def return_late(self, back_ms: int) -> None:
        """A row within the session of that host, so late."""
        self._produce([self._visit(BUSY, -back_ms)])

    def close(self) -> None:
        """A row in each partition that ends all that was sent."""
        self._now_ms += 1_000_000
        self._produce([self._visit(CLOSING, 0) for _ in range(PARTITIONS)])

    def _visit(self, sip: str, back_ms: int) -> Visit:
        bit = self._bits[sip] = self._bits.get(sip, -1) + 1
        visit = self.sent[sip, bit] = Visit(sip, self._now_ms + back_ms, bit)
        return visit

    def _produce(self, visits: list[Visit]) -> None:
        values = [
            json.dumps({"at": one.at_ms, "sip": one.sip, "id": 2**one.bit}).encode()
            for one in visits
        ]
        placed = [(place % PARTITIONS, value) for place, value in enumerate(values)]
        self.mars.produce(NAME, placed)


@pytest.fixture(scope="module")
def visits(shared_mars: MarsCluster) -> Visits:
    """Rows in time, and some that are late; then the store is lost while sessions are open."""
    mars, visits = shared_mars, Visits(shared_mars)
    mars.topic(NAME, PARTITIONS)
    fields = {"at": "timestamp_ms", "sip": "string", "id": "int64"}
    stream = {"topic": NAME, "format": "json", "fields": fields, "event_time": "at"}
    mars.client.put_stream(NAME, stream)
    mars.client.create_task(NAME, SQL, start="earliest", options={"delay": f"{DELAY_MS}ms"})
    visits.send(300)
    mars.read_until(TOPIC, 50)
    visits.send(20, back_ms=600_000)
    wait_for("late rows", lambda: mars.client.ledger(NAME).late == 20)
    visits.stay(25)
    wait_for("rows of one session", lambda: mars.client.ledger(NAME).read == len(visits.sent))
    visits.return_late(60_000)
    wait_for("a late row within it", lambda: mars.client.ledger(NAME).late == 21)
    visits.stay(5)
    visits.send(300)
    with Store(mars) as store:
        store.flush()
    visits.send(300)
    visits.close()
    wait_for("all rows", lambda: _all_told(visits))
    return visits


def _all_told(visits: Visits) -> bool:
    ledger = visits.mars.client.ledger(NAME)
    return ledger.read == len(visits.sent) and ledger.open == PARTITIONS


def sessions(visits: Visits) -> list[tuple[Result, list[Visit]]]:
    """What came, with the rows that are in it."""
    found = []
    for result in visits.mars.read(TOPIC):
        value = result[1]
        bits = [bit for bit in range(value["ids"].bit_length()) if value["ids"] >> bit & 1]
        found.append((result, [visits.sent[value["sip"], bit] for bit in bits]))
    return found


def test_each_row_is_in_one_session_or_late(visits: Visits) -> None:
    seen: set[Visit] = set()
    for (_key, value, _headers), rows in sessions(visits):
        assert value["n"] == len(rows), f"a row counts twice in {value}"
        assert not seen & set(rows), f"emitted twice: {value}"
        seen |= set(rows)
    lost = [one for one in visits.sent.values() if one not in seen and one.sip != CLOSING]
    assert len(lost) == visits.mars.client.ledger(NAME).late == 21


def test_sessions_are_what_their_rows_make_of_them(visits: Visits) -> None:
    ends: dict[str, list[tuple[int, int]]] = {}
    for (key, value, headers), rows in sessions(visits):
        times = sorted(one.at_ms for one in rows)
        assert json.loads(key) == [value["window_start"], value["sip"]]
        assert value["window_start"] == times[0]
        assert value["window_end"] == min(times[-1] + GAP_MS, times[0] // MAX_MS * MAX_MS + MAX_MS)
        assert all(after - before < GAP_MS for before, after in pairwise(times))
        assert headers["mars-complete"] == "1"
        ends.setdefault(value["sip"], []).append((times[0], value["window_end"]))
    for own in ends.values():
        assert all(after[0] >= before[1] for before, after in pairwise(sorted(own)))


def test_open_sessions_are_shown_and_explained(visits: Visits) -> None:
    mars = visits.mars
    opened = mars.client.windows(NAME).windows
    assert [row["n"] for one in opened for row in one.rows] == [PARTITIONS]
    assert [row["sip"] for one in opened for row in one.rows] == [CLOSING]
    plan = mars.client.task(NAME).plan
    assert plan is not None
    assert plan.window.kind == "session"
    assert "waits" in mars.client.why(NAME).summary


def test_results_are_listed_by_session(visits: Visits) -> None:
    listed: list[Any] = visits.mars.client.results(NAME, limit=10_000).windows
    rows = [row for one in listed for row in one.rows]
    assert len(rows) == len(sessions(visits))
    first = sessions(visits)[0][0][1]
    named = visits.mars.client.results(NAME, window_start=first["window_start"]).windows
    assert first in [row for one in named for row in one.rows]


def test_sessions_are_verified_without_the_rows_that_came_late(visits: Visits) -> None:
    mars = visits.mars
    (busy,) = (value for (_key, value, _), _rows in sessions(visits) if value["sip"] == BUSY)
    assert busy["n"] == 30
    named = mars.client.verify(NAME, busy["window_start"])
    assert (named.equal, named.rows) == (True, 1), named.summary
    found = mars.client.verify(NAME)
    assert (found.equal, found.rows, found.more) == (True, len(sessions(visits)), 0), found.summary
    done = mars.mars("verify", NAME)
    assert (done.returncode, " are equal: " in done.stdout) == (0, True), done
