"""The services of docker-compose.yml, brought up for real, do the main job while containers die.

Needs an engine and the public images (or stand-ins under their names); says so where it has none.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from tests.acceptance.compose_flows import (
    TOPIC,
    WINDOW_MS,
    WINDOWS,
    expected,
    flows,
    last_flows,
    make_topic,
    produce,
    results,
)
from tests.acceptance.compose_stack import Stack, docker, engine_problem, images_problem
from tests.acceptance.compose_tool import ComposeMissing, compose_command

# Images are pulled and built, and ten containers share this machine with the test.
pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(1_800)]

ROWS = 20_000
"""Of one round."""

RESULTS_WITHIN_S = 120.0
"""A killed mapper's partitions and a killed reducer's buckets move after a session's time-out."""

HISTORY_WITHIN_S = 300.0
"""Spark starts twice on the way, which takes half a minute on a busy machine."""

HISTORY_ROWS = 60_000
CHUNK_ROWS = 10_000
SMALL = f"""
services:
  api:
    environment: {{MARS_BULK_HISTORY_ROWS_MIN: "{CHUNK_ROWS}"}}
  bulk:
    environment: {{MARS_BULK_CHUNK_ROWS: "{CHUNK_ROWS}"}}
"""
"""Laid over the file: a history that a test can produce is one for Spark, in several chunks."""

LOOK_S = 0.5
ANSWER_S = 10.0

SQL = "SELECT sip, count(*), sum(bytes) FROM {topic} GROUP BY sip WINDOWING 10 s"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    # No machine of ours has an engine by itself, so its absence is no failure, not even in CI.
    problem = engine_problem()
    if problem is not None:
        pytest.skip(problem)
    small = tmp_path_factory.mktemp("compose") / "small.yml"
    small.write_text(SMALL)
    try:
        stack = Stack(compose_command(), f"mars-test-{os.getpid()}", [small])
    except ComposeMissing as error:
        pytest.skip(str(error))
    problem = images_problem(stack)
    if problem is not None:
        pytest.skip(problem)
    try:
        stack.up("--build")
        yield stack
    finally:
        stack.down()


def test_results_are_exact_while_containers_are_killed_and_the_store_is_lost(stack: Stack) -> None:
    start_ms = (int(time.time()) - 7_200) * 1_000 // WINDOW_MS * WINDOW_MS
    rounds = [flows(seed, start_ms + seed * WINDOWS * WINDOW_MS, ROWS) for seed in range(3)]
    everything = [row for rows in rounds for row in rows]
    make_topic(stack.bootstrap)
    register(stack, "by_sip", TOPIC)

    produce(stack.bootstrap, rounds[0])
    wait_for(
        stack,
        "by_sip",
        lambda: ledger(stack, "by_sip")["counted"] == ROWS,
        "the first rows to be counted",
    )
    killed = [kill_one(stack, "mapper"), kill_one(stack, "reducer")]
    produce(stack.bootstrap, rounds[1])
    wait_for(
        stack,
        "by_sip",
        lambda: ledger(stack, "by_sip")["counted"] == 2 * ROWS,
        "the survivors to take over",
    )
    docker("start", *killed)
    stack.run("restart", "valkey")  # and with it goes everything that was not yet emitted
    produce(stack.bootstrap, [*rounds[2], *last_flows(start_ms + 3_600_000)])
    wait_for(
        stack,
        "by_sip",
        lambda: ledger(stack, "by_sip")["emitted"] == 3 * ROWS,
        "all windows to be emitted",
    )

    found = results(stack.bootstrap, "mars.results.by_sip")
    assert len(found) == len(dict(found)), "a group of a window came twice"
    assert dict(found) == expected(everything)
    assert ledger(stack, "by_sip")["late"] == 0


