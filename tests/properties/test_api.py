"""Whatever comes in, the answer is never a server's fault and always a problem document."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.unit.api.twins import BY_SIP, FLOWS, World, application, known_world

EXAMPLES = settings(
    max_examples=150,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)

TEXTS = st.one_of(
    st.text(max_size=30),
    st.sampled_from(["", "\x00", "flows", BY_SIP, "1s", "9" * 50, "mars.progress", "ü", "\ufeff"]),
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=2**63 - 2, max_value=2**65),
    st.floats(allow_nan=False, allow_infinity=False),
    TEXTS,
)
SEGMENTS = TEXTS.filter(lambda text: text not in {".", ".."})
"""Of a path: a client takes those two out before it asks."""

VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXTS, inner, max_size=4)),
    max_leaves=12,
)
TASK: dict[str, Any] = {"name": "t", "sql": BY_SIP, "start": "latest", "options": {"delay": "1s"}}
QUERY: dict[str, Any] = {
    "sql": BY_SIP,
    "options": {},
    "from": 0,
    "until": 60_000,
    "files": None,
    "rows_max": 5,
    "timeout": 1,
    "output_topic": "mine",
}
PATHS = [
    "/v1/tasks",
    "/v1/tasks/validate",
    "/v1/streams/s",
    "/v1/tasks/known",
    "/v1/queries",
    "/v1/keys",
]


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    yield from known_world()


def send(world: World, path: str, content: bytes) -> None:
    method = "PUT" if path in {"/v1/streams/s", "/v1/tasks/known"} else "POST"
    check(world.http.request(method, path, content=content))


def check(answer: httpx.Response) -> None:
    assert answer.status_code < 500, answer.text
    if answer.is_error:
        assert answer.headers["content-type"] == "application/problem+json"
        assert json.loads(answer.content)["status"] == answer.status_code


@pytest.mark.parametrize("path", PATHS)
@EXAMPLES
@given(content=st.binary(max_size=200))
@example(content=b"\x00")
@example(content=b"[" * 5_000)
@example(content=b'{"a":' * 5_000)
@example(content=b'{"sql": "\\ud800"}')
def test_any_bytes_as_a_body(world: World, path: str, content: bytes) -> None:
    send(world, path, content)


@pytest.mark.parametrize("path", PATHS)
@EXAMPLES
@given(value=VALUES)
def test_any_json_as_a_body(world: World, path: str, value: object) -> None:
    send(world, path, json.dumps(value).encode())


@EXAMPLES
@given(member=st.sampled_from(sorted(TASK)), value=VALUES)
@example(member="options", value={"delay": "9" * 39 + "d"})
@example(member="options", value={"delay": True})
@example(member="options", value={"output_topic": "\x00"})
@example(member="start", value={"timestamp": 2**53})
@example(member="sql", value="SELECT " + "(" * 3_000)
@example(member="sql", value="SELECT count(*) FROM flows WINDOWING " + "9" * 400 + " s")
@example(member="sql", value="SELECT '\x00' FROM flows WINDOWING 1 s")
def test_any_value_of_a_member_of_a_task(world: World, member: str, value: object) -> None:
    for path in ("/v1/tasks/validate", "/v1/tasks", "/v1/tasks/known"):
        known = {"/v1/tasks/validate": {"start"}, "/v1/tasks/known": {"name", "start"}}
        body = {key: kept for key, kept in TASK.items() if key not in known.get(path, set())}
        if member in body:
            send(world, path, json.dumps({**body, member: value}).encode())


@EXAMPLES
@given(member=st.sampled_from(sorted(QUERY)), value=VALUES)
@example(member="timeout", value=1e300)
@example(member="until", value=-(2**53))
@example(member="files", value={"files": "/data\x00", "format": "csv"})
@example(member="output_topic", value="mars.queries")
def test_any_value_of_a_member_of_a_query(world: World, member: str, value: object) -> None:
    send(world, "/v1/queries", json.dumps({**QUERY, member: value}).encode())


@EXAMPLES
@given(member=st.sampled_from([*sorted(FLOWS), "csv_header", "name"]), value=VALUES)
@example(member="fields", value={"timestamp": "timestamp_ms", "\x00": "string"})
@example(member="fields", value={"timestamp": "timestamp_ms", "window_start": "string"})
def test_any_value_of_a_member_of_a_stream(world: World, member: str, value: object) -> None:
    send(world, "/v1/streams/s", json.dumps({**FLOWS, member: value}).encode())


@EXAMPLES
@given(name=st.text(min_size=1, max_size=80), tail=st.sampled_from(["", "/why", "/windows"]))
def test_any_name_in_a_path(world: World, name: str, tail: str) -> None:
    encoded = "".join(f"%{byte:02x}" for byte in name.encode("utf-8"))
    for family in ("tasks", "streams", "queries"):
        check(world.http.get(f"/v1/{family}/{encoded}{tail}"))
        check(world.http.delete(f"/v1/{family}/{encoded}"))


@EXAMPLES
@given(
    parameter=st.sampled_from(["key", "limit", "order", "window_start", "deleted", "other"]),
    value=st.one_of(TEXTS, VALUES.map(json.dumps), st.integers().map(str)),
)
def test_any_query_parameter(world: World, parameter: str, value: str) -> None:
    paths = ("/v1/tasks", "/v1/queries", "/v1/tasks/known/windows", "/v1/tasks/known/results")
    for path in paths:
        check(world.http.get(path, params={parameter: value}))


@EXAMPLES
@given(value=st.binary(max_size=40).filter(lambda raw: not set(raw) & set(b"\r\n\x00")))
def test_any_header(world: World, value: bytes) -> None:
    body = {"sql": BY_SIP, "options": {"delay": "1s"}}
    for header in ("If-Match", "Content-Type", "Content-Length-Of", "Accept-Charset"):
        check(world.http.put("/v1/tasks/known", json=body, headers={header.encode(): value}))


# ------------------------------------------------------------- what the description promises

SOME = settings(EXAMPLES, max_examples=25)


def operations() -> list[tuple[str, str]]:
    return [
        (method, path)
        for path, methods in application().openapi()["paths"].items()
        for method in methods
    ]


@pytest.mark.parametrize(("method", "path"), operations())
@SOME
@given(data=st.data())
def test_every_operation_answers_any_input_as_it_is_described(
    world: World, method: str, path: str, data: st.DataObject
) -> None:
    description = application().openapi()["paths"][path][method]
    places = re.findall(r"{(\w+)}", path)
    names = {place: data.draw(st.one_of(st.just("known"), SEGMENTS), place) for place in places}
    asked = [each["name"] for each in description.get("parameters", ()) if each["in"] == "query"]
    query = data.draw(st.dictionaries(st.sampled_from(asked), TEXTS) if asked else st.just({}))
    address = path.format_map({place: quote(name, safe="") for place, name in names.items()})
    body = data.draw(VALUES) if "requestBody" in description else None
    content = None if body is None else json.dumps(body).encode()
    answer = world.http.request(method, address, params=query, content=content)
    check(answer)
    if not any(name == "" or "/" in name for name in names.values()):  # else it is another path
        assert str(answer.status_code) in description["responses"], answer.text
