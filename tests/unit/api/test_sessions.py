"""What the API says of tasks whose windows are sessions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mars.core.types import Bucket, live_lane
from mars.protocol.ports import Snapshot
from tests.unit.api.twins import BUCKETS, World, problem

SQL = "SELECT sip, count(*) AS n FROM flows GROUP BY sip WINDOWING SESSION 10 s MAX 1 min"


@pytest.fixture
def visits(world: World) -> World:
    """Three rows of one group, of which the last is more than a gap behind."""
    assert world.register(sql=SQL, start="earliest").status_code == 201
    world.start_in_store()
    rows = [{"timestamp": at, "sip": "a"} for at in (5_000, 9_000, 30_000)]
    world.run_batch(rows)
    return world


def test_plan_says_how_long_sessions_are_and_how_far_apart(world: World) -> None:
    window = world.register(sql=SQL).json()["plan"]["window"]
    assert (window["kind"], window["size_ms"], window["slide_ms"]) == ("session", 60_000, 10_000)
    assert (window["size"], window["slide"]) == ("1 min", "10 s")


def test_open_sessions_are_shown_each_with_its_rows(visits: World) -> None:
    windows = visits.http.get("/v1/tasks/by_sip/windows").json()["windows"]
    shown = [(one["window_start"], one["window_end"], one["rows"][0]["n"]) for one in windows]
    assert shown == [(5_000, 19_000, 2), (30_000, 40_000, 1)]


@pytest.mark.parametrize("what", ["results", "ledger", "verify"])
def test_no_time_alone_names_a_session(visits: World, what: str) -> None:
    answer = visits.http.get(f"/v1/tasks/by_sip/{what}", params={"window_start": 5_000})
    assert "each session is a window of one group" in problem(answer, 422)["detail"]


def test_a_query_over_history_is_taken(world: World) -> None:
    assert world.http.post("/v1/queries", json={"sql": SQL}).status_code == 202


def test_open_sessions_are_not_shown_without_those_that_were_saved_alone(visits: World) -> None:
    """The log still has the entries below the anchor, which are passed over."""
    saved = Snapshot({live_lane(0): 3}, 60_000, 1, 0)
    for bucket in range(BUCKETS):
        visits.commit(bucket, merged={live_lane(0): 3, live_lane(1): 0}, read=3, counted=3)
        records = visits.kafka.progress[Bucket(bucket)]
        records[-1] = replace(records[-1], snapshot=saved, anchored=True)

    answer = visits.http.get("/v1/tasks/by_sip/windows")

    assert "what is open was saved in Kafka" in problem(answer, 409)["detail"]
