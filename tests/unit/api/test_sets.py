"""Sets of tasks: made as they stand in one request, or not at all."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import httpx
import pytest
from sqlglot import exp

from api.routes.tasks import SET_BYTES_MAX
from api.services.access import AccessPolicy
from api.services.defining import set_steps
from mars.adapters.memory.registry import MemoryRegistry
from mars.core.definitions import TaskState
from mars.core.errors import TopicRefused, Unavailable
from mars.core.types import TaskName, Topic
from mars.protocol.ports import Role, TaskWrite
from tests.unit.api.test_access import bearer
from tests.unit.api.twins import (
    BODY_BYTES_MAX,
    BUCKETS,
    BY_SIP,
    CLUSTER,
    CURRENT,
    FLOWS,
    TwinAdmin,
    World,
    problem,
)

COUNT = "SELECT count(*) FROM flows WINDOWING 10 s"


def one(name: str, sql: str = BY_SIP, **members: object) -> dict[str, Any]:
    return {"name": name, "sql": sql, **members}


def put(world: World, *tasks: dict[str, Any], **members: object) -> httpx.Response:
    headers = members.pop("headers", None)
    body = {"tasks": list(tasks), **members}
    return world.http.put("/v1/tasks", json=body, headers=headers)  # type: ignore[arg-type]


def actions(answer: httpx.Response) -> dict[str, str]:
    assert answer.status_code == 200, answer.text
    return {task["name"]: task["action"] for task in answer.json()["tasks"]}


def named(name: str = "ours", **members: object) -> dict[str, object]:
    return {"name": name, **members}


def snapshot(world: World) -> tuple[object, object, object]:
    return world.registry.versioned_tasks(), dict(world.kafka.definitions), set(world.kafka.topics)


@pytest.fixture
def guarded() -> Iterator[World]:
    """The same with keys."""
    made = World(AccessPolicy(on=True))
    admin = bearer(made, Role.ADMIN)
    assert made.http.put("/v1/streams/flows", json=FLOWS, headers=admin).status_code == 201
    yield made
    made.close()


# -------------------------------------------------------------------------------- making


def test_tasks_of_a_set_are_what_tasks_of_their_own_are(world: World) -> None:
    world.kafka.end_offsets["flows"] = {0: 7, 1: 9}
    world.kafka.timed_offsets["flows"] = {0: 3, 1: 4}
    world.kafka.start_offsets["flows"] = {0: 1, 1: 2}
    tasks = [
        one("a", options={"delay": "1s"}),
        one("b", COUNT, start="earliest"),
        one("c", start={"timestamp": 777}),
        one("d", options={"output_topic": "elsewhere"}),
    ]
    assert set(actions(put(world, *tasks)).values()) == {"create"}
    alone = World()
    alone.kafka.end_offsets["flows"] = {0: 7, 1: 9}
    alone.kafka.timed_offsets["flows"] = {0: 3, 1: 4}
    alone.kafka.start_offsets["flows"] = {0: 1, 1: 2}
    alone.declare()
    for task in tasks:
        assert alone.http.post("/v1/tasks", json=task).status_code == 201
    assert world.registry.tasks() == alone.registry.tasks()
    assert world.kafka.definitions == alone.kafka.definitions
    assert world.kafka.topics.keys() == alone.kafka.topics.keys()
    assert world.kafka.topics["elsewhere"].partitions == BUCKETS
    alone.close()


def test_a_task_says_which_set_made_it(world: World) -> None:
    put(world, one("a"), set=named())
    put(world, one("b"))
    assert world.http.get("/v1/tasks/a").json()["set"] == "ours"
    listed = world.http.get("/v1/tasks").json()["tasks"]
    assert [task["set"] for task in listed] == ["ours", None]


def test_a_dry_run_says_what_would_change_and_changes_nothing(world: World) -> None:
    world.register("old", options={"delay": "1s"})
    world.register("same")
    before = snapshot(world)
    answer = put(world, one("new"), one("old", COUNT), one("same"), dry_run=True)
    assert answer.json() == {
        "set": None,
        "dry_run": True,
        "tasks": [
            {"name": "new", "action": "create", "version": 1, "before": None},
            {
                "name": "old",
                "action": "change",
                "version": 2,
                "before": {"version": 1, "sql": BY_SIP, "options": {"delay": "1s"}},
            },
            {"name": "same", "action": "unchanged", "version": 1, "before": None},
        ],
    }
    assert snapshot(world) == before
    assert actions(put(world, one("new"), one("old", COUNT), one("same"))) == {
        "new": "create",
        "old": "change",
        "same": "unchanged",
    }


def test_applied_again_nothing_changes(world: World) -> None:
    tasks = [one("a", start="earliest"), one("b", COUNT, options={"delay": "1000ms"})]
    put(world, *tasks, set=named())
    before = snapshot(world)
    assert set(actions(put(world, *tasks, set=named())).values()) == {"unchanged"}
    tasks[1]["options"]["delay"] = "1s"  # another text, the same option
    assert set(actions(put(world, *tasks, set=named())).values()) == {"unchanged"}
    assert snapshot(world) == before


def test_a_change_is_a_new_version_as_of_one_task(world: World) -> None:
    put(world, one("a"), one("b"))
    world.register("c")
    assert actions(put(world, one("a", COUNT), one("b"))) == {"a": "change", "b": "unchanged"}
    assert world.http.put("/v1/tasks/c", json={"sql": COUNT}).status_code == 200
    changed, alone = world.definition("a"), world.definition("c")
    assert replace(changed, name=alone.name) == alone
    assert world.kafka.definitions[TaskName("a")] == changed


def test_a_task_that_is_paused_stays_so(world: World) -> None:
    put(world, one("a"))
    world.http.post("/v1/tasks/a/pause")
    assert actions(put(world, one("a", COUNT))) == {"a": "change"}
    assert world.definition("a").state is TaskState.PAUSED


def test_a_deleted_name_is_taken_again_with_versions_that_go_on(world: World) -> None:
    put(world, one("a"), set=named())
    world.http.delete("/v1/tasks/a")
    assert actions(put(world, one("a"), set=named())) == {"a": "create"}
    assert world.definition("a").first_version == world.definition("a").current.version == 2


def test_a_change_waits_until_the_version_before_has_begun(world: World) -> None:
    put(world, one("a"), one("b"))
    put(world, one("a", COUNT), one("b"))
    world.on_sleep = lambda _seconds: world.begin_newest("a")
    again = put(world, one("a", COUNT, options={"delay": "2s"}), one("b", COUNT))
    assert actions(again) == {"a": "change", "b": "change"}
    assert [version.version for version in world.definition("a").versions] == [1, 2, 3]


def test_a_version_that_never_begins_is_named_and_nothing_is_done(world: World) -> None:
    put(world, one("a"), one("b"))
    put(world, one("a", COUNT), one("b"))
    before = snapshot(world)
    answer = put(world, one("a", BY_SIP), one("b", COUNT))
    assert "version 2 of task a has not begun" in problem(answer, 409)["detail"]
    assert snapshot(world) == before


# ------------------------------------------------------------------------- all or nothing


def test_every_wrong_task_is_named_with_its_place_and_nothing_is_done(world: World) -> None:
    before = snapshot(world)
    answer = put(
        world,
        one("good"),
        one("sql", "SELECT count(*) FROM flows\nWHERE sipp = 'a' WINDOWING 10 s"),
        one("0name"),
        one("option", options={"delay": "long"}),
        one("good"),
        one("stream", "SELECT count(*) FROM nowhere WINDOWING 10 s"),
        one("last", COUNT),
    )
    document = problem(answer, 422)
    errors = document["errors"]
    assert [error["member"] for error in errors] == [
        "tasks.1.sql",
        "tasks.2",
        "tasks.3",
        "tasks.4",
        "tasks.5.sql",
    ]
    assert errors[0]["line"] == 2
    assert errors[0]["column"] == 7
    assert "tasks.0 has the same name: rename one of them" in errors[3]["detail"]
    for name in ("task sql", "task '0name'", "task option", "task good", "task stream"):
        assert name in document["detail"]
    assert snapshot(world) == before


def test_members_that_are_wrong_are_named_by_their_places(world: World) -> None:
    answer = put(world, one("a"), {"name": "b", "text": "x"})
    assert [error["member"] for error in problem(answer, 422)["errors"]] == [
        "tasks.1.sql",
        "tasks.1.text",
    ]


def test_of_very_many_wrong_ones_some_are_told_in_words(world: World) -> None:
    answer = put(world, *(one(f"t{number}", "SELECT") for number in range(130)))
    document = problem(answer, 422)
    assert len(document["errors"]) == 130
    assert document["detail"].endswith("; and 30 more are wrong")


def test_wrong_tasks_keep_no_query_that_was_parsed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[int] = []

    def parsed() -> int:
        gc.collect()
        return sum(isinstance(each, exp.Select) for each in gc.get_objects())

    def refusing(wrong: Sequence[set_steps.Wrong]) -> None:
        kept.append(parsed())
        refuse(wrong)

    refuse, before = set_steps.refuse, parsed()
    monkeypatch.setattr(set_steps, "refuse", refusing)
    answer = put(world, *(one(f"t{number}", options={"delay": "x"}) for number in range(9)))
    assert answer.status_code == 422
    assert len(kept) == 1
    assert kept[0] <= before


def test_a_topic_that_kafka_does_not_have_is_looked_for_once(world: World) -> None:
    assert world.declare("clicks", topic="clicks").status_code == 201
    sql = "SELECT count(*) FROM clicks WINDOWING 10 s"
    errors = problem(put(world, one("a", sql), one("b", sql), one("c")), 422)["errors"]
    assert [error["member"] for error in errors] == ["tasks.0", "tasks.1"]
    assert len(world.slept_s) == 20


def test_topics_that_kafka_refuses_are_named_and_no_task_is_made(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ensure(_self: TwinAdmin, topics: Any, _partitions: int) -> dict[Topic, TopicRefused]:
        return {topic: TopicRefused(topic, "no") for topic in topics if topic != "fine"}

    monkeypatch.setattr(TwinAdmin, "ensure_outputs", ensure)
    answer = put(world, one("a"), one("b", options={"output_topic": "fine"}), one("c"))
    errors = problem(answer, 422)["errors"]
    assert [error["member"] for error in errors] == ["tasks.0", "tasks.2"]
    assert world.registry.tasks() == {}


def test_one_task_whose_topics_the_key_may_not_use_and_nothing_is_done(guarded: World) -> None:
    ours = bearer(guarded, Role.OPERATOR, reads=["flows"], writes=["mine.*"])
    tasks = [
        one("a", options={"output_topic": "mine.a"}),
        one("b", options={"output_topic": "theirs"}),
        one("c", "SELECT"),
    ]
    before = snapshot(guarded)
    detail = problem(put(guarded, *tasks, headers=ours), 403)["detail"]
    assert "task b (tasks.1)" in detail
    assert "task a" not in detail
    assert snapshot(guarded) == before
    assert actions(put(guarded, tasks[0], headers=ours)) == {"a": "create"}


def test_what_others_have_registered_a_set_does_not_change(guarded: World) -> None:
    """As one task is not changed: to have it write elsewhere takes the right to where it writes."""
    admin = bearer(guarded, Role.ADMIN)
    ours = bearer(guarded, Role.OPERATOR, reads=["flows"], writes=["mine.*"])
    assert actions(put(guarded, one("a", options={"output_topic": "theirs"}), headers=admin))
    before = snapshot(guarded)
    taken = one("a", options={"output_topic": "mine.a"})
    assert "task a (tasks.0)" in problem(put(guarded, taken, headers=ours), 403)["detail"]
    assert snapshot(guarded) == before


def test_a_reader_may_not_even_ask_what_would_change(guarded: World) -> None:
    reader = bearer(guarded, Role.READER)
    problem(put(guarded, one("a"), dry_run=True, headers=reader), 403)


def test_there_are_at_most_so_many_tasks_with_a_set() -> None:
    world = World(cluster=replace(CLUSTER, tasks_max=2))
    world.declare()
    assert "api.tasks_max" in problem(put(world, one("a"), one("b"), one("c")), 409)["detail"]
    assert world.registry.tasks() == {}
    actions(put(world, one("a"), one("b"), set=named()))
    problem(put(world, one("c"), set=named()), 409)
    assert actions(put(world, one("c"), one("b"), set=named(), prune=True)) == {
        "c": "create",
        "b": "unchanged",
        "a": "remove",
    }
    world.close()


# -------------------------------------------------------------------------------- pruning


def living(world: World) -> set[str]:
    return {
        name for name, task in world.registry.tasks().items() if task.state is not TaskState.DELETED
    }


def test_prune_deletes_what_the_set_has_made_and_nothing_else(world: World) -> None:
    world.register("alone")
    put(world, one("a"), one("b"), one("alone"), set=named())
    put(world, one("c"), set=named("theirs"))
    put(world, one("d"))
    assert actions(put(world, one("a"), set=named())) == {"a": "unchanged"}
    assert living(world) == {"a", "b", "c", "d", "alone"}
    dry = put(world, one("a"), set=named(), prune=True, dry_run=True)
    assert actions(dry) == {"a": "unchanged", "b": "remove"}
    assert dry.json()["tasks"][1]["before"]["sql"] == BY_SIP
    assert living(world) == {"a", "b", "c", "d", "alone"}
    assert actions(put(world, one("a"), set=named(), prune=True)) == actions(dry)
    assert living(world) == {"a", "c", "d", "alone"}
    assert world.kafka.definitions[TaskName("b")].state is TaskState.DELETED
    assert actions(put(world, one("a"), set=named(), prune=True)) == {"a": "unchanged"}


def test_an_empty_set_prunes_all_that_it_has_made(world: World) -> None:
    put(world, one("a"), one("b"), set=named())
    assert actions(put(world, set=named(), prune=True)) == {"a": "remove", "b": "remove"}
    assert living(world) == set()


def test_prune_without_a_set_is_refused(world: World) -> None:
    assert "set.name" in problem(put(world, one("a"), prune=True), 422)["detail"]
    problem(put(world, one("a"), set=named("0")), 422)


def test_nothing_is_pruned_where_the_key_may_not_write_one_of_them(guarded: World) -> None:
    both = bearer(guarded, Role.OPERATOR, reads=["flows"])
    elsewhere = one("b", options={"output_topic": "theirs"})
    actions(put(guarded, one("a"), elsewhere, set=named(), headers=both))
    ours = bearer(guarded, Role.OPERATOR, reads=["flows"], writes=["mine.*"])
    answer = put(guarded, one("c"), set=named(), prune=True, headers=ours)
    assert "task b (prune)" in problem(answer, 403)["detail"]
    assert living(guarded) == {"a", "b"}


def test_a_task_that_another_set_made_is_not_taken_over(world: World) -> None:
    put(world, one("a"), set=named())
    answer = put(world, one("a", COUNT), one("b"), set=named("theirs"))
    assert "set ours has made it" in problem(answer, 409)["detail"]
    assert living(world) == {"a"}
    assert actions(put(world, one("a", COUNT))) == {"a": "change"}
    assert world.definition("a").set_name == "ours"


# ------------------------------------------------------------------------- cut off, and races


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("method", ["write_tasks", "streams", "versioned_tasks"])
def test_what_a_crash_cut_off_is_completed_by_the_next(
    world: World, method: str, before: bool
) -> None:
    put(world, one("a"), one("gone"), set=named())
    tasks = [one("a", COUNT), one("b"), one("c", COUNT)]
    world.registry.fail_next(method, before=before)
    put(world, *tasks, set=named(), prune=True)
    actions(put(world, *tasks, set=named(), prune=True))
    assert_made(world)


def assert_made(world: World) -> None:
    assert living(world) == {"a", "b", "c"}
    assert world.definition("a").current.sql == COUNT
    assert world.definition("a").current.version == 2
    assert {world.definition(name).set_name for name in "abc"} == {"ours"}


def test_a_set_of_which_only_some_tasks_were_written_is_completed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(world, one("a"), one("gone"), set=named())
    tasks = [one("a", COUNT), one("b"), one("c", COUNT)]
    written = MemoryRegistry.write_tasks

    def cut_off(registry: MemoryRegistry, writes: Sequence[TaskWrite]) -> int:
        written(registry, writes[:2])
        raise Unavailable("zookeeper", "gone in the middle")

    with monkeypatch.context() as patch:
        patch.setattr(MemoryRegistry, "write_tasks", cut_off)
        problem(put(world, *tasks, set=named(), prune=True), 503)
    assert living(world) == {"a", "b", "gone"}
    again = put(world, *tasks, set=named(), prune=True)
    assert actions(again) == {"a": "unchanged", "b": "unchanged", "c": "create", "gone": "remove"}
    assert_made(world)


def test_what_others_change_meanwhile_is_looked_at_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(world, one("a"), one("b"))
    written, others = MemoryRegistry.write_tasks, iter([lambda: world.alter("b", detail="other")])

    def raced(registry: MemoryRegistry, writes: Sequence[TaskWrite]) -> int:
        next(others, lambda: None)()
        return written(registry, writes)

    monkeypatch.setattr(MemoryRegistry, "write_tasks", raced)
    assert actions(put(world, one("a", COUNT), one("b", COUNT))) == {"a": "change", "b": "change"}
    assert [world.definition(name).current.version for name in "ab"] == [2, 2]
    assert world.definition("b").detail == "other"


def test_what_was_only_tried_is_not_taken_for_what_others_have_made(world: World) -> None:
    """Two processes give the same name the same version in the same millisecond."""
    elsewhere = World()
    elsewhere.declare()
    elsewhere.register("a", options={"delay": "1s"})
    CURRENT.world = world
    assert actions(put(world, one("a", COUNT), dry_run=True)) == {"a": "create"}
    assert world.registry.create_task(elsewhere.definition("a"))
    task = world.http.get("/v1/tasks/a").json()
    assert task["output"]["key"] == ["window_start", "sip"]
    assert task["plan"]["options"]["delay_ms"] == 1_000
    elsewhere.close()


# ------------------------------------------------------------------------------------ bodies


def test_a_set_may_be_longer_than_other_bodies(world: World) -> None:
    long = [one(f"t{number}", f"{COUNT} -- {'x' * 10_000}") for number in range(20)]
    assert len(json.dumps(long)) > BODY_BYTES_MAX
    assert set(actions(put(world, *long, dry_run=True)).values()) == {"create"}
    problem(world.http.post("/v1/tasks", json=one("a", COUNT + " " * BODY_BYTES_MAX)), 413)
    too_long = world.http.put("/v1/tasks", content=b" " * (SET_BYTES_MAX + 1))
    assert str(SET_BYTES_MAX) in problem(too_long, 413)["detail"]


def test_a_single_key_may_send_the_longest_set(guarded: World) -> None:
    ours = bearer(guarded, Role.OPERATOR)
    body = json.dumps({"tasks": []}).encode().ljust(SET_BYTES_MAX)
    assert guarded.http.put("/v1/tasks", content=body, headers=ours).status_code == 200


# --------------------------------------------------------------------------- one output topic


def test_a_set_names_the_topic_of_those_of_its_tasks_that_name_none(world: World) -> None:
    own = one("own", options={"output_topic": "own"})
    put(world, one("a"), one("b", COUNT), own, set=named(output_topic="all"))
    topics = {task["name"]: task["options"] for task in world.http.get("/v1/tasks").json()["tasks"]}
    assert topics == {
        "a": {"output_topic": "all"},
        "b": {"output_topic": "all"},
        "own": {"output_topic": "own"},
    }
    assert set(world.kafka.topics) == {"flows", "all", "own"}
    assert world.kafka.topics["all"].partitions == BUCKETS
    again = put(world, one("a"), one("b", COUNT), own, set=named(output_topic="all"))
    assert set(actions(again).values()) == {"unchanged"}


def test_a_topic_that_keeps_one_row_of_each_key_is_refused(world: World) -> None:
    world.kafka.compacted.add("all")
    answer = put(world, one("a"), set=named(output_topic="all"))
    document = problem(answer, 422)
    assert "compacted" in document["detail"]
    assert document["errors"][0]["member"] == "set.output_topic"
    assert living(world) == set()


@pytest.mark.parametrize("topic", ["flows", "mars.progress", "mars.results.b", "no/topic"])
def test_a_topic_that_no_task_may_have_no_set_may(world: World, topic: str) -> None:
    problem(put(world, one("a"), one("c"), set=named(output_topic=topic)), 422)


def test_without_a_topic_of_the_set_each_task_has_its_own(world: World) -> None:
    put(world, one("a"), one("b"), set=named())
    assert set(world.kafka.topics) == {"flows", "mars.results.a", "mars.results.b"}
