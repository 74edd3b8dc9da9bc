"""Figures of tasks for charts: rings of points, and event streams of them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from api.services.operation import figures
from mars.core.errors import TooMany
from mars.core.types import TaskName
from tests.unit.api.twins import BY_SIP, World, problem


@pytest.fixture
def running(world: World) -> World:
    """A task that has taken a row of each partition; the clock stands at 1,000 s."""
    assert world.register(start="earliest").status_code == 201
    world.start_in_store()
    world.run_batch([{"timestamp": 940_000, "sip": "a"}])
    world.run_batch([{"timestamp": 950_000, "sip": "a"}], partition=1)
    world.kafka.end_offsets["flows"][1] = 8
    return world


def take(world: World) -> None:
    world.services.figures.take()


def points(world: World) -> list[dict[str, Any]]:
    answer = world.http.get("/v1/tasks/by_sip/figures")
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["points"]
    return found


def test_a_point_says_where_a_task_is(running: World) -> None:
    (point,) = points(running)
    assert (point["at"], point["lag"], point["watermark"]) == (1_000_000, 7, 940_000)
    assert point["watermark_delay_ms"] == 60_000
    assert point["log_bytes"] > 0
    assert point["close_latency_ms"] is None


def latency(world: World, later_ms: int = 60_000) -> int | None:
    """As it is shown at the next sample, however much later."""
    world.now_ms += later_ms
    take(world)
    found: int | None = points(world)[-1]["close_latency_ms"]
    return found


def commit(world: World, bucket: int, at_ms: int, closed_ms: int, **changes: Any) -> None:
    world.now_ms = at_ms
    world.commit(bucket, closed_ms=closed_ms, **{"emits": True, **changes})


def test_close_latency_is_from_the_end_of_a_window_to_the_commit_of_its_last_rows(
    running: World,
) -> None:
    assert latency(running) is None
    commit(running, 0, 901_200, 900_000)
    assert latency(running) == 1_200
    commit(running, 1, 901_900, 900_000)
    assert latency(running) == 1_900
    commit(running, 1, 961_500, 960_000)
    commit(running, 0, 961_300, 960_000)
    assert latency(running) == 1_500


def test_neither_progress_nor_revisions_nor_what_was_there_at_the_start_count_as_closing(
    running: World,
) -> None:
    commit(running, 0, 901_000, 900_000, emit=7)
    assert latency(running) is None
    commit(running, 0, 961_000, 960_000, emit=8)
    assert latency(running) == 1_000
    commit(running, 0, 990_000, 960_000, emit=9)
    commit(running, 0, 999_000, 990_000, emit=10, emits=False)
    assert latency(running) == 1_000


def test_a_task_that_is_made_anew_has_closed_nothing_yet(running: World) -> None:
    commit(running, 0, 961_000, 960_000)
    assert latency(running) == 1_000
    running.commit(0, closed_ms=960_000, deleted=True, emit=2)
    assert latency(running) is None


def test_list_of_tasks_is_made_once_until_something_in_it_changes(running: World) -> None:
    listing = running.services.listing
    first = listing.as_json(deleted=False)
    assert listing.as_json(deleted=False) is first
    running.services.figures.take()
    second = listing.as_json(deleted=False)
    assert second is not first
    assert listing.as_json(deleted=True) is not second
    assert running.http.post("/v1/tasks/by_sip/pause").status_code == 200
    assert b'"paused"' in listing.as_json(deleted=False)


def test_list_of_tasks_has_their_newest_figures(running: World) -> None:
    (task,) = running.http.get("/v1/tasks").json()["tasks"]
    assert (task["figures"]["lag"], task["figures"]["watermark"]) == (7, 940_000)


def test_a_task_in_the_list_says_of_its_plan_and_figures_what_it_says_alone(
    running: World,
) -> None:
    take(running)
    (listed,) = running.http.get("/v1/tasks").json()["tasks"]
    alone = running.http.get("/v1/tasks/by_sip").json()
    assert alone["lag"] == {"rows": 7, "partitions": {"0": 0, "1": 7}}
    for member in ("state", "version", "plan", "rates", "lag", "watermark"):
        assert listed[member] == alone[member], member


def test_a_new_version_is_listed_with_its_own_plan(running: World) -> None:
    running.http.get("/v1/tasks")
    changed = {"sql": BY_SIP.replace("60 s", "30 s"), "options": {}}
    assert running.http.put("/v1/tasks/by_sip", json=changed).status_code == 200
    (listed,) = running.http.get("/v1/tasks").json()["tasks"]
    assert (listed["version"], listed["plan"]["window"]["size_ms"]) == (2, 30_000)


def test_the_list_asks_no_server_for_plans_and_figures(running: World) -> None:
    take(running)
    running.kafka.server.away = True
    (listed,) = running.http.get("/v1/tasks").json()["tasks"]
    assert (listed["lag"]["rows"], listed["watermark"]) == (7, 940_000)


def test_a_task_that_was_not_looked_at_yet_is_listed_without_figures(running: World) -> None:
    take(running)
    assert running.register("other").status_code == 201
    _by_sip, other = running.http.get("/v1/tasks").json()["tasks"]
    assert other["plan"] is not None
    assert other["rates"] == {"rows_per_second": None, "messages_per_second": None}
    assert (other["lag"], other["watermark"], other["figures"]) == (None, None, None)


def test_a_deleted_task_is_listed_without_plan_and_figures(running: World) -> None:
    assert running.http.delete("/v1/tasks/by_sip").status_code == 204
    take(running)
    (gone,) = running.http.get("/v1/tasks?deleted=true").json()["tasks"]
    assert (gone["state"], gone["plan"], gone["lag"]) == ("deleted", None, None)


def test_all_tasks_together_are_added_up(running: World) -> None:
    assert running.register("other", start="earliest").status_code == 201
    running.start_in_store("other")
    found = running.http.get("/v1/figures").json()
    assert list(found["tasks"]) == ["by_sip", "other"]
    assert found["points"][-1]["lag"] == 7 + 1 + 8
    assert found["points"][-1]["watermark"] is None


def test_the_lag_of_a_task_that_stands_is_its_own(running: World) -> None:
    assert running.http.post("/v1/tasks/by_sip/pause").status_code == 200
    take(running)
    found = running.http.get("/v1/figures").json()
    assert found["tasks"]["by_sip"]["lag"] == 7
    assert found["points"][-1]["lag"] == 0


def test_so_many_points_are_kept_and_none_of_a_task_that_is_gone(running: World) -> None:
    for _ in range(figures.POINTS_KEPT + 5):
        running.services.figures._remember(running.services.sampler.latest())
    assert len(points(running)) == figures.POINTS_KEPT
    assert running.http.delete("/v1/tasks/by_sip").status_code == 204
    take(running)
    assert running.http.get("/v1/figures").json()["tasks"] == {}
    problem(running.http.get("/v1/tasks/by_sip/figures"), 404)


def test_figures_are_kept_while_servers_are_away(running: World) -> None:
    take(running)
    running.registry.fail_next("tasks")
    running.services.figures.take()
    assert len(points(running)) == 1


def data_of(event: bytes) -> dict[str, Any]:
    name, data, *_rest = event.decode().split("\n")
    assert name == "event: figures"
    found: dict[str, Any] = json.loads(data.removeprefix("data: "))
    return found


async def never() -> bool:
    return False


async def first_and_next(world: World, stream: AsyncIterator[bytes]) -> list[dict[str, Any]]:
    """The first event, and the one after another sample."""
    first = data_of(await anext(stream))
    await anyio.to_thread.run_sync(take, world)
    following = data_of(await anext(stream))
    await stream.aclose()  # type: ignore[attr-defined]
    return [first, following]


def test_followers_get_the_points_so_far_and_then_each_new_one(running: World) -> None:
    take(running)
    take(running)
    service = running.services.figures
    first, following = anyio.run(
        first_and_next, running, service.follow_task(TaskName("by_sip"), never)
    )
    assert (len(first["points"]), len(following["points"])) == (2, 1)
    first, following = anyio.run(first_and_next, running, service.follow_all(never))
    assert (len(first["points"]), len(following["points"])) == (3, 1)
    assert following["tasks"]["by_sip"]["lag"] == 7
    assert service._places.taken == 0


def test_followers_are_limited_and_give_their_place_back(running: World) -> None:
    taken = [running.services.figures._places.take() for _ in range(figures.FOLLOWERS_MAX)]
    with pytest.raises(TooMany, match="close some dashboards"):
        running.services.figures.follow_all(never)
    answer = running.http.get("/v1/figures", headers={"Accept": "text/event-stream"})
    problem(answer, 429)
    taken.pop()()
    running.services.figures.follow_all(never)


def test_stream_ends_when_the_process_stops(running: World) -> None:
    running.stopping.set()
    answer = running.http.get("/v1/tasks/by_sip/figures", headers={"Accept": "text/event-stream"})
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert len(data_of(answer.content)["points"]) == 1
