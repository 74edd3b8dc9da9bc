"""The state of the service itself: cluster, metrics, health, description."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from api.services.operation.health import Health
from mars.core.definitions import Backfill, LaneSpan
from mars.core.types import Bucket, Mapped, MemberId, Range, TaskName, file_lane, live_lane
from mars.protocol.ports import (
    Assisted,
    Balance,
    BucketLoad,
    Lent,
    Move,
    MoveKind,
    StrategyChange,
    Wanted,
    WantedKind,
)
from tests.unit.api.twins import BUCKETS, EPOCH, World, problem


def test_cluster_shows_members_leader_assignment_and_backlog(world: World) -> None:
    assert world.register(start="earliest").status_code == 201
    world.start_in_store()
    world.run_batch([{"timestamp": 5_000, "sip": "a"}])
    world.kafka.end_offsets["flows"][1] = 8
    world.join_mapper("reading", "backpressure")
    world.join_reducer()
    cluster = world.http.get("/v1/cluster").json()
    assert (cluster["namespace"], cluster["version"], cluster["buckets"]) == (
        "default",
        "1.2.3",
        BUCKETS,
    )
    assert cluster["leader"] == {"member": "reducer-1", "epoch": 3}
    assert cluster["store_epoch"] == 1
    assert [member["id"] for member in cluster["members"]] == ["mapper-1", "reducer-1"]
    assert cluster["members"][0]["partitions"][1]["state"] == "backpressure"
    assert cluster["members"][1]["load"]["resident_bytes"] == 4096
    assert cluster["assignment"][0] == {"bucket": 0, "member": "reducer-1", "epoch": 1}
    assert len(cluster["assignment"]) == BUCKETS
    (task,) = cluster["backlog"]["tasks"]
    assert (task["task"], task["lag"]) == ("by_sip", 8)
    assert cluster["backlog"]["log_bytes"] == task["log_bytes"] > 0
    assert cluster["missing"] == []


BALANCE = Balance(
    mean_use=0.4,
    deviation=0.2,
    pressure={MemberId("reducer-1"): 0.7},
    wanted=(Wanted("reducer", 1, 3, "mean load 95%", WantedKind.ABOVE),),
    moves=(
        Move(Bucket(1), MemberId("b"), MemberId("reducer-1"), "use is uneven", 5_000, MoveKind.USE),
    ),
    moves_total=3,
    moves_by_kind={MoveKind.USE: 1, MoveKind.PRESSURE: 2},
    strategy="greedy",
    strategy_reason="uneven",
    rows_ratio=3.0,
    assisted=(Assisted(Bucket(1), (MemberId("b"),), "it is hot"),),
    strategy_kind="uneven",
    lent=(Lent(Bucket(2), MemberId("a"), MemberId("b")),),
    lent_total=1,
    assistant_changes=(Assisted(Bucket(1), (), "its owner does that alone", 6_000),),
    strategy_changes=(StrategyChange("greedy", "uneven", 4_000),),
)


def test_cluster_shows_loads_with_their_age_and_what_the_leader_makes_of_them(
    world: World,
) -> None:
    load = BucketLoad(Bucket(0), 0.25, 10.0, 100.0, 7)
    then_ms = world.services.cluster._ports.now_ms() - 1_500
    world.join_reducer(loads=(load,), reported_ms=then_ms, balance=BALANCE, leaving=True)

    cluster = world.http.get("/v1/cluster").json()

    (member,) = cluster["members"]
    assert member["leaving"] is True
    assert 1.5 <= member["age_s"] < 60
    assert member["buckets"][0]["load"] == {
        "use": 0.25,
        "rows_per_second": 10.0,
        "bytes_per_second": 100.0,
        "backlog_bytes": 7,
    }
    assert member["buckets"][1]["load"] is None
    assert cluster["balance"]["wanted"][0]["wanted"] == 3
    assert cluster["balance"]["moves"] == [
        {
            "bucket": 1,
            "source": "b",
            "target": "reducer-1",
            "reason": "use is uneven",
            "at": 5_000,
            "kind": "use",
        }
    ]
    assert cluster["balance"]["moves_total"] == 3
    assert cluster["balance"]["lent"] == [{"bucket": 2, "home": "a", "borrower": "b"}]
    assert cluster["balance"]["assistant_changes"] == [
        {"bucket": 1, "assistants": [], "reason": "its owner does that alone", "at": 6_000}
    ]
    assert cluster["balance"]["strategy_changes"] == [
        {"strategy": "greedy", "reason": "uneven", "at": 4_000}
    ]
    assert cluster["balance"]["assisted"] == [
        {"bucket": 1, "assistants": ["b"], "reason": "it is hot"}
    ]


def test_how_old_a_report_is_the_leader_says_by_its_own_clock(world: World) -> None:
    """The member's clock is an hour behind; the leader heard of it two seconds ago."""
    then_ms = world.services.cluster._ports.now_ms() - 3_600_000
    balance = replace(BALANCE, ages_s={MemberId("reducer-1"): 2.0})
    world.join_reducer(reported_ms=then_ms, balance=balance)

    (member,) = world.http.get("/v1/cluster").json()["members"]

    assert member["age_s"] == 2.0
    assert 'mars_member_report_age_seconds{member="reducer-1",role="reducer"} 2.0' in lines(world)


