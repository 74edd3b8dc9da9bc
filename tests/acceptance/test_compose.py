"""The services of docker-compose.yml, brought up for real, do the main job while containers die.

Needs an engine and the public images (or stand-ins under their names); says so where it has none.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

import httpx
import pytest

from tests.acceptance.compose_flows import (
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

# Images are pulled and built, and nine containers share this machine with the test.
pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(1_800)]

ROWS = 20_000
"""Of one round."""

RESULTS_WITHIN_S = 120.0
"""A killed mapper's partitions and a killed reducer's buckets move after a session's time-out."""

LOOK_S = 0.5
ANSWER_S = 10.0

SQL = "SELECT sip, count(*), sum(bytes) FROM flows GROUP BY sip WINDOWING 10 s"


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    # No machine of ours has an engine by itself, so its absence is no failure, not even in CI.
    problem = engine_problem()
    if problem is not None:
        pytest.skip(problem)
    try:
        stack = Stack(compose_command(), f"mars-test-{os.getpid()}")
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
    register(stack)

    produce(stack.bootstrap, rounds[0])
    wait_for(stack, lambda: ledger(stack)["counted"] == ROWS, "the first rows to be counted")
    killed = [kill_one(stack, "mapper"), kill_one(stack, "reducer")]
    produce(stack.bootstrap, rounds[1])
    wait_for(stack, lambda: ledger(stack)["counted"] == 2 * ROWS, "the survivors to take over")
    docker("start", *killed)
    stack.run("restart", "valkey")  # and with it goes everything that was not yet emitted
    produce(stack.bootstrap, [*rounds[2], *last_flows(start_ms + 3_600_000)])
    wait_for(stack, lambda: ledger(stack)["emitted"] == 3 * ROWS, "all windows to be emitted")

    found = results(stack.bootstrap, "mars.results.by_sip")
    assert len(found) == len(dict(found)), "a group of a window came twice"
    assert dict(found) == expected(everything)
    assert ledger(stack)["late"] == 0


def test_all_processes_are_members_and_well_again(stack: Stack) -> None:
    stack.up("--no-recreate")  # returns when every container is healthy
    for service, count in {"mapper": 2, "reducer": 2, "api": 1}.items():
        assert len(stack.containers(service)) == count
    members = httpx.get(f"{stack.api}/v1/cluster", timeout=ANSWER_S).json()["members"]
    roles = sorted(member["role"] for member in members)
    assert roles == ["api", "mapper", "mapper", "reducer", "reducer"]


def test_our_processes_are_not_root_and_cannot_write_their_image(stack: Stack) -> None:
    for service in ("mapper", "reducer", "api"):
        script = "id -u; touch /opt/mars/x 2>/dev/null && echo written; true"
        assert stack.run("exec", "-T", service, "sh", "-c", script).split() == ["10001"]


def register(stack: Stack) -> None:
    """Topic, stream and task."""
    make_topic(stack.bootstrap)
    stream = {
        "topic": "flows",
        "format": "json",
        "fields": {"timestamp": "timestamp_ms", "sip": "string", "bytes": "int64"},
        "event_time": "timestamp",
    }
    # No lane may be taken for idle while the one who reads it is dead or being started.
    task = {"name": "by_sip", "sql": SQL, "start": "earliest", "options": {"idle_after": "10min"}}
    with httpx.Client(base_url=stack.api, timeout=ANSWER_S) as client:
        put = client.put("/v1/streams/flows", json=stream)
        assert put.is_success, put.text
        post = client.post("/v1/tasks", json=task)
        assert post.status_code == 201, post.text


def ledger(stack: Stack) -> dict[str, int]:
    """Where the rows went."""
    answer = httpx.get(f"{stack.api}/v1/tasks/by_sip/ledger", timeout=ANSWER_S)
    assert answer.status_code in {200, 503}, answer.text
    found: dict[str, int] = answer.json() if answer.status_code == 200 else {}
    return {"counted": 0, "emitted": 0, "late": 0, **found}


def kill_one(stack: Stack, service: str) -> str:
    """Kill -9 a container of a service; returns its id. It stays down until it is started."""
    container = stack.containers(service)[0]
    docker("kill", "--signal", "KILL", container)
    return container


def wait_for(stack: Stack, condition: Callable[[], bool], what: str) -> None:
    """Wait until it holds; the failure shows what the containers said last."""
    deadline = time.monotonic() + RESULTS_WITHIN_S
    while not condition():
        if time.monotonic() > deadline:
            seen = httpx.get(f"{stack.api}/v1/tasks/by_sip/why", timeout=ANSWER_S).text
            said = stack.logs("mapper", "reducer", "api")
            pytest.fail(f"waited in vain for {what}; ledger {ledger(stack)}; {seen}\n{said}")
        time.sleep(LOOK_S)
