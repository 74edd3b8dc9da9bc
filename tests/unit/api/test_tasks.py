"""Tasks: registered, changed, paused, resumed, deleted."""

from __future__ import annotations

from typing import Any

import pytest

from mars.core.definitions import TaskState
from mars.core.types import StreamName, TaskName, live_lane
from tests.unit.api.twins import BUCKETS, BY_SIP, FLOWS, World, problem

COUNT = "SELECT count(*) FROM flows WINDOWING 10 s"
LANES = {live_lane(0): 0, live_lane(1): 0}


# -------------------------------------------------------------------------------- creating


def test_task_is_answered_with_its_definition_plan_and_place(world: World) -> None:
    answer = world.register(options={"delay": "1s"})
    assert answer.status_code == 201
    assert answer.headers["location"] == "/v1/tasks/by_sip"
    assert answer.headers["etag"] == '"1"'
    task = answer.json()
    assert (task["name"], task["version"], task["state"]) == ("by_sip", 1, "running")
    assert (task["sql"], task["options"]) == (BY_SIP, {"delay": "1s"})
    assert task["stream"] == "flows"
    assert task["plan"]["window"] == {
        "kind": "tumbling",
        "size_ms": 60_000,
        "slide_ms": 60_000,
        "step_ms": None,
        "size": "1 min",
        "slide": "1 min",
        "offset_ms": 0,
        "zone": None,
        "zone_database": None,
        "landmark_ms": None,
    }
    assert task["plan"]["options"]["delay_ms"] == 1_000
    assert task["output"] == {
        "topic": "mars.results.by_sip",
        "key": ["window_start", "sip"],
        "columns": [
            {"name": "window_start", "type": "timestamp"},
            {"name": "window_end", "type": "timestamp"},
            {"name": "sip", "type": "string"},
            {"name": "count", "type": "int64"},
            {"name": "sum_bytes", "type": "integer"},
        ],
    }


def test_task_is_in_registry_control_log_and_kafka_before_the_answer(world: World) -> None:
    assert world.register().status_code == 201
    assert world.kafka.definitions[TaskName("by_sip")] == world.definition()
    assert world.kafka.topics["mars.results.by_sip"].partitions == BUCKETS
    assert world.definition().current.topic_id == world.kafka.topics["flows"].topic_id


def test_latest_starts_at_the_ends_and_is_complete_from_now(world: World) -> None:
    world.kafka.end_offsets["flows"] = {0: 7, 1: 9}
    assert world.register().status_code == 201
    version = world.definition().current
    assert version.starts == {live_lane(0): 7, live_lane(1): 9}
    assert version.complete_from_ms == world.now_ms


def test_earliest_starts_at_what_is_there_and_is_complete(world: World) -> None:
    world.kafka.start_offsets["flows"] = {0: 3, 1: 4}
    assert world.register(start="earliest").status_code == 201
    version = world.definition().current
    assert version.starts == {live_lane(0): 3, live_lane(1): 4}
    assert version.complete_from_ms is None


def test_what_start_may_be_is_said_as_it_is_written(world: World) -> None:
    found = problem(world.register(start="latst"), 422)
    assert found["detail"] == (
        'start: write "latest", "earliest" or {"timestamp": epoch milliseconds}'
    )


def test_timestamp_starts_at_its_offsets_and_is_complete_from_it(world: World) -> None:
    world.kafka.timed_offsets["flows"] = {0: 5, 1: 6}
    assert world.register(start={"timestamp": 777}).status_code == 201
    version = world.definition().current
    assert version.starts == {live_lane(0): 5, live_lane(1): 6}
    assert version.complete_from_ms == 777


