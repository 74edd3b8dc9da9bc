"""Windows that count the rows of each key: what the API says of them, and what it does not do."""

from __future__ import annotations

from typing import Any

import pytest

from api.services.previews import windows
from mars.core.types import Topic
from tests.unit.api.test_preview import NOW_MS, ask, send
from tests.unit.api.test_preview_shapes import made
from tests.unit.api.test_results_by_number import committed
from tests.unit.api.twins import World, problem

SQL = "SELECT sip, count(*) AS n FROM flows GROUP BY sip WINDOWING 10 ROWS PER KEY EXPIRE 1 d"
PATH = "/v1/tasks/by_sip"


@pytest.fixture
def registered(world: World) -> World:
    assert world.register(sql=SQL).status_code == 201
    return world


def test_the_plan_says_what_results_look_like(world: World) -> None:
    answer = world.http.post("/v1/tasks/validate", json={"sql": SQL})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    assert found["plan"]["window"]["size"] == "10 rows of a key"
    assert [one for one in found["plan"]["aggregates"] if "seen" in str(one)] == []
    assert found["output"]["key"] == ["window_start", "sip", "partition", "window_number"]


def test_each_result_is_a_window(registered: World) -> None:
    registered.kafka.rows = [committed(0, 17, "a", 900), committed(0, 3, "b", 100)]
    windows = registered.http.get(f"{PATH}/results").json()["windows"]
    assert [(one["window_number"], len(one["rows"])) for one in windows] == [(17, 1), (3, 1)]


@pytest.mark.parametrize("path", ["results", "ledger"])
@pytest.mark.parametrize(
    "asked", [{"partition": 0, "window_number": 3}, {"window_start": 100}, {"partition": 0}]
)
def test_no_window_is_looked_for_by_a_name(
    registered: World, path: str, asked: dict[str, int]
) -> None:
    answer = registered.http.get(f"{PATH}/{path}", params=asked)
    assert "come in no order" in problem(answer, 422)["detail"]


def test_a_query_over_the_topic_is_taken_and_one_over_files_is_not(world: World) -> None:
    assert world.http.post("/v1/queries", json={"sql": SQL}).status_code == 202
    files = {"files": "/nowhere", "format": "csv"}
    answer = problem(world.http.post("/v1/queries", json={"sql": SQL, "files": files}), 422)
    assert "leave files out and read the topic" in answer["detail"]


def rows_of(*keys: str, begin_s: int = 0) -> list[dict[str, Any]]:
    """One row of each key, a second apart."""
    return [
        {"sip": key, "timestamp": (begin_s + at) * 1_000, "bytes": 1} for at, key in enumerate(keys)
    ]


def preview(world: World, sql: str, *rows: dict[str, Any]) -> dict[str, Any]:
    answer = world.http.post("/v1/tasks/preview", json={"sql": sql, "rows": list(rows)})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


THREE = SQL.replace("10 ROWS", "3 ROWS").replace("1 d", "1 h")


def test_a_preview_shows_full_windows_and_what_silent_keys_have_left(world: World) -> None:
    rows = [*rows_of(*"aabaab"), *rows_of("c", begin_s=7_200)]

    found = preview(world, THREE, *rows)

    shown = [
        (one["rows"][0]["sip"], one["window_number"], one["rows"][0]["n"], one["complete"])
        for one in found["windows"]
    ]
    assert shown == [("a", 0, 3, True), ("a", 4, 1, False), ("b", 2, 2, False)]
    assert (found["complete_windows"], found["more_windows"]) == (1, False)
    assert any(note.startswith("1 row waits for") for note in found["notes"])


def test_a_preview_shows_the_newest_windows(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "WINDOWS_MAX", 2)

    found = preview(world, THREE, *rows_of(*"abcabcabcabcabcabc"))

    assert [one["rows"][0]["sip"] for one in found["windows"]] == ["b", "c"]
    assert (found["complete_windows"], found["more_windows"]) == (6, True)


def test_having_and_where_hold_in_a_preview(world: World) -> None:
    sql = THREE.replace("GROUP BY", "WHERE sip <> 'b' GROUP BY").replace(
        "WINDOWING", "HAVING max(bytes) > 1 WINDOWING"
    )
    rows = rows_of(*"abababcccc")
    for row in rows:
        row["bytes"] = 5 if row["sip"] == "c" else 1

    found = preview(world, sql, *rows)

    assert [(one["rows"][0]["sip"], one["window_number"]) for one in found["windows"]] == [("c", 3)]
    assert found["counts"]["filtered"] == 3


def test_a_preview_of_a_topic_says_what_the_task_would_cost(world: World) -> None:
    world.now_ms = NOW_MS
    world.broker.create_topic(Topic("flows"), 2)
    send(world, made(1, 200), ago_ms=9_000)

    found = ask(world, sql=SQL.replace("10 ROWS", "5 ROWS"))["predictions"]

    assert found["groups_per_window"] is None
    assert found["windows_per_minute"] > 0
    assert found["redis_bytes"] == found["redis_bytes_merged"] > 0
    assert any("windows a minute, each of one key" in one for one in found["sentences"])
