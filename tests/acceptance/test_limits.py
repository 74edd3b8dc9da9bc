"""A window with far more groups than its task may have, beside a task that must not notice."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from mars.windows import moment
from tests.conftest import missing_kafka, missing_valkey, need
from tests.support.cluster import MarsCluster, wait_for
from tests.support.load import Load
from tests.support.rows import Result

pytestmark = pytest.mark.acceptance

PARTITIONS = 4
GROUPS = 2_000_000
MAX_KEYS = 10_000
LINES = 1_000
"""Rows of a message."""

WINDOW_MS = 60_000
START_MS = 1_700_000_040_000
"""Begin of the one window that all groups lie in."""

LATE_MS = 60_000
"""How long after a window's end its rows may come on a machine that is busy with all of this."""

SQL = (
    "SELECT sip, timestamp, count(*) AS n, sum(id) AS ids FROM limits_many "
    "GROUP BY sip, timestamp WINDOWING 60 s"
)
OPTIONS: dict[str, object] = {"idle_after": "1h", "max_keys": MAX_KEYS}


@pytest.fixture(scope="module")
def mars(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MarsCluster]:
    """A cluster with the limits that it has by default."""
    need(missing_kafka())
    need(missing_valkey())
    cluster = MarsCluster(tmp_path_factory.mktemp("limits"))
    yield cluster
    cluster.down()


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
    lateness = sorted(at - end for end, at in _emissions(mars, "mars.results.limits_small"))
    assert lateness[-1] < LATE_MS, lateness[-5:]
    _check_folded(mars, found)
    detail = mars.client.task("limits_fail").detail
    assert f"begins at {moment(START_MS)}" in detail, detail
    assert f"max_keys is {MAX_KEYS}" in detail, detail
    assert mars.read("mars.results.limits_fail") == []
    assert not any(mars.restarts.values()), mars.restarts


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
    ledger = mars.client.ledger("limits_fold")
    assert (ledger.read, ledger.counted, ledger.late) == (GROUPS + PARTITIONS,) * 2 + (0,), ledger
    assert (ledger.emitted, ledger.open) == (GROUPS, PARTITIONS), ledger


def _emissions(mars: MarsCluster, topic: str) -> Iterator[tuple[int, int]]:
    """(end of its window, when it was written) of each result row."""
    consumer = Consumer(
        {
            "bootstrap.servers": mars.file["kafka"],
            "group.id": "test-limits",
            "enable.partition.eof": True,
        }
    )
    try:
        open_ones = set(consumer.list_topics(topic, timeout=20).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, number, 0) for number in open_ones])
        while open_ones:
            message = consumer.poll(10.0)
            assert message is not None, f"{topic} could not be read to its end"
            error = message.error()
            if error is None:
                value = json.loads(message.value() or b"")
                yield value["window_end"], message.timestamp()[1]
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                open_ones.discard(message.partition())
    finally:
        consumer.close()