def test_a_stream_is_found_whatever_the_case_of_its_name_if_there_is_one_only(world: World) -> None:
    shouted = BY_SIP.replace("flows", "FLOWS")
    assert world.register(sql=shouted).json()["stream"] == "flows"
    assert world.http.get("/v1/tasks/by_sip").json()["output"]["key"] == ["window_start", "sip"]
    assert world.http.put("/v1/streams/Flows", json=FLOWS).status_code == 201
    answer = problem(world.http.post("/v1/tasks/validate", json={"sql": shouted}), 422)
    assert "no stream 'FLOWS'" in answer["detail"]
    exact = world.register("exact", sql=BY_SIP.replace("flows", "Flows"))
    assert exact.json()["stream"] == "Flows"


def test_two_tasks_that_write_the_same_keys_into_one_topic_are_told_so(world: World) -> None:
    shared = {"output_topic": "alerts"}
    assert world.register("first", options=shared).json()["warnings"] == []
    second = world.register("second", options=shared, sql=BY_SIP.replace("sip", "type"))
    (warning,) = second.json()["warnings"]
    assert warning.startswith("task first writes into the output topic alerts under keys like")
    assert "[window_start, type]" in warning
    (told,) = world.http.get("/v1/tasks/first").json()["warnings"]
    assert "task second" in told
    body = {"name": "third", "sql": BY_SIP, "options": shared}
    (both,) = world.http.post("/v1/tasks/validate", json=body).json()["warnings"]
    assert both.startswith("tasks first, second write")


@pytest.mark.parametrize(
    ("sql", "options"),
    [
        (BY_SIP, {"output_topic": "other"}),
        (BY_SIP, {}),
        (BY_SIP.replace("GROUP BY sip", "GROUP BY sip, type"), {"output_topic": "alerts"}),
        (BY_SIP.replace("sip", "bytes"), {"output_topic": "alerts"}),
        (COUNT, {"output_topic": "alerts"}),
    ],
)
def test_a_task_with_keys_or_a_topic_of_its_own_is_not_warned(
    world: World, sql: str, options: dict[str, str]
) -> None:
    assert world.register("first", options={"output_topic": "alerts"}).status_code == 201
    assert world.register("second", sql=sql, options=options).json()["warnings"] == []


def test_a_task_is_not_warned_of_itself_nor_of_one_that_is_deleted(world: World) -> None:
    shared = {"output_topic": "alerts"}
    assert world.register("first", options=shared).status_code == 201
    assert world.http.delete("/v1/tasks/first").status_code == 204
    assert world.register("second", options=shared).json()["warnings"] == []
    assert world.http.get("/v1/tasks/second").json()["warnings"] == []


@pytest.mark.parametrize(
    "start", ["newest", 5, None, {}, {"timestamp": "1"}, {"timestamp": -1}, {"timestamp": 2**60}]
)
def test_other_starts_are_refused(world: World, start: object) -> None:
    problem(world.register(start=start), 422)


def test_name_that_is_taken_answers_409(world: World) -> None:
    assert world.register().status_code == 201
    assert "PUT /v1/tasks/by_sip" in problem(world.register(sql=COUNT), 409)["detail"]
    assert world.definition().current.sql == BY_SIP


def test_wrong_sql_answers_422_with_its_place(world: World) -> None:
    sql = "SELECT sip,\n  cuont(*) FROM flows GROUP BY sip WINDOWING 60 s"
    document = problem(world.register(sql=sql), 422)
    assert (document["line"], document["column"]) == (2, 3)
    problem(world.http.get("/v1/tasks/by_sip"), 404)


def test_unknown_stream_answers_422(world: World) -> None:
    sql = "SELECT count(*) FROM nothing WINDOWING 60 s"
    assert "nothing" in problem(world.register(sql=sql), 422)["detail"]


def test_topic_that_does_not_exist_must_be_created_first(world: World) -> None:
    world.declare(topic="absent")
    assert "create it first" in problem(world.register(), 422)["detail"]
    assert "mars.results.by_sip" not in world.kafka.topics


@pytest.mark.parametrize("name", ["", "1st", "a b", "a\x00", "x" * 64, "ü", "a\n"])
def test_name_outside_the_rule_is_refused(world: World, name: str) -> None:
    problem(world.register(name), 422)


