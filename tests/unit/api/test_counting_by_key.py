"""Windows that count the rows of each key: what the API says of them, and what it does not do."""

from __future__ import annotations

from typing import Any

import pytest

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


def test_verifying_says_why_it_does_not(registered: World) -> None:
    answer = registered.http.get(f"{PATH}/verify")
    assert "all rows of the task would have to be read" in problem(answer, 409)["detail"]


@pytest.mark.parametrize(
    ("path", "said"), [("tasks/preview", "no preview"), ("queries", "is for tasks")]
)
def test_previews_and_queries_say_what_to_do(world: World, path: str, said: str) -> None:
    answer = world.http.post(f"/v1/{path}", json={"sql": SQL})
    assert said in problem(answer, 422)["detail"]
