"""Who may do what: keys, roles, topics, rates, own pages, and the audit log."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from api.callers import acting, caller
from api.http.gate import Gate, role_needed
from api.http.limits import TokenBuckets
from api.services.access import AccessPolicy, policy_of, warnings_of
from mars.core.errors import Forbidden, Rejected
from mars.core.settings import ApiSettings
from mars.core.types import TaskName, Topic, file_lane
from mars.protocol.ports import ApiKey, DeadLetter, KeyId, Role
from mars.protocol.ports.access import find_key, make_key, matches
from tests.support.cluster import wait_for
from tests.unit.api.twins import BY_SIP, CLUSTER, FLOWS, World, application, problem

ON = AccessPolicy(on=True, requests_per_second=1_000)


@pytest.fixture
def guarded() -> Iterator[World]:
    """An API that asks for keys, with the stream `flows` declared."""
    made = World(ON)
    assert put_stream(made, bearer(made, Role.ADMIN)).status_code == 201
    yield made
    made.close()


def text_of(world: World, role: Role, **members: Any) -> str:
    """A key as `mars key create --config` makes one."""
    key, text = make_key(role, world.now_ms, **members)
    assert world.keys.create(key)
    return text


def bearer(world: World, role: Role, **members: Any) -> dict[str, str]:
    return {"Authorization": f"Bearer {text_of(world, role, **members)}"}


def put_stream(world: World, headers: dict[str, str], **changes: object) -> httpx.Response:
    return world.http.put("/v1/streams/flows", json={**FLOWS, **changes}, headers=headers)


def post_task(
    world: World, headers: dict[str, str], name: str = "by_sip", **changes: object
) -> httpx.Response:
    body = {"name": name, "sql": BY_SIP, **changes}
    return world.http.post("/v1/tasks", json=body, headers=headers)


# ---------------------------------------------------------------------------------- keys


def test_key_is_told_by_its_text_and_by_nothing_near_it() -> None:
    key, text = make_key(Role.READER, 5)
    keys = {key.id: key}
    assert find_key(keys, text) == key
    assert text.endswith(key.ending)
    other, _ = make_key(Role.READER, 5)
    swapped = f"mars_{key.id}_{'0' * 64}"
    for wrong in ("", text[:-1], f"{text}0", text.upper(), text + "\n", swapped, key.hash):
        assert find_key(keys, wrong) is None
    assert find_key({other.id: other}, text) is None


def test_what_is_kept_of_a_key_does_not_hold_its_secret() -> None:
    key, text = make_key(Role.ADMIN, 5, note="mine")
    secret = text.rpartition("_")[2]
    assert secret not in repr(key)
    assert len(secret) == 64


@pytest.mark.parametrize(
    ("pattern", "name", "fits"),
    [
        ("*", "anything", True),
        ("flows", "flows", True),
        ("flows", "flows2", False),
        ("flows*", "flows2", True),
        ("*.flows", "a.b.flows", True),
        ("a[bc]", "ab", False),
        ("a[bc]", "a[bc]", True),
        ("a?c", "abc", False),
        ("/data/*", "/data/a/b", True),
        ("/data/*", "/database", False),
    ],
)
def test_star_is_the_only_letter_of_a_pattern_with_a_meaning(
    pattern: str, name: str, fits: bool
) -> None:
    assert matches([pattern], name) is fits
    assert not matches([], name)


def test_keys_that_mean_nothing_are_refused() -> None:
    with pytest.raises(Rejected, match="would not limit"):
        make_key(Role.ADMIN, 0, reads=["flows"])
    with pytest.raises(Rejected, match="not a pattern"):
        make_key(Role.READER, 0, writes=[" "])
    with pytest.raises(Rejected, match="at most 100"):
        make_key(Role.READER, 0, reads=["a"] * 101)
    with pytest.raises(Rejected, match="a note"):
        make_key(Role.READER, 0, note="n" * 201)


# --------------------------------------------------------------------------------- roles


@pytest.mark.parametrize(
    ("method", "path", "needed"),
    [
        ("GET", "/healthz", None),
        ("GET", "/readyz", None),
        ("GET", "/", None),
        ("GET", "/docs", None),
        ("GET", "/metrics", Role.READER),
        ("GET", "/v1/tasks/a/why", Role.READER),
        ("POST", "/v1/tasks", Role.OPERATOR),
        ("POST", "/v1/tasks/validate", Role.READER),
        ("PUT", "/v1/tasks/validate", Role.OPERATOR),
        ("POST", "/v1/tasks/preview", Role.OPERATOR),
        ("POST", "/v1/tasks/a/pause", Role.OPERATOR),
        ("DELETE", "/v1/queries/q", Role.OPERATOR),
        ("PUT", "/v1/streams/a", Role.ADMIN),
        ("GET", "/v1/keys", Role.ADMIN),
        ("DELETE", "/v1/keys/a", Role.ADMIN),
        ("POST", "/v1/something/new", Role.ADMIN),
    ],
)
def test_each_path_needs_a_role(method: str, path: str, needed: Role | None) -> None:
    assert role_needed(method, path) is needed


def test_every_path_of_the_api_is_guarded_or_meant_for_everybody() -> None:
    description = application().openapi()
    free = {path for path in description["paths"] if role_needed("GET", path) is None}
    assert free == {"/healthz", "/readyz"}
    for path, operations in description["paths"].items():
        for operation in operations.values():
            assert ("security" in operation) is (path not in free)
            kept_out = {"401", "403", "429"} & set(operation["responses"])
            assert len(kept_out) == (0 if path in free else 3)


def test_without_a_key_nothing_but_health_and_pages_is_answered(guarded: World) -> None:
    assert guarded.http.get("/healthz").status_code == 200
    assert guarded.http.get("/readyz").status_code in {200, 503}
    assert guarded.http.get("/openapi.json").status_code == 200
    answer = guarded.http.get("/v1/tasks")
    assert "mars key create" in problem(answer, 401)["detail"]
    assert answer.headers["www-authenticate"].startswith("Bearer")
    for path in ("/metrics", "/v1/keys", "/v1/nothing"):
        problem(guarded.http.get(path), 401)


@pytest.mark.parametrize(
    "header", ["Bearer", "Bearer x", "Digest abc", "Basic ###", "", "Basic eA"]
)
def test_header_that_is_no_key_is_refused(guarded: World, header: str) -> None:
    problem(guarded.http.get("/v1/tasks", headers={"Authorization": header}), 401)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    header=st.binary(max_size=60).filter(lambda raw: not set(raw) & set(b"\r\n\x00")),
    scheme=st.sampled_from([b"", b"Bearer ", b"Basic ", b"bearer mars_", b"Basic bWFyc18="]),
)
def test_any_header_is_refused_and_breaks_nothing(
    guarded: World, scheme: bytes, header: bytes
) -> None:
    answer = guarded.http.get("/v1/tasks", headers={b"Authorization": scheme + header})
    problem(answer, 401)


def test_key_as_the_password_of_a_browser_opens_too(guarded: World) -> None:
    pair = base64.b64encode(f"me:{text_of(guarded, Role.READER)}".encode()).decode()
    answer = guarded.http.get("/v1/tasks", headers={"Authorization": f"Basic {pair}"})
    assert answer.status_code == 200


def test_reader_looks_operator_runs_tasks_and_admin_declares(guarded: World) -> None:
    reader, operator = bearer(guarded, Role.READER), bearer(guarded, Role.OPERATOR)
    admin = bearer(guarded, Role.ADMIN)
    detail = problem(post_task(guarded, reader), 403)["detail"]
    assert "reader" in detail
    assert "operator" in detail
    assert post_task(guarded, operator).status_code == 201
    assert guarded.http.get("/v1/tasks/by_sip", headers=reader).status_code == 200
    assert guarded.http.get("/metrics", headers=reader).status_code == 200
    problem(guarded.http.post("/v1/tasks/by_sip/pause", headers=reader), 403)
    assert guarded.http.post("/v1/tasks/by_sip/pause", headers=operator).status_code == 200
    problem(put_stream(guarded, operator, topic="other"), 403)
    problem(guarded.http.get("/v1/keys", headers=operator), 403)
    assert guarded.http.get("/v1/keys", headers=admin).status_code == 200


def test_reader_checks_queries_but_tries_none_over_rows_that_it_may_not_see(
    guarded: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "audit")
    reader, elsewhere = (
        bearer(guarded, Role.READER),
        bearer(guarded, Role.READER, reads=["clicks*"]),
    )
    body = {"sql": BY_SIP}
    checked = guarded.http.post("/v1/tasks/validate", json=body, headers=reader)
    assert checked.json()["plan"]["topic"] == "flows"
    assert audit(caplog) == []  # nothing was changed
    refused = guarded.http.post("/v1/tasks/validate", json=body, headers=elsewhere)
    assert "topic flows" in problem(refused, 403)["detail"]
    foreign = {**reader, "Sec-Fetch-Site": "cross-site"}
    problem(guarded.http.post("/v1/tasks/validate", json=body, headers=foreign), 403)
    tried = guarded.http.post("/v1/tasks/preview", json=body, headers=reader)
    assert "needs operator" in problem(tried, 403)["detail"]


def test_key_made_over_the_api_opens_until_it_is_removed(guarded: World) -> None:
    admin = bearer(guarded, Role.ADMIN)
    body = {"role": "reader", "reads": ["flows"], "writes": [], "note": "grafana"}
    made = guarded.http.post("/v1/keys", json=body, headers=admin)
    assert made.status_code == 201
    reader = {"Authorization": f"Bearer {made.json()['key']}"}
    assert guarded.http.get("/v1/tasks", headers=reader).status_code == 200
    listed = guarded.http.get("/v1/keys", headers=admin)
    assert made.json()["key"] not in listed.text
    shown = next(each for each in listed.json()["keys"] if each["note"] == "grafana")
    assert shown == {name: value for name, value in made.json().items() if name != "key"}
    removed = guarded.http.delete(f"/v1/keys/{shown['id']}", headers=admin)
    assert removed.status_code == 204
    assert "removed" in problem(guarded.http.get("/v1/tasks", headers=reader), 401)["detail"]
    problem(guarded.http.delete(f"/v1/keys/{shown['id']}", headers=admin), 404)
    problem(guarded.http.delete("/v1/keys/..%2Ftasks", headers=admin), 404)


@pytest.mark.parametrize("path", ["/v1/figures", "/v1/tasks/by_sip/figures"])
def test_a_key_that_is_removed_ends_its_event_streams(guarded: World, path: str) -> None:
    admin, reader = text_of(guarded, Role.ADMIN), text_of(guarded, Role.READER)
    opened = {"Authorization": f"Bearer {admin}"}
    assert post_task(guarded, opened).status_code == 201
    headers = {"Authorization": f"Bearer {reader}", "Accept": "text/event-stream"}
    figures, access = guarded.services.figures, guarded.services.access
    with ThreadPoolExecutor(1) as background:
        streamed = background.submit(guarded.http.get, path, headers=headers)
        try:
            wait_for("the stream to begin", lambda: figures._places.taken == 1)
            access.look()
            assert not streamed.done()
            key = reader.split("_")[1]
            assert guarded.http.delete(f"/v1/keys/{key}", headers=opened).status_code == 204
            access.look()  # as the process does every two seconds
            assert streamed.result(30).status_code == 200
        finally:
            guarded.stopping.set()
    assert figures._places.taken == 0


def test_results_are_followed_no_longer_than_their_key_stands(guarded: World) -> None:
    admin, reader = text_of(guarded, Role.ADMIN), text_of(guarded, Role.READER)
    assert post_task(guarded, {"Authorization": f"Bearer {admin}"}).status_code == 201
    headers = {"Authorization": f"Bearer {reader}", "Accept": "text/event-stream"}
    with ThreadPoolExecutor(1) as background:
        streamed = background.submit(guarded.http.get, "/v1/tasks/by_sip/results", headers=headers)
        try:
            wait_for("the stream to begin", lambda: guarded.kafka.followers != [])
            assert guarded.keys.delete(KeyId(reader.split("_")[1]))
            guarded.services.access.look()
            streamed.result(30)
        finally:
            guarded.stopping.set()
    assert [follower.closed for follower in guarded.kafka.followers] == [True]


def test_keys_are_looked_at_only_when_they_have_changed_and_breaks_nothing(
    guarded: World,
) -> None:
    access = guarded.services.access
    text_of(guarded, Role.READER)
    guarded.keys.fail_next("all")
    access.look()
    was_stale = access.ring.stale
    access.look()
    assert (was_stale, access.ring.stale) == (True, False)
    guarded.keys.fail_next("all")
    access.look()  # nothing has changed: nobody is asked


def test_keys_count_as_last_read_while_zookeeper_is_away(guarded: World) -> None:
    reader = bearer(guarded, Role.READER)
    assert guarded.http.get("/metrics", headers=reader).status_code == 200
    guarded.services.access.ring._changed()
    guarded.keys.fail_next("all")
    assert guarded.http.get("/metrics", headers=reader).status_code == 200
    assert guarded.services.access.ring.stale


def test_a_key_opens_though_nobody_has_heard_of_it_yet(
    guarded: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.services.access.LOOK_AGAIN_S", 0.0)
    first, ring = bearer(guarded, Role.READER), guarded.services.access.ring
    assert guarded.http.get("/v1/tasks", headers=first).status_code == 200
    second = bearer(guarded, Role.READER)
    ring._changes_read = ring._changes  # the watch of the second has not come
    assert guarded.http.get("/v1/tasks", headers=second).status_code == 200


def test_keys_are_not_read_for_each_guess(guarded: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.services.access.LOOK_AGAIN_S", 3_600.0)
    read = []
    every = guarded.keys.all

    def told() -> list[ApiKey]:
        read.append(1)
        return every()

    monkeypatch.setattr(guarded.keys, "all", told)
    headers = {"Authorization": "Bearer guessed"}
    for _ in range(10):
        problem(guarded.http.get("/v1/tasks", headers=headers), 401)
    assert len(read) <= 1


def test_keys_are_stale_until_they_are_read(
    guarded: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another request in that moment waits; it is not refused by what was known before."""
    ring, every = guarded.services.access.ring, guarded.keys.all
    during = []

    def told() -> list[ApiKey]:
        during.append(ring.stale)
        return every()

    monkeypatch.setattr(guarded.keys, "all", told)
    reader = bearer(guarded, Role.READER)
    assert guarded.http.get("/v1/tasks", headers=reader).status_code == 200
    assert during == [True]
    assert not ring.stale