@pytest.mark.parametrize(
    "options",
    [
        {"dealy": "1s"},
        {"delay": "soon"},
        {"delay": -1},
        {"late": "never"},
        {"lateness": "1h"},
        {"max_keys": 0},
        {"max_keys": 10**30},
        {"over_max_keys": "fold"},
        {"watermark": "row"},
        {"key_lag": "1min"},
        {"watermark": "key", "late": "revise"},
        {"output_topic": "flows"},
        {"output_topic": "mars.progress"},
        {"output_topic": "mars.incidents"},
        {"output_topic": "mars.results.other"},
        {"output_topic": "mars.blue.results.by_sip"},
        {"output_topic": "a b"},
        {"output_topic": ["x"]},
    ],
)
def test_wrong_options_are_refused(world: World, options: dict[str, Any]) -> None:
    problem(world.register(options=options), 422)
    problem(world.http.get("/v1/tasks/by_sip"), 404)


def test_definition_of_too_many_bytes_is_refused(world: World, monkeypatch: Any) -> None:
    monkeypatch.setattr("api.services.defining.making.DEFINITION_BYTES_MAX", 100)
    assert "100 bytes" in problem(world.register(), 422)["detail"]


def test_name_of_a_deleted_task_goes_on_with_its_version_numbers(world: World) -> None:
    assert world.register().status_code == 201
    assert world.http.delete("/v1/tasks/by_sip").status_code == 204
    answer = world.register(sql=COUNT)
    assert (answer.status_code, answer.json()["version"]) == (201, 2)
    assert [version.version for version in world.definition().versions] == [2]


def test_task_that_another_api_registers_meanwhile_is_not_overwritten(
    world: World, monkeypatch: Any
) -> None:
    create = world.registry.create_task

    def overtaken(definition: Any) -> bool:
        assert create(definition)
        return create(definition)

    monkeypatch.setattr(world.registry, "create_task", overtaken)
    problem(world.register(), 409)


# -------------------------------------------------------------------------------- changing


def change(world: World, sql: str = COUNT, headers: Any = None, **members: Any) -> Any:
    return world.http.put("/v1/tasks/by_sip", json={"sql": sql, **members}, headers=headers or {})


def test_change_appends_a_version_whose_start_the_leader_decides(world: World) -> None:
    assert world.register().status_code == 201
    answer = change(world)
    assert (answer.status_code, answer.json()["version"]) == (200, 2)
    assert answer.headers["etag"] == '"2"'
    assert answer.json()["versions"] == [
        {"version": 1, "sql": BY_SIP, "created": world.now_ms, "begun": True, "state": "active"},
        {"version": 2, "sql": COUNT, "created": world.now_ms, "begun": False, "state": "waiting"},
    ]
    assert world.definition().current.starts is None
    assert world.kafka.definitions[TaskName("by_sip")] == world.definition()


def test_unchanged_query_and_options_change_nothing(world: World) -> None:
    assert world.register(options={"delay": "1s"}).status_code == 201
    before = world.registry.task(TaskName("by_sip"))
    answer = change(world, BY_SIP, options={"delay": "1000ms"})
    assert (answer.status_code, answer.json()["version"]) == (200, 1)
    assert world.registry.task(TaskName("by_sip")) == before


def test_other_options_are_a_new_version(world: World) -> None:
    assert world.register(options={"delay": "1s"}).status_code == 201
    assert change(world, BY_SIP).json()["version"] == 2


@pytest.mark.parametrize("tag", ['"1"', "*", '"7", "1"'])
def test_matching_tag_lets_a_change_pass(world: World, tag: str) -> None:
    assert world.register().status_code == 201
    assert change(world, headers={"If-Match": tag}).json()["version"] == 2


@pytest.mark.parametrize("tag", ['"2"', "1", 'W/"1"', "", "\N{SNOWMAN}".encode().decode("latin1")])
def test_other_tags_answer_412_and_change_nothing(world: World, tag: str) -> None:
    assert world.register().status_code == 201
    problem(change(world, headers={"If-Match": tag.encode("latin1")}), 412)
    assert world.definition().current.version == 1


