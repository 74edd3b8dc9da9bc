"""The life of tasks on the running service: nothing is lost or doubled by any of it.

Rows come in bursts: their times span less than the task's delay and lie just before now, so that
none is late while all lanes are read or idle.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
import redis

from mars.core.errors import Conflict, NotFound, Rejected, SqlError, VersionMismatch
from tests.support.cluster import MarsCluster, wait_for
from tests.support.rows import FIELDS, Result, assert_exactly_once, expected, flow_rows, messages

pytestmark = pytest.mark.acceptance

PARTITIONS = 2
WINDOW_MS = 1_000
BURST_SPAN_MS = 400
OPTIONS = {"delay": "1s", "idle_after": "1s"}
SUMS = (
    "SELECT sip, type, timestamp, count(*), sum(bytes) AS bytes, sum(id) AS ids, "
    "sum(hash) AS hashes FROM {stream} GROUP BY sip, type, timestamp WINDOWING 1 s"
)

Row = dict[str, Any]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(slots=True)
class Flow:
    """A topic and its stream, and all rows that went into it."""

    mars: MarsCluster
    name: str
    partitions: int = PARTITIONS
    rows: list[Row] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.mars.declare(self.name, stream=self.name, partitions=self.partitions)

    @property
    def query(self) -> str:
        return SUMS.format(stream=self.name)

    def register(self, task: str | None = None, *, start: str | int = "latest") -> None:
        """A task of the flow's own name, unless told otherwise."""
        self.mars.client.create_task(task or self.name, self.query, start=start, options=OPTIONS)

    def burst(self, count: int = 200, *, lanes: int | None = None, ahead_ms: int = 0) -> list[Row]:
        """Send rows of the last moments, or `ahead_ms` later, to the first `lanes` partitions."""
        made = flow_rows(
            len(self.rows),
            count,
            now_ms() + ahead_ms,
            rows_per_s=1_000_000,
            disorder_ms=BURST_SPAN_MS,
        )
        self.rows += made
        self.mars.produce(self.name, messages(made, lanes or self.partitions))
        return made

    def results(self, wanted: int, task: str | None = None, version: int = 1) -> list[Result]:
        """The results of one version, once there are so many."""
        topic = f"mars.results.{task or self.name}"
        found: list[Result] = []

        def enough() -> bool:
            found[:] = of_version(self.mars.read(topic), version)
            return len(found) >= wanted

        wait_for(f"{wanted} results of {self.name}", enough, pause_s=0.3)
        return found

    def assert_exact(self, rows: Sequence[Row] | None = None, *, version: int = 1) -> None:
        """The results of the flow's own task are those of these rows (all of them)."""
        wanted = expected(self.rows if rows is None else rows, WINDOW_MS)
        assert_exactly_once(self.results(len(wanted), version=version), wanted)

    def wait_taken(self, task: str | None = None) -> None:
        """Until the mappers have taken everything."""

        def taken() -> bool:
            lag = self.mars.client.task(task or self.name).lag
            return lag is not None and lag.rows == 0

        wait_for(f"{self.name} without lag", taken, pause_s=0.05)


def of_version(results: Sequence[Result], version: int) -> list[Result]:
    return [result for result in results if result[2]["mars-version"] == str(version)]


def store(mars: MarsCluster) -> redis.Redis:
    return redis.Redis.from_url(mars.file["redis"], decode_responses=True)


# ---------------------------------------------------------------------------- pause and resume


def test_what_comes_during_a_pause_is_counted_after_it(shared_mars: MarsCluster) -> None:
    flow = Flow(shared_mars, "life_pause")
    flow.register()
    flow.register("life_pause_witness")
    flow.burst()
    flow.wait_taken()

    assert shared_mars.client.pause_task(flow.name).state == "paused"
    with store(shared_mars) as keys:
        wait_for("the pause", lambda: keys.hget(f"mars:{{{flow.name}}}:meta", "active") == "0")
    before = len(flow.rows)
    flow.burst()
    # Another task of the same stream closes these windows in the meantime.
    flow.results(len(expected(flow.rows, WINDOW_MS)), "life_pause_witness")
    flow.burst()
    lag = shared_mars.client.task(flow.name).lag
    assert lag is not None
    assert lag.rows == len(flow.rows) - before
    assert shared_mars.client.why(flow.name).windows[0].held_by.reason == "paused"

    assert shared_mars.client.resume_task(flow.name).state == "running"
    flow.burst()

    flow.assert_exact()
    assert shared_mars.client.ledger(flow.name).late == 0


# -------------------------------------------------------------------------------- new versions