def test_nobody_gets_in_before_the_keys_were_ever_read() -> None:
    world = World(ON)
    reader = bearer(world, Role.READER)
    world.keys.fail_next("all")
    answer = problem(world.http.get("/v1/tasks", headers=reader), 503)
    assert answer["service"] == "zookeeper"
    assert world.http.get("/v1/tasks", headers=reader).status_code == 200
    world.close()


def test_page_that_asks_its_user_itself_is_not_told_to_use_the_browsers_dialog(
    guarded: World,
) -> None:
    by_address = guarded.http.get("/v1/tasks").headers["www-authenticate"]
    assert "Basic" in by_address
    page = {"X-Requested-With": "XMLHttpRequest"}
    assert guarded.http.get("/v1/tasks", headers=page).headers["www-authenticate"] == (
        'Bearer realm="mars"'
    )


# -------------------------------------------------------------------------------- topics


def test_tasks_read_and_write_only_topics_of_their_key(guarded: World) -> None:
    elsewhere = bearer(guarded, Role.OPERATOR, reads=["clicks*"], writes=[])
    detail = problem(post_task(guarded, elsewhere), 403)["detail"]
    assert "topic flows" in detail
    assert "clicks*" in detail
    ours = bearer(guarded, Role.OPERATOR, reads=["fl*"], writes=["out.*"])
    assert post_task(guarded, ours).status_code == 201  # its own topic is always its own
    wrong = problem(post_task(guarded, ours, "b", options={"output_topic": "theirs"}), 403)
    assert "write to topic theirs" in wrong["detail"]
    right = post_task(guarded, ours, "c", options={"output_topic": "out.c"})
    assert right.status_code == 201
    changed = {"sql": BY_SIP, "options": {"output_topic": "theirs"}}
    problem(guarded.http.put("/v1/tasks/c", json=changed, headers=ours), 403)


