"""The typed client, against the real application on twins."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from mars.client import answers
from mars.client.blocking import Client
from mars.client.calls.inside import VERIFY_TIMEOUT_S
from mars.client.calls.results import SILENCE_S
from mars.core.errors import (
    Conflict,
    NotFound,
    Rejected,
    SqlError,
    Unavailable,
    VersionMismatch,
)
from tests.unit.api.twins import BY_SIP, FLOWS, World

COUNT = "SELECT count(*) FROM flows WINDOWING 10 s"
SOURCE = '{"bucket":3,"rows":7,"ranges":{"0":[5,9]},"newer":1}'


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.close()


@pytest.fixture
def client(world: World) -> Client:
    return Client("http://mars", transport=world.transport)


def answering(handler: httpx.MockTransport) -> Client:
    return Client("http://mars", transport=handler)


def test_streams_are_put_listed_shown_and_removed(client: Client) -> None:
    made = client.put_stream("flows", FLOWS)
    assert (made.name, made.fields["bytes"], made.csv_header) == ("flows", "int64", False)
    assert client.streams() == [made]
    assert client.stream("flows") == made
    client.delete_stream("flows")
    with pytest.raises(NotFound, match="flows"):
        client.stream("flows")


def test_task_lives_through_the_client(client: Client) -> None:
    client.put_stream("flows", FLOWS)
    task = client.create_task("by_sip", BY_SIP, start=5, options={"delay": "1s"})
    assert (task.version, task.state, task.options) == (1, "running", {"delay": "1s"})
    assert task.plan is not None
    assert task.plan.window.size_ms == 60_000
    assert [listed.name for listed in client.tasks()] == ["by_sip"]
    assert client.pause_task("by_sip").state == "paused"
    assert client.resume_task("by_sip").state == "running"
    assert client.change_task("by_sip", COUNT, expected_version=1).version == 2
    assert client.task("by_sip").sql == COUNT
    client.delete_task("by_sip")
    assert client.tasks() == []
    assert [listed.state for listed in client.tasks(deleted=True)] == ["deleted"]


def test_looks_into_a_task_are_typed(world: World, client: Client) -> None:
    client.put_stream("flows", FLOWS)
    client.create_task("by_sip", BY_SIP, start="earliest")
    world.start_in_store()
    world.run_batch([{"timestamp": 5_000, "sip": "a", "bytes": 2**63 - 1}] * 3)
    (window,) = client.windows("by_sip", key="a", limit=5, order="-count").windows
    assert window.rows[0]["sum_bytes"] == 3 * (2**63 - 1)
    assert client.why("by_sip").windows[0].held_by.reason == "no_owner"
    assert client.ledger("by_sip").read == 0
    assert client.results("by_sip", window_start=0, limit=3).windows == []
    assert client.validate(COUNT, name="x").output.topic == "mars.results.x"


def test_cluster_and_readiness_are_typed(world: World, client: Client) -> None:
    world.join_reducer()
    cluster = client.cluster()
    assert (cluster.members[0].id, cluster.leader) == ("reducer-1", answers.Leader("reducer-1", 3))
    assert client.readiness().services == {"kafka": "not asked yet", "redis": "not asked yet"}


def test_refusals_become_our_errors(client: Client) -> None:
    with pytest.raises(Rejected, match="format"):
        client.put_stream("flows", {**FLOWS, "format": "xml"})
    client.put_stream("flows", FLOWS)
    with pytest.raises(SqlError) as wrong:
        client.create_task("by_sip", "SELECT\n nothing FROM flows WINDOWING 1 s")
    assert (wrong.value.line, wrong.value.column) == (2, 2)
    client.create_task("by_sip", BY_SIP)
    with pytest.raises(Conflict, match="by_sip"):
        client.create_task("by_sip", BY_SIP)
    with pytest.raises(Conflict, match="by task by_sip: delete the task before"):
        client.delete_stream("flows")
    with pytest.raises(VersionMismatch):
        client.change_task("by_sip", COUNT, expected_version=9)
    with pytest.raises(NotFound):
        client.why("a/b?c#d")


def test_server_behind_the_api_that_is_away_is_named_once(world: World, client: Client) -> None:
    world.registry.fail_next("tasks")
    with pytest.raises(Unavailable) as away:
        client.tasks()
    assert away.value.service == "zookeeper"
    assert str(away.value).count("is not available") == 1


@pytest.mark.parametrize(
    ("error", "part"),
    [
        (httpx.ConnectError("refused"), "cannot be reached .*; see that an API runs there"),
        (httpx.ReadTimeout("slow"), "in time"),
    ],
)
def test_api_that_does_not_answer_is_unavailable(error: Exception, part: str) -> None:
    def fail(_request: httpx.Request) -> httpx.Response:
        raise error

    with answering(httpx.MockTransport(fail)) as client:
        for call in (client.tasks, client.readiness, lambda: next(client.tail("t"))):
            with pytest.raises(Unavailable, match=part) as away:
                call()
            assert away.value.service == "api"


def test_every_request_keeps_to_the_limits_of_its_client() -> None:
    asked: dict[str, dict[str, float]] = {}

    def answer(request: httpx.Request) -> httpx.Response:
        asked[request.url.path] = request.extensions["timeout"]
        return httpx.Response(404)

    client = Client("http://mars", timeout_s=0.5, transport=httpx.MockTransport(answer))
    calls = (client.cluster, client.readiness, lambda: client.verify("t"))
    for call in (*calls, lambda: next(client.tail("t"))):
        with pytest.raises((NotFound, Unavailable)):
            call()
    assert {path: limits["read"] for path, limits in asked.items()} == {
        "/v1/cluster": 0.5,
        "/readyz": 0.5,
        "/v1/tasks/t/verify": VERIFY_TIMEOUT_S,
        "/v1/tasks/t/results": SILENCE_S,
    }
    assert {limits["connect"] for limits in asked.values()} == {0.5}


@pytest.mark.parametrize("status", [200, 404, 500])
def test_something_else_that_answers_is_no_mars(status: int) -> None:
    pages = httpx.MockTransport(lambda _request: httpx.Response(status, html="<p>hello</p>"))
    with answering(pages) as client, pytest.raises((Unavailable, NotFound), match="http://mars"):
        client.cluster()


def test_members_of_a_newer_release_are_ignored() -> None:
    body = {"services": {}, "status": "ready", "newer": [1]}
    newer = httpx.MockTransport(lambda _request: httpx.Response(200, json=body))
    with answering(newer) as client:
        assert client.readiness().status == "ready"


# ------------------------------------------------------------------------------------ tail


def test_tail_yields_rows_whatever_the_pieces_they_come_in() -> None:
    text = (
        ': hello\n\nevent: result\nid: 3:14\ndata: {"a":"x\u2028\x85y"}\n\n'
        ": nothing new\n\nevent: other\ndata: 5\n\nevent: result\nid: 0:2\ndata: {}\n\n"
    ).encode()

    class Pieces(httpx.SyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            yield from (text[place : place + 1] for place in range(len(text)))

    transport = httpx.MockTransport(lambda _request: httpx.Response(200, stream=Pieces()))
    with answering(transport) as client:
        events = list(client.tail("by_sip"))
    assert [(event.partition, event.offset) for event in events] == [(3, 14), (0, 2)]
    assert events[0].row == {"a": "x\u2028\x85y"}


def test_tail_says_where_rows_were_counted_from_until_it_says_otherwise() -> None:
    row = "event: result\nid: 0:%d\ndata: {}\n\n"
    text = row % 1 + f"event: source\ndata: {SOURCE}\n\n" + row % 2 + row % 3
    transport = httpx.MockTransport(lambda _request: httpx.Response(200, text=text))
    with answering(transport) as client:
        first, *others = client.tail("by_sip")
    assert first.source is None
    assert [one.source for one in others] == [answers.WindowSource(3, 7, {"0": (5, 9)})] * 2


def test_tail_tells_from_where_one_can_go_on() -> None:
    text = ": hello\nid: /0,5\n\nevent: source\ndata: {}\n\n".replace("{}", SOURCE)
    text += "event: result\nid: 0:0/1,5\ndata: {}\n\n" + ": nothing new\n\n"
    transport = httpx.MockTransport(lambda _request: httpx.Response(200, text=text))
    places: list[str] = []
    with answering(transport) as client:
        events = client.tail("by_sip", reached=places.append)
        next(events)
        assert places == ["/0,5"]
        assert list(events) == []
    assert places == ["/0,5", "0:0/1,5"]


def test_tail_tells_what_kafka_had_deleted_before_it_was_read() -> None:
    gap = 'id: /0,9\nevent: gap\ndata: {"partition":1,"first":5,"next":9}\n\n'
    text = gap + "event: result\nid: 1:9/0,10\ndata: {}\n\n"
    transport = httpx.MockTransport(lambda _request: httpx.Response(200, text=text))
    missed: list[answers.MissedResults] = []
    places: list[str] = []
    with answering(transport) as client:
        first, *others = client.tail("by_sip", reached=places.append, missed=missed.append)
    assert (first.offset, others) == (9, [])
    assert missed == [answers.MissedResults(partition=1, first=5, next=9)]
    assert places == ["/0,9", "1:9/0,10"]


def test_tail_of_an_unknown_task_is_refused(client: Client) -> None:
    with pytest.raises(NotFound):
        next(client.tail("nothing"))