def test_a_new_version_splits_the_rows_exactly(shared_mars: MarsCluster) -> None:
    flow = Flow(shared_mars, "life_version")
    flow.register()
    changed = flow.query.replace("count(*)", "count(*) AS count")

    def feed(bursts: int) -> None:
        for _ in range(bursts):
            flow.burst(100)
            time.sleep(0.25)  # the pace of the load, not a way to synchronise

    # Long enough that some window lies whole between the start and the change, by the delay.
    feed(20)
    answer = shared_mars.client.change_task(flow.name, changed, options=OPTIONS, expected_version=1)
    assert answer.version == 2
    feed(12)

    wait_for(
        "all rows emitted",
        lambda: shared_mars.client.ledger(flow.name).emitted == len(flow.rows),
        seconds=30,
    )
    results = shared_mars.read(f"mars.results.{flow.name}")
    old, new = of_version(results, 1), of_version(results, 2)
    assert len(old) + len(new) == len(results)
    assert old
    assert new
    _assert_together_exact(flow, old, new)
    _assert_incomplete_where_both_have_rows(flow, old, new)


def _assert_together_exact(flow: Flow, old: Sequence[Result], new: Sequence[Result]) -> None:
    """Each group of a window once per version; the two add up to what DuckDB computes."""
    wanted = expected(flow.rows, WINDOW_MS)
    totals: dict[tuple[Any, ...], Counter[str]] = {}
    for version in (old, new):
        groups = [_group(value) for _key, value, _headers in version]
        assert len(groups) == len(set(groups)), "a group was emitted twice by one version"
        for _key, value, _headers in version:
            total = totals.setdefault(_group(value), Counter())
            total.update({name: value[name] for name in ("count", "bytes", "ids", "hashes")})
    assert totals == {
        group: {name: line[name] for name in ("count", "bytes", "ids", "hashes")}
        for group, line in wanted.items()
    }


def _group(value: Row) -> tuple[Any, ...]:
    return value["window_start"], value["sip"], value["type"]


def _assert_incomplete_where_both_have_rows(
    flow: Flow, old: Sequence[Result], new: Sequence[Result]
) -> None:
    wanted = expected(flow.rows, WINDOW_MS)
    complete = [
        (version, value)
        for version, results in ((1, old), (2, new))
        for _key, value, headers in results
        if headers["mars-complete"] == "1"
    ]
    assert {version for version, _value in complete} == {1, 2}, "some of both are complete"
    for version, value in complete:
        line = wanted[_group(value)]
        assert all(value[name] == line[name] for name in line), f"version {version}: {value}"
    windows = [{value["window_start"] for _k, value, _h in results} for results in (old, new)]
    split = windows[0] & windows[1]
    assert not [value for _version, value in complete if value["window_start"] in split]


def test_a_change_that_is_none_or_wrong_or_outdated_changes_nothing(
    shared_mars: MarsCluster,
) -> None:
    flow = Flow(shared_mars, "life_refused")
    flow.register()
    client = shared_mars.client

    same = client.change_task(flow.name, flow.query, options=OPTIONS, expected_version=1)
    assert same.version == 1
    with pytest.raises(VersionMismatch):
        client.change_task(flow.name, flow.query + " ", options=OPTIONS, expected_version=7)
    with pytest.raises(SqlError, match="nothing"):
        client.change_task(flow.name, flow.query.replace("bytes)", "nothing)"), options=OPTIONS)

    assert client.task(flow.name).version == 1
    flow.burst()
    flow.assert_exact()


# ------------------------------------------------------------------------------------ deletion


def test_a_deleted_task_leaves_no_keys_and_its_name_goes_on_with_the_next_version(
    shared_mars: MarsCluster,
) -> None:
    flow = Flow(shared_mars, "life_deleted")
    flow.register()
    flow.burst()
    flow.assert_exact()
    first = len(flow.rows)

    shared_mars.client.delete_task(flow.name)

    pattern = f"mars:{{{flow.name}}}:*"
    with store(shared_mars) as keys:
        wait_for("no keys", lambda: not keys.keys(pattern))
        flow.burst()
        with pytest.raises(NotFound):
            shared_mars.client.task(flow.name)
        flow.register()
        assert shared_mars.client.task(flow.name).version == 2
        second = len(flow.rows)
        flow.burst()
        flow.assert_exact(flow.rows[second:], version=2)
        rows = len(flow.rows) - second
        ledger = shared_mars.ledger(flow.name, rows, emitted=rows)
        assert (ledger.read, ledger.emitted) == (rows, rows)
        shared_mars.client.delete_task(flow.name)
        wait_for("no keys again", lambda: not keys.keys(pattern))
    flow.assert_exact(flow.rows[:first], version=1)