@pytest.mark.parametrize("path", ["/v1/tasks/validate", "/v1/queries", "/v1/tasks"])
def test_a_near_name_is_suggested_to_keys_that_may_read_its_stream(
    guarded: World, path: str
) -> None:
    body = {"sql": BY_SIP.replace("flows", "flosw"), "name": "x"}
    if path == "/v1/queries":
        del body["name"]
    ours = bearer(guarded, Role.OPERATOR, reads=["fl*"])
    answer = problem(guarded.http.post(path, json=body, headers=ours), 422)
    assert "there is no stream 'flosw'; did you mean flows?" in answer["detail"]
    elsewhere = bearer(guarded, Role.OPERATOR, reads=["clicks*"])
    answer = problem(guarded.http.post(path, json=body, headers=elsewhere), 422)
    assert "there is no stream 'flosw'; declare it first" in answer["detail"]
    assert "flows" not in answer["detail"].partition(";")[2]


@pytest.mark.parametrize("path", ["/v1/tasks/validate", "/v1/queries"])
def test_queries_and_checks_read_only_topics_of_their_key(guarded: World, path: str) -> None:
    elsewhere = bearer(guarded, Role.OPERATOR, reads=["clicks*"])
    answer = guarded.http.post(path, json={"sql": BY_SIP}, headers=elsewhere)
    assert "topic flows" in problem(answer, 403)["detail"]


