"""Rows that are late by their task's own rules, while processes die and the store forgets."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

import pytest

from tests.faults.nemesis import flush_the_store, kill_a_mapper, kill_a_reducer
from tests.support.cluster import MarsCluster, wait_for
from tests.support.keyed import KeyedLoad, is_slow
from tests.support.late import apart, assert_late_are_accounted, newest_revisions
from tests.support.load import DRAIN_S, PARTITIONS, WINDOW_S, Load, Row
from tests.support.progress import assert_progress_only_goes_forward
from tests.support.rows import KEY, Result, assert_exactly_once, expected

pytestmark = pytest.mark.faults

STRIKES = (kill_a_reducer, flush_the_store, kill_a_mapper)
STRIKE_EVERY_S = 4
SECONDS = 25

LATE_EVERY = 20
"""One of so many rows is late."""

LATE_BY_MS = 12_000
"""Its window and the next one are closed by then, and kept."""


class RevisedLoad(Load):
    """Some rows are late, and revise their windows."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, late="revise", lateness="2min", **options)

    def made(self, rows: list[Row]) -> list[Row]:
        for row in islice(rows, 0, None, LATE_EVERY):
            row["timestamp"] -= LATE_BY_MS
        return rows

    def results(self) -> list[Result]:
        """The newest revision of each group."""
        return newest_revisions(self.mars.read(f"mars.results.{self.name}"), _group)

    def check(self, **_given: Any) -> None:
        """Each group, with all its rows, once by its newest revision."""
        wanted = expected(self.rows, self.window_s * 1000)
        wait_for("no open row", self._all_emitted, seconds=DRAIN_S)
        wait_for("all revisions", lambda: _same(self.results(), wanted), seconds=DRAIN_S)
        assert_exactly_once(self.results(), wanted)
        self.check_ledger(self.name)
        assert_progress_only_goes_forward(self.mars.file["kafka"])

    def _all_emitted(self) -> bool:
        ledger = self.mars.client.ledger(self.name)
        return ledger.emitted == len(self.rows)


def _group(value: Mapping[str, Any]) -> tuple[Any, ...]:
    return (value["window_start"], *(value[name] for name in KEY))


def _same(results: list[Result], wanted: Mapping[tuple[Any, ...], Mapping[str, Any]]) -> bool:
    counts = {_group(value): value["count"] for _key, value, _headers in results}
    return counts == {group: line["count"] for group, line in wanted.items()}


def test_late_rows_revise_their_windows_once_while_processes_die_and_the_store_is_lost(
    mars: MarsCluster,
) -> None:
    with RevisedLoad(mars, "revised", seconds=SECONDS).running() as load:
        strikes = load.every(STRIKE_EVERY_S, lambda turn: STRIKES[turn % 3](mars, turn))

    load.check()
    assert strikes >= len(STRIKES)
    revisions = [int(headers["mars-revision"]) for *_, headers in mars.read("mars.results.revised")]
    assert max(revisions) > 0, "nothing was revised: the test showed nothing"


def test_rows_of_slow_keys_are_counted_or_named_where_buckets_of_keys_close_windows(
    mars: MarsCluster,
) -> None:
    """A bucket has fast keys, too, so the slow ones in it come too late for most windows."""
    load = KeyedLoad(mars, "by_bucket", seconds=SECONDS, watermark="bucket")
    with load.running():
        strikes = load.every(STRIKE_EVERY_S, lambda turn: STRIKES[turn % 3](mars, turn))

    sent = len(load.rows) + PARTITIONS
    wait_for("all rows", lambda: mars.client.ledger("by_bucket").read >= sent, seconds=DRAIN_S)
    wait_for("no open row", lambda: mars.client.ledger("by_bucket").open == 0, seconds=DRAIN_S)
    assert strikes >= len(STRIKES)
    fast = [row for row in load.rows if not is_slow(row)]
    slow = [row for row in load.rows if is_slow(row)]
    of_fast, of_slow = apart(mars.read("mars.results.by_bucket"), is_slow)
    assert_exactly_once(of_fast, expected(fast, WINDOW_S * 1000))
    ledger = assert_late_are_accounted(mars, "by_bucket", slow, of_slow, WINDOW_S * 1000)
    assert (ledger.bad, ledger.future, ledger.filtered) == (0, 0, PARTITIONS)
    assert_progress_only_goes_forward(mars.file["kafka"])