def test_cluster_takes_the_word_of_the_newest_leader(world: World) -> None:
    world.join_reducer("old", balance=replace(BALANCE, mean_use=0.9), load={"leader_epoch": 2.0})
    world.join_reducer("new", balance=BALANCE, load={"leader_epoch": 3.0})

    assert world.http.get("/v1/cluster").json()["balance"]["mean_use"] == 0.4


def test_metrics_give_loads_and_how_many_members_are_wanted(world: World) -> None:
    load = BucketLoad(Bucket(0), 0.25, 10.0, 100.0, 7)
    figures = {"cpu_use": 0.5, "backlog_bytes": 9.0, "leader_epoch": 1.0}
    world.join_reducer(loads=(load,), balance=BALANCE, load=figures)

    assert {
        'mars_bucket_use{bucket="0",member="reducer-1"} 0.25',
        'mars_member_cpu_use{member="reducer-1",role="reducer"} 0.5',
        'mars_member_backlog_bytes{member="reducer-1",role="reducer"} 9.0',
        'mars_reducer_pressure{member="reducer-1"} 0.7',
        'mars_bucket_rows_per_second{bucket="0",member="reducer-1"} 10.0',
        'mars_bucket_backlog_bytes{bucket="0",member="reducer-1"} 7.0',
        'mars_bucket_moves_total{kind="pressure"} 2.0',
        'mars_bucket_moves_total{kind="return"} 0.0',
        "mars_buckets_lent 1.0",
        'mars_wanted_members{kind="above",role="reducer"} 3.0',
        "mars_reducer_use_deviation 0.2",
        "mars_reducer_rows_ratio 3.0",
        'mars_bucket_assistants{bucket="1"} 1.0',
        'mars_balance_strategy{kind="uneven",strategy="greedy"} 1.0',
    } <= lines(world)


def test_cluster_without_anybody_is_empty(world: World) -> None:
    cluster = world.http.get("/v1/cluster").json()
    assert (cluster["leader"], cluster["members"], cluster["assignment"]) == (None, [], [])


def test_leader_that_does_not_say_so_is_shown_by_its_epoch(world: World) -> None:
    world.join_reducer(leads=False)
    assert world.http.get("/v1/cluster").json()["leader"] == {"member": None, "epoch": 3}


def test_cluster_names_servers_that_are_away(world: World) -> None:
    assert world.register().status_code == 201
    world.kafka.server.away = True
    world.log.fail_next("head")
    assert world.http.get("/v1/cluster").json()["missing"] == ["kafka", "redis"]


def lines(world: World) -> set[str]:
    answer = world.http.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")
    return set(answer.text.splitlines())


def test_metrics_give_figures_of_tasks_members_and_servers(world: World) -> None:
    assert world.register(start="earliest").status_code == 201
    world.start_in_store()
    world.run_batch([{"timestamp": 5_000, "sip": "a"}])
    world.run_batch([{"timestamp": 4_000, "sip": "a"}], partition=1)
    world.kafka.end_offsets["flows"][1] = 9
    world.commit(0, read=6, counted=4, bad=2, emitted=1)
    world.join_reducer()
    world.health.check("kafka")
    found = lines(world)
    assert {
        'mars_task_rows_total{fate="read",task="by_sip"} 6.0',
        'mars_task_rows_total{fate="bad",task="by_sip"} 2.0',
        'mars_task_open_rows{task="by_sip"} 3.0',
        'mars_task_lag_messages{partition="1",task="by_sip"} 8.0',
        'mars_task_watermark_age_seconds{task="by_sip"} 996.0',
        'mars_task_state{state="running",task="by_sip"} 1.0',
        'mars_members{role="reducer"} 1.0',
        'mars_members{role="mapper"} 0.0',
        'mars_member_cpu_seconds_total{member="reducer-1",role="reducer"} 1.5',
        'mars_member_resident_bytes{member="reducer-1",role="reducer"} 4096.0',
        "mars_store_epoch 1.0",
        'mars_service_up{service="kafka"} 1.0',
        'mars_service_up{service="redis"} 0.0',
    } <= found
    assert any(line.startswith('mars_task_log_bytes{task="by_sip"} ') for line in found)