def test_change_that_fails_validation_leaves_the_old_version(world: World) -> None:
    assert world.register().status_code == 201
    assert problem(change(world, "SELECT nothing FROM flows WINDOWING 1 s"), 422)["line"] == 1
    assert [version.version for version in world.definition().versions] == [1]


@pytest.mark.parametrize("extra", [{"start": "latest"}, {"name": "by_sip"}])
def test_change_takes_query_and_options_only(world: World, extra: dict[str, str]) -> None:
    assert world.register().status_code == 201
    problem(change(world, **extra), 422)


def test_unknown_and_deleted_tasks_cannot_be_changed(world: World) -> None:
    problem(change(world), 404)
    assert world.register().status_code == 201
    world.alter(state=TaskState.DELETED)
    problem(change(world), 404)


def test_query_over_another_topic_needs_a_new_task(world: World) -> None:
    assert world.register().status_code == 201
    world.kafka.make_topic("others", 1)
    world.declare("others", topic="others")
    answer = change(world, "SELECT count(*) FROM others WINDOWING 10 s")
    assert "make a new task" in problem(answer, 422)["detail"]


def test_topic_that_was_made_again_needs_a_new_task(world: World) -> None:
    assert world.register().status_code == 201
    world.kafka.make_topic("flows", 2)
    assert "made again" in problem(change(world), 409)["detail"]


def test_change_may_name_another_output_topic(world: World) -> None:
    assert world.register().status_code == 201
    assert change(world, options={"output_topic": "elsewhere"}).status_code == 200
    assert "elsewhere" in world.kafka.topics


def test_results_go_to_the_topic_of_no_other_task(world: World) -> None:
    own = {"output_topic": "mars.results.by_sip"}
    assert world.register(options=own).status_code == 201
    theirs = {"output_topic": "mars.results.other"}
    assert "named after" in problem(change(world, options=theirs), 422)["detail"]
    body = {"sql": BY_SIP, "options": own}
    # Which topic would be its own nobody can say of a query without a name.
    assert world.http.post("/v1/tasks/validate", json=body).status_code == 200
    problem(world.http.post("/v1/tasks/validate", json={**body, "name": "unnamed"}), 422)
    body["options"] = {"output_topic": "mars.blue.results.by_sip"}
    problem(world.http.post("/v1/tasks/validate", json=body), 422)


def test_change_waits_for_the_version_before_to_begin(world: World, monkeypatch: Any) -> None:
    assert world.register().status_code == 201
    assert change(world).status_code == 200

    def leader_decides(_seconds: float) -> None:
        world.begin_newest()

    monkeypatch.setattr(world, "sleep", leader_decides)
    world.services = world._services()
    from api.callers import ANYBODY, acting
    from api.schemas import TaskRequest

    with acting(ANYBODY):
        changed = world.services.tasks.change("by_sip", TaskRequest(sql=BY_SIP), None)
    assert [version.version for version in changed.definition.versions] == [1, 2, 3]


def test_change_gives_up_when_no_leader_begins_the_version_before(world: World) -> None:
    assert world.register().status_code == 201
    assert change(world).status_code == 200
    assert "see that a reducer runs" in problem(change(world, BY_SIP), 409)["detail"]
    assert sum(world.slept_s) == pytest.approx(5.0)


def test_change_of_a_paused_task_says_that_it_waits_to_be_resumed(world: World) -> None:
    assert world.register().status_code == 201
    assert change(world).status_code == 200
    assert world.http.post("/v1/tasks/by_sip/pause").status_code == 200
    assert "resume it, then try again" in problem(change(world, BY_SIP), 409)["detail"]


def finish_version_1(
    world: World, *, buckets: int = BUCKETS, rows: int = 0, emitted: int = 0
) -> None:
    merged = {live_lane(0): 10, live_lane(1): 10}
    for bucket in range(buckets):
        world.commit(bucket, merged=merged, read=rows, counted=rows, emitted=emitted)


