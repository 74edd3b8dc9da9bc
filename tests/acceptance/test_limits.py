"""A window with far more groups than its task may have, beside a task that must not notice."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from mars.core.windows import moment
from tests.support.cluster import MarsCluster, running_mars, wait_for
from tests.support.load import Load
from tests.support.rows import Result

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(900)]

PARTITIONS = 4
GROUPS = 2_000_000
MAX_KEYS = 10_000
LINES = 1_000
"""Rows of a message."""

WINDOW_MS = 60_000
START_MS = 1_700_000_040_000
"""Begin of the one window that all groups lie in."""

SQL = (
    "SELECT sip, timestamp, count(*) AS n, sum(id) AS ids FROM limits_many "
    "GROUP BY sip, timestamp WINDOWING 60 s"
)
OPTIONS: dict[str, object] = {"idle_after": "1h", "max_keys": MAX_KEYS}


@pytest.fixture(scope="module")
def mars(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MarsCluster]:
    """A cluster with the limits that it has by default."""
    yield from running_mars(tmp_path_factory.mktemp("limits"))


def test_two_million_groups_are_folded_or_fail_their_task_and_nobody_else_notices(
    mars: MarsCluster,
) -> None:
    mars.topic("limits_many", PARTITIONS)
    fields = {"timestamp": "timestamp_ms", "sip": "string", "id": "int64"}
    stream = {"topic": "limits_many", "format": "ndjson", "fields": fields}
    mars.client.put_stream("limits_many", {**stream, "event_time": "timestamp"})
    mars.client.create_task("limits_fail", SQL, options=OPTIONS)
    mars.client.create_task("limits_fold", SQL, options={**OPTIONS, "over_max_keys": "fold"})

    small = Load(mars, "limits_small", seconds=20)
    with small.running():
        mars.produce("limits_many", _messages())
        wait_for("the end", lambda: mars.client.task("limits_fail").state == "failed", seconds=240)
        found = mars.read_until("mars.results.limits_fold", MAX_KEYS + 1, seconds=240)

    small.check()
    _check_folded(mars, found)
    detail = mars.client.task("limits_fail").detail
    assert f"begins at {moment(START_MS)}" in detail, detail
    assert f"max_keys is {MAX_KEYS}" in detail, detail
    assert mars.read("mars.results.limits_fail") == []
    assert not any(mars.restarts.values()), f"{mars.restarts}\n{mars.logs()}"


def _messages() -> Iterator[tuple[int, bytes]]:
    """All groups, then a row in each partition that closes their window."""
    for first in range(0, GROUPS, LINES):
        numbers = range(first, first + LINES)
        lines = [_line(START_MS + number % WINDOW_MS, f"{number:07}", number) for number in numbers]
        yield first // LINES % PARTITIONS, "\n".join(lines).encode()
    for partition in range(PARTITIONS):
        yield partition, _line(START_MS + WINDOW_MS, "last", 0).encode()


def _line(time_ms: int, sip: str, number: int) -> str:
    return json.dumps({"timestamp": time_ms, "sip": sip, "id": number})


def _check_folded(mars: MarsCluster, found: list[Result]) -> None:
    own = [value for _key, value, headers in found if "mars-folded" not in headers]
    (others,) = [value for _key, value, headers in found if headers.get("mars-folded") == "1"]
    assert len(own) == len({value["sip"] for value in own}) == MAX_KEYS
    assert all((value["n"], value["ids"]) == (1, int(value["sip"])) for value in own)
    assert others["sip"] == "__other__"
    assert others["n"] == GROUPS - MAX_KEYS
    assert others["ids"] == sum(range(GROUPS)) - sum(value["ids"] for value in own)
    ledger = mars.ledger("limits_fold", GROUPS + PARTITIONS, emitted=GROUPS)
    assert (ledger.read, ledger.counted, ledger.late) == (GROUPS + PARTITIONS,) * 2 + (0,), ledger
    assert (ledger.emitted, ledger.open) == (GROUPS, PARTITIONS), ledger
