"""Kafka loses rows that were still needed: nothing about it is silent.

The numbers are those of the list of faults in `docs/reports/reliability.md`.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.faults.conftest import NO_BULK, settings
from tests.support.cluster import MarsCluster, running_mars, wait_for
from tests.support.kafka import admin, delete_records, ends
from tests.support.load import PARTITIONS, Load
from tests.support.rows import KEY, expected, flow_rows
from tests.support.store import Store

pytestmark = pytest.mark.faults

WINDOW_S = 10
ROWS_PER_S = 200
SLOW_ROWS_PER_S = 50
RETAKEN_S = 6
"""Seconds of a window whose rows retention takes away."""

NEVER_MS = 10**9


@pytest.fixture(scope="module")
def mars(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MarsCluster]:
    """One that saves no panes, so that after a loss every row is needed again."""
    folder = tmp_path_factory.mktemp("source")
    yield from running_mars(folder, *NO_BULK, settings=settings(NEVER_MS))


def test_20_windows_whose_rows_retention_removed_are_not_complete(mars: MarsCluster) -> None:
    """Of the window behind the gap it depends on how much was read at once: rows that are gone may
    be newer than the next one by the delay.
    """
    window = (time.time_ns() // 10**9 // WINDOW_S + 1) * WINDOW_S * 1000
    last = window + 2 * WINDOW_S * 1000
    rows = flow_rows(0, 3 * WINDOW_S * ROWS_PER_S, window, rows_per_s=ROWS_PER_S, disorder_ms=0)
    taken = rows[: RETAKEN_S * ROWS_PER_S]
    with declared(Load(mars, "f20", window_s=WINDOW_S)) as load:
        load.send(taken)
        wait_for("the rows", lambda: mars.client.ledger("f20").read == len(taken))

        delete_records(mars, "f20", ends(mars, "f20"))
        with Store(mars) as store:
            store.flush()
        load.send(rows[len(taken) :])
        load.close_windows(rows)

        wait_for("the last window", lambda: last in dict(_windows(mars)), pause_s=0.5)
        assert {(window, "0"), (last, "1")} <= _windows(mars)
        assert len(_windows(mars)) == 3
        gone = dict.fromkeys(range(PARTITIONS), len(taken) // PARTITIONS)
        wait_for("every row that is gone to be named", lambda: _gone(mars) == gone)
        wait_for(
            "an incident for each partition that lost rows",
            lambda: _incomplete(mars) == {str(number) for number in gone},
        )


@contextmanager
def declared(load: Load) -> Iterator[Load]:
    """A task that is deleted whatever has become of it."""
    load.declare()
    try:
        yield load
    finally:
        load.mars.client.delete_task(load.name)


def _windows(mars: MarsCluster) -> set[tuple[int, str]]:
    """Each window with what its rows say of it: complete or not."""
    results = mars.read("mars.results.f20")
    return {(value["window_start"], headers["mars-complete"]) for _, value, headers in results}


def _incomplete(mars: MarsCluster) -> set[str | None]:
    """The lanes of which an incident says that rows were gone."""
    told = mars.client.incidents(task="f20")
    return {one.lane for one in told if one.kind == "incomplete"}


def _gone(mars: MarsCluster) -> dict[int, int]:
    """How many rows of each partition `mars.dead` names gone: all buckets do, one counts them."""
    found: Counter[int] = Counter()
    for _key, record, _headers in mars.read("mars.dead"):
        if record["task"] == "f20" and record["reason"] == "gone":
            found[record["partition"]] += record["rows"]
    return dict(found)


def test_20_a_topic_that_is_deleted_and_made_again_is_noticed(mars: MarsCluster) -> None:
    rows = flow_rows(0, 4_000, time.time_ns() // 10**6, rows_per_s=ROWS_PER_S)
    with declared(Load(mars, "f20_again")) as load:
        load.send(rows[:1000])
        wait_for("the rows", lambda: mars.client.ledger("f20_again").read == 1000)

        mars.delete_topic("f20_again")
        wait_for("the topic to be gone", lambda: not _exists(mars, "f20_again"))
        mars.topic("f20_again", PARTITIONS)
        load.send(rows[1000:])

        wait_for("the task to say so", lambda: _failed_because_of(mars, "topic"))
        wait_for(
            "the incident",
            lambda: any(
                one.kind == "failed" and "topic" in one.what
                for one in mars.client.incidents(task="f20_again")
            ),
        )


def test_20_no_row_of_a_topic_that_was_made_again_is_in_a_result(mars: MarsCluster) -> None:
    """Made again at once, with more rows than there were: readers go on among them."""
    start_ms = time.time_ns() // 10**6 - 600_000
    rows = flow_rows(0, 6_000, start_ms, rows_per_s=SLOW_ROWS_PER_S)
    with declared(Load(mars, "f20_at_once")) as load:
        load.send(rows[:2_000])
        mars.ledger("f20_at_once", 2_000, 1)
        mars.delete_topic("f20_at_once")
        wait_for("the topic to be gone", lambda: not _exists(mars, "f20_at_once"))
        mars.topic("f20_at_once", PARTITIONS)
        load.send(rows[2_000:])

        wait_for("the task to fail", lambda: mars.client.task("f20_at_once").state == "failed")
        wanted = expected(rows[:2_000], load.window_s * 1_000)
        emitted = {
            (value["window_start"], *(value[name] for name in KEY)): value["ids"]
            for _key, value, _headers in mars.read("mars.results.f20_at_once")
        }
        assert emitted
        assert {
            at: ids for at, ids in emitted.items() if ids != wanted.get(at, {}).get("ids")
        } == {}


def _failed_because_of(mars: MarsCluster, word: str) -> bool:
    task = mars.client.task("f20_again")
    return task.state == "failed" and word in task.detail


def _exists(mars: MarsCluster, topic: str) -> bool:
    return topic in admin(mars).list_topics(timeout=20).topics