def changed_twice(world: World) -> list[int]:
    """The versions that are left after a third one."""
    answer = change(world, BY_SIP)
    assert answer.status_code == 200, answer.text
    return [version.version for version in world.definition().versions]


@pytest.fixture
def two_versions(world: World) -> World:
    assert world.register().status_code == 201
    assert change(world).status_code == 200
    world.begin_newest(starts={live_lane(0): 10, live_lane(1): 8})
    return world


def test_version_that_is_emitted_to_its_end_is_left_out(two_versions: World) -> None:
    finish_version_1(two_versions, rows=5, emitted=5)
    assert changed_twice(two_versions) == [2, 3]


def test_version_with_open_rows_stays(two_versions: World) -> None:
    finish_version_1(two_versions, rows=5, emitted=4)
    assert changed_twice(two_versions) == [1, 2, 3]


def test_version_between_others_stays_for_the_sake_of_the_one_before_it(
    two_versions: World,
) -> None:
    """Where it begins is where that one ends, whose open rows may have to be read again."""
    finish_version_1(two_versions, rows=5, emitted=4)
    assert changed_twice(two_versions) == [1, 2, 3]
    two_versions.begin_newest(starts={live_lane(0): 20, live_lane(1): 18})
    for bucket in range(BUCKETS):
        two_versions.commit(bucket, version=2, merged={live_lane(0): 20, live_lane(1): 18})

    assert change(two_versions).status_code == 200

    left = [version.version for version in two_versions.definition().versions]
    assert left == [1, 2, 3, 4]


def test_version_that_owes_a_revision_stays(two_versions: World) -> None:
    for bucket in range(BUCKETS):
        owed = (60_000,) if bucket == 0 else ()
        two_versions.commit(bucket, merged={live_lane(0): 10, live_lane(1): 10}, owed=owed)
    assert changed_twice(two_versions) == [1, 2, 3]


def test_version_of_which_a_bucket_has_said_nothing_stays(two_versions: World) -> None:
    finish_version_1(two_versions, buckets=BUCKETS - 1)
    assert changed_twice(two_versions) == [1, 2, 3]


def test_version_that_is_not_read_to_its_end_stays(two_versions: World) -> None:
    for bucket in range(BUCKETS):
        two_versions.commit(bucket, merged={live_lane(0): 10, live_lane(1): 7})
    assert changed_twice(two_versions) == [1, 2, 3]


def test_each_version_says_whether_it_takes_rows_or_closes_its_windows(
    two_versions: World,
) -> None:
    def states() -> list[str]:
        found = two_versions.http.get("/v1/tasks/by_sip").json()["versions"]
        return [version["state"] for version in found]

    assert states() == ["closing", "active"]
    finish_version_1(two_versions, rows=5, emitted=5)
    assert states() == ["closed", "active"]


def test_change_is_tried_again_when_somebody_else_wrote(world: World, monkeypatch: Any) -> None:
    assert world.register().status_code == 201
    replace_task = world.registry.replace_task
    losses = [True, True]

    def contended(definition: Any, expected: int) -> bool:
        return False if losses and losses.pop() else replace_task(definition, expected)

    monkeypatch.setattr(world.registry, "replace_task", contended)
    assert change(world).json()["version"] == 2
    assert world.http.post("/v1/tasks/by_sip/pause").json()["state"] == "paused"


# ---------------------------------------------------------------------------------- states


def test_pause_and_resume_can_be_repeated(world: World) -> None:
    assert world.register().status_code == 201
    for verb, state in (("pause", "paused"), ("pause", "paused"), ("resume", "running")):
        answer = world.http.post(f"/v1/tasks/by_sip/{verb}")
        assert (answer.status_code, answer.json()["state"]) == (200, state)
        assert world.kafka.definitions[TaskName("by_sip")].state == state