def test_a_history_comes_out_exact_while_the_bulk_container_is_killed(stack: Stack) -> None:
    start_ms = (int(time.time()) - 7_200) * 1_000 // WINDOW_MS * WINDOW_MS
    history = flows(11, start_ms, HISTORY_ROWS)
    live = flows(12, start_ms + WINDOWS * WINDOW_MS, ROWS)
    make_topic(stack.bootstrap, "old_flows")
    produce(stack.bootstrap, history, "old_flows")
    assert register(stack, "of_old", "old_flows")["state"] == "backfilling"
    produce(stack.bootstrap, [*live, *last_flows(start_ms + 3_600_000)], "old_flows")

    wait_for(stack, "of_old", lambda: mapped(stack) > 0, "the first chunk", HISTORY_WITHIN_S)
    docker("start", kill_one(stack, "bulk"))
    rows = HISTORY_ROWS + ROWS
    wait_for(
        stack,
        "of_old",
        lambda: ledger(stack, "of_old")["emitted"] == rows,
        "all windows to be emitted",
        HISTORY_WITHIN_S,
    )

    found = results(stack.bootstrap, "mars.results.of_old")
    assert len(found) == len(dict(found)), "a group of a window came twice"
    assert dict(found) == expected([*history, *live])
    assert ledger(stack, "of_old")["late"] == 0
    assert mapped(stack) == HISTORY_ROWS
    assert task(stack, "of_old")["state"] == "running"


def test_all_processes_are_members_and_well_again(stack: Stack) -> None:
    stack.up("--no-recreate")  # returns when every container is healthy
    for service, count in {"mapper": 2, "reducer": 2, "bulk": 1, "api": 1}.items():
        assert len(stack.containers(service)) == count
    members = httpx.get(f"{stack.api}/v1/cluster", timeout=ANSWER_S).json()["members"]
    roles = sorted(member["role"] for member in members)
    assert roles == ["api", "bulk", "mapper", "mapper", "reducer", "reducer"]


def test_our_processes_are_not_root_and_cannot_write_their_image(stack: Stack) -> None:
    for service in ("mapper", "reducer", "bulk", "api"):
        script = "id -u; touch /opt/mars/x 2>/dev/null && echo written; true"
        assert stack.run("exec", "-T", service, "sh", "-c", script).split() == ["10001"]


def register(stack: Stack, name: str, topic: str) -> dict[str, Any]:
    """Stream and task; the task as the API answers."""
    stream = {
        "topic": topic,
        "format": "json",
        "fields": {"timestamp": "timestamp_ms", "sip": "string", "bytes": "int64"},
        "event_time": "timestamp",
    }
    # No lane may be taken for idle while the one who reads it is dead or being started.
    options = {"idle_after": "10min"}
    task = {"name": name, "sql": SQL.format(topic=topic), "start": "earliest", "options": options}
    with httpx.Client(base_url=stack.api, timeout=ANSWER_S) as client:
        put = client.put(f"/v1/streams/{topic}", json=stream)
        assert put.is_success, put.text
        post = client.post("/v1/tasks", json=task)
        assert post.status_code == 201, post.text
        answer: dict[str, Any] = post.json()
        return answer


def task(stack: Stack, name: str) -> dict[str, Any]:
    """What the API says of a task."""
    answer: dict[str, Any] = httpx.get(f"{stack.api}/v1/tasks/{name}", timeout=ANSWER_S).json()
    return answer


def mapped(stack: Stack) -> int:
    """The rows of the history that are in the log."""
    return int((task(stack, "of_old")["backfill"] or {}).get("rows_done", 0))


def ledger(stack: Stack, name: str) -> dict[str, int]:
    """Where the rows went."""
    answer = httpx.get(f"{stack.api}/v1/tasks/{name}/ledger", timeout=ANSWER_S)
    assert answer.status_code in {200, 503}, answer.text
    found: dict[str, int] = answer.json() if answer.status_code == 200 else {}
    return {"counted": 0, "emitted": 0, "late": 0, **found}


def kill_one(stack: Stack, service: str) -> str:
    """Kill -9 a container of a service; returns its id. It stays down until it is started."""
    container = stack.containers(service)[0]
    docker("kill", "--signal", "KILL", container)
    return container


def wait_for(
    stack: Stack,
    name: str,
    condition: Callable[[], bool],
    what: str,
    within_s: float = RESULTS_WITHIN_S,
) -> None:
    """Wait until it holds; the failure shows what the containers said last."""
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            seen = httpx.get(f"{stack.api}/v1/tasks/{name}/why", timeout=ANSWER_S).text
            said = stack.logs("mapper", "reducer", "bulk", "api")
            pytest.fail(f"waited in vain for {what}; ledger {ledger(stack, name)}; {seen}\n{said}")
        time.sleep(LOOK_S)