@pytest.mark.parametrize(
    "location",
    ["/etc", "/data/../etc", "/database", "//etc", "file:///etc", "FILE://localhost/etc", "/*/a"],
)
@pytest.mark.parametrize("pattern", ["/data/*", "file:///data/*", "/x/../data/./*"])
def test_files_are_read_only_where_the_key_allows(
    guarded: World, location: str, pattern: str
) -> None:
    ours = bearer(guarded, Role.OPERATOR, reads=["flows", "f*", "*", pattern])
    guarded.files.sizes |= {"/data/a": 10, "/etc": 10, "/etc/a": 10}
    refused = post_task(guarded, ours, history={"files": location, "format": "csv"})
    assert "files at" in problem(refused, 403)["detail"]
    for number, spelt in enumerate(["/data/a", "/data//x/../a", "file:///data/a"]):
        history = {"files": spelt, "format": "csv"}
        assert post_task(guarded, ours, f"t{number}", history=history).status_code == 201


@pytest.mark.parametrize("pattern", ["*", "f*", "s3*", "*/a", "*:///data/a", ".*", "/dat"])
def test_patterns_of_topics_open_no_files(guarded: World, pattern: str) -> None:
    ours = bearer(guarded, Role.OPERATOR, reads=["flows", pattern])
    guarded.files.sizes["/data/a"] = 10
    for location in ("/data/a", "file:///data/a", "s3://data/a"):
        refused = post_task(guarded, ours, history={"files": location, "format": "csv"})
        assert "files at" in problem(refused, 403)["detail"]


