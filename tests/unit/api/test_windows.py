"""Open windows with their values as of now."""

from __future__ import annotations

from typing import Any

import pytest

from mars.core.types import StoreEpoch, TaskName, live_lane
from tests.unit.api.twins import World, problem

ROWS: list[dict[str, Any]] = [
    {"timestamp": 5_000, "sip": "b", "bytes": 1},
    {"timestamp": 6_000, "sip": "a", "bytes": 20},
    {"timestamp": 7_000, "sip": "a", "bytes": 2**62},
    {"timestamp": 8_000, "sip": "c"},
    {"timestamp": 65_000, "sip": "a", "bytes": 7},
]


@pytest.fixture
def busy(world: World) -> World:
    """Rows of two windows in the log, in several batches and buckets."""
    assert world.register(start="earliest").status_code == 201
    world.start_in_store()
    world.run_batch(ROWS[:2])
    world.run_batch(ROWS[2:], first=2)
    return world


def windows(world: World, **query: Any) -> list[dict[str, Any]]:
    answer = world.http.get("/v1/tasks/by_sip/windows", params=query)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["windows"]
    return found


def sips(window: dict[str, Any]) -> list[str]:
    return [row["sip"] for row in window["rows"]]


def test_windows_show_the_rows_that_would_be_emitted_now(busy: World) -> None:
    first, second = windows(busy)
    assert first["rows"] == [
        {"window_start": 0, "window_end": 60_000, "sip": sip, "count": count, "sum_bytes": total}
        for sip, count, total in (("a", 2, 2**62 + 20), ("b", 1, 1), ("c", 1, None))
    ]
    assert (first["window_start"], first["window_end"], first["groups"]) == (0, 60_000, 3)
    assert (second["window_start"], sips(second)) == (60_000, ["a"])


def test_sums_beyond_64_bits_are_exact_json_numbers(busy: World) -> None:
    busy.run_batch([{"timestamp": 9_000, "sip": "a", "bytes": 2**63 - 1}] * 4, first=5)
    total = 2**62 + 20 + 4 * (2**63 - 1)
    answer = busy.http.get("/v1/tasks/by_sip/windows", params={"key": "a"})
    assert f'"sum_bytes":{total}'.encode() in answer.content


@pytest.mark.parametrize("key", ["a", '["a"]'])
def test_key_chooses_its_rows_in_every_window(busy: World, key: str) -> None:
    assert [sips(window) for window in windows(busy, key=key)] == [["a"], ["a"]]


@pytest.mark.parametrize("key", ["z", '["z"]', "[null]", '["a", "b"]', "[1]", "A"])
def test_key_of_no_group_leaves_the_windows_empty(busy: World, key: str) -> None:
    assert [window["rows"] for window in windows(busy, key=key)] == [[], []]


@pytest.mark.parametrize("key", ["[", '["a"', "[" * 5_000])
def test_key_that_is_a_broken_array_answers_422(busy: World, key: str) -> None:
    answer = busy.http.get("/v1/tasks/by_sip/windows", params={"key": key})
    problem(answer, 422)


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("count", ["b", "c", "a"]),
        ("-count", ["a", "b", "c"]),
        ("sum_bytes", ["b", "a", "c"]),
        ("-sum_bytes", ["a", "b", "c"]),
        ("-sip", ["c", "b", "a"]),
        ("window_start", ["a", "b", "c"]),
    ],
)
def test_rows_are_ordered_with_nulls_last(busy: World, order: str, expected: list[str]) -> None:
    assert sips(windows(busy, order=order)[0]) == expected


def test_unknown_order_names_what_there_is(busy: World) -> None:
    answer = busy.http.get("/v1/tasks/by_sip/windows", params={"order": "bytes"})
    assert "sum_bytes" in problem(answer, 422)["detail"]


def test_limit_is_per_window_and_says_that_rows_were_left_out(busy: World) -> None:
    answer = busy.http.get("/v1/tasks/by_sip/windows", params={"limit": 1, "order": "-count"})
    first, second = answer.json()["windows"]
    assert (sips(first), first["groups"], sips(second)) == (["a"], 3, ["a"])
    assert answer.json()["truncated"] is True
    whole = busy.http.get("/v1/tasks/by_sip/windows").json()
    assert whole["truncated"] is False