def test_failed_task_says_why_and_can_be_resumed(world: World) -> None:
    assert world.register().status_code == 201
    world.alter(state=TaskState.FAILED, detail="too many keys")
    shown = world.http.get("/v1/tasks/by_sip").json()
    assert (shown["state"], shown["detail"]) == ("failed", "too many keys")
    assert "too many keys" in problem(world.http.post("/v1/tasks/by_sip/pause"), 409)["detail"]
    resumed = world.http.post("/v1/tasks/by_sip/resume").json()
    assert (resumed["state"], resumed["detail"]) == ("running", "")
    for _once_more in range(2):
        assert world.kafka.definitions[TaskName("by_sip")].run == (1, 1)
        world.http.post("/v1/tasks/by_sip/resume")


def test_deleted_task_is_gone_but_its_name_is_remembered(world: World) -> None:
    assert world.register().status_code == 201
    answer = world.http.delete("/v1/tasks/by_sip")
    assert (answer.status_code, answer.content) == (204, b"")
    for path in ("", "/why", "/ledger", "/windows", "/results"):
        problem(world.http.get(f"/v1/tasks/by_sip{path}"), 404)
    for verb in ("pause", "resume"):
        problem(world.http.post(f"/v1/tasks/by_sip/{verb}"), 404)
    problem(world.http.delete("/v1/tasks/by_sip"), 404)
    assert world.http.get("/v1/tasks").json() == {"tasks": []}
    (listed,) = world.http.get("/v1/tasks", params={"deleted": "true"}).json()["tasks"]
    assert (listed["name"], listed["state"]) == ("by_sip", "deleted")
    assert world.kafka.definitions[TaskName("by_sip")].state is TaskState.DELETED


# ------------------------------------------------------------------------------- validating


def test_validation_answers_plan_and_output_and_touches_nothing(world: World) -> None:
    body = {"sql": "SELECT type, avg(bytes) AS mean FROM flows GROUP BY type WINDOWING 1 min"}
    answer = world.http.post("/v1/tasks/validate", json=body)
    assert answer.status_code == 200
    assert answer.json()["output"]["columns"][2:] == [
        {"name": "type", "type": "string"},
        {"name": "mean", "type": "float64"},
    ]
    assert answer.json()["plan"]["aggregates"] == ["avg(bytes)"]
    assert world.http.get("/v1/tasks").json() == {"tasks": []}
    assert set(world.kafka.topics) == {"flows"}


def test_validation_uses_the_name_for_the_output_topic(world: World) -> None:
    body = {"sql": COUNT, "name": "mine"}
    answer = world.http.post("/v1/tasks/validate", json=body).json()
    assert answer["output"]["topic"] == "mars.results.mine"


@pytest.mark.parametrize("body", [{"sql": "SELECT"}, {"sql": COUNT, "name": "a b"}, {}])
def test_validation_of_what_is_wrong_answers_422(world: World, body: dict[str, str]) -> None:
    problem(world.http.post("/v1/tasks/validate", json=body), 422)


# --------------------------------------------------------------------------------- figures


def test_task_shows_lag_watermark_and_ledger(world: World) -> None:
    assert world.register().status_code == 201
    world.start_in_store()
    rows = [{"timestamp": 5_000, "sip": "a", "bytes": 1}, {"timestamp": 6_000, "sip": "b"}]
    world.run_batch(rows)
    world.run_batch([{"timestamp": 4_000, "sip": "a"}], partition=1)
    world.kafka.end_offsets["flows"] = {0: 12, 1: 1}
    world.commit(0, read=3, counted=2, bad=1)
    task = world.http.get("/v1/tasks/by_sip").json()
    assert task["lag"] == {"rows": 10, "partitions": {"0": 10, "1": 0}}
    assert task["watermark"] == 4_000
    assert (task["ledger"]["read"], task["ledger"]["bad"], task["ledger"]["open"]) == (3, 1, 2)
    assert task["log_bytes"] > 0
    assert task["missing"] == []


