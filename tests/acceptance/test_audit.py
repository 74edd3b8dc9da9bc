"""Whoever doubts a result can check it: windows computed again, rows not counted, incidents."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from mars.client.answers import Ledger
from tests.support.cluster import MarsCluster, running_mars, wait_for
from tests.support.load import PARTITIONS, Load
from tests.support.rows import Result
from tests.support.store import Store

pytestmark = pytest.mark.acceptance

NAME = "audited"
TOPIC = f"mars.results.{NAME}"
SETTINGS = "[reducer]\nprogress_interval_ms = 1_000\n"
"""Buckets without results say sooner how far they are."""

LOOK_S = 0.25
KILL_AT, FLUSH_AT = 5, 15
"""Looks at the ledger before a reducer is killed, and before the store is emptied."""

WINDOWS_VERIFIED = 4


@pytest.fixture(scope="module")
def mars(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MarsCluster]:
    """One cluster for this file: it loses a reducer and its store, and others are told of that."""
    yield from running_mars(tmp_path_factory.mktemp("audit"), "--bulk", "0", settings=SETTINGS)


@pytest.fixture(scope="module")
def audited(mars: MarsCluster) -> tuple[Load, list[Ledger]]:
    """A load during which a reducer was killed and the store emptied, and ledgers seen then."""
    ledgers: list[Ledger] = []

    def look(turn: int) -> None:
        ledgers.append(wait_for("a ledger", lambda: mars.client.ledger(NAME)))
        if turn == KILL_AT:
            mars.kill("reducer-1")
        elif turn == FLUSH_AT:
            with Store(mars) as store:
                store.flush()

    with Load(mars, NAME, seconds=18).running() as load:
        assert load.every(LOOK_S, look) > FLUSH_AT
    load.check()
    return load, ledgers


def starts(mars: MarsCluster) -> list[int]:
    """The windows that have results, oldest first."""
    return sorted({value["window_start"] for _key, value, _headers in mars.read(TOPIC)})


def verified(mars: MarsCluster, start: int) -> tuple[int, Any]:
    """Exit code and answer of `mars verify`."""
    done = mars.mars("verify", NAME, str(start), "--json")
    return done.returncode, json.loads(done.stdout or "null")


def test_the_ledger_balances_at_every_moment(audited: tuple[Load, list[Ledger]]) -> None:
    load, ledgers = audited
    assert len({ledger.read for ledger in ledgers}) > 5, "the ledger was looked at while it grew"
    for ledger in ledgers:
        fates = ledger.counted + ledger.filtered + ledger.bad + ledger.future + ledger.late
        assert ledger.read == fates, ledger
        assert ledger.counted == ledger.emitted + ledger.open, ledger
        assert ledger.open >= 0, ledger
    reads = [ledger.read for ledger in ledgers]
    assert reads == sorted(reads)
    assert reads[-1] <= len(load.rows)


def test_windows_are_equal_when_they_are_computed_again(
    mars: MarsCluster, audited: tuple[Load, list[Ledger]]
) -> None:
    load, _ledgers = audited
    results = mars.read(TOPIC)
    for start in starts(mars)[:WINDOWS_VERIFIED]:
        code, answer = verified(mars, start)
        assert (code, answer["equal"]) == (0, True), answer
        assert answer["rows"] == sum(value["window_start"] == start for _, value, _ in results)
        counted = [row for row in load.rows if start <= row["timestamp"] < start + 5_000]
        assert len(counted) <= answer["source_rows"] <= len(load.rows)
        ledger = mars.client.window_ledger(NAME, start)
        assert (ledger.counted, ledger.emitted, ledger.open) == (len(counted), len(counted), 0)
    assert mars.mars("verify", NAME).returncode == 0
    assert mars.mars("verify", NAME, "1000").returncode == 3


def test_results_say_where_they_were_counted_from(
    mars: MarsCluster, audited: tuple[Load, list[Ledger]]
) -> None:
    _load, _ledgers = audited
    _key, value, headers = mars.read(TOPIC)[0]
    ranges = json.loads(headers["mars-ranges"])
    assert set(ranges) <= {str(number) for number in range(PARTITIONS)}
    (window,) = mars.client.results(NAME, window_start=value["window_start"]).windows
    sources = {source.bucket: source.ranges for source in window.sources}
    assert sources[int(headers["mars-bucket"])] == {lane: tuple(ranges[lane]) for lane in ranges}


def test_the_loss_of_the_store_is_an_incident(
    mars: MarsCluster, audited: tuple[Load, list[Ledger]]
) -> None:
    wait_for(
        "the incident",
        lambda: [each for each in mars.client.incidents(task=NAME) if each.kind == "rewound"],
    )
    listed = mars.mars("incidents", "--task", NAME)
    assert listed.returncode == 0
    assert "rewound" in listed.stdout
    assert "The store was lost" in mars.client.why(NAME).summary


def test_late_rows_are_listed_and_leave_windows_equal(
    mars: MarsCluster, audited: tuple[Load, list[Ledger]]
) -> None:
    load, _ledgers = audited
    first = starts(mars)[1]
    before = mars.client.ledger(NAME).late
    load.send([{**load.rows[0], "timestamp": first + 1, "id": 10_000_000}])
    wait_for("a late row", lambda: mars.client.ledger(NAME).late == before + 1)
    listed = mars.mars("dead", NAME, "--reason", "late", "--json")
    rows = [json.loads(line) for line in listed.stdout.splitlines()]
    assert [(row["window_start"], row["rows"]) for row in rows] == [(first, 1)]
    assert mars.client.window_ledger(NAME, first).late == 1
    assert verified(mars, first)[0] == 0


def test_a_forged_row_is_found(mars: MarsCluster, audited: tuple[Load, list[Ledger]]) -> None:
    _load, _ledgers = audited
    start = starts(mars)[-2]
    row = next(one for one in mars.read(TOPIC) if one[1]["window_start"] == start)
    forge(mars, row)
    code, answer = verified(mars, start)
    assert (code, answer["equal"]) == (1, False)
    (difference,) = answer["differences"]
    assert (difference["kind"], difference["key"]) == ("extra", [start, "forged", "dns"])
    assert mars.mars("verify", NAME, str(start)).returncode == 1


def forge(mars: MarsCluster, row: Result) -> None:
    """Write a row with another's headers."""
    _key, value, headers = row
    producer = Producer({"bootstrap.servers": mars.file["kafka"]})
    forged = {**value, "sip": "forged", "type": "dns"}
    producer.produce(
        TOPIC,
        json.dumps(forged).encode(),
        json.dumps([value["window_start"], "forged", "dns"]).encode(),
        partition=0,
        headers=[(name, text.encode()) for name, text in headers.items()],
    )
    assert producer.flush(20) == 0