def test_windows_beyond_the_limit_are_counted(busy: World, monkeypatch: Any) -> None:
    monkeypatch.setattr("api.services.inside.windows.WINDOWS_MAX", 1)
    answer = busy.http.get("/v1/tasks/by_sip/windows").json()
    assert (len(answer["windows"]), answer["more"]) == (1, 1)


def test_closed_windows_are_left_out(busy: World) -> None:
    for bucket in range(4):
        busy.commit(bucket, closed_ms=60_000, merged={live_lane(0): 5})
    assert [window["window_start"] for window in windows(busy)] == [60_000]


def test_groups_that_were_emitted_ahead_of_the_others_are_left_out(world: World) -> None:
    options = {"watermark": "key", "key_lag": "1h", "delay": "1s"}
    assert world.register(start="earliest", options=options).status_code == 201
    world.start_in_store()
    world.run_batch(ROWS)
    assert sips(windows(world)[0]) == ["a", "b", "c"]

    for bucket in range(4):
        world.commit(bucket, ahead_ms=60_000, merged={live_lane(0): 5}, read=5, counted=5)
    assert sips(windows(world)[0]) == ["b", "c"], (
        "a has had a row from behind the window and the delay"
    )


def test_window_from_before_the_task_is_not_complete(world: World) -> None:
    world.now_ms = 30_000
    assert world.register(start="latest").status_code == 201
    world.start_in_store()
    world.run_batch(ROWS)
    assert [window["complete"] for window in windows(world)] == [False, True]


def test_having_and_limit_of_the_query_apply(world: World) -> None:
    sql = (
        "SELECT sip, count(*) AS n FROM flows GROUP BY sip HAVING count(*) < 2 "
        "ORDER BY sip DESC LIMIT 1 WINDOWING 60 s"
    )
    assert world.register(sql=sql, start="earliest").status_code == 201
    world.start_in_store()
    world.run_batch(ROWS)
    assert sips(windows(world)[0]) == ["c"]


def test_groups_over_the_limit_are_shown_folded_as_they_would_be_emitted(world: World) -> None:
    options = {"max_keys": 1, "over_max_keys": "fold"}
    assert world.register(start="earliest", options=options).status_code == 201
    world.start_in_store()
    world.run_batch(ROWS)
    first, second = windows(world)
    assert [(row["sip"], row["count"]) for row in first["rows"]] == [("b", 1), ("__other__", 3)]
    assert (first["groups"], first["folded"]) == (2, True)
    assert (sips(second), second["folded"]) == (["a"], False)


def test_windows_of_a_task_over_its_limit_are_refused_with_the_reason(world: World) -> None:
    assert world.register(start="earliest", options={"max_keys": 2}).status_code == 201
    world.start_in_store()
    world.run_batch(ROWS)
    answer = world.http.get("/v1/tasks/by_sip/windows")
    assert "max_keys is 2" in problem(answer, 409)["detail"]


def test_sliding_windows_overlap(world: World) -> None:
    sql = "SELECT sip, count(*) AS n FROM flows GROUP BY sip WINDOWING 60 s SLIDE 30 s"
    assert world.register(sql=sql, start="earliest").status_code == 201
    world.start_in_store()
    world.run_batch(ROWS)
    shown = {window["window_start"]: sips(window) for window in windows(world)}
    assert shown == {-30_000: ["a", "b", "c"], 0: ["a", "b", "c"], 30_000: ["a"], 60_000: ["a"]}


def test_task_that_is_not_in_the_store_has_no_windows(world: World) -> None:
    assert world.register().status_code == 201
    assert windows(world) == []


def test_store_that_is_still_being_filled_again_answers_503(busy: World) -> None:
    for bucket in range(4):
        busy.commit(bucket, merged={live_lane(0): 4})
    busy.start_in_store(epoch=StoreEpoch(2))
    assert windows(busy) == []
    task, plan = TaskName("by_sip"), busy.plan()
    from mars.core.types import Records
    from mars.engine.kernel import decode, map_batch

    record = Records(
        live_lane(0), 0, 1, [b'{"timestamp": 5000, "sip": "b", "bytes": 1}'], [0], [-1]
    )
    mapped = map_batch(plan, 4, decode(plan.stream, plan.fields, record))
    busy.log.append(task, StoreEpoch(2), 1, mapped)
    answer = busy.http.get("/v1/tasks/by_sip/windows")
    assert "being rebuilt" in problem(answer, 503)["detail"]


def test_reading_windows_changes_nothing(busy: World) -> None:
    before = busy.log.dump()
    windows(busy, order="-count")
    assert busy.log.dump() == before
