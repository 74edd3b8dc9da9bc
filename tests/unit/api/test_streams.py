"""Streams: declared once, replaced as long as no task would break."""

from __future__ import annotations

from typing import Any

import pytest

from mars.core.definitions import TaskState
from mars.core.errors import TopicRefused
from mars.core.types import StreamName, Topic
from mars.protocol.ports import TopicInfo
from tests.unit.api.twins import FLOWS, TwinAdmin, World, problem


def test_first_declaration_answers_201_and_the_same_again_200(world: World) -> None:
    first = world.declare("other")
    assert (first.status_code, first.headers["location"]) == (201, "/v1/streams/other")
    again = world.declare("other")
    assert again.status_code == 200
    plain = {"csv_header": False, "csv_delimiter": ",", "csv_quote": '"', "record_time": "check"}
    assert first.json() == again.json() == {**FLOWS, "name": "other", **plain, "warnings": []}


def test_what_is_shown_can_be_declared_again(world: World) -> None:
    shown = world.http.get("/v1/streams/flows").json()
    assert world.http.put("/v1/streams/flows", json=shown).status_code == 200


def test_a_stream_of_a_topic_that_is_not_there_yet_is_declared_with_a_warning(world: World) -> None:
    early = world.declare("early", topic="nowhere")
    (warning,) = early.json()["warnings"]
    assert early.status_code == 201
    assert "no topic nowhere yet: create it, then register the tasks" in warning
    world.kafka.make_topic("nowhere", 1)
    assert world.http.put("/v1/streams/early", json=early.json()).json()["warnings"] == []


def test_a_stream_is_declared_where_kafka_does_not_tell_of_its_topic(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_admin: TwinAdmin, topic: Topic) -> TopicInfo | None:
        raise TopicRefused(topic, "no rights")

    monkeypatch.setattr(TwinAdmin, "describe", refused)
    declared = world.declare("early")
    assert (declared.status_code, declared.json()["warnings"]) == (201, [])


def test_streams_are_listed_by_name(world: World) -> None:
    world.declare("zeta")
    world.declare("alpha")
    streams = world.http.get("/v1/streams").json()["streams"]
    assert [stream["name"] for stream in streams] == ["alpha", "flows", "zeta"]


def test_unknown_stream_answers_404(world: World) -> None:
    for name in ("nothing", "not%20a%20name", "..", "a%2Fb", "x" * 200):
        assert world.http.get(f"/v1/streams/{name}").status_code == 404
    problem(world.http.delete("/v1/streams/nothing"), 404)


def test_removed_stream_is_gone(world: World) -> None:
    answer = world.http.delete("/v1/streams/flows")
    assert (answer.status_code, answer.content) == (204, b"")
    problem(world.http.get("/v1/streams/flows"), 404)


@pytest.mark.parametrize("name", ["1st", "a b", "", "-a", "ä", "x" * 64, "a%00", "a%0a"])
def test_name_outside_the_rule_is_refused(world: World, name: str) -> None:
    status = world.http.put(f"/v1/streams/{name}", json=FLOWS).status_code
    assert status == (404 if name == "" else 422)


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"format": "xml"}, "json, ndjson, csv, arrow"),
        ({"fields": {"timestamp": "timestamp"}}, "timestamp_iso"),
        ({"fields": {}}, "1 to 1000 fields"),
        ({"fields": {f"f{number}": "bool" for number in range(1001)}}, "1 to 1000 fields"),
        ({"fields": {"": "string", "timestamp": "timestamp_ms"}}, "cannot have this name"),
        ({"fields": {"a\x00": "string", "timestamp": "timestamp_ms"}}, "cannot have this name"),
        ({"event_time": "nothing"}, "not a declared field"),
        ({"event_time": "bytes"}, "timestamp_ms"),
        ({"fields": {'size "GB"': "int64", "timestamp": "timestamp_ms"}}, "quotation mark"),
        ({"fields": {"disk\\C:": "int64", "timestamp": "timestamp_ms"}}, "backslash"),
        ({"record_time": "never"}, "record_time"),
        ({"record_time": "ignore", "event_time": "$timestamp"}, "leave out one of them"),
        ({"event_time": "$key"}, "or be $timestamp"),
        *(
            ({"fields": {**FLOWS["fields"], "a": field}}, part)
            for field, part in [
                ({"type": "string", "from": "$header"}, "$key, $timestamp, $partition, $offset"),
                ({"type": "int64", "from": "$key"}, "its type must be string, not int64"),
                ({"type": "timestamp_s", "from": "$timestamp"}, "must be timestamp_ms"),
                ({"type": "string", "from": "$offset"}, "must be int64"),
                ({"type": "text", "from": "$key"}, "unknown type 'text'"),
                ({"from": "$key"}, "fields.a"),
                ({"type": "string", "form": "$key"}, "fields.a"),
            ]
        ),
        (
            {
                "fields": {"at": {"type": "timestamp_ms", "from": "$timestamp"}},
                "event_time": "at",
            },
            "at least one that the messages themselves hold",
        ),
        ({"csv_header": True}, "csv_header is for the format csv only"),
        ({"csv_delimiter": ";"}, "csv_delimiter is for the format csv only"),
        ({"csv_quote": "'"}, "csv_quote is for the format csv only"),
        *(
            (
                {"format": "csv", "csv_delimiter": mark},
                "csv_delimiter " + repr(mark) + " must be one",
            )
            for mark in ("", ";;", "a", "7", "\n", "\r", "\0")
        ),
        ({"format": "csv", "csv_delimiter": "§"}, "must be one ASCII character"),
        ({"format": "csv", "csv_quote": "''"}, "csv_quote \"''\" must be one ASCII character"),
        ({"format": "csv", "csv_quote": ","}, "are both ','"),
        ({"format": "csv", "csv_delimiter": 1}, "csv_delimiter"),
        ({"topic": ""}, "not a valid topic name"),
        ({"topic": "a/b"}, "not a valid topic name"),
        ({"topic": "x" * 250}, "not a valid topic name"),
        ({"topic": "mars.progress"}, "own"),
        ({"topic": "mars.state"}, "own"),
        ({"topic": "mars.incidents"}, "own"),
        ({"topic": "mars.blue.control"}, "own"),
        ({"topic": "mars.blue.results.by_sip"}, "another namespace"),
        ({"topic": "__consumer_offsets"}, "own"),
        ({"extra": 1}, "member extra is unknown"),
        ({"fields": {"a": 1}}, "fields.a"),
        ({"fields": [["a", "string"]]}, "fields"),
    ],
)
def test_wrong_declaration_says_what_is_wrong_and_what_would_be_right(
    world: World, changes: dict[str, Any], part: str
) -> None:
    assert part in problem(world.declare("other", **changes), 422)["detail"]
    problem(world.http.get("/v1/streams/other"), 404)