def test_who_may_make_any_key_may_read_any_file_below_the_roots(guarded: World) -> None:
    guarded.files.sizes["/data/a"] = 10
    history = {"files": "/data/a", "format": "csv"}
    assert post_task(guarded, bearer(guarded, Role.ADMIN), history=history).status_code == 201


def test_files_are_told_by_where_links_lead(guarded: World) -> None:
    ours = bearer(guarded, Role.OPERATOR, reads=["flows", "/data/a/*"])
    guarded.files.sizes["/data/a/link"] = 10
    guarded.files.links["/data/a/link"] = "/data/b"
    refused = post_task(guarded, ours, history={"files": "/data/a/link", "format": "csv"})
    assert "files at '/data/b/one'" in problem(refused, 403)["detail"]


@pytest.mark.parametrize(
    "location",
    [
        "file:///data/%2e%2e/etc/x",
        "file:///data/..%2Fetc",
        "file:/data/%2e%2e/etc/://x",
        "s3://bucket/x?endpoint_override=evil.example",
        "s3://bucket/x#there",
        "s3://name:planted@bucket/x",
        "s3://name:plan/ted@bucket/x",
    ],
)
@pytest.mark.parametrize("reads", [["*"], ["flows", "file:*", "s3://bucket/*", "s3://name*"]])
def test_locations_say_only_where_files_lie(
    guarded: World, location: str, reads: list[str]
) -> None:
    ours = bearer(guarded, Role.OPERATOR, reads=reads)
    guarded.files.sizes[location] = 10
    history = {"files": location, "format": "csv"}
    asked = {"sql": BY_SIP, "files": history}
    for refused in (
        post_task(guarded, ours, history=history),
        guarded.http.post("/v1/queries", json=asked, headers=ours),
    ):
        detail = problem(refused, 422)["detail"]
        assert "location of files" in detail
        assert location[5:] not in detail
        assert "plan" not in detail.replace("plainly", "")


@pytest.mark.parametrize("location", ["/data/a%2e?[b]#@c", "s3://bucket/x/*.csv", "hdfs://n:9/a"])
def test_plain_locations_are_taken_as_they_are(guarded: World, location: str) -> None:
    ours = bearer(guarded, Role.OPERATOR, reads=["flows", "/*", "s3://*", "hdfs://n:9/*"])
    guarded.files.sizes[location] = 10
    answer = post_task(guarded, ours, history={"files": location, "format": "csv"})
    assert answer.status_code == 201, answer.text


# ------------------------------------------------------------------------------------ rows