def test_figures_of_the_tracker_are_shown_where_one_is_on(world: World) -> None:
    world.join_reducer()
    assert not any("tracker_roots" in line and "reducer-1" in line for line in lines(world))
    figures = {"pending_roots": 3.0, "proven_total": 70.0, "unproven_total": 2.0, "lost_total": 1.0}
    world.join_reducer(load={f"tracker_{name}": value for name, value in figures.items()})
    assert {
        'mars_tracker_pending_roots{member="reducer-1"} 3.0',
        'mars_tracker_roots_total{member="reducer-1",outcome="proven"} 70.0',
        'mars_tracker_roots_total{member="reducer-1",outcome="lost"} 1.0',
    } <= lines(world)
    (member,) = world.http.get("/v1/cluster").json()["members"]
    assert member["load"]["tracker_lost_total"] == 1.0


def test_members_are_not_counted_while_zookeeper_is_away(world: World) -> None:
    world.join_reducer()
    assert 'mars_members{role="mapper"} 0.0' in lines(world)
    world.health = world.services.metrics._health = Health({"zookeeper": lambda: "it is away"})
    world.health.check("zookeeper")
    assert not any(line.startswith("mars_members") for line in lines(world))


def test_metrics_give_the_limit_on_logs_close_latency_and_history(world: World) -> None:
    assert world.register(start="earliest").status_code == 201
    starts = {live_lane(0): 0, live_lane(1): 0, file_lane("b2"): 0}
    world.begin_newest(starts=starts)
    world.alter(backfills=(Backfill("b2", {file_lane("b2"): LaneSpan(0, 8)}, 1, 0),))
    world.start_in_store()
    world.log.append(TaskName("by_sip"), EPOCH, 1, Mapped((Range(file_lane("b2"), 0, 2),), {}, ()))
    world.services.figures.take()
    assert not any(line.startswith("mars_task_close_latency_seconds{") for line in lines(world))
    world.now_ms = 961_500
    world.commit(0, closed_ms=960_000, emits=True)
    world.services.figures.take()
    assert {
        'mars_task_close_latency_seconds{task="by_sip"} 1.5',
        'mars_task_history_ratio{task="by_sip"} 0.25',
        "mars_task_log_bytes_max 2.68435456e+08",
    } <= lines(world)


def test_metrics_answer_while_servers_are_away(world: World) -> None:
    assert world.register().status_code == 201
    world.kafka.server.away = True
    world.log.fail_next("head")
    world.registry.fail_next("tasks")
    assert 'mars_service_up{service="redis"} 0.0' in lines(world)


# ---------------------------------------------------------------------------------- health


def test_process_is_alive_whatever_is_missing(world: World) -> None:
    world.kafka.server.away = True
    answer = world.http.get("/healthz")
    assert (answer.status_code, answer.json()) == (200, {"status": "alive"})


def test_readiness_lists_each_server(world: World) -> None:
    world.health.check("kafka")
    answer = world.http.get("/readyz")
    assert answer.status_code == 503
    assert answer.json() == {
        "status": "not ready",
        "services": {"kafka": "ok", "redis": "not asked yet"},
    }
    world.health.check("redis")
    answer = world.http.get("/readyz")
    assert (answer.status_code, answer.json()["status"]) == (200, "ready")


def test_changes_of_a_server_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    answers = iter(["no answer", "no answer", None, None, "gone"])
    health = Health({"redis": lambda: next(answers)})
    for _ in range(5):
        health.check("redis")
    assert [record.getMessage() for record in caplog.records] == [
        "waiting for redis: no answer",
        "redis answers again",
        "waiting for redis: gone",
    ]
    assert health.missing == ("redis",)


# ----------------------------------------------------------------------------- description


