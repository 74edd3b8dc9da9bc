"""Tasks whose windows count rows, as the API shows them, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from mars.core.types import live_lane
from tests.unit.api.twins import World, problem

SQL = "SELECT sip, count(*) FROM flows GROUP BY sip WINDOWING 4 ROWS SLIDE 2 ROWS"
ROWS: list[dict[str, Any]] = [
    {"timestamp": 9_000, "sip": "b"},
    {"timestamp": 6_000, "sip": "a"},
    {"timestamp": 7_000, "sip": "a"},
]


@pytest.fixture
def busy(world: World) -> World:
    assert world.register(sql=SQL, start="earliest").status_code == 201
    world.start_in_store()
    world.run_batch(ROWS)
    return world


def test_plan_says_that_rows_are_counted(world: World) -> None:
    task = world.register(sql=SQL).json()
    window = task["plan"]["window"]
    assert (window["kind"], window["size"], window["slide"]) == ("counting", "4 rows", "2 rows")
    assert [field["name"] for field in task["plan"]["fields"]] == ["timestamp", "sip"]
    assert task["plan"]["aggregates"] == ["count(*)"]
    assert task["output"]["key"] == ["window_start", "sip", "partition", "window_number"]
    names = [column["name"] for column in task["output"]["columns"]]
    assert names[:3] == ["window_start", "window_end", "partition"]


def test_history_is_the_mappers_however_much_it_is(world: World) -> None:
    world.kafka.end_offsets["flows"] = {0: 10**9, 1: 0}
    assert world.register(sql=SQL, start="earliest").status_code == 201
    assert world.definition().backfills == ()
    assert world.definition().current.starts == {live_lane(0): 0, live_lane(1): 0}


def test_a_task_with_a_history_apart_counts_no_rows(world: World) -> None:
    world.kafka.end_offsets["flows"] = {0: 10**9, 1: 0}
    assert world.register(start="earliest").status_code == 201
    assert world.definition().backfills
    answer = problem(world.http.put("/v1/tasks/by_sip", json={"sql": SQL}), 422)
    assert "register another task" in answer["detail"]


def test_open_windows_are_named_by_their_numbers(busy: World) -> None:
    answer = busy.http.get("/v1/tasks/by_sip/windows").json()
    first, second = answer["windows"]
    assert (first["partition"], first["window_number"], first["window_start"]) == (0, 0, None)
    assert (second["partition"], second["window_number"]) == (0, 1)
    counts = [{row["sip"]: row["count"] for row in one["rows"]} for one in (first, second)]
    assert counts == [{"a": 2, "b": 1}, {"a": 1}]
    own = {row["sip"]: row for row in first["rows"]}["a"]
    assert (own["window_start"], own["window_end"]) == (6_000, 7_000)
    assert (own["window_first_offset"], own["window_last_offset"]) == (1, 2)


def test_open_windows_of_one_partition(busy: World) -> None:
    busy.run_batch([{"timestamp": 1_000, "sip": "z"}], partition=1)

    def shown(**query: Any) -> list[tuple[int, int]]:
        answer = busy.http.get("/v1/tasks/by_sip/windows", params=query)
        return [(one["partition"], one["window_number"]) for one in answer.json()["windows"]]

    assert shown() == [(0, 0), (0, 1), (1, 0)]
    assert shown(partition=0) == [(0, 0), (0, 1)]
    assert shown(partition=1) == [(1, 0)]
    assert shown(partition=7) == []


def test_a_partition_names_no_windows_by_time(world: World) -> None:
    assert world.register(start="earliest").status_code == 201
    answer = world.http.get("/v1/tasks/by_sip/windows", params={"partition": 0})
    assert "those of this task go by time" in problem(answer, 422)["detail"]


def test_why_says_how_many_rows_are_missing(busy: World) -> None:
    answer = busy.http.get("/v1/tasks/by_sip/why").json()
    assert [(one["partition"], one["window_number"]) for one in answer["windows"]] == [
        (0, 0),
        (0, 1),
    ]
    assert all(one["window_start"] is one["window_end"] is None for one in answer["windows"])


def test_a_query_over_the_topic_is_taken_and_one_over_files_is_not(world: World) -> None:
    assert world.http.post("/v1/queries", json={"sql": SQL}).status_code == 202
    files = {"files": "/nowhere", "format": "csv"}
    answer = problem(world.http.post("/v1/queries", json={"sql": SQL, "files": files}), 422)
    assert "leave files out and read the topic" in answer["detail"]
