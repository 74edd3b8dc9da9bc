"""Tasks with windows since a landmark, wherever the API names windows."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from mars.core.definitions import TaskState, decode_definition, encode_definition
from mars.core.types import TaskName, Topic
from tests.unit.api.emitting import LANE, ask, emit
from tests.unit.api.twins import BUCKETS, World, problem

SINCE_1970 = (
    "SELECT sip, count(*) AS n FROM flows GROUP BY sip "
    "WINDOWING LANDMARK '1970-01-01T00:00:00Z' EVERY 1 min"
)
SINCE_NOW = SINCE_1970.replace("'1970-01-01T00:00:00Z' ", "")
ROWS = [
    {"timestamp": time_s * 1000, "sip": sip}
    for time_s, sip in ((1, "a"), (2, "a"), (61, "b"), (190, "a"))
]
ENDS = (60_000, 120_000, 240_000)
"""Of the windows: in the minute that ends at 180 s nothing came."""

TUMBLING = "SELECT sip, count(*) AS n FROM flows GROUP BY sip WINDOWING 1 min"

STEP_MS = 60_000
BEGUN_MS = 960_000
"""The last minute that had begun when the world did, at 1000 s."""


def later(minutes: int) -> str:
    """The query with a landmark so many minutes after 1970."""
    return SINCE_1970.replace("00:00:00Z", f"00:{minutes:02}:00Z")


@pytest.fixture
def registered(world: World) -> World:
    assert world.register(sql=SINCE_1970, start="earliest").status_code == 201
    return world


@pytest.fixture
def emitted(registered: World) -> World:
    for row in ROWS:
        registered.broker.append(Topic("flows"), 0, json.dumps(row).encode())
    emit(registered, ROWS, ENDS[-1])
    return registered


# ------------------------------------------------------------------------------- the landmark


def test_a_landmark_without_a_time_is_when_the_task_was_registered_for_ever(world: World) -> None:
    world.kafka.timed_offsets["flows"] = {0: 7, 1: 8}
    assert world.register(sql=SINCE_NOW).status_code == 201
    definition = world.definition()
    assert definition.current.landmark_ms == BEGUN_MS
    assert dict(definition.current.starts or {}) == {"0": 7, "1": 8}
    assert definition.current.complete_from_ms == BEGUN_MS

    world.now_ms += 10 * STEP_MS
    again = decode_definition(encode_definition(definition)).current
    plan = world.services.compiler.against(TaskName("by_sip"), again, again.stream)
    assert plan.window.begins_ms == BEGUN_MS
    shown = world.http.get("/v1/tasks/by_sip").json()["plan"]["window"]
    assert shown["landmark_ms"] == BEGUN_MS


def test_the_same_query_again_is_no_change_though_time_has_gone_on(world: World) -> None:
    assert world.register(sql=SINCE_NOW).status_code == 201
    world.now_ms += 10 * STEP_MS
    put = world.http.put("/v1/tasks/by_sip", json={"sql": SINCE_NOW})
    assert (put.status_code, put.json()["version"]) == (200, 1)
    for word, state in (("pause", TaskState.PAUSED), ("resume", TaskState.RUNNING)):
        assert world.http.post(f"/v1/tasks/by_sip/{word}").status_code == 200
        assert world.definition().state is state
    assert world.definition().current.landmark_ms == BEGUN_MS


def test_a_task_that_starts_at_a_time_has_its_landmark_there(world: World) -> None:
    world.kafka.timed_offsets["flows"] = {0: 3, 1: 4}
    start = {"timestamp": 190_000}
    assert world.register(sql=SINCE_NOW, start=start).status_code == 201
    current = world.definition().current
    assert (current.landmark_ms, current.complete_from_ms) == (180_000, 180_000)


def test_from_the_earliest_row_on_a_landmark_has_to_be_named(world: World) -> None:
    found = problem(world.register(sql=SINCE_NOW, start="earliest"), 422)
    assert "a landmark without a time is when a task is registered" in found["detail"]
    assert (found["line"], found["column"]) == (1, SINCE_NOW.index("LANDMARK") + 1)


def test_a_landmark_before_the_rows_that_a_task_reads_is_refused(world: World) -> None:
    found = problem(world.register(sql=SINCE_1970), 422)
    assert '"start": {"timestamp": 0}' in found["detail"]
    assert world.register(sql=later(17)).status_code == 201


def test_a_set_has_landmarks_too(world: World) -> None:
    tasks = [{"name": "since", "sql": SINCE_NOW}]
    answer = world.http.put("/v1/tasks", json={"tasks": tasks})
    assert answer.json()["tasks"][0]["action"] == "create"
    assert world.definition("since").current.landmark_ms == BEGUN_MS
    world.now_ms += 10 * STEP_MS
    answer = world.http.put("/v1/tasks", json={"tasks": tasks})
    assert answer.json()["tasks"][0]["action"] == "unchanged"


# ------------------------------------------------------------------------------- new versions


@pytest.mark.parametrize("sql", [SINCE_1970, SINCE_NOW, later(16)])
def test_a_new_version_whose_windows_would_lack_rows_for_ever_is_refused(
    world: World, sql: str
) -> None:
    assert world.register().status_code == 201
    found = problem(world.http.put("/v1/tasks/by_sip", json={"sql": sql}), 422)
    assert "would lack the rows of the old one" in found["detail"]
    assert world.definition().current.version == 1


def test_options_of_such_a_task_do_not_change_either(registered: World) -> None:
    body = {"sql": SINCE_1970, "options": {"delay": "5s"}}
    found = problem(registered.http.put("/v1/tasks/by_sip", json=body), 422)
    assert "write a landmark that is still to come" in found["detail"]


def test_a_landmark_that_is_still_to_come_makes_a_new_version(registered: World) -> None:
    put = registered.http.put("/v1/tasks/by_sip", json={"sql": later(20)})
    assert put.json()["version"] == 2
    assert registered.definition().current.landmark_ms == 20 * STEP_MS
    registered.begin_newest()
    put = registered.http.put("/v1/tasks/by_sip", json={"sql": TUMBLING})
    assert put.json()["version"] == 3


# ------------------------------------------------------------------------------------ windows


def test_each_step_in_which_a_row_came_has_all_groups(emitted: World) -> None:
    answer = ask(emitted, "results")
    assert [
        (one["window_start"], one["window_end"], {row["sip"]: row["n"] for row in one["rows"]})
        for one in answer["windows"]
    ] == [(0, 240_000, {"a": 3, "b": 1}), (0, 120_000, {"a": 2, "b": 1}), (0, 60_000, {"a": 2})]


@pytest.mark.parametrize("end", ENDS)
def test_each_of_them_is_verified(emitted: World, end: int) -> None:
    answer = ask(emitted, "verify", window_start=0, window_end=end)
    assert (answer["equal"], answer["window_end"]) == (True, end)


def test_a_start_alone_is_not_enough(emitted: World) -> None:
    for path in ("results", "verify", "ledger"):
        answer = emitted.http.get(f"/v1/tasks/by_sip/{path}", params={"window_start": 0})
        assert "give window_end, too" in problem(answer, 422)["detail"]


def test_too_many_offsets_to_verify_say_who_can(
    emitted: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.services.inside.rereading.SOURCE_OFFSETS_MAX", 2)
    params = {"window_start": 0, "window_end": 60_000}
    answer = emitted.http.get("/v1/tasks/by_sip/verify", params=params)
    detail = problem(answer, 409)["detail"]
    assert "mars query" in detail
    assert "header mars-ranges" in detail


def test_open_windows_and_why_know_the_steps_that_have_rows(registered: World) -> None:
    registered.start_in_store()
    registered.run_batch(ROWS)
    for bucket in range(BUCKETS):
        registered.commit(bucket, closed_ms=60_000, merged={LANE: 4}, counted=4, emitted=2)
    windows = ask(registered, "windows")["windows"]
    assert [(one["window_end"], {row["sip"]: row["n"] for row in one["rows"]}) for one in windows][
        ::-1
    ] == [(240_000, {"a": 3, "b": 1}), (120_000, {"a": 2, "b": 1})]
    found = ask(registered, "why")["windows"]
    assert [(one["window_end"], one["rows"]) for one in found] == [(120_000, 3), (240_000, 4)]


def test_the_plan_says_since_when(world: World) -> None:
    answer = world.http.post("/v1/tasks/validate", json={"name": "by_sip", "sql": SINCE_1970})
    plan = answer.json()["plan"]
    assert plan["window"] == {
        "kind": "landmark",
        "size_ms": None,
        "slide_ms": STEP_MS,
        "step_ms": STEP_MS,
        "size": "since 1970-01-01 00:00:00Z",
        "slide": "1 min",
        "offset_ms": 0,
        "zone": None,
        "zone_database": None,
        "landmark_ms": 0,
    }
    assert answer.json()["output"]["key"] == ["window_start", "sip", "window_end"]


def test_a_preview_says_that_all_groups_are_repeated_and_kept(world: World) -> None:
    for sql in (SINCE_1970, SINCE_NOW):
        found = world.http.post("/v1/tasks/preview", json={"sql": sql, "rows": ROWS}).json()
        assert [one["window_end"] for one in found["windows"]] == list(ENDS)
        assert "all groups since the landmark" in " ".join(found["predictions"]["sentences"])
        assert found["predictions"]["groups_at_least"] is True


def test_a_query_over_history_has_to_say_since_when(world: World) -> None:
    found = problem(world.http.post("/v1/queries", json={"sql": SINCE_NOW}), 422)
    assert "a landmark without a time is when a task is registered" in found["detail"]
    assert world.http.post("/v1/queries", json={"sql": SINCE_1970}).status_code in {201, 202}


# ----------------------------------------------------------------------------- emit: changed


def test_of_groups_that_changed_those_are_verified_that_a_window_has(world: World) -> None:
    changed = {"emit": "changed"}
    assert world.register(sql=SINCE_1970, start="earliest", options=changed).status_code == 201
    for row in ROWS:
        world.broker.append(Topic("flows"), 0, json.dumps(row).encode())
    emit(world, ROWS, ENDS[-1])
    params = {"window_start": 0, "window_end": 240_000}
    kept = [row for row in world.kafka.rows if row.window.end_ms == 240_000 and b'"a"' in row.key]
    world.kafka.rows = kept
    assert ask(world, "verify", **params)["equal"] is True

    world.kafka.rows = [replace(row, value=row.value.replace(b"3", b"4")) for row in kept]
    (wrong,) = ask(world, "verify", **params)["differences"]
    assert (wrong["kind"], wrong["key"]) == ("different", [0, "a", 240_000])


def test_a_preview_of_groups_that_changed_does_not_say_that_all_are_repeated(world: World) -> None:
    body = {"sql": SINCE_1970, "rows": ROWS, "options": {"emit": "changed"}}
    found = world.http.post("/v1/tasks/preview", json=body).json()
    assert "all groups since the landmark" not in " ".join(found["predictions"]["sentences"])