# --------------------------------------------------------------------------------------- starts


def test_a_task_starts_where_it_is_told_to(shared_mars: MarsCluster) -> None:
    flow = Flow(shared_mars, "life_start")
    early = flow.burst()
    wait_for("the next window", lambda: now_ms() // WINDOW_MS > _newest(early) // WINDOW_MS + 1)
    between = now_ms()
    flow.burst()

    flow.register("life_earliest", start="earliest")
    flow.register("life_timestamp", start=between)
    flow.register("life_latest")
    late = flow.burst()

    tasks = {
        "life_earliest": flow.rows,
        "life_timestamp": flow.rows[len(early) :],
        "life_latest": late,
    }
    complete = {}
    for task, rows in tasks.items():
        wanted = expected(rows, WINDOW_MS)
        results = flow.results(len(wanted), task)
        assert_exactly_once(results, wanted)
        complete[task] = {
            value["window_start"]: headers["mars-complete"] for _key, value, headers in results
        }
    assert set(complete["life_earliest"].values()) == {"1"}
    assert all(
        (flag == "1") == (start >= between) for start, flag in complete["life_timestamp"].items()
    )


def _newest(rows: Sequence[Row]) -> int:
    return int(max(row["timestamp"] for row in rows))


# ------------------------------------------------------------------------------------- refusals


def test_what_is_taken_in_use_or_unknown_is_refused(shared_mars: MarsCluster) -> None:
    flow = Flow(shared_mars, "life_refusals")
    flow.register()
    client = shared_mars.client

    with pytest.raises(Conflict, match=flow.name):
        flow.register()
    with pytest.raises(Conflict, match=flow.name):
        client.delete_stream(flow.name)
    with pytest.raises(Conflict, match=flow.name):
        client.put_stream(
            flow.name,
            {
                "topic": flow.name,
                "format": "json",
                "fields": {**FIELDS, "bytes": "string"},
                "event_time": "timestamp",
            },
        )
    unknown: list[Callable[[str], object]] = [
        client.task,
        client.delete_task,
        client.pause_task,
        client.resume_task,
        client.why,
        client.ledger,
        client.windows,
        client.results,
        client.delete_stream,
        lambda name: client.change_task(name, flow.query),
    ]
    for call in unknown:
        with pytest.raises(NotFound):
            call("nobody")
    with pytest.raises(SqlError, match="nobody"):
        client.create_task("life_nowhere", flow.query.replace(flow.name, "nobody"))
    with pytest.raises(Rejected):
        client.create_task("9lives", flow.query)
    with pytest.raises(Rejected):
        client.create_task("life_options", flow.query, options={"dealy": "1s"})
    with pytest.raises(Rejected):
        client.create_task("life_loop", flow.query, options={"output_topic": flow.name})

    client.delete_task(flow.name)
    client.delete_stream(flow.name)
    assert flow.name not in {stream.name for stream in client.streams()}


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status"),
    [
        ("POST", "/v1/tasks", b"{", {}, 400),
        ("POST", "/v1/tasks", b"[]", {}, 400),
        ("POST", "/v1/tasks", b"{}", {}, 422),
        ("POST", "/v1/tasks", b'{"name":"a","sql":"SELECT 1","more":1}', {}, 422),
        ("POST", "/v1/tasks", b'{"name":"a","sql":"' + b"x" * 2_000_000 + b'"}', {}, 413),
        ("PUT", "/v1/tasks/nobody", b'{"sql":"SELECT 1"}', {"If-Match": '"1"'}, 404),
        ("PUT", "/v1/streams/9", b"{}", {}, 422),
        ("DELETE", "/v1/tasks", b"", {}, 405),
        ("GET", "/v1/tasks/nobody/why", b"", {}, 404),
        ("GET", "/v1/nothing", b"", {}, 404),
    ],
)
def test_statuses_are_those_of_the_contract(
    shared_mars: MarsCluster,
    method: str,
    path: str,
    body: bytes,
    headers: dict[str, str],
    status: int,
) -> None:
    answer = httpx.request(method, shared_mars.api + path, content=body, headers=headers)

    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["status"] == status
    assert answer.json()["detail"]


# --------------------------------------------------------------------------- what Kafka does


