"""Ad-hoc queries as users see them: asked, listed, cancelled, their rows fetched."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import httpx
import pyarrow as pa
import pytest

from mars.core.types import MemberId, RowCounts, Topic
from mars.protocol.ports import (
    Answer,
    MemberInfo,
    QueryId,
    QueryRecord,
    QueryState,
)
from tests.unit.api.twins import BY_SIP, World, problem

ROWS = (
    b'{"window_start":0,"window_end":60000,"sip":"a","count":2,"sum_bytes":18446744073709551614}',
    b'{"window_start":0,"window_end":60000,"sip":null,"count":1,"sum_bytes":null}',
)


def ask(world: World, **members: object) -> httpx.Response:
    return world.http.post("/v1/queries", json={"sql": BY_SIP, **members})


def asked(world: World, **members: object) -> dict[str, Any]:
    answer = ask(world, **members)
    assert answer.status_code == 202, answer.text
    document: dict[str, Any] = answer.json()
    return document


def record_of(world: World, query: str) -> QueryRecord:
    found = world.queries.get(QueryId(query))
    assert found is not None
    return found[0]


def alter(world: World, query: str, **changes: Any) -> None:
    """What a bulk process does to a query."""
    found = world.queries.get(QueryId(query))
    assert found is not None
    assert world.queries.replace(replace(found[0], **changes), found[1])


def finish(world: World, query: str, rows: tuple[bytes, ...] = ROWS) -> None:
    slot = world.answers.reserve(QueryId(query))
    counts = RowCounts(counted=3, filtered=2, bad=1)
    written = world.answers.write(Answer(QueryId(query), rows, counts), slot)
    alter(world, query, state=QueryState.DONE, place=written.place, counts=written.counts)


# -------------------------------------------------------------------------------- asking


def test_query_is_answered_at_once_and_waits(world: World) -> None:
    answer = ask(world, **{"from": 60_000, "until": 120_000}, timeout=5, rows_max=7)
    assert answer.status_code == 202
    query = answer.json()
    assert answer.headers["location"] == f"/v1/queries/{query['id']}"
    assert world.http.get(answer.headers["location"]).json() == query
    assert (query["state"], query["sql"], query["stream"]) == ("waiting", BY_SIP, "flows")
    assert (query["from"], query["until"]) == (60_000, 120_000)
    assert (query["timeout"], query["rows_max"]) == (5.0, 7)
    assert (query["rows"], query["counts"], query["error"]) == (None, None, None)
    kept = record_of(world, query["id"]).query
    assert (kept.from_ms, kept.until_ms, kept.timeout_ms) == (60_000, 120_000, 5_000)
    assert kept.stream.topic == "flows"


def test_a_stream_may_be_named_in_another_case(world: World) -> None:
    assert asked(world, sql=BY_SIP.replace("flows", "Flows"))["stream"] == "flows"


def test_limits_have_defaults(world: World) -> None:
    query = asked(world)
    assert (query["rows_max"], query["timeout"], query["from"]) == (10_000, 300.0, None)


def test_query_that_nobody_will_run_says_what_to_start(world: World) -> None:
    query = asked(world)
    assert "mars bulk" in query["detail"]
    world.coordinator("bulk-1").join(MemberInfo(MemberId("bulk-1"), "bulk", "host", 1, 0))
    assert world.http.get(f"/v1/queries/{query['id']}").json()["detail"] == ""


@pytest.mark.parametrize(
    "members",
    [
        {"rows_max": 0},
        {"rows_max": 100_001},
        {"rows_max": 1.5},
        {"timeout": 0},
        {"timeout": 3_601},
        {"timeout": "1"},
        {"from": 5, "until": 5},
        {"from": "yesterday"},
        {"options": {"delya": "1s"}},
        {"options": {"output_topic": "mine"}},
        {"output_topic": "flows"},
        {"output_topic": "mars.queries"},
        {"output_topic": "mars.results.by_sip"},
        {"output_topic": "a b"},
        {"files": {"files": "/nowhere", "format": "csv"}},
        {"files": {"files": "/nowhere", "format": "xml"}},
        {"from_ms": 5},
        {"start": "latest"},
    ],
)
def test_what_cannot_be_run_is_refused(world: World, members: dict[str, Any]) -> None:
    problem(ask(world, **members), 422)
    assert world.queries.all() == []


def test_wrong_sql_answers_422_with_its_place(world: World) -> None:
    document = problem(ask(world, sql="SELECT\n cuont(*) FROM flows WINDOWING 1 s"), 422)
    assert (document["line"], document["column"]) == (2, 2)


def test_files_have_no_keys_of_records(world: World) -> None:
    fields = {"at": "timestamp_ms", "who": {"type": "string", "from": "$key"}}
    assert world.declare("rich", fields=fields, event_time="at").status_code == 201
    world.files.sizes["/history"] = 5
    sql = "SELECT who, count(*) FROM rich GROUP BY who WINDOWING 60 s"
    answer = ask(world, sql=sql, files={"files": "/history", "format": "ndjson"})
    assert "field who is $key of a record" in problem(answer, 422)["detail"]
    assert ask(world, sql=sql).status_code == 202


def test_topic_that_does_not_exist_is_refused_unless_files_are_read(world: World) -> None:
    world.declare(topic="absent")
    assert "absent" in problem(ask(world), 422)["detail"]
    world.files.sizes["/history"] = 5
    query = asked(world, files={"files": "/history", "format": "ndjson", "until": 9})
    assert query["files"] == "1 files, ndjson"
    files = record_of(world, query["id"]).query.files
    assert files is not None
    assert (files.files[-1].next, files.until_ms) == (5, 9)


def test_output_topic_is_made(world: World) -> None:
    query = asked(world, output_topic="mine")
    assert query["output_topic"] == "mine"
    assert "mine" in world.kafka.topics


def test_oldest_queries_that_have_ended_make_room(world: World, monkeypatch: Any) -> None:
    monkeypatch.setattr("api.services.queries.QUERIES_KEPT", 3)
    ids = []
    for _ in range(3):
        world.now_ms += 1
        ids.append(asked(world)["id"])
    document = problem(ask(world), 429)
    assert "3 queries wait or run" in document["detail"]
    alter(world, ids[1], state=QueryState.FAILED)
    alter(world, ids[2], state=QueryState.DONE)
    world.now_ms += 1
    newest = asked(world)["id"]
    assert [record["id"] for record in listed(world)] == [newest, ids[2], ids[0]]


def listed(world: World, **parameters: int) -> list[dict[str, Any]]:
    answer = world.http.get("/v1/queries", params=parameters)
    assert answer.status_code == 200
    queries: list[dict[str, Any]] = answer.json()["queries"]
    return queries


def test_queries_are_listed_newest_first_and_no_more_than_asked_for(world: World) -> None:
    ids = []
    for _ in range(3):
        world.now_ms += 1
        ids.append(asked(world)["id"])
    assert [query["id"] for query in listed(world, limit=2)] == [ids[2], ids[1]]


# ---------------------------------------------------------------------------- cancelling


def test_cancelled_query_is_not_taken_any_more(world: World) -> None:
    query = asked(world)["id"]
    assert world.http.delete(f"/v1/queries/{query}").status_code == 204
    assert world.http.get(f"/v1/queries/{query}").json()["state"] == "cancelled"
    assert record_of(world, query).ended_ms == world.now_ms


def test_query_that_has_ended_stays_as_it_is(world: World) -> None:
    query = asked(world)["id"]
    alter(world, query, state=QueryState.FAILED, detail="too large")
    assert world.http.delete(f"/v1/queries/{query}").status_code == 204
    shown = world.http.get(f"/v1/queries/{query}").json()
    assert (shown["state"], shown["error"]) == ("failed", "too large")


@pytest.mark.parametrize("query", ["q-0", "a b", "%00", "ü"])
def test_unknown_query_answers_404(world: World, query: str) -> None:
    for path in (f"/v1/queries/{query}", f"/v1/queries/{query}/rows"):
        problem(world.http.get(path), 404)
    problem(world.http.delete(f"/v1/queries/{query}"), 404)


# ---------------------------------------------------------------------------------- rows


def test_rows_are_a_json_array_in_their_order(world: World) -> None:
    query = asked(world)["id"]
    finish(world, query)
    answer = world.http.get(f"/v1/queries/{query}/rows")
    assert answer.headers["content-type"] == "application/json"
    assert [row["sip"] for row in answer.json()] == ["a", None]
    assert answer.json()[0]["sum_bytes"] == 2**64 - 2
    shown = world.http.get(f"/v1/queries/{query}").json()
    assert (shown["state"], shown["rows"]) == ("done", 2)
    assert shown["counts"] == {"read": 6, "counted": 3, "filtered": 2, "bad": 1, "future": 0}


def test_rows_are_arrow_when_that_is_asked_for(world: World) -> None:
    query = asked(world)["id"]
    finish(world, query)
    accept = {"Accept": "application/vnd.apache.arrow.stream"}
    answer = world.http.get(f"/v1/queries/{query}/rows", headers=accept)
    assert answer.headers["content-type"] == accept["Accept"]
    table = pa.ipc.open_stream(answer.content).read_all()
    assert table.schema.field("window_start").type == pa.timestamp("ms", tz="UTC")
    assert table.schema.field("count").type == pa.int64()
    assert table.column("sip").to_pylist() == ["a", None]
    assert table.column("sum_bytes").to_pylist() == [Decimal(2**64 - 2), None]


def test_integers_of_39_digits_fit_into_arrow(world: World) -> None:
    query = asked(world, sql="SELECT sum(bytes) AS s FROM flows WINDOWING 60 s")["id"]
    finish(world, query, (b'{"window_start":0,"window_end":60000,"s":-%d}' % 2**127,))
    accept = {"Accept": "application/vnd.apache.arrow.stream"}
    answer = world.http.get(f"/v1/queries/{query}/rows", headers=accept)
    assert pa.ipc.open_stream(answer.content).read_all().column("s").to_pylist() == [
        Decimal(-(2**127))
    ]


def test_answer_without_rows_is_empty_in_both_forms(world: World) -> None:
    query = asked(world)["id"]
    finish(world, query, ())
    path = f"/v1/queries/{query}/rows"
    assert world.http.get(path).json() == []
    accept = {"Accept": "application/vnd.apache.arrow.stream"}
    table = pa.ipc.open_stream(world.http.get(path, headers=accept).content).read_all()
    assert (table.num_rows, table.column_names[2:]) == (0, ["sip", "count", "sum_bytes"])


def test_there_are_no_rows_before_a_query_is_done(world: World) -> None:
    query = asked(world)["id"]
    path = f"/v1/queries/{query}/rows"
    assert "waiting" in problem(world.http.get(path), 409)["detail"]
    alter(world, query, state=QueryState.FAILED, detail="too large")
    assert "too large" in problem(world.http.get(path), 409)["detail"]


def test_rows_that_kafka_has_deleted_answer_404(world: World) -> None:
    query = asked(world)["id"]
    finish(world, query)
    world.broker.partition(Topic("mars.queries"), 0).truncate(2)
    detail = problem(world.http.get(f"/v1/queries/{query}/rows"), 404)["detail"]
    assert "run it again" in detail
