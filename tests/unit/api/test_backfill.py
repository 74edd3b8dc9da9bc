"""How a task shows that its history is being mapped."""

from __future__ import annotations

from typing import Any

import pytest

from mars.core.definitions import Backfill, LaneSpan, TaskState
from mars.core.types import Mapped, MemberId, Range, TaskName, backfill_lane
from mars.protocol.ports import MemberInfo
from tests.unit.api.twins import EPOCH, World

H0, H1 = backfill_lane(0, "b1"), backfill_lane(1, "b1")
HISTORY = Backfill("b1", {H0: LaneSpan(0, 300), H1: LaneSpan(100, 200)}, chunks=4, created_ms=0)


@pytest.fixture
def task(world: World) -> World:
    """A task with a history of 400 messages, begun in the store."""
    assert world.register(start="earliest").status_code == 201
    current = world.definition().current
    starts = {**(current.starts or {}), H0: 0, H1: 100}
    world.begin_newest(starts=starts)
    world.alter(backfills=(HISTORY,))
    world.start_in_store()
    return world


def take(world: World, *ranges: Range) -> None:
    """What the bulk process appends."""
    world.log.append(TaskName("by_sip"), EPOCH, 1, Mapped(ranges, {}, ()))


def shown(world: World) -> dict[str, Any]:
    document: dict[str, Any] = world.http.get("/v1/tasks/by_sip").json()
    return document


def listed(world: World) -> list[str]:
    return [each["state"] for each in world.http.get("/v1/tasks").json()["tasks"]]


def test_task_shows_how_far_its_history_is(task: World) -> None:
    take(task, Range(H0, 0, 150), Range(H1, 100, 150))

    answer = shown(task)

    assert answer["state"] == "backfilling"
    assert answer["backfill"]["lanes"] == [
        {"lane": "0@b1", "first": 0, "next": 150, "end": 300},
        {"lane": "1@b1", "first": 100, "next": 150, "end": 200},
    ]
    assert {name: answer["backfill"][name] for name in ("rows_done", "rows_total", "percent")} == {
        "rows_done": 200,
        "rows_total": 400,
        "percent": 50.0,
    }
    assert listed(task) == ["backfilling"]


def test_rate_and_expected_end_come_from_what_was_mapped_lately(
    task: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [100.0]
    task.services.sampler._points.clear()
    monkeypatch.setattr(task.services.sampler, "_monotonic_s", lambda: now_s[0])
    assert shown(task)["backfill"]["rows_per_second"] is None
    assert shown(task)["backfill"]["expected_end"] is None

    now_s[0] += 10
    take(task, Range(H0, 0, 100))
    backfill = shown(task)["backfill"]

    head = task.log.head([TaskName("by_sip")])[TaskName("by_sip")]
    assert head is not None
    assert backfill["rows_per_second"] == 10.0
    assert abs(backfill["expected_end"] - (head.now_ms + 30_000)) < 1_000


def test_task_runs_once_its_history_is_finished(task: World) -> None:
    take(task, Range(H0, 0, 300), Range(H1, 100, 200))

    answer = shown(task)

    assert (answer["state"], answer["backfill"]["percent"]) == ("running", 100.0)
    assert answer["backfill"]["expected_end"] is None
    assert listed(task) == ["running"]


def test_paused_task_is_paused_and_still_shows_its_history(task: World) -> None:
    task.alter(state=TaskState.PAUSED)

    answer = shown(task)

    assert (answer["state"], answer["backfill"]["percent"]) == ("paused", 0.0)
    assert listed(task) == ["paused"]


def test_task_without_history_shows_none(world: World) -> None:
    world.register()
    world.start_in_store()

    answer = shown(world)

    assert (answer["state"], answer["backfill"]) == ("running", None)


def test_without_the_store_nobody_can_say_how_far_it_is(task: World) -> None:
    task.log.fail_next("head")
    answer = shown(task)
    assert answer["missing"]
    assert (answer["state"], answer["backfill"]) == ("running", None)

    task.log.fail_next("head")
    assert listed(task) == ["running"]


def test_metrics_name_the_state_that_is_shown(task: World) -> None:
    assert (
        'mars_task_state{state="backfilling",task="by_sip"} 1.0' in task.http.get("/metrics").text
    )


def test_why_names_the_bulk_process_that_has_lived_longest(task: World) -> None:
    task.run_batch([{"timestamp": 5_000, "sip": "10.0.0.1", "bytes": 1}])
    task.join_mapper("reading", "reading")
    task.join_reducer()
    for name, started_ms in (("bulk-2", 5), ("bulk-1", 9)):
        member = MemberId(name)
        task.coordinator(member).join(MemberInfo(member, "bulk", "host", 1, started_ms))

    answer = task.http.get("/v1/tasks/by_sip/why").json()

    (window,) = answer["windows"]
    held_by = {name: window["held_by"][name] for name in ("lane", "partition", "reason", "member")}
    assert held_by == {"lane": "0@b1", "partition": 0, "reason": "behind", "member": "bulk-2"}
    assert "the backfill of partition 0, which is at 0 % (bulk-2 works on it)" in answer["summary"]
    assert [lane["lane"] for lane in window["partitions"]] == ["0", "1", "0@b1", "1@b1"]