def test_every_path_declares_its_answers_and_problems(world: World) -> None:
    description = world.http.get("/openapi.json").json()
    kept_out = {401, 403, 429}  # see test_access
    statuses = {
        (method, path): {int(status) for status in operation["responses"]} - kept_out
        for path, operations in description["paths"].items()
        for method, operation in operations.items()
    }
    away = {503}
    unknown = away | {404}
    body = away | {400, 413, 422}
    assert statuses == {
        ("get", "/v1/streams"): {200} | away,
        ("get", "/v1/streams/{name}"): {200} | unknown,
        ("put", "/v1/streams/{name}"): {200, 201, 409} | body,
        ("delete", "/v1/streams/{name}"): {204, 409} | unknown,
        ("get", "/v1/tasks"): {200, 422} | away,
        ("post", "/v1/tasks"): {201, 409} | body,
        ("put", "/v1/tasks"): {200, 409} | body,
        ("post", "/v1/tasks/validate"): {200} | body,
        ("post", "/v1/tasks/preview"): {200} | body,
        ("get", "/v1/tasks/{name}"): {200} | unknown,
        ("put", "/v1/tasks/{name}"): {200, 404, 409, 412} | body,
        ("delete", "/v1/tasks/{name}"): {204, 409} | unknown,
        ("post", "/v1/tasks/{name}/pause"): {200, 409} | unknown,
        ("post", "/v1/tasks/{name}/resume"): {200, 409} | unknown,
        ("post", "/v1/queries"): {202} | body,
        ("get", "/v1/queries"): {200, 422, 503},
        ("get", "/v1/queries/{query}"): {200} | unknown,
        ("get", "/v1/queries/{query}/rows"): {200, 409} | unknown,
        ("delete", "/v1/queries/{query}"): {204, 409} | unknown,
        ("get", "/v1/tasks/{name}/windows"): {200, 422} | unknown,
        ("get", "/v1/tasks/{name}/why"): {200} | unknown,
        ("get", "/v1/keys"): {200} | away,
        ("post", "/v1/keys"): {201, 409} | body,
        ("delete", "/v1/keys/{key}"): {204} | unknown,
        ("get", "/v1/tasks/{name}/ledger"): {200, 422} | unknown,
        ("get", "/v1/tasks/{name}/verify"): {200, 409, 422} | unknown,
        ("get", "/v1/tasks/{name}/dead"): {200, 422} | unknown,
        ("get", "/v1/incidents"): {200, 422} | unknown,
        ("get", "/v1/tasks/{name}/results"): {200, 409, 422} | unknown,
        ("get", "/v1/tasks/{name}/figures"): {200} | unknown,
        ("get", "/v1/figures"): {200},
        ("get", "/v1/cluster"): {200},
        ("get", "/healthz"): {200},
        ("get", "/readyz"): {200, 503},
        ("get", "/metrics"): {200},
    }


def references(value: Any) -> set[str]:
    if isinstance(value, dict):
        own = {value["$ref"]} if "$ref" in value else set()
        return own.union(*map(references, value.values()))
    if isinstance(value, list):
        return set().union(*map(references, value))
    return set()


def test_description_has_every_schema_it_refers_to(world: World) -> None:
    description = world.http.get("/openapi.json").json()
    known = {f"#/components/schemas/{name}" for name in description["components"]["schemas"]}
    assert references(description) <= known
    body = description["paths"]["/v1/tasks"]["post"]["requestBody"]
    schema = body["content"]["application/json"]["schema"]
    assert schema == {"$ref": "#/components/schemas/NewTaskRequest"}
    refused = description["paths"]["/v1/tasks"]["post"]["responses"]["422"]["content"]
    assert list(refused) == ["application/problem+json"]


def test_documentation_is_served(world: World) -> None:
    assert world.http.get("/docs").status_code == 200


def test_the_documentation_page_needs_nothing_from_outside(world: World) -> None:
    page = world.http.get("/docs").text

    parts = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert len(parts) >= 2
    assert all(part.startswith("/") for part in parts)
    assert all(world.http.get(part).status_code == 200 for part in parts)


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/v1/tasks/validate", {"POST"}),
        ("/v1/tasks/preview", {"POST"}),
        ("/v1/tasks", {"GET", "POST", "PUT"}),
        ("/v1/tasks/a", {"GET", "PUT", "DELETE"}),
        ("/v1/tasks/a/pause", {"POST"}),
        ("/v1/streams/a", {"GET", "PUT", "DELETE"}),
        ("/v1/keys", {"GET", "POST"}),
        ("/v1/keys/a", {"DELETE"}),
        ("/healthz", {"GET"}),
        ("/", {"GET"}),
    ],
)
def test_allow_names_the_methods_that_are_taken_and_no_others(
    world: World, path: str, allowed: set[str]
) -> None:
    for method in {"OPTIONS", "GET", "POST", "PUT", "PATCH", "DELETE"} - allowed:
        answer = world.http.request(method, path)
        problem(answer, 405)
        assert set(answer.headers["allow"].split(", ")) == allowed, method
    for method in allowed - {"DELETE"}:
        assert world.http.request(method, path).status_code != 405


@pytest.mark.parametrize("name", ["validate", "preview"])
def test_no_task_has_the_name_of_a_path(world: World, name: str) -> None:
    assert "path of its own" in problem(world.register(name), 422)["detail"]
