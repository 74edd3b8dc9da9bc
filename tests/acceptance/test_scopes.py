"""Keys that lag: windows that close key by key, on real processes.

fast keys   ──── 60 s of rows ────▶            partition: slow rows are late
slow keys   ──── 30 s behind ─────▶            key: none is, and fast keys wait for nobody
"""

from __future__ import annotations

import time
from typing import Any

import pytest

from mars.core.errors import MarsError
from tests.support.cluster import MarsCluster, wait_for
from tests.support.keyed import KEY_LAG_S, is_slow, keyed, slowed
from tests.support.load import PARTITIONS, SUMS, WINDOW_S
from tests.support.rows import Result, assert_exactly_once, closing_rows, expected, flow_rows

pytestmark = pytest.mark.acceptance

TOPIC = "lagging"
BY_KEY, BY_PARTITION = "lagging_by_key", "lagging_by_partition"
ROWS = 12_000
ROWS_PER_S = 200
STEP = 2_000
"""Rows that are sent before it is looked whether they are counted: 10 s of them."""
LONG = "1h"
WINDOW_MS = WINDOW_S * 1000


def register(mars: MarsCluster, name: str, **options: str) -> None:
    sql = SUMS.format(stream=TOPIC, window_s=WINDOW_S)
    mars.register(name, sql, idle_after=LONG, **options)


def of_fast_keys(results: list[Result]) -> list[Result]:
    return [each for each in results if not is_slow(each[1])]


def test_slow_keys_lose_nothing_and_fast_ones_do_not_wait(shared_mars: MarsCluster) -> None:
    mars = shared_mars
    mars.declare(TOPIC, stream=TOPIC, partitions=PARTITIONS)
    register(mars, BY_KEY, watermark="key", key_lag=f"{KEY_LAG_S}s")
    register(mars, BY_PARTITION)
    rows = slowed(flow_rows(0, ROWS, int(time.time() * 1000) - 60_000, rows_per_s=ROWS_PER_S))
    wanted = expected(rows, WINDOW_MS)
    begin_ms = min(row["timestamp"] for row in rows if not is_slow(row))

    for first in range(0, ROWS, STEP):
        mars.produce(TOPIC, keyed(rows[first : first + STEP]))
        for name in (BY_KEY, BY_PARTITION):
            mars.ledger(name, first + STEP)
    # All partitions together have not come as far as `begin_ms` and `key_lag`: the keys have.
    due = {at for at in wanted if at[0] < begin_ms + 30_000 and _passed(at, rows)}
    results = wait_for("keys on their own", lambda: _with(mars.read(f"mars.results.{BY_KEY}"), due))
    assert of_fast_keys(results)
    said = mars.mars("why", BY_KEY)
    assert "watermark: key" in said.stdout, said.stdout + said.stderr

    mars.produce(TOPIC, keyed(closing_rows(rows, PARTITIONS, WINDOW_MS + KEY_LAG_S * 1000)))
    found = mars.read_until(f"mars.results.{BY_KEY}", len(wanted))
    assert_exactly_once(found, wanted)
    ledger = mars.ledger(BY_KEY, ROWS + PARTITIONS, emitted=ROWS)
    assert (ledger.counted, ledger.late, ledger.open) == (ROWS, 0, 0), ledger
    beside = mars.ledger(BY_PARTITION, ROWS + PARTITIONS)
    slow = sum(map(is_slow, rows))
    assert slow // 2 < beside.late <= slow, beside

    start = min(at[0] for at in wanted)
    assert mars.client.window_ledger(BY_KEY, start).counted == _rows_of(rows, start)
    with pytest.raises(MarsError, match="watermark: key"):
        mars.client.verify(BY_KEY, start)


def _passed(at: tuple[Any, ...], rows: list[dict[str, Any]]) -> bool:
    """Whether rows of a key have passed a window's end by more than the delay."""
    start, sip, kind = at
    newest = max(r["timestamp"] for r in rows if (r["sip"], r["type"]) == (sip, kind))
    return bool(newest >= start + WINDOW_MS + 500)


def _with(results: list[Result], due: set[tuple[Any, ...]]) -> list[Result]:
    """The results if these groups are among them."""
    places = {(value["window_start"], value["sip"], value["type"]) for _, value, _ in results}
    return results if due <= places else []


def _rows_of(rows: list[dict[str, Any]], start_ms: int) -> int:
    return sum(start_ms <= row["timestamp"] < start_ms + WINDOW_MS for row in rows)
