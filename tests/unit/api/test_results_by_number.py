"""Finished windows that count rows: found by their number in a partition, and not by times."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mars.core.types import Bucket
from mars.protocol.ports import CommittedRow, RecentRows
from tests.unit.api.twins import World, problem

SQL = "SELECT sip, count(*) AS n FROM flows GROUP BY sip WINDOWING 10 ROWS"
PATH = "/v1/tasks/by_sip/results"


def committed(
    of: int, number: int, sip: str, at: int, *, partition: int = 0, version: int = 1
) -> CommittedRow:
    value = {
        "window_start": at,
        "window_end": at + 5,
        "partition": of,
        "window_number": number,
        "window_first_offset": number * 10,
        "window_last_offset": number * 10 + 9,
        "sip": sip,
        "n": 5,
    }
    return CommittedRow(
        partition=partition,
        offset=number,
        key=json.dumps([at, sip, of, number]).encode(),
        value=json.dumps(value).encode(),
        version=version,
        revision=0,
        complete=True,
        bucket=Bucket(partition),
        rows=5,
    )


@pytest.fixture
def finished(world: World) -> World:
    assert world.register(sql=SQL).status_code == 201
    world.kafka.rows = [
        committed(0, 0, "a", 900),
        committed(0, 1, "a", 100),
        committed(0, 1, "b", 300, partition=1),
        committed(1, 0, "b", 500, partition=1),
    ]
    return world


def test_groups_of_a_window_are_together_whatever_their_times(finished: World) -> None:
    answer = finished.http.get(PATH).json()
    assert [
        (one["partition"], one["window_number"], one["window_start"], one["window_end"])
        for one in answer["windows"]
    ] == [(0, 1, 100, 305), (1, 0, 500, 505), (0, 0, 900, 905)]
    assert [len(one["rows"]) for one in answer["windows"]] == [2, 1, 1]
    assert answer["truncated"] is False


def test_windows_of_the_newest_version_come_first(finished: World) -> None:
    finished.kafka.rows.append(committed(0, 0, "a", 1, version=2))
    first = finished.http.get(PATH).json()["windows"][0]
    assert (first["version"], first["window_number"]) == (2, 0)


def test_one_window_is_found_by_partition_and_number(finished: World) -> None:
    finished.kafka.rows.append(committed(0, 1, "a", 1, version=2))
    asked = {"partition": 0, "window_number": 1}
    (window,) = finished.http.get(PATH, params=asked).json()["windows"]
    assert (window["version"], [row["sip"] for row in window["rows"]]) == (1, ["a", "b"])
    assert finished.http.get(PATH, params={**asked, "partition": 7}).json()["windows"] == []


@pytest.mark.parametrize("path", ["results", "ledger"])
@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"partition": 0}, "give both"),
        ({"window_number": 0}, "give both"),
        ({"window_start": 900}, "give partition and window_number"),
        ({"window_end": 900}, "give partition and window_number"),
        ({"partition": 0, "window_number": 1, "window_start": 900}, "by its number"),
    ],
)
def test_half_a_name_and_times_are_refused(
    finished: World, path: str, asked: dict[str, int], words: str
) -> None:
    answer = finished.http.get(f"/v1/tasks/by_sip/{path}", params=asked)
    assert words in problem(answer, 422)["detail"]


@pytest.mark.parametrize("path", ["results", "ledger"])
def test_windows_by_time_have_no_number(world: World, path: str) -> None:
    assert world.register().status_code == 201
    asked = {"partition": 0, "window_number": 1}
    answer = world.http.get(f"/v1/tasks/by_sip/{path}", params=asked)
    assert "go by time" in problem(answer, 422)["detail"]


def test_the_ledger_of_a_window_adds_up_its_buckets(finished: World) -> None:
    asked = {"partition": 0, "window_number": 1}
    found: dict[str, Any] = finished.http.get("/v1/tasks/by_sip/ledger", params=asked).json()
    assert found == {
        "window_start": None,
        "window_end": None,
        "counted": 10,
        "emitted": 10,
        "open": 0,
        "late": 0,
        **asked,
    }
    unknown = finished.http.get("/v1/tasks/by_sip/ledger", params={**asked, "window_number": 9})
    assert "number 9 in partition 0" in problem(unknown, 404)["detail"]


def test_a_window_is_whole_where_each_partition_that_was_cut_has_one_before_it() -> None:
    rows = (
        committed(0, 3, "a", 1),
        committed(0, 4, "a", 2),
        committed(1, 8, "a", 3),
        committed(0, 5, "b", 4, partition=1),
    )
    assert RecentRows(rows).first_whole_numbers() == {(1, 0): 0, (1, 1): 0}
    assert RecentRows(rows, cut=frozenset({0})).first_whole_numbers() == {(1, 0): 4, (1, 1): 9}
    assert RecentRows(rows, cut=frozenset({0, 1})).first_whole_numbers() == {(1, 0): 6}