def test_rows_of_a_topic_are_shown_only_to_who_may_read_it(guarded: World) -> None:
    assert post_task(guarded, bearer(guarded, Role.OPERATOR)).status_code == 201
    guarded.kafka.letters = [
        DeadLetter(
            TaskName("by_sip"),
            Topic("flows"),
            *(0, 7, 8, "wrong_type", 1),
            version=1,
            detail="`bytes` is not a valid int64",
            payload=b'{"bytes": "secret"}',
        )
    ]
    seen: dict[str, set[str | None]] = {}
    for name, headers in {
        "reader": bearer(guarded, Role.READER),
        "elsewhere": bearer(guarded, Role.OPERATOR, reads=["clicks*"]),
        "operator": bearer(guarded, Role.OPERATOR, reads=["fl*"]),
        "admin": bearer(guarded, Role.ADMIN),
    }.items():
        for order in ("oldest", "newest"):
            answer = guarded.http.get(
                "/v1/tasks/by_sip/dead", params={"order": order}, headers=headers
            )
            (row,) = answer.json()["rows"]
            assert (row["offset"], row["detail"]) == (7, "`bytes` is not a valid int64")
            seen.setdefault(name, set()).add(row["sample"])
    bytes_of_it = {'{"bytes": "secret"}'}
    assert seen == {
        "reader": {None},
        "elsewhere": {None},
        "operator": bytes_of_it,
        "admin": bytes_of_it,
    }


def test_rows_of_files_are_shown_only_to_who_may_read_those_files(guarded: World) -> None:
    guarded.files.sizes["/data/a"] = 10
    history = {"files": "/data/a", "format": "csv"}
    assert post_task(guarded, bearer(guarded, Role.ADMIN), history=history).status_code == 201
    of_files = DeadLetter(
        TaskName("by_sip"),
        Topic("flows"),
        *(None, 7, 8, "wrong_type", 1),
        version=1,
        lane=file_lane("b2"),
        detail="`bytes` is not a valid int64",
        payload=b"root:x:0",
    )
    nowhere = replace(of_files, lane=file_lane("b9"))
    guarded.kafka.letters = [of_files, nowhere, replace(of_files, first=10, next=11)]

    def seen(role: Role, *reads: str) -> list[str | None]:
        headers = bearer(guarded, role, reads=list(reads) or ["*"])
        answer = guarded.http.get("/v1/tasks/by_sip/dead", headers=headers)
        return [row["sample"] for row in answer.json()["rows"]]

    nothing = [None, None, None]
    shown = ["root:x:0", None, None]
    assert seen(Role.OPERATOR, "*") == seen(Role.OPERATOR, "flows*") == nothing
    assert seen(Role.OPERATOR, "flows", "/data/b*") == seen(Role.READER) == nothing
    assert seen(Role.OPERATOR, "/data/*") == seen(Role.ADMIN) == shown


@pytest.mark.parametrize(
    ("method", "tail"), [("POST", "/pause"), ("POST", "/resume"), ("DELETE", "")]
)
def test_tasks_over_topics_of_others_are_left_alone(guarded: World, method: str, tail: str) -> None:
    assert post_task(guarded, bearer(guarded, Role.OPERATOR)).status_code == 201
    elsewhere = bearer(guarded, Role.OPERATOR, reads=["clicks*"])
    answer = guarded.http.request(method, f"/v1/tasks/by_sip{tail}", headers=elsewhere)
    assert "topic flows" in problem(answer, 403)["detail"]


@pytest.mark.parametrize(
    ("method", "tail"), [("POST", "/pause"), ("POST", "/resume"), ("DELETE", ""), ("PUT", "")]
)
def test_tasks_whose_results_go_elsewhere_are_left_alone(
    guarded: World, method: str, tail: str
) -> None:
    elsewhere = {"output_topic": "secret.y"}
    answer = post_task(guarded, bearer(guarded, Role.ADMIN), options=elsewhere)
    assert answer.status_code == 201
    operator = bearer(guarded, Role.OPERATOR, reads=["flows"], writes=["team.*"])
    body = {"sql": BY_SIP} if method == "PUT" else None
    answer = guarded.http.request(method, f"/v1/tasks/by_sip{tail}", headers=operator, json=body)
    assert "topic secret.y" in problem(answer, 403)["detail"]


def test_what_is_done_for_a_caller_is_not_done_without_one() -> None:
    with pytest.raises(Forbidden):
        caller()
    with acting(replace(caller_of_all(), reads=())), pytest.raises(Forbidden, match="nothing"):
        caller().check_read("flows")


def caller_of_all() -> Any:
    from api.callers import ANYBODY

    return ANYBODY


# -------------------------------------------------------------------------------- limits


def test_bucket_of_tokens_lets_a_burst_through_and_then_the_rate() -> None:
    now = [0.0]
    buckets = TokenBuckets(2, lambda: now[0])
    assert [buckets.take("a") for _ in range(4)] == [0, 0, 0, 0]
    assert buckets.take("a") == pytest.approx(0.5)
    assert buckets.take("b") == 0
    now[0] = 0.5
    assert buckets.take("a") == 0
    assert buckets.take("a") == pytest.approx(0.5)
    now[0] = 1_000.0
    assert [buckets.take("a") for _ in range(4)] == [0, 0, 0, 0]
    assert buckets.take("a") > 0