def test_a_deleted_output_topic_does_not_hold_up_other_tasks(shared_mars: MarsCluster) -> None:
    flow = Flow(shared_mars, "life_output")
    flow.register()
    flow.register("life_output_lost")
    first = flow.burst()
    flow.results(len(expected(first, WINDOW_MS)), "life_output_lost")

    shared_mars.delete_topic("mars.results.life_output_lost")
    flow.burst()
    flow.assert_exact()

    client = shared_mars.client
    assert shared_mars.ledger(flow.name, 0, emitted=len(flow.rows)).emitted == len(flow.rows)
    wait_for(
        "the task itself to go on in a new topic",
        lambda: client.ledger("life_output_lost").emitted == len(flow.rows),
    )
    assert shared_mars.read("mars.results.life_output_lost")


def test_a_partition_that_is_added_is_read_from_its_begin(shared_mars: MarsCluster) -> None:
    flow = Flow(shared_mars, "life_partition")
    # Nothing is idle here, so that only rows of a later time close windows.
    shared_mars.client.create_task(
        flow.name, flow.query, options={"delay": "2s", "idle_after": "1h"}
    )
    flow.burst()
    flow.wait_taken()
    shared_mars.add_partitions(flow.name, 3)
    flow.partitions = 3
    with_third = flow.burst()
    assert {row["id"] % 3 for row in with_third} == {0, 1, 2}

    with store(shared_mars) as keys:
        name = f"mars:{{{flow.name}}}:offsets"
        wait_for("the third lane", lambda: int(keys.hget(name, "2") or 0) > 0, seconds=90)
    wanted = list(flow.rows)
    flow.burst(ahead_ms=10_000)

    flow.assert_exact(wanted)


# ------------------------------------------------------------------------------- backpressure


def test_a_full_log_holds_the_mappers_back_and_nothing_is_lost(
    shared_mars: MarsCluster,
) -> None:
    flow = Flow(shared_mars, "life_full", partitions=4)
    shared_mars.client.create_task(
        flow.name, flow.query, options={"delay": "1s", "idle_after": "1h"}
    )
    flow.burst()
    flow.wait_taken()
    reducers = [name for name in shared_mars.restarts if name.startswith("reducer")]

    with shared_mars.stopped(*reducers):
        # The last partition gets no rows, so it holds the watermark, and the others may be refused.
        wait_for("backpressure", lambda: _fill(flow), seconds=40)
        with store(shared_mars) as keys:
            used = int(keys.get(f"mars:{{{flow.name}}}:bytes") or 0)
    assert used <= LOG_BYTES_MAX
    wanted = list(flow.rows)
    flow.burst(ahead_ms=10_000)
    flow.burst(ahead_ms=10_000)

    flow.assert_exact(wanted)
    wait_for("no lag", lambda: _lag(flow) == 0)
    assert shared_mars.client.ledger(flow.name).late == 0


LOG_BYTES_MAX = 1_000_000
"""As `conftest.py` sets it."""


def _fill(flow: Flow) -> bool:
    """Send another burst; True once a mapper says that it is held back."""
    flow.burst(300, lanes=3)
    why = flow.mars.client.why(flow.name)
    return any(
        part.reason == "backpressure" for window in why.windows for part in window.partitions
    )


def _lag(flow: Flow) -> int | None:
    found = flow.mars.client.task(flow.name).lag
    return None if found is None else found.rows


def test_a_task_whose_groups_do_not_fit_into_its_budget_fails_and_says_what_to_do(
    shared_mars: MarsCluster,
) -> None:
    flow, client = Flow(shared_mars, "life_overfull"), shared_mars.client
    every_row = (
        f"SELECT id, hash, timestamp, count(*) FROM {flow.name} GROUP BY id, hash, timestamp "
        "WINDOWING 1 h"
    )
    client.create_task(flow.name, every_row, options={"delay": "1s", "idle_after": "1h"})
    flow.register("life_overfull_witness")

    def failed() -> bool:
        flow.burst(10_000)
        return client.task(flow.name).state == "failed"

    wait_for("the failure", failed, pause_s=0.5)

    detail = client.task(flow.name).detail
    assert f"{LOG_BYTES_MAX}" in detail
    assert "cluster.log_bytes_max" in detail
    assert "smaller windows" in detail
    with store(shared_mars) as keys:
        used = int(keys.get(f"mars:{{{flow.name}}}:bytes") or 0)
    assert LOG_BYTES_MAX < used <= 2 * LOG_BYTES_MAX
    wanted = expected(flow.rows, WINDOW_MS)
    assert_exactly_once(flow.results(len(wanted), "life_overfull_witness"), wanted)
    client.delete_task(flow.name)


def test_no_process_was_started_again(shared_mars: MarsCluster) -> None:
    # The bulk process is killed on purpose, by the tests of queries.
    restarts = {name: times for name, times in shared_mars.restarts.items() if name != "bulk-1"}
    assert not any(restarts.values())
