"""Output topics and `mars.dead` as people read them, on the twin and on a real Kafka."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import msgspec
import pytest

from mars.adapters.kafka import results
from mars.adapters.kafka.results import KafkaDeadLetters, KafkaResultTail
from mars.adapters.memory.results import MemoryDeadLetters, MemoryResultTail
from mars.codec.dead import DeadRange, DeadRow
from mars.codec.result_headers import result_headers
from mars.errors import Unavailable
from mars.ports import CommittedRow, DeadLetter, DeadLetters, DeadPage, ResultTail
from mars.settings import KafkaSettings, Settings
from mars.types import Bucket, Lane, Range, TaskName, Topic
from tests.contracts.kafka_servers import Cluster, KafkaCluster, MemoryCluster
from tests.contracts.waiting import eventually

TASK = TaskName("by_sip")
OTHER = TaskName("other")
RANGES = (Range(Lane("0"), 5, 9), Range(Lane("0@b1"), 0, 3))


def tail_of(cluster: Cluster) -> ResultTail:
    if isinstance(cluster, MemoryCluster):
        return MemoryResultTail(cluster.broker)
    assert isinstance(cluster, KafkaCluster)
    return KafkaResultTail(cluster.settings)


def dead_of(cluster: Cluster) -> DeadLetters:
    if isinstance(cluster, MemoryCluster):
        return MemoryDeadLetters(cluster.broker)
    assert isinstance(cluster, KafkaCluster)
    return KafkaDeadLetters(cluster.settings)


def write(
    cluster: Cluster,
    topic: Topic,
    window_start: int,
    sips: Sequence[str],
    *,
    partition: int = 0,
    task: TaskName = TASK,
    complete: bool = True,
) -> None:
    """Result rows of one window; all of one key, as these tests do not look at it further."""
    headers = result_headers(
        task, 3, Bucket(2), 7, complete=complete, ranges=RANGES, rows=42, revision=1
    )
    values = [json.dumps({"window_start": window_start, "sip": sip}).encode() for sip in sips]
    key = b"[%d,null]" % window_start
    cluster.append(topic, partition, values, key=key, headers=headers)


def write_aborted(cluster: Cluster, topic: Topic) -> None:
    writer = cluster.writer()
    writer.write(topic, 0, [b"{}"] * 3)
    writer.abort()


def sips(rows: Sequence[CommittedRow]) -> list[str]:
    return [json.loads(row.value)["sip"] for row in rows]


def test_newest_rows_of_each_partition_come_in_offset_order(cluster: Cluster) -> None:
    topic = cluster.topic(2)
    write(cluster, topic, 0, [f"a{number}" for number in range(5)])
    write(cluster, topic, 0, ["b0", "b1"], partition=1)
    rows = tail_of(cluster).recent(topic, TASK, 3, None)
    assert sips(rows) == ["a2", "a3", "a4", "b0", "b1"]
    assert rows[0] == CommittedRow(
        partition=0,
        offset=2,
        key=b"[0,null]",
        value=b'{"window_start": 0, "sip": "a2"}',
        version=3,
        revision=1,
        complete=True,
        bucket=Bucket(2),
        emit=7,
        ranges=RANGES,
        rows=42,
    )


def test_rows_of_other_tasks_and_aborted_ones_are_passed_over(cluster: Cluster) -> None:
    topic = cluster.topic()
    write(cluster, topic, 0, ["mine"], complete=False)
    write(cluster, topic, 0, ["theirs"] * 400, task=OTHER)
    write_aborted(cluster, topic)
    (row,) = tail_of(cluster).recent(topic, TASK, 1, None)
    assert (sips([row]), row.complete) == (["mine"], False)


def test_records_that_are_no_result_rows_are_passed_over(cluster: Cluster) -> None:
    topic = cluster.topic()
    cluster.append(topic, 0, [b"somebody else's", None], key=b"key")
    cluster.append(topic, 0, [b"{}"], headers=result_headers(TASK, 1, Bucket(0), 1, complete=True))
    assert tail_of(cluster).recent(topic, TASK, 10, None) == []


def test_window_is_found_behind_newer_ones(cluster: Cluster) -> None:
    topic = cluster.topic(2)
    for start in (-60_000, 0, 60_000, 120_000):
        write(cluster, topic, start, [f"{start}-{number}" for number in range(150)])
    tail = tail_of(cluster)
    assert len(tail.recent(topic, TASK, 1_000, 0)) == 150
    assert sips(tail.recent(topic, TASK, 2, -60_000)) == ["-60000-148", "-60000-149"]
    assert tail.recent(topic, TASK, 1_000, 180_000) == []


def test_topic_that_does_not_exist_has_no_rows_and_nothing_to_follow(cluster: Cluster) -> None:
    tail = tail_of(cluster)
    assert tail.recent(Topic("absent"), TASK, 5, None) == []
    with pytest.raises(Unavailable, match="no topic absent"):
        tail.follow(Topic("absent"), TASK)


def test_follower_gives_what_is_committed_after_it_was_made(cluster: Cluster) -> None:
    topic = cluster.topic(2)
    write(cluster, topic, 0, ["before"])
    follower = tail_of(cluster).follow(topic, TASK)
    try:
        write_aborted(cluster, topic)
        write(cluster, topic, 60_000, ["theirs"], task=OTHER)
        write(cluster, topic, 60_000, ["first"])
        write(cluster, topic, 60_000, ["second"], partition=1)
        seen: list[str] = []

        def both() -> bool:
            seen.extend(sips(follower.poll(0.1)))
            return len(seen) >= 2

        eventually(both)
        assert sorted(seen) == ["first", "second"]
        assert follower.poll(0.0) == []
    finally:
        follower.close()


def test_follower_goes_on_at_given_offsets_as_far_as_there_are_rows(cluster: Cluster) -> None:
    topic = cluster.topic(3)
    for partition in range(3):
        write(cluster, topic, 0, [f"{partition}-{n}" for n in range(3)], partition=partition)
    cluster.truncate(topic, 1, 2)
    follower = tail_of(cluster).follow(topic, TASK, {0: 2, 1: 0, 7: 3})
    try:
        assert dict(follower.starts) == {0: 2, 1: 2, 2: 3}
        seen: list[str] = []

        def both() -> bool:
            seen.extend(sips(follower.poll(0.1)))
            return len(seen) >= 2

        eventually(both)
        assert sorted(seen) == ["0-2", "1-2"]
    finally:
        follower.close()


def test_dead_letters_come_newest_first_and_are_read_on(cluster: Cluster) -> None:
    dead = dead_of(cluster)
    assert dead.recent(TASK, 10) == []
    cluster.admin().ensure_internal(1)

    def reject(record: DeadRow | DeadRange, at_ms: int) -> None:
        value = msgspec.json.encode(record)
        cluster.append(cluster.names.dead, 0, [value], timestamp_ms=at_ms)

    reject(DeadRow(TASK, 1, "flows", 1, 7, "wrong_type", "bytes: text", b"{}"), 1_000)
    reject(DeadRow(OTHER, 1, "flows", 1, 8, "wrong_type", "bytes: text", b"{}"), 1_001)
    cluster.append(cluster.names.dead, 0, [b"not ours", None])
    assert [(each.first, each.next, each.rows) for each in dead.recent(TASK, 10)] == [(7, 8, 1)]
    reject(DeadRange(TASK, 1, "flows", 1, 10, 30, "unreadable", 20), 2_000)
    reject(DeadRange(TASK, 1, "flows", 1, 40, 90, "late", 3, window_start=60_000), 2_001)
    assert [
        (each.first, each.reason, each.rows, each.window_start_ms) for each in dead.recent(TASK, 2)
    ] == [(40, "late", 3, 60_000), (10, "unreadable", 20, None)]
    assert len(dead.recent(TASK, 10)) == 3


def test_all_dead_letters_can_be_listed_page_by_page(cluster: Cluster) -> None:
    dead = dead_of(cluster)
    assert dead.page(TASK, None, {}, 10) == DeadPage((), None)
    cluster.admin().ensure_internal(1)
    for offset in range(7):
        for task in (TASK, OTHER):
            row = DeadRow(task, 1, "flows", 1, offset, "wrong_type", "bytes: text", b"{}", "1@b1")
            cluster.append(cluster.names.dead, 0, [msgspec.json.encode(row), b"not ours"])
    late = DeadRange(TASK, 1, "flows", 1, 40, 90, "late", 3, window_start=60_000)
    cluster.append(cluster.names.dead, 0, [msgspec.json.encode(late)])

    found = all_pages(dead, None, 3)
    assert [each.first for each in found] == [*range(7), 40]
    first = found[0]
    assert (first.version, first.lane, first.detail, first.payload) == (
        1,
        "1@b1",
        "bytes: text",
        b"{}",
    )
    assert [each.window_start_ms for each in all_pages(dead, "late", 1)] == [60_000]


def all_pages(dead: DeadLetters, reason: str | None, limit: int) -> list[DeadLetter]:
    found: list[DeadLetter] = []
    after: Mapping[int, int] | None = {}
    while after is not None:
        page = dead.page(TASK, reason, after, limit)
        assert len(page.letters) <= limit
        found += page.letters
        after = page.next
    return found


# ------------------------------------------------------------------------------- Kafka alone


@pytest.mark.integration
def test_a_page_ends_after_so_many_records(
    kafka_cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "PAGE_MESSAGES_MAX", 4)
    kafka_cluster.admin().ensure_internal(1)
    row = msgspec.json.encode(DeadRow(TASK, 1, "flows", 1, 7, "late", "", b""))
    for partition in range(3):
        kafka_cluster.append(kafka_cluster.names.dead, partition, [b"not ours"] * 3 + [row] * 2)
    assert len(all_pages(dead_of(kafka_cluster), "late", 100)) == 6


@pytest.mark.integration
def test_search_for_a_window_ends_somewhere(
    kafka_cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "SCAN_MESSAGES_MAX", 120)
    topic = kafka_cluster.topic()
    write(kafka_cluster, topic, 0, ["old"])
    write(kafka_cluster, topic, 60_000, ["new"] * 200)
    assert tail_of(kafka_cluster).recent(topic, TASK, 5, 0) == []


def test_no_error_of_the_client_escapes_when_nobody_listens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(results, "CALL_TIMEOUT_S", 0.5)
    nobody = Settings(kafka=KafkaSettings(bootstrap="127.0.0.1:1"))
    tail = KafkaResultTail(nobody)
    for call in (
        lambda: tail.recent(Topic("t"), TASK, 1, None),
        lambda: tail.follow(Topic("t"), TASK),
        lambda: KafkaDeadLetters(nobody).recent(TASK, 1),
    ):
        with pytest.raises(Unavailable):
            call()