def test_results_of_the_same_namespace_may_be_read_by_further_tasks(world: World) -> None:
    assert world.declare("again", topic="mars.results.by_sip").status_code == 201
    assert world.declare("free", topic="mars.of.mine").status_code == 201


def test_name_in_the_body_must_be_that_in_the_path(world: World) -> None:
    answer = world.http.put("/v1/streams/other", json={**FLOWS, "name": "flows"})
    assert "as in the path" in problem(answer, 422)["detail"]


def test_declaration_of_too_many_bytes_is_refused(world: World) -> None:
    fields = {f"{'x' * 100}{number}": "string" for number in range(700)}
    answer = world.declare("other", fields={**fields, "timestamp": "timestamp_ms"})
    assert "65536 bytes" in problem(answer, 422)["detail"]


def test_one_stream_too_many_is_refused_and_those_that_are_there_may_change(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.services.streams.STREAMS_MAX", len(world.registry.streams()) + 1)
    body = world.http.get("/v1/streams/flows").json()
    body.pop("name")
    assert world.http.put("/v1/streams/second", json=body).status_code == 201
    answer = world.http.put("/v1/streams/third", json=body)
    assert "remove one" in problem(answer, 409)["detail"]
    assert world.http.put("/v1/streams/second", json=body).status_code == 200


def test_header_is_for_csv(world: World) -> None:
    assert world.declare("other", format="csv", csv_header=True).json()["csv_header"] is True


OF_RECORD = {
    "who": {"type": "string", "from": "$key"},
    "came": {"type": "timestamp_ms", "from": "$timestamp"},
    "part": {"type": "int64", "from": "$partition"},
    "place": {"type": "int64", "from": "$offset"},
}


def test_fields_may_be_taken_from_the_record(world: World) -> None:
    fields = {**OF_RECORD, **FLOWS["fields"], "plain": {"type": "string"}}
    shown = world.declare("rich", fields=fields, event_time="came").json()
    assert shown["fields"] == {**fields, "plain": "string"}
    assert world.http.put("/v1/streams/rich", json=shown).status_code == 200
    sql = "SELECT who, max(place) AS p FROM rich WHERE part < 3 GROUP BY who WINDOWING 60 s"
    task = world.register(sql=sql).json()
    assert task["plan"]["fields"] == [
        {"name": name, "type": kind["type"]} for name, kind in OF_RECORD.items()
    ]
    changed = {**fields, "who": "string"}
    answer = problem(world.declare("rich", fields=changed, event_time="came"), 409)
    assert "it uses the field who as string from $key" in answer["detail"]
    moved = dict(reversed(fields.items()))
    assert world.declare("rich", fields=moved, event_time="came").status_code == 200


def test_the_event_time_may_be_that_of_the_record(world: World) -> None:
    shown = world.declare("rich", event_time="$timestamp").json()
    assert (shown["event_time"], shown["fields"]) == ("$timestamp", FLOWS["fields"])
    assert world.http.put("/v1/streams/rich", json=shown).status_code == 200
    written = {"$timestamp": OF_RECORD["came"], **FLOWS["fields"]}
    same = world.declare("rich", fields=written, event_time="$timestamp")
    assert (same.status_code, same.json()) == (200, shown)
    sql = 'SELECT "$timestamp" AS at, count(*) FROM rich WINDOWING 60 s'
    task = world.register(sql=sql).json()
    assert task["plan"]["fields"] == [{"name": "$timestamp", "type": "timestamp_ms"}]
    assert task["plan"]["outputs"][0]["expression"] == "window_start"
    assert world.http.delete("/v1/tasks/by_sip").status_code == 204
    assert world.register(sql="SELECT count(*) FROM rich WINDOWING 60 s").status_code == 201
    changed = problem(world.declare("rich"), 409)["detail"]
    assert "its event time is $timestamp, not timestamp" in changed


def test_a_field_of_messages_may_be_called_as_what_records_have(world: World) -> None:
    fields = {"$timestamp": "timestamp_iso", "$key": "string"}
    shown = world.declare("odd", fields=fields, event_time="$timestamp").json()
    assert (shown["event_time"], shown["fields"]) == ("$timestamp", fields)
    stream = world.registry.stream(StreamName("odd"))
    assert stream is not None
    assert stream.message_fields == stream.fields


def test_columns_of_csv_keep_their_places_whatever_is_taken_from_records(world: World) -> None:
    world.declare("rows", format="csv")
    sql = "SELECT sip, count(*) FROM rows GROUP BY sip WINDOWING 60 s"
    assert world.register(sql=sql).status_code == 201
    more = {"who": OF_RECORD["who"], **FLOWS["fields"]}
    assert world.declare("rows", format="csv", fields=more).status_code == 200


def test_marks_of_csv_are_kept_and_hold_while_a_task_reads_by_them(world: World) -> None:
    marks = {"format": "csv", "csv_delimiter": "\t", "csv_quote": "'"}
    shown = world.declare("rows", **marks).json()
    assert {name: shown[name] for name in marks} == marks
    assert world.http.put("/v1/streams/rows", json=shown).status_code == 200
    sql = "SELECT sip, count(*) FROM rows GROUP BY sip WINDOWING 60 s"
    assert world.register(sql=sql).status_code == 201
    for other in ({"csv_delimiter": ";"}, {"csv_quote": '"'}):
        changed = problem(world.declare("rows", **{**marks, **other}), 409)
        assert "as declared before" in changed["detail"]


# ----------------------------------------------------------------------- with tasks on it


def test_stream_in_use_cannot_be_removed(world: World) -> None:
    assert world.register().status_code == 201
    assert "task by_sip" in problem(world.http.delete("/v1/streams/flows"), 409)["detail"]
    assert world.http.delete("/v1/tasks/by_sip").status_code == 204
    assert world.http.delete("/v1/streams/flows").status_code == 204


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"topic": "other"}, "topic flows"),
        ({"format": "ndjson"}, "as declared before"),
        ({"fields": {**FLOWS["fields"], "bytes": "float64"}}, "bytes as int64"),
        ({"record_time": "ignore"}, "record_time is check, not ignore"),
        (
            {"fields": {key: kind for key, kind in FLOWS["fields"].items() if key != "sip"}},
            "no longer valid",
        ),
        (
            {
                "fields": {**FLOWS["fields"], "other": "timestamp_ms"},
                "event_time": "other",
            },
            "event time",
        ),
    ],
)
def test_declaration_that_would_break_a_task_is_refused(
    world: World, changes: dict[str, Any], part: str
) -> None:
    assert world.register().status_code == 201
    detail = problem(world.declare(**changes), 409)["detail"]
    assert "by_sip" in detail
    assert part in detail
    assert world.http.get("/v1/streams/flows").json()["topic"] == "flows"


def test_column_that_a_csv_task_reads_by_place_cannot_move(world: World) -> None:
    world.declare("rows", format="csv")
    sql = "SELECT sip, count(*) FROM rows GROUP BY sip WINDOWING 60 s"
    assert world.register(sql=sql).status_code == 201
    moved = {"type": "string", **FLOWS["fields"]}
    assert "place" in problem(world.declare("rows", format="csv", fields=moved), 409)["detail"]
    longer = {**FLOWS["fields"], "new": "string"}
    assert world.declare("rows", format="csv", fields=longer).status_code == 200


def test_fields_that_no_task_uses_may_change(world: World) -> None:
    assert world.register().status_code == 201
    fields = {**FLOWS["fields"], "loss": "string", "new": "bool"}
    answer = world.declare(fields=fields)
    assert (answer.status_code, answer.json()["fields"]["new"]) == (200, "bool")


def test_deleted_and_foreign_tasks_do_not_hold_a_declaration(world: World) -> None:
    assert world.register().status_code == 201
    world.alter(state=TaskState.DELETED)
    assert world.declare(topic="other").status_code == 200
