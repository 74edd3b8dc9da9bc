"""Windows since a landmark, on real processes: through the loss of the store, and checked."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mars.core.windows import moment
from tests.acceptance.test_cumulating import Flow, Row, emitted, place_of, settled
from tests.support.cluster import MarsCluster, wait_for
from tests.support.rows import assert_same_groups, computed
from tests.support.store import Store

pytestmark = pytest.mark.acceptance

NAME = "since"
TOPIC = f"mars.results.{NAME}"
PARTITIONS = 3
STEP_MS = 10_000
BEGIN_S = 5
"""Of the windows; some rows lie before it."""

LOST_AT_S = 25
"""Two steps are emitted."""

PAUSE_S, GO_ON_S = 45, 65
"""Between them no row comes, so that two steps are left out."""

END_S = 85
"""Of the last window that closes."""


class SinceFlow(Flow):
    """Rows of a stream, and what windows since a landmark hold of them."""

    def __init__(self, mars: MarsCluster) -> None:
        super().__init__(mars, NAME)
        self.landmark_ms = self.begin_ms + BEGIN_S * 1_000

    @property
    def sql(self) -> str:
        since = moment(self.landmark_ms).replace(" ", "T")
        return (
            f"SELECT sip, count(*) AS n, sum(id) AS ids, min(timestamp) AS earliest FROM {NAME} "
            f"GROUP BY sip WINDOWING LANDMARK '{since}' EVERY 10 s"
        )

    def wanted(self, end_s: int) -> dict[tuple[Any, ...], Row]:
        """What DuckDB computes of the windows that end by then."""
        lost_at_ms = self.begin_ms + LOST_AT_S * 1_000
        lines = computed(
            f"""
            WITH since AS (SELECT * FROM arrived WHERE timestamp >= {self.landmark_ms}),
            windows AS (
                SELECT DISTINCT timestamp - (timestamp - {self.landmark_ms}) % {STEP_MS} + {STEP_MS}
                    AS window_end
                FROM since WHERE NOT late
            )
            SELECT {self.landmark_ms} AS window_start, window_end, sip, count(*)::BIGINT AS n,
                   sum(id)::BIGINT AS ids, min(timestamp) AS earliest
            FROM since JOIN windows ON timestamp < window_end
            WHERE NOT late OR window_end > {lost_at_ms}
            GROUP BY ALL
            """,
            self.rows,
        )
        ended = [line for line in lines if line["window_end"] <= self.begin_ms + end_s * 1_000]
        return {place_of(line): line for line in ended}


@pytest.fixture(scope="module")
def flow(shared_mars: MarsCluster) -> SinceFlow:
    """The store is lost when two steps are emitted, and rows come that have missed them."""
    mars, flow = shared_mars, SinceFlow(shared_mars)
    flow.declare(flow.sql)
    flow.send(0, LOST_AT_S, 600)
    flow.go_on(LOST_AT_S)
    mars.read_until(TOPIC, len(flow.wanted(LOST_AT_S)))
    with Store(mars) as store:
        store.flush()
    flow.send(0, LOST_AT_S, 90, late=True)
    flow.send(LOST_AT_S, PAUSE_S, 400)
    flow.send(GO_ON_S, END_S, 400)
    flow.go_on(END_S)
    return flow


def test_each_step_with_rows_has_all_groups_since_the_landmark(flow: SinceFlow) -> None:
    wanted = flow.wanted(END_S)
    assert len({place[1] for place in wanted}) == 6
    results = flow.mars.read_until(TOPIC, len(wanted))
    assert_same_groups(emitted(results), wanted)
    ledger = wait_for("the ledger", lambda: settled(flow.mars.client.ledger(NAME), len(flow.rows)))
    before = [row["late"] for row in flow.rows if row["timestamp"] < flow.landmark_ms]
    assert ledger.filtered == len(before) > 0
    assert (ledger.late, ledger.late_partly) == (0, 90 - sum(before))


def test_each_window_is_verified_and_has_a_ledger(flow: SinceFlow) -> None:
    mars, wanted = flow.mars, flow.wanted(END_S)
    mars.read_until(TOPIC, len(wanted))
    for start, end in sorted({place[:2] for place in wanted}):
        rows = [row["n"] for place, row in wanted.items() if place[:2] == (start, end)]
        done = mars.mars("verify", NAME, str(start), str(end), "--json")
        answer = json.loads(done.stdout)
        assert (done.returncode, answer["equal"], answer["rows"]) == (0, True, len(rows)), answer
        ledger = mars.client.window_ledger(NAME, start, end)
        assert (ledger.emitted, ledger.open) == (sum(rows), 0), (start, end, ledger)


def test_the_step_to_come_is_open_with_all_that_came_before(flow: SinceFlow) -> None:
    mars = flow.mars
    mars.read_until(TOPIC, len(flow.wanted(END_S)))
    end = flow.begin_ms + END_S * 1_000 + STEP_MS
    (opened,) = mars.client.windows(NAME).windows
    assert (opened.window_start, opened.window_end) == (flow.landmark_ms, end)
    counted = sum(row["timestamp"] >= flow.landmark_ms for row in flow.rows)
    assert sum(row["n"] for row in opened.rows) == counted
    assert [one.window_end for one in mars.client.why(NAME).windows] == [end]


def test_a_query_that_changes_would_lack_the_rows_before(flow: SinceFlow) -> None:
    changed = ("--sql", flow.sql, "--option", "delay=1s", "--yes")
    done = flow.mars.mars("task", "add", "--name", NAME, *changed)
    assert done.returncode == 4
    assert "would lack the rows of the old one" in done.stderr