def test_rates_are_over_the_measurements_that_there_are(world: World, monkeypatch: Any) -> None:
    clock = iter([100.0, 101.0, 101.1, 105.0])
    monkeypatch.setattr(world.services.sampler, "_monotonic_s", lambda: next(clock))
    assert world.register().json()["rates"] == {
        "rows_per_second": None,
        "messages_per_second": None,
    }

    def rates() -> tuple[float | None, float | None]:
        shown = world.http.get("/v1/tasks/by_sip").json()["rates"]
        return shown["rows_per_second"], shown["messages_per_second"]

    world.start_in_store()
    world.run_batch([{"timestamp": 5_000, "sip": "a"}] * 8)
    world.commit(0, read=4)
    assert rates() == (4.0, None)
    assert rates() == (3.6, 0.0)
    world.commit(0, read=8)
    world.run_batch([{"timestamp": 5_000, "sip": "a"}] * 2, first=8)
    assert rates() == (1.6, 0.5)


def test_task_is_shown_without_the_figures_of_a_server_that_is_away(world: World) -> None:
    assert world.register().status_code == 201
    world.log.fail_next("head")
    world.kafka.server.away = True
    task = world.http.get("/v1/tasks/by_sip").json()
    assert (task["lag"], task["ledger"], task["watermark"]) == (None, None, None)
    assert [sentence.split()[0] for sentence in task["missing"]] == ["kafka", "redis"]


def test_registry_that_is_away_answers_503_and_names_it(world: World) -> None:
    world.registry.fail_next("tasks")
    answer = world.http.get("/v1/tasks")
    assert problem(answer, 503)["service"] == "zookeeper"
    assert answer.headers["retry-after"] == "1"


def test_kafka_that_is_away_refuses_a_new_task_and_leaves_nothing(world: World) -> None:
    world.kafka.server.away = True
    assert problem(world.register(), 503)["service"] == "kafka"
    assert world.http.get("/v1/tasks").json() == {"tasks": []}


def test_tasks_that_zookeeper_has_lost_are_not_called_unknown_and_their_names_not_free(
    world: World,
) -> None:
    assert world.register().status_code == 201
    world.registry.wipe()
    for answer in (
        world.http.get("/v1/tasks"),
        world.http.get("/v1/tasks/by_sip"),
        world.http.delete("/v1/tasks/by_sip"),
        world.http.get("/v1/streams"),
        world.http.get("/v1/streams/flows"),
        world.register(),
    ):
        found = problem(answer, 503)
        assert found["service"] == "zookeeper"
        assert "brings them back" in found["detail"]

    world.registry.make_whole()
    assert world.http.get("/v1/tasks/by_sip").status_code == 404


def test_nothing_is_decided_by_what_is_back_while_the_rest_is_brought_back(world: World) -> None:
    """The leader brings streams back first, then tasks, and then says that it is done."""
    assert world.register().status_code == 201
    streams = world.registry.streams()
    tasks = world.registry.tasks()
    world.registry.wipe()
    world.registry.put_stream(streams[StreamName("flows")])
    problem(world.http.get("/v1/streams"), 503)
    problem(world.http.delete("/v1/streams/flows"), 503)
    world.registry.create_task(tasks[TaskName("by_sip")])
    problem(world.http.get("/v1/tasks"), 503)

    world.registry.make_whole()
    assert [task["name"] for task in world.http.get("/v1/tasks").json()["tasks"]] == ["by_sip"]
    assert [one["name"] for one in world.http.get("/v1/streams").json()["streams"]] == ["flows"]


def test_first_task_of_a_namespace_needs_no_leader(world: World) -> None:
    assert world.register().status_code == 201
    assert world.registry.whole()


def test_streams_are_copied_to_kafka_and_their_end_too(world: World) -> None:
    assert "flows" in world.kafka.streams
    assert world.http.delete("/v1/streams/flows").status_code == 204
    assert "flows" not in world.kafka.streams