def test_who_asks_too_often_is_told_when_to_ask_again() -> None:
    world = World(AccessPolicy(on=True, requests_per_second=1))
    reader, other = bearer(world, Role.READER), bearer(world, Role.READER)
    for headers, refusal in ((reader, 200), ({}, 401)):
        answers = [world.http.get("/v1/tasks", headers=headers) for _ in range(3)]
        assert [each.status_code for each in answers] == [refusal, refusal, 429]
        assert answers[2].headers["retry-after"] == "1"
        assert "requests_per_second" in problem(answers[2], 429)["detail"]
    assert world.http.get("/v1/tasks", headers=other).status_code == 200
    assert world.http.get("/healthz").status_code == 200
    world.close()


def test_there_are_at_most_so_many_tasks() -> None:
    world = World(cluster=replace(CLUSTER, tasks_max=1))
    assert world.declare().status_code == 201
    assert world.register("a").status_code == 201
    assert "api.tasks_max" in problem(world.register("b"), 409)["detail"]
    assert world.http.delete("/v1/tasks/a").status_code == 204
    assert world.register("b").status_code == 201
    world.close()


# --------------------------------------------------------------------------------- pages


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Sec-Fetch-Site": "same-origin", "Origin": "http://mars"}, 200),
        ({"Sec-Fetch-Site": "none"}, 200),
        ({"Origin": "http://mars"}, 200),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
    ],
)
def test_pages_of_others_change_nothing(world: World, headers: dict[str, str], status: int) -> None:
    world.register()
    answer = world.http.post("/v1/tasks/by_sip/pause", headers=headers)
    assert answer.status_code == status
    assert world.http.get("/v1/tasks", headers=headers).status_code == 200


HERE = ApiSettings(hosts=("mars.example.org",))
FOR_ALL = ApiSettings(host="0.0.0.0", access="off", hosts=("api",))


@pytest.mark.parametrize(
    ("settings_", "host", "status"),
    [
        (HERE, "localhost:8080", 200),
        (HERE, "127.0.0.1", 200),
        (HERE, "[::1]:80", 200),
        (HERE, "MARS.example.org.:80", 200),
        (HERE, "evil.example", 403),
        (HERE, "192.0.2.7", 403),
        (replace(HERE, access="off"), "evil.example", 403),
        (replace(HERE, access="off"), "192.0.2.7", 403),
        (FOR_ALL, "localhost:8080", 200),
        (FOR_ALL, "api:8080", 200),
        (FOR_ALL, "192.0.2.7:8080", 200),
        (FOR_ALL, "[2001:db8::1]:8080", 200),
        (FOR_ALL, "evil.example", 403),
        (FOR_ALL, "192.0.2.7.evil.example", 403),
        (FOR_ALL, "", 403),
        (replace(FOR_ALL, access="on"), "evil.example", 401),
    ],
)
def test_where_nobody_needs_a_key_it_is_called_by_known_names_only(
    settings_: ApiSettings, host: str, status: int
) -> None:
    made = World(policy_of(settings_))
    answer = made.http.get("/v1/tasks", headers={"Host": host})
    assert answer.status_code == status
    if status == 403:
        assert "api.hosts" in problem(answer, 403)["detail"]
        put = made.http.put("/v1/streams/s", json=FLOWS, headers={"Host": host})
        assert put.status_code == 403
    made.close()


def test_no_key_is_made_where_nobody_is_asked_for_one(world: World) -> None:
    answer = world.http.post("/v1/keys", json={"role": "admin"})
    assert "mars key create --role admin --config" in problem(answer, 403)["detail"]
    assert not world.keys.all()


def test_keys_are_asked_for_unless_only_this_machine_is_listened_to() -> None:
    assert not policy_of(ApiSettings()).on
    assert policy_of(ApiSettings(access="on")).on
    assert policy_of(ApiSettings(host="0.0.0.0")).on
    assert policy_of(ApiSettings(host="mars.example.org")).on
    assert not policy_of(ApiSettings(host="::1")).on
    assert not policy_of(ApiSettings(host="0.0.0.0", access="off")).on


def test_what_is_open_to_others_is_said() -> None:
    assert warnings_of(ApiSettings(access="on")) == []
    (clear,) = warnings_of(ApiSettings(host="0.0.0.0"))
    assert "clear text" in clear
    (everything,) = warnings_of(ApiSettings(host="0.0.0.0", access="off"))
    assert "may do everything" in everything
    assert warnings_of(ApiSettings(host="0.0.0.0", tls_certificate_location="a")) == []


