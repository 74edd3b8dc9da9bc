"""A set of tasks with one output topic on the running service: each task as one of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from mars.core.errors import NotFound, Rejected
from tests.acceptance.test_task_life import OPTIONS, WINDOW_MS, Flow
from tests.support.cluster import MarsCluster, wait_for
from tests.support.rows import Result, assert_exactly_once, expected

pytestmark = pytest.mark.acceptance

TOPIC = "sets.results"


def task(flow: Flow, name: str, **options: object) -> dict[str, Any]:
    return {"name": name, "sql": flow.query, "options": {**OPTIONS, **options}}


def by_task(mars: MarsCluster) -> dict[str, list[Result]]:
    found: dict[str, list[Result]] = {}
    for result in mars.read(TOPIC):
        found.setdefault(result[2]["mars-task"], []).append(result)
    return found


def results(mars: MarsCluster, wanted: Mapping[str, int]) -> dict[str, list[Result]]:
    found: dict[str, list[Result]] = {}

    def enough() -> bool:
        found.clear()
        found.update(by_task(mars))
        return all(len(found.get(name, ())) >= rows for name, rows in wanted.items())

    wait_for(f"results of {sorted(wanted)}", enough, pause_s=0.3)
    return found


def test_a_set_is_made_changed_and_pruned_and_each_task_counts_every_row_once(
    shared_mars: MarsCluster,
) -> None:
    flow, client = Flow(shared_mars, "sets"), shared_mars.client
    names = ["sets_a", "sets_b", "sets_c"]
    tasks = [task(flow, name) for name in names]
    ours = {"set_name": "sets", "output_topic": TOPIC}

    dry = client.apply_tasks(tasks, **ours, dry_run=True)  # type: ignore[arg-type]
    assert [change.action for change in dry.tasks] == ["create"] * 3
    with pytest.raises(NotFound):
        client.task("sets_a")
    made = client.apply_tasks(tasks, **ours)  # type: ignore[arg-type]
    assert [change.action for change in made.tasks] == ["create"] * 3
    flow.burst()
    flow.burst()
    wanted = expected(flow.rows, WINDOW_MS)
    found = results(shared_mars, dict.fromkeys(names, len(wanted)))
    assert set(found) == set(names)
    for name in names:
        assert_exactly_once(found[name], wanted)
    shown = client.results("sets_b", limit=1_000).windows
    assert sum(len(window.rows) for window in shown) == len(wanted)
    assert client.task("sets_b").options["output_topic"] == TOPIC

    # The same again is nothing; one less is one less, and the others go on.
    again = client.apply_tasks(tasks, **ours)  # type: ignore[arg-type]
    assert {change.action for change in again.tasks} == {"unchanged"}
    changed = [task(flow, "sets_a"), {**task(flow, "sets_b"), "options": {"delay": "2s"}}]
    applied = client.apply_tasks(changed, **ours, prune=True)  # type: ignore[arg-type]
    assert {change.name: change.action for change in applied.tasks} == {
        "sets_a": "unchanged",
        "sets_b": "change",
        "sets_c": "remove",
    }
    with pytest.raises(NotFound):
        client.task("sets_c")
    flow.burst()
    wanted = expected(flow.rows, WINDOW_MS)
    assert_exactly_once(results(shared_mars, {"sets_a": len(wanted)})["sets_a"], wanted)
    wait_for("version 2 of sets_b", lambda: client.task("sets_b").versions[-1].begun, pause_s=0.3)


def test_a_compacted_topic_is_refused(shared_mars: MarsCluster) -> None:
    flow = Flow(shared_mars, "sets_compacted")
    shared_mars.topic("kept.once", 2, cleanup_policy="compact,delete")
    with pytest.raises(Rejected, match="compacted"):
        shared_mars.client.apply_tasks(
            [task(flow, "sets_d")], set_name="compacted", output_topic="kept.once"
        )
    with pytest.raises(NotFound):
        shared_mars.client.task("sets_d")
