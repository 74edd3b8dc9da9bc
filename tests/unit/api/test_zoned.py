"""Tasks with days of a time zone, wherever the API names windows."""

from __future__ import annotations

import json
from datetime import datetime

import pytest

from api.services.defining import zone_news
from mars.core.definitions import decode_definition, encode_definition
from mars.core.types import TaskName, Topic
from mars.core.windows import Zone
from mars.core.windows.moments import HOUR_MS
from mars.process.zones import zone_named
from tests.unit.api.emitting import LANE, ask, emit
from tests.unit.api.twins import BUCKETS, World, problem

SQL = "SELECT sip, count(*) AS n FROM flows GROUP BY sip WINDOWING 1 d TIMEZONE 'europe/berlin'"


def ms(moment: str) -> int:
    return int(datetime.fromisoformat(moment).timestamp() * 1000)


LONG_DAY, NEXT_DAY = ms("2026-10-25T00:00+02:00"), ms("2026-10-26T00:00+01:00")
ROWS = [
    {"timestamp": ms(moment), "sip": sip}
    for moment, sip in (
        ("2026-10-25T00:00+02:00", "a"),
        ("2026-10-25T23:59+01:00", "a"),
        ("2026-10-25T02:30+01:00", "b"),
        ("2026-10-26T00:00+01:00", "a"),
    )
]


def berlin() -> Zone:
    found = zone_named("Europe/Berlin")
    assert found is not None
    return found


@pytest.fixture
def registered(world: World) -> World:
    world.now_ms = NEXT_DAY + HOUR_MS
    assert world.register(sql=SQL, start="earliest").status_code == 201
    return world


def emit_all(world: World) -> None:
    """The rows, and all windows up to the end of the long day."""
    for row in ROWS:
        world.broker.append(Topic("flows"), 0, json.dumps(row).encode())
    emit(world, ROWS, NEXT_DAY)


def test_the_plan_says_whose_clock_it_is(world: World) -> None:
    sql = SQL.replace("1 d", "1 month EVERY 1 d").replace("TIMEZONE", "OFFSET 6 h TIMEZONE")
    answer = world.http.post("/v1/tasks/validate", json={"name": "by_sip", "sql": sql}).json()
    assert answer["plan"]["window"] == {
        "kind": "cumulating",
        "size_ms": 31 * 24 * HOUR_MS,
        "slide_ms": 24 * HOUR_MS,
        "step_ms": 24 * HOUR_MS,
        "size": "1 month",
        "slide": "1 d",
        "offset_ms": 6 * HOUR_MS,
        "zone": "Europe/Berlin",
        "zone_database": berlin().database,
        "landmark_ms": None,
    }
    names = [(one["name"], one["type"]) for one in answer["output"]["columns"]]
    assert names[:3] == [
        ("window_start", "timestamp"),
        ("window_end", "timestamp"),
        ("window_local", "string"),
    ]


def test_a_zone_that_is_none_is_refused_at_its_place(world: World) -> None:
    answer = world.http.post("/v1/tasks/validate", json={"sql": SQL.replace("berlin", "berlni")})
    found = problem(answer, 422)
    assert "no time zone 'europe/berlni'" in found["detail"]
    assert (found["line"], found["column"]) == (1, SQL.index("'europe") + 1)


# ------------------------------------------------------------------------------ for ever


def test_the_zone_is_in_the_definition_and_no_database_is_asked_again(
    registered: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    definition = registered.definition()
    assert definition.current.zone == berlin()
    monkeypatch.setattr("mars.process.zones.zone_named", lambda _name: None)
    monkeypatch.setattr("api.services.compiling.zone_named", lambda _name: None)
    again = decode_definition(encode_definition(definition))
    plan = registered.services.compiler.against(
        TaskName("by_sip"), again.current, again.current.stream
    )
    assert plan.window.window_of_start(LONG_DAY).end_ms == NEXT_DAY


def test_a_clock_that_is_known_better_by_now_is_told_of(
    registered: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert registered.http.get("/v1/tasks/by_sip").json()["warnings"] == []
    now_ms = registered.services.queries.now_ms()
    coming = next(at for at, _ in berlin().jumps if at > now_ms)
    kept = tuple(jump for jump in berlin().jumps if jump[0] < coming)
    decided = Zone("Europe/Berlin", "2027z", berlin().offset_ms, kept)
    monkeypatch.setattr(zone_news, "zone_named", lambda _name: decided)
    (warning,) = registered.http.get("/v1/tasks/by_sip").json()["warnings"]
    assert "clocks of Europe/Berlin show another time" in warning
    assert "2027z" in warning
    put = registered.http.put("/v1/tasks/by_sip", json={"sql": SQL})
    assert put.json()["version"] == 1


# ------------------------------------------------------------------------- where windows are


def test_a_day_of_25_hours_is_one_window_in_all_that_is_asked(registered: World) -> None:
    emit_all(registered)
    (window,) = ask(registered, "results", window_start=LONG_DAY)["windows"]
    assert (window["window_end"] - window["window_start"]) == 25 * HOUR_MS
    assert {row["sip"]: (row["n"], row["window_local"]) for row in window["rows"]} == {
        "a": (2, "2026-10-25"),
        "b": (1, "2026-10-25"),
    }
    verified = ask(registered, "verify", window_start=LONG_DAY)
    assert (verified["equal"], verified["rows"]) == (True, 2)
    assert ask(registered, "ledger", window_start=LONG_DAY)["window_end"] == NEXT_DAY


def test_open_windows_and_why_know_when_the_day_ends(registered: World) -> None:
    registered.start_in_store()
    registered.run_batch(ROWS[:3])
    for bucket in range(BUCKETS):
        registered.commit(bucket, closed_ms=LONG_DAY, merged={LANE: 3}, counted=3)
    (window,) = ask(registered, "windows", order="window_local")["windows"]
    assert (window["window_start"], window["window_end"]) == (LONG_DAY, NEXT_DAY)
    assert {row["window_local"] for row in window["rows"]} == {"2026-10-25"}
    found = ask(registered, "why")["windows"]
    assert [(one["window_end"], one["rows"]) for one in found] == [(NEXT_DAY, 3)]


def test_a_preview_has_the_days_of_its_zone(registered: World) -> None:
    answer = registered.http.post("/v1/tasks/preview", json={"sql": SQL, "rows": ROWS})
    assert answer.status_code == 200, answer.text
    starts = [one["window_start"] for one in answer.json()["windows"]]
    assert starts == [LONG_DAY, NEXT_DAY]


def test_a_query_keeps_its_zone(registered: World) -> None:
    emit_all(registered)
    answer = registered.http.post("/v1/queries", json={"sql": SQL})
    assert answer.status_code in {201, 202}, answer.text
    record = registered.services.queries.show(answer.json()["id"])
    assert record.query.zone == berlin()
