"""Bodies: what is JSON, what is an object, what fits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request
from starlette.types import Message, Receive, Scope, Send

from api.http import body, errors
from api.http.body import BODIES_AT_ONCE, PROBLEMS_MAX, BodyLimit, body_of, parse_object
from api.http.errors import NotAnObject, TooLarge
from api.routes import tasks
from api.schemas import ValidateRequest
from mars.core.errors import Rejected, TooMany
from tests.unit.api.twins import BODY_BYTES_MAX, BY_SIP, FLOWS, LoopTransport, World, problem


def test_object_is_parsed_with_integers_kept_exact() -> None:
    assert parse_object(b'{"a": [9007199254740993, "\\ud83d\\ude00"]}') == {
        "a": [9007199254740993, "\U0001f600"]
    }


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"nope",
        b"[]",
        b"1",
        b"null",
        b'"text"',
        b"{} {}",
        b"{'a': 1}",
        b'{"a": NaN}',
        b'{"a": -Infinity}',
        b'{"a": "\xff"}',
        b"\xef\xbb\xbf{}",
        '{"a": 1}'.encode("utf-16"),
        b'{"a": "\x00"}',
        b"[" * 100_000,
    ],
)
def test_body_that_is_not_a_json_object_is_not_read_further(raw: bytes) -> None:
    with pytest.raises(NotAnObject):
        parse_object(raw)


@pytest.mark.parametrize(
    ("raw", "part"),
    [
        (b'{"a": 1, "a": 2}', "'a' is given twice: leave one out"),
        (b'{"x": {"a": 1, "a": 2}}', "'a' is given twice: leave one out"),
        (b'{"a": ' + b"9" * 5_000 + b"}", "more than 40 digits"),
        (b'{"a": 1e999}', "too large"),
        (b'{"a": "\\ud800"}', "surrogate"),
        (b'{"\\udc00": 1}', "surrogate"),
        (b'{"a":' * 20_000 + b"1" + b"}" * 20_000, "too deep"),
    ],
)
def test_json_that_means_nothing_is_rejected_with_a_reason(raw: bytes, part: str) -> None:
    with pytest.raises(Rejected, match=part):
        parse_object(raw)


# --------------------------------------------------------------------------- over the wire


def test_large_bodies_are_read_where_they_hold_up_nobody(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []
    read = body._as

    def noted(*asked: Any) -> Any:
        threads.append(threading.current_thread())
        return read(*asked)

    monkeypatch.setattr(body, "_as", noted)
    for size in (100, body.INLINE_BYTES_MAX + 1):
        raw = b'{"sql": "%s"}' % (b" " * size)
        problem(world.http.post("/v1/tasks/validate", content=raw), 422)
    small, large = threads
    assert small is world.transport._thread  # of all requests
    assert large is not small


def test_a_body_may_have_a_limit_of_its_own() -> None:
    async def read(size: int) -> ValidateRequest:
        async def received() -> dict[str, Any]:
            return {"type": "http.request", "body": b'{"sql": "%s"}' % (b" " * size)}

        request = Request({"type": "http", "method": "POST", "headers": []}, received)
        return await body_of(ValidateRequest, 1_000)(request)

    assert len(asyncio.run(read(900)).sql) == 900
    with pytest.raises(TooLarge, match="at most 1000 bytes here"):
        asyncio.run(read(1_001))


def test_more_than_the_longest_query_is_not_checked(world: World) -> None:
    app = FastAPI()
    errors.install(app)
    app.include_router(tasks.router(world.services))
    client = httpx.Client(transport=LoopTransport(app), base_url="http://mars")
    longest: dict[str, object] = {"sql": "\n" * 65_536, "options": {"delay": "1s"}}
    answer = client.post("/v1/tasks/validate", json=longest)
    assert "the query is empty" in problem(answer, 422)["detail"]
    longest["sql"] = "\n" * 2 * 65_536
    assert "196608 bytes" in problem(client.post("/v1/tasks/validate", json=longest), 413)["detail"]
    client.close()


@pytest.mark.parametrize("path", ["/v1/tasks", "/v1/tasks/validate"])
def test_body_that_is_not_json_answers_400(world: World, path: str) -> None:
    assert "line 1, column 2" in problem(world.http.post(path, content=b"{no"), 400)["detail"]


def test_body_needs_no_content_type(world: World) -> None:
    answer = world.http.post("/v1/tasks/validate", content=b'{"sql": "%s"}' % BY_SIP.encode())
    assert answer.status_code == 200


def test_unknown_members_are_refused_by_name(world: World) -> None:
    answer = world.http.post("/v1/tasks", json={"name": "t", "sql": BY_SIP, "strat": "latest"})
    document = problem(answer, 422)
    assert document["detail"] == "member strat is unknown"
    assert document["errors"] == [{"member": "strat", "detail": "member strat is unknown"}]


@pytest.mark.parametrize("member", ["path", "query", "body"])
def test_a_member_that_is_called_as_a_part_of_a_request_is_named_whole(
    world: World, member: str
) -> None:
    files = {"files": "/a", "format": "csv", member: "/a"}
    for members, name in (({member: 1}, member), ({"files": files}, f"files.{member}")):
        answer = world.http.post("/v1/queries", json={"sql": BY_SIP, **members})
        assert problem(answer, 422)["detail"] == f"member {name} is unknown"


def test_missing_and_mistyped_members_are_all_named(world: World) -> None:
    document = problem(world.http.post("/v1/tasks", json={"name": 5}), 422)
    assert {wrong["member"] for wrong in document["errors"]} == {"name", "sql"}


def test_announced_body_over_the_limit_answers_413(world: World) -> None:
    answer = world.http.post("/v1/tasks", content=b" " * (BODY_BYTES_MAX + 1))
    assert str(BODY_BYTES_MAX) in problem(answer, 413)["detail"]


def test_body_over_the_limit_without_content_length_answers_413(world: World) -> None:
    def pieces() -> Iterator[bytes]:
        for _ in range(BODY_BYTES_MAX // 1_000 + 1):
            yield b" " * 1_000

    answer = world.http.put("/v1/streams/flows", content=b"".join(pieces()), headers={})
    assert answer.status_code == 413
    request = world.http.build_request("PUT", "/v1/streams/flows", content=pieces())
    assert "content-length" not in request.headers
    request.read()
    problem(world.http.send(request), 413)


MIB = 1024 * 1024


async def _under_way(limited: BodyLimit, pieces: list[bytes], read: asyncio.Event) -> None:
    """A request that has sent these pieces, and no more."""

    async def received() -> Message:
        if pieces:
            return {"type": "http.request", "body": pieces.pop(0), "more_body": True}
        read.set()
        await asyncio.Event().wait()
        raise AssertionError("it never comes")

    async def sent(_message: Message) -> None:
        raise AssertionError("nothing is answered")

    request = {"type": "http", "method": "POST", "path": "/", "headers": []}
    await limited(request, received, sent)


def test_bodies_under_way_have_room_for_so_many_bytes_in_all() -> None:
    """As objects they take many times as much, whether they are right or wrong."""

    async def reads_all(_scope: Scope, receive: Receive, _send: Send) -> None:
        while (await receive()).get("more_body"):
            pass

    async def held(limited: BodyLimit, pieces: list[bytes]) -> asyncio.Task[None]:
        read = asyncio.Event()
        task = asyncio.create_task(_under_way(limited, pieces, read))
        await asyncio.wait([asyncio.create_task(read.wait()), task], return_when="FIRST_COMPLETED")
        return task

    async def all_of_them() -> None:
        limited = BodyLimit(reads_all, MIB)
        whole = [await held(limited, [bytes(1_024)] * 1_024) for _ in range(BODIES_AT_ONCE - 1)]
        torn = await held(limited, [b"x"] * 1_024 + [bytes(MIB - 1_024)])
        assert not any(one.done() for one in (*whole, torn))
        with pytest.raises(TooMany, match="4194304 bytes of bodies"):
            await (await held(limited, [b"x"]))
        whole.pop().cancel()
        await asyncio.sleep(0)
        again = await held(limited, [bytes(MIB)])
        assert not again.done()
        for one in (*whole, torn, again):
            one.cancel()

    asyncio.run(all_of_them())


def test_of_very_many_wrong_members_only_the_number_is_told(world: World) -> None:
    members = dict.fromkeys((f"m{number}" for number in range(PROBLEMS_MAX)), 1)
    body = {"name": "t", "sql": BY_SIP, **members}
    assert len(problem(world.http.post("/v1/tasks", json=body), 422)["errors"]) == PROBLEMS_MAX
    answer = problem(world.http.post("/v1/tasks", json={**body, "one_more": 1}), 422)
    assert answer["detail"] == "1001 members are unknown, missing or of a wrong type"
    assert "errors" not in answer or not answer["errors"]


def test_a_client_that_goes_away_within_its_body_is_no_bug_of_ours() -> None:
    async def received() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    request = Request({"type": "http", "method": "POST", "headers": []}, received)

    async def read() -> ValidateRequest:
        return await body_of(ValidateRequest)(request)

    with pytest.raises(NotAnObject, match="the client went away"):
        asyncio.run(read())


def test_body_at_the_limit_is_read(world: World) -> None:
    answer = world.http.post("/v1/tasks", content=b" " * BODY_BYTES_MAX)
    problem(answer, 400)


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", "/v1/streams", "GET"),
        ("DELETE", "/v1/tasks", "GET, POST, PUT"),
        ("PATCH", "/v1/tasks/by_sip", "DELETE, GET, PUT"),
        ("POST", "/healthz", "GET"),
    ],
)
def test_unknown_method_answers_405_and_names_what_is_allowed(
    world: World, method: str, path: str, allowed: str
) -> None:
    answer = world.http.request(method, path)
    problem(answer, 405)
    assert answer.headers["allow"] == allowed


def test_unknown_path_answers_404(world: World) -> None:
    assert "/docs" in problem(world.http.get("/v1/nothing"), 404)["detail"]


def test_query_parameters_are_checked_with_a_problem_document(world: World) -> None:
    assert world.register().status_code == 201
    answer = world.http.get("/v1/tasks/by_sip/windows", params={"limit": "many"})
    assert problem(answer, 422)["errors"][0]["member"] == "limit"
    for limit in (0, 10_001):
        problem(world.http.get("/v1/tasks/by_sip/windows", params={"limit": limit}), 422)


def test_stream_keeps_the_order_of_its_fields(world: World) -> None:
    assert list(world.http.get("/v1/streams/flows").json()["fields"]) == list(FLOWS["fields"])


@pytest.mark.parametrize(
    ("path", "known"),
    [
        ("/v1/tasks?limit=3", "deleted"),
        ("/v1/cluster?x=1&limit=2", "none"),
        (
            "/v1/tasks/none/results?windowstart=3",
            "window_start, window_end, partition, window_number, limit",
        ),
    ],
)
def test_a_query_parameter_that_a_path_does_not_know_is_refused_by_its_name(
    world: World, path: str, known: str
) -> None:
    found = problem(world.http.get(path), 422)
    assert found["errors"][0]["member"] in path
    assert f"is unknown; known here: {known}" in found["errors"][0]["detail"]


def test_a_query_parameter_that_is_given_twice_is_refused(world: World) -> None:
    assert world.register().status_code == 201
    found = problem(world.http.get("/v1/tasks/by_sip/windows?limit=3&x=1&limit=4"), 422)
    assert {one["member"]: one["detail"] for one in found["errors"]}.keys() == {"limit", "x"}
    assert "query parameter limit is given 2 times; give it once" in str(found["errors"])


@pytest.mark.parametrize("path", ["/metrics", "/readyz", "/healthz"])
def test_probes_may_have_parameters_of_their_own(world: World, path: str) -> None:
    assert world.http.get(f"{path}?verbose=1").status_code == world.http.get(path).status_code
