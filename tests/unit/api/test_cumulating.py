"""Windows that begin together, as the API names them: by their start and their end."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from mars.core.types import Topic
from mars.core.windows import Window
from mars.protocol.ports import DeadLetter
from tests.unit.api.emitting import LANE, ask, committed, emit
from tests.unit.api.twins import BUCKETS, World, problem

SQL = "SELECT sip, count(*) AS n FROM flows GROUP BY sip WINDOWING 3 min EVERY 1 min"
ROWS = [(1, "a"), (2, "a"), (61, "b"), (121, "c"), (190, "a")]
"""Seconds and groups: those of a cycle, and one of the next."""

ENDS = (60_000, 120_000, 180_000, 240_000)
"""Of the windows that every bucket has closed."""


def flow(time_s: int, sip: str) -> dict[str, object]:
    return {"timestamp": time_s * 1000, "sip": sip}


FLOWS_OF_ROWS = [flow(*row) for row in ROWS]


@pytest.fixture
def registered(world: World) -> World:
    assert world.register(sql=SQL, start="earliest").status_code == 201
    return world


@pytest.fixture
def emitted(registered: World) -> World:
    """What mappers and reducers would have made of the rows: results, and progress."""
    for row in FLOWS_OF_ROWS:
        registered.broker.append(Topic("flows"), 0, json.dumps(row).encode())
    emit(registered, FLOWS_OF_ROWS, ENDS[-1])
    return registered


def groups(window: dict[str, Any]) -> dict[str, int]:
    return {row["sip"]: row["n"] for row in window["rows"]}


# ------------------------------------------------------------------------------------- names


@pytest.mark.parametrize("path", ["results", "verify", "ledger"])
def test_a_start_that_several_windows_have_is_not_enough(emitted: World, path: str) -> None:
    answer = emitted.http.get(f"/v1/tasks/by_sip/{path}", params={"window_start": 0})
    assert "give window_end, too" in problem(answer, 422)["detail"]
    answer = emitted.http.get(f"/v1/tasks/by_sip/{path}", params={"window_end": 60_000})
    assert "without window_start: give both" in problem(answer, 422)["detail"]


def test_of_other_windows_the_end_may_be_named_too(world: World) -> None:
    assert world.register().status_code == 201
    key, value = b'[0,"a"]', b'{"window_start":0,"window_end":60000,"sip":"a","count":1}'
    world.kafka.rows = [committed(0, key, value, 1)]
    for query, found in (({}, 1), ({"window_end": 60_000}, 1), ({"window_end": 70_000}, 0)):
        assert len(ask(world, "results", window_start=0, **query)["windows"]) == found


# ----------------------------------------------------------------------------------- results


def test_finished_windows_come_newest_end_first_each_with_all_its_groups(emitted: World) -> None:
    answer = ask(emitted, "results")
    assert [(one["window_start"], one["window_end"], groups(one)) for one in answer["windows"]] == [
        (180_000, 240_000, {"a": 1}),
        (0, 180_000, {"a": 2, "b": 1, "c": 1}),
        (0, 120_000, {"a": 2, "b": 1}),
        (0, 60_000, {"a": 2}),
    ]


def test_one_of_them_is_named_by_both(emitted: World) -> None:
    (window,) = ask(emitted, "results", window_start=0, window_end=120_000)["windows"]
    assert (window["window_end"], groups(window)) == (120_000, {"a": 2, "b": 1})
    assert ask(emitted, "results", window_start=0, window_end=90_000)["windows"] == []


def test_a_step_that_does_not_fit_is_left_out_and_not_the_whole_cycle(emitted: World) -> None:
    answer = ask(emitted, "results", limit=4)
    assert [one["window_end"] for one in answer["windows"]] == [240_000, 180_000]
    assert answer["truncated"] is True


def test_a_revision_says_of_which_step_it_is(emitted: World) -> None:
    old = next(row for row in emitted.kafka.rows if row.window == Window(60_000, 0))
    emitted.kafka.rows.append(replace(old, revision=1))
    answer = ask(emitted, "results", limit=4)
    assert answer["revised"] == [
        {"window_start": 0, "version": 1, "revision": 1, "window_end": 60_000}
    ]


# ------------------------------------------------------------------------------------ verify


@pytest.mark.parametrize("end", ENDS[:3])
def test_each_step_is_verified_by_itself(emitted: World, end: int) -> None:
    answer = ask(emitted, "verify", window_start=0, window_end=end)
    assert (answer["equal"], answer["rows"], answer["window_end"]) == (True, end // 60_000, end)


def test_the_last_finished_step_is_meant_where_none_is_named(emitted: World) -> None:
    answer = ask(emitted, "verify")
    assert (answer["window_start"], answer["window_end"]) == (180_000, 240_000)
    for bucket in range(BUCKETS):
        closed = 120_000 if bucket == 2 else ENDS[-1]
        emitted.commit(bucket, closed_ms=closed, merged={LANE: 5}, counted=5, emit=2)
    answer = ask(emitted, "verify")
    assert (answer["window_start"], answer["window_end"], answer["equal"]) == (0, 120_000, True)


def test_rows_of_another_step_do_not_stand_for_those_that_lack(emitted: World) -> None:
    emitted.kafka.rows = [row for row in emitted.kafka.rows if row.key != b'[0,"b",120000]']
    answer = ask(emitted, "verify", window_start=0, window_end=120_000)
    assert [(each["kind"], each["key"]) for each in answer["differences"]] == [
        ("missing", [0, "b", 120_000])
    ]
    assert ask(emitted, "verify", window_start=0, window_end=180_000)["equal"] is True


def test_a_window_that_is_none_is_not_found(emitted: World) -> None:
    query = {"window_start": 0, "window_end": 90_000}
    answer = emitted.http.get("/v1/tasks/by_sip/verify", params=query)
    assert "ends at 90000" in problem(answer, 404)["detail"]


def test_steps_of_another_version_are_not_taken_for_a_window_that_begins_with_them(
    emitted: World,
) -> None:
    emitted.kafka.rows = [row for row in emitted.kafka.rows if row.window.start_ms == 0]
    put = {"sql": SQL.replace("EVERY 1 min", "SLIDE 3 min")}
    assert emitted.http.put("/v1/tasks/by_sip", json=put).status_code == 200
    emitted.begin_newest()
    emit(emitted, FLOWS_OF_ROWS, 180_000)
    answer = ask(emitted, "verify")
    assert (answer["window_end"], answer["versions"], answer["equal"]) == (180_000, [1, 2], True)
    assert ask(emitted, "verify", window_start=0, window_end=60_000)["versions"] == [1]
    assert ask(emitted, "ledger", window_start=0, window_end=60_000)["window_end"] == 60_000


# ---------------------------------------------------------------------- open windows, ledgers


def test_open_windows_are_the_steps_that_are_to_come(registered: World) -> None:
    registered.start_in_store()
    registered.run_batch([flow(*row) for row in ROWS[:3]])
    for bucket in range(BUCKETS):
        registered.commit(bucket, closed_ms=60_000, merged={LANE: 3}, counted=3)
    windows = ask(registered, "windows")["windows"]
    assert [(one["window_start"], one["window_end"], groups(one)) for one in windows] == [
        (0, 120_000, {"a": 2, "b": 1}),
        (0, 180_000, {"a": 2, "b": 1}),
    ]


def test_why_names_each_step_by_its_end(registered: World) -> None:
    registered.start_in_store()
    registered.run_batch([flow(*row) for row in ROWS[:3]])
    found = ask(registered, "why")["windows"]
    assert [(one["window_end"], one["rows"]) for one in found] == [
        (60_000, 2),
        (120_000, 3),
        (180_000, 3),
    ]


def test_each_step_has_a_ledger_of_its_own(registered: World) -> None:
    registered.start_in_store()
    registered.run_batch([flow(*row) for row in ROWS[:3]])
    late = DeadLetter(
        registered.definition().name,
        Topic("flows"),
        0,
        9,
        10,
        "late",
        1,
        0,
        1,
        window_end_ms=180_000,
    )
    registered.kafka.letters = [late]
    for end, counted, late_rows in ((60_000, 2, 0), (120_000, 3, 0), (180_000, 3, 1)):
        found = ask(registered, "ledger", window_start=0, window_end=end)
        assert (found["window_end"], found["open"], found["late"]) == (end, counted, late_rows)


def test_late_rows_are_named_with_the_whole_cycle(registered: World) -> None:
    name = registered.definition().name
    registered.kafka.letters = [
        DeadLetter(name, Topic("flows"), 0, 9, 10, "late", 1, 0, 1, window_end_ms=180_000)
    ]
    (row,) = ask(registered, "dead")["rows"]
    assert (row["window_start"], row["window_end"]) == (0, 180_000)


# ------------------------------------------------------------------------------------- plans


def test_the_plan_says_that_windows_cumulate(world: World) -> None:
    answer = world.http.post("/v1/tasks/validate", json={"name": "by_sip", "sql": SQL}).json()
    assert answer["plan"]["window"] == {
        "kind": "cumulating",
        "size_ms": 180_000,
        "slide_ms": 60_000,
        "step_ms": 60_000,
        "size": "3 min",
        "slide": "1 min",
        "offset_ms": 0,
        "zone": None,
        "zone_database": None,
        "landmark_ms": None,
    }
    assert answer["output"]["key"] == ["window_start", "sip", "window_end"]


def test_keys_that_end_with_a_time_are_like_those_that_end_with_a_number(world: World) -> None:
    shared = {"output_topic": "alerts"}
    two = "SELECT sip, bytes, count(*) AS n FROM flows GROUP BY sip, bytes WINDOWING 1 min"
    assert world.register("two", sql=two, options=shared).status_code == 201
    (warning,) = world.register("steps", sql=SQL, options=shared).json()["warnings"]
    assert "[window_start, sip, window_end]" in warning


def test_a_preview_shows_the_steps_that_have_come_and_what_they_cost(world: World) -> None:
    body = {"sql": SQL.replace("3 min", "1 d"), "rows": FLOWS_OF_ROWS}
    found = world.http.post("/v1/tasks/preview", json=body).json()
    assert [(one["window_start"], one["window_end"]) for one in found["windows"]] == [
        (0, end) for end in (60_000, 120_000, 180_000, 240_000)
    ]
    said = " ".join(found["predictions"]["sentences"])
    assert "Each of the 1,440 steps" in said
    assert "3 result rows a minute" in said