# --------------------------------------------------------------------------------- audit


def audit(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [vars(record)["mars_fields"] for record in caplog.records if record.name == "audit"]


def test_a_bug_is_counted_and_what_it_broke_off_is_in_the_audit_log(
    guarded: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "audit")

    def broken(_name: str) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(guarded.services.tasks, "pause", broken)
    monkeypatch.setattr(guarded.services.tasks, "show", broken)
    headers = bearer(guarded, Role.OPERATOR)
    with pytest.raises(ZeroDivisionError):  # where it is made an answer, outside of the gate
        guarded.http.post("/v1/tasks/by_sip/pause", headers=headers)
    with pytest.raises(ZeroDivisionError):
        guarded.http.get("/v1/tasks/by_sip", headers=headers)
    (line,) = audit(caplog)
    assert (line["method"], line["path"], line["status"]) == (
        "POST",
        "/v1/tasks/by_sip/pause",
        500,
    )
    assert {
        'mars_api_requests_total{method="POST",status="500"} 1.0',
        'mars_api_requests_total{method="GET",status="500"} 1.0',
    } <= set(guarded.http.get("/metrics", headers=headers).text.splitlines())


def test_an_answer_that_breaks_off_is_counted_once(world: World) -> None:
    async def broken(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise ZeroDivisionError

    async def received() -> dict[str, Any]:
        return {}

    async def sent(_message: Any) -> None:
        return

    scope: dict[str, Any] = {
        "type": "http",
        "method": "GET",
        "path": "/healthz",
        "headers": [],
        "client": None,
    }
    with pytest.raises(ZeroDivisionError):
        asyncio.run(Gate(broken, world.services)(scope, received, sent))
    counted = [
        line for line in world.http.get("/metrics").text.splitlines() if 'method="GET"' in line
    ]
    assert 'mars_api_requests_total{method="GET",status="200"} 1.0' in counted
    assert not any('status="500"' in line for line in counted)


def test_audit_log_names_who_did_what_and_never_a_key(
    guarded: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "audit")
    operator = text_of(guarded, Role.OPERATOR)
    headers = {"Authorization": f"Bearer {operator}"}
    post_task(guarded, headers)
    guarded.http.get("/v1/tasks", headers=headers)
    guarded.http.get("/v1/tasks", headers={"Authorization": f"Bearer {operator}0"})
    guarded.http.delete("/v1/streams/a%0Ab?secret=1", headers=headers)
    made, wrong, refused = audit(caplog)
    identity = operator.split("_")[1]
    assert (made["key"], made["role"]) == (identity, "operator")
    assert (made["method"], made["path"], made["status"]) == ("POST", "/v1/tasks", 201)
    assert (wrong["key"], wrong["status"]) == ("none", 401)
    assert (refused["key"], refused["status"]) == (identity, 403)
    assert refused["path"] == "/v1/streams/a%0Ab"
    assert operator.rpartition("_")[2] not in caplog.text


@pytest.mark.parametrize("spelt", ["{}", "%6dars_{}", "{}/x", "{}%2F..", "a%20{}"])
def test_the_secret_of_a_key_in_a_path_is_never_written_down(
    guarded: World, caplog: pytest.LogCaptureFixture, spelt: str
) -> None:
    caplog.set_level(logging.DEBUG)
    key = text_of(guarded, Role.OPERATOR)
    _mars, identity, secret = key.split("_")
    text = spelt.format(key.removeprefix("mars_") if "%6d" in spelt else key)
    answer = guarded.http.delete(f"/v1/keys/{text}", headers=bearer(guarded, Role.ADMIN))
    assert answer.status_code == 404
    (line,) = audit(caplog)
    assert identity in line["path"]
    ours = [one.getMessage() for one in caplog.records if not one.name.startswith("http")]
    assert secret not in "".join([line["path"], *ours, answer.text])


def test_a_key_that_is_to_go_is_named_by_its_id(guarded: World) -> None:
    key = text_of(guarded, Role.OPERATOR)
    admin = bearer(guarded, Role.ADMIN)
    detail = problem(guarded.http.delete(f"/v1/keys/{key}", headers=admin), 404)["detail"]
    assert f"its id alone, without its secret: '{key.split('_')[1]}'" in detail
    assert guarded.http.delete(f"/v1/keys/{key.split('_')[1]}", headers=admin).status_code == 204
