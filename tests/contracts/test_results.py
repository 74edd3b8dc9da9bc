"""Output topics and `mars.dead` as people read them, on the twin and on a real Kafka."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import msgspec
import pytest

from mars.adapters.kafka.read import recent, results
from mars.adapters.kafka.read.results import KafkaDeadLetters, KafkaResultTail
from mars.adapters.memory.results import MemoryDeadLetters, MemoryResultTail
from mars.core.errors import Unavailable
from mars.core.settings import KafkaSettings, Settings
from mars.core.types import Bucket, Lane, Range, TaskName, Topic
from mars.core.windows import Window
from mars.core.windows.counting import WindowNumber
from mars.engine.codec.dead import DeadRange, DeadRow
from mars.engine.codec.result_headers import result_headers
from mars.protocol.ports import (
    CommittedRow,
    DeadLetter,
    DeadLetters,
    DeadPage,
    RecentRows,
    ResultFollower,
    ResultGap,
    ResultTail,
    WantedKeyNumber,
    WantedNumber,
    WantedSessions,
    WantedWindow,
)
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
    revision: int = 0,
) -> None:
    """Result rows of one window; all of one key, as these tests do not look at it further."""
    headers = result_headers(
        task, 3, Bucket(2), 7, complete=complete, ranges=RANGES, rows=42, revision=revision
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
    rows = tail_of(cluster).recent(topic, TASK, 3, None).rows
    assert sips(rows) == ["a2", "a3", "a4", "b0", "b1"]
    assert rows[0] == CommittedRow(
        partition=0,
        offset=2,
        key=b"[0,null]",
        value=b'{"window_start": 0, "sip": "a2"}',
        version=3,
        revision=0,
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
    (row,) = tail_of(cluster).recent(topic, TASK, 1, None).rows
    assert (sips([row]), row.complete) == (["mine"], False)


def test_records_that_are_no_result_rows_are_passed_over(cluster: Cluster) -> None:
    topic = cluster.topic()
    cluster.append(topic, 0, [b"somebody else's", None], key=b"key")
    cluster.append(topic, 0, [b"{}"], headers=result_headers(TASK, 1, Bucket(0), 1, complete=True))
    assert tail_of(cluster).recent(topic, TASK, 10, None) == RecentRows()


def test_window_is_found_behind_newer_ones(cluster: Cluster) -> None:
    topic = cluster.topic(2)
    for start in (-60_000, 0, 60_000, 120_000):
        write(cluster, topic, start, [f"{start}-{number}" for number in range(150)])
    tail = tail_of(cluster)
    assert len(tail.recent(topic, TASK, 1_000, WantedWindow(0)).rows) == 150
    assert tail.recent(topic, TASK, 1_000, WantedWindow(0)).whole(0)
    assert not tail.recent(topic, TASK, 149, WantedWindow(0)).whole(0)
    assert sips(tail.recent(topic, TASK, 2, WantedWindow(-60_000)).rows) == [
        "-60000-148",
        "-60000-149",
    ]
    assert tail.recent(topic, TASK, 1_000, WantedWindow(180_000)) == RecentRows()


def write_steps(cluster: Cluster, topic: Topic, count: int) -> None:
    """Windows of a cycle of three steps, each with a row for every step before it."""
    for cycle in (0, 90_000):
        for step in (30_000, 60_000, 90_000):
            value = b'{"window_start":%d,"window_end":%d,"sip":"%d"}' % (cycle, cycle + step, step)
            headers = result_headers(TASK, 3, Bucket(2), 7, complete=True, ranges=RANGES, rows=42)
            key = b"[%d,null,%d]" % (cycle, cycle + step)
            cluster.append(topic, 0, [value] * count, key=key, headers=headers)


def write_numbers(cluster: Cluster, topic: Topic, count: int, numbers: Sequence[int]) -> None:
    """Windows that count rows of two partitions, in turn; so many groups each."""
    for number in numbers:
        for of in (0, 1):
            value = (
                b'{"window_start":%d,"window_end":5,"partition":%d,"window_number":%d,'
                b'"window_first_offset":0,"sip":"%d-%d"}' % (-number, of, number, of, number)
            )
            headers = result_headers(TASK, 3, Bucket(2), 7, complete=True, ranges=RANGES, rows=42)
            key = b"[%d,null,%d,%d]" % (-number, of, number)
            cluster.append(topic, 0, [value] * count, key=key, headers=headers)


def test_a_window_that_counts_rows_is_found_by_its_number(cluster: Cluster) -> None:
    topic = cluster.topic(2)
    write_numbers(cluster, topic, 80, range(5))
    tail = tail_of(cluster)

    def wanted(number: int, version: int = 3) -> WantedNumber:
        return WantedNumber(version, WindowNumber(number, 1), Window(1, 0))

    found = tail.recent(topic, TASK, 100, wanted(2))
    assert (set(sips(found.rows)), len(found.rows)) == ({"1-2"}, 80)
    assert found.first_whole_numbers() == {(3, 1): 0}
    cut = tail.recent(topic, TASK, 79, wanted(2))
    assert (len(cut.rows), cut.first_whole_numbers()) == (79, {})
    assert tail.recent(topic, TASK, 100, wanted(2, version=4)).rows == ()
    assert len(tail.recent(topic, TASK, 100, wanted(0)).rows) == 80


def test_a_window_of_a_key_is_looked_for_behind_lower_numbers_too(cluster: Cluster) -> None:
    topic = cluster.topic(2)
    write_numbers(cluster, topic, 60, [9, 2, 1, 0])
    wanted = WantedKeyNumber(3, WindowNumber(9, 1), Window(1, 0))
    found = tail_of(cluster).recent(topic, TASK, 60, wanted)
    assert (set(sips(found.rows)), len(found.rows)) == ({"1-9"}, 60)


def test_windows_that_are_whole_are_told_by_the_numbers_before_them(cluster: Cluster) -> None:
    topic = cluster.topic(2)
    write_numbers(cluster, topic, 10, range(5))
    found = tail_of(cluster).recent(topic, TASK, 35, None)
    assert (found.cut, found.first_whole_numbers()) == (
        frozenset({0}),
        {(3, 0): 5 - 1, (3, 1): 5 - 1},
    )
    everything = tail_of(cluster).recent(topic, TASK, 100, None)
    assert (everything.cut, everything.first_whole_numbers()) == (
        frozenset(),
        {(3, 0): 0, (3, 1): 0},
    )


def test_of_windows_that_begin_together_the_end_says_which(cluster: Cluster) -> None:
    topic = cluster.topic()
    write_steps(cluster, topic, 3)
    tail = tail_of(cluster)
    found = tail.recent(topic, TASK, 3, WantedWindow(90_000, 150_000))
    assert sips(found.rows) == ["60000"] * 3
    assert {row.window for row in found.rows} == {Window(150_000, 90_000)}
    assert found.whole(150_000)
    assert not tail.recent(topic, TASK, 2, WantedWindow(90_000, 150_000)).whole(150_000)
    assert tail.recent(topic, TASK, 3, WantedWindow(90_000, 160_000)) == RecentRows()


def test_sessions_are_found_by_their_begin_whatever_their_ends(cluster: Cluster) -> None:
    topic = cluster.topic()
    for emit, start, end in ((1, 0, 10), (2, 5, 30), (2, 1, 12), (2, 5, 20)):
        value = b'{"window_start":%d,"window_end":%d,"sip":"%d"}' % (start, end, end)
        headers = result_headers(TASK, 3, Bucket(2), emit, complete=True, ranges=RANGES, rows=42)
        cluster.append(topic, 0, [value], key=b'[%d,"%d"]' % (start, end), headers=headers)
    tail = tail_of(cluster)
    found = tail.recent(topic, TASK, 10, WantedSessions(5, None, 15))
    assert (sips(found.rows), found.cut_at_ms) == (["30", "20"], None)
    assert sips(tail.recent(topic, TASK, 10, WantedSessions(5, 20, 15)).rows) == ["20"]


def test_steps_that_are_whole_are_told_by_their_ends(cluster: Cluster) -> None:
    topic = cluster.topic()
    write_steps(cluster, topic, 3)
    found = tail_of(cluster).recent(topic, TASK, 4, None)
    assert (found.whole(150_000), found.whole(180_000)) == (False, True)


def test_revisions_do_not_take_the_place_of_first_rows(cluster: Cluster) -> None:
    topic = cluster.topic()
    write(cluster, topic, 0, [f"a{number}" for number in range(150)])
    write(cluster, topic, 60_000, ["b0", "b1"])
    write(cluster, topic, 0, [f"a{number}" for number in range(150)], revision=1)
    write(cluster, topic, 120_000, ["c0"])
    found = tail_of(cluster).recent(topic, TASK, 3, None)
    assert sips([row for row in found.rows if row.revision == 0]) == ["b0", "b1", "c0"]
    assert len(found.rows) == 153
    assert [found.whole(start) for start in (0, 60_000, 120_000)] == [False, False, True]
    assert len(tail_of(cluster).recent(topic, TASK, 500, WantedWindow(0)).rows) == 300


def test_rows_that_come_later_are_in_the_next_answer_and_deleted_ones_are_not(
    cluster: Cluster,
) -> None:
    topic, tail = cluster.topic(2), tail_of(cluster)
    write(cluster, topic, 0, ["a0", "a1", "a2"])
    assert sips(tail.recent(topic, TASK, 3, None).rows) == ["a0", "a1", "a2"]
    assert tail.recent(topic, TASK, 3, None).cut_at_ms is None
    write(cluster, topic, 60_000, ["b0", "b1"])
    write(cluster, topic, 60_000, ["c0"], partition=1)
    found = tail.recent(topic, TASK, 3, None)
    assert sips(found.rows) == ["a2", "b0", "b1", "c0"]
    assert (found.whole(0), found.whole(60_000)) == (False, True)
    write(cluster, topic, 0, ["a0"], revision=1)
    assert sips(tail.recent(topic, TASK, 3, None).rows) == ["a2", "b0", "b1", "a0", "c0"]
    cluster.truncate(topic, 0, 4)
    found = tail.recent(topic, TASK, 3, None)
    assert sips(found.rows) == ["b1", "a0", "c0"]
    assert found.cut_at_ms is None


def test_topic_that_does_not_exist_has_no_rows_and_nothing_to_follow(cluster: Cluster) -> None:
    tail = tail_of(cluster)
    assert tail.recent(Topic("absent"), TASK, 5, None) == RecentRows()
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
        rows, gaps = followed(follower, 2)
        assert (sorted(rows), gaps) == (["first", "second"], [])
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
        rows, gaps = followed(follower, 2)
        assert sorted(rows) == ["0-2", "1-2"]
        assert gaps == [ResultGap(1, 0, 2)]
    finally:
        follower.close()


def followed(follower: ResultFollower, count: int) -> tuple[list[str], list[ResultGap]]:
    """So many rows, and the gaps before them."""
    rows: list[str] = []
    gaps: list[ResultGap] = []

    def all_of_them() -> bool:
        for one in follower.poll(0.1):
            if isinstance(one, ResultGap):
                gaps.append(one)
            else:
                rows.extend(sips([one]))
        return len(rows) >= count

    eventually(all_of_them)
    return rows, gaps


def test_follower_takes_in_partitions_that_are_added(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "LOOK_S", 0.0)
    topic = cluster.topic()
    write(cluster, topic, 0, ["before"])
    follower = tail_of(cluster).follow(topic, TASK)
    try:
        cluster.grow(topic, 3)
        write(cluster, topic, 0, ["added"], partition=2)
        write(cluster, topic, 0, ["there"])
        rows, gaps = followed(follower, 2)
        assert (sorted(rows), gaps) == (["added", "there"], [])
        assert dict(follower.starts) == {0: 1, 1: 0, 2: 0}
    finally:
        follower.close()


def test_follower_that_goes_on_has_all_rows_of_partitions_that_were_added(
    cluster: Cluster,
) -> None:
    topic = cluster.topic(3)
    for partition in range(3):
        write(cluster, topic, 0, [f"{partition}"], partition=partition)
    follower = tail_of(cluster).follow(topic, TASK, {0: 1, 1: 1}, whole=True)
    try:
        assert dict(follower.starts) == {0: 1, 1: 1, 2: 0}
        assert followed(follower, 1) == (["2"], [])
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
def test_rows_are_not_read_again_while_nothing_has_come(kafka_cluster: KafkaCluster) -> None:
    topic, tail = kafka_cluster.topic(2), tail_of(kafka_cluster)
    write(kafka_cluster, topic, 0, ["a"])
    first = tail.recent(topic, TASK, 5, None)
    assert tail.recent(topic, TASK, 5, None) is first
    write(kafka_cluster, topic, 0, ["theirs"], task=OTHER)
    assert tail.recent(topic, TASK, 5, None).rows == first.rows


@pytest.mark.integration
def test_a_topic_that_was_made_again_is_another_one(kafka_cluster: KafkaCluster) -> None:
    topic, tail = kafka_cluster.topic(), tail_of(kafka_cluster)
    write(kafka_cluster, topic, 0, ["old"])
    assert sips(tail.recent(topic, TASK, 5, None).rows) == ["old"]
    kafka_cluster.delete(topic)
    kafka_cluster.admin().ensure_output(topic, 1)
    write(kafka_cluster, topic, 0, ["new"])
    assert sips(tail.recent(topic, TASK, 5, None).rows) == ["new"]


@pytest.mark.integration
def test_where_much_has_come_the_end_is_looked_through_anew(
    kafka_cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recent, "READ_ON_MAX", 10)
    topic, tail = kafka_cluster.topic(), tail_of(kafka_cluster)
    write(kafka_cluster, topic, 0, ["a"])
    assert sips(tail.recent(topic, TASK, 2, None).rows) == ["a"]
    write(kafka_cluster, topic, 60_000, [f"b{number}" for number in range(200)])
    found = tail.recent(topic, TASK, 2, None)
    assert (sips(found.rows), found.cut_at_ms) == (["b198", "b199"], 60_000)


@pytest.mark.integration
def test_what_was_not_asked_for_the_longest_is_forgotten_first(
    kafka_cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recent, "REMEMBERED_BYTES_MAX", 1_000)
    topics, tail = [kafka_cluster.topic() for _ in range(3)], tail_of(kafka_cluster)
    for topic in topics:
        write(kafka_cluster, topic, 0, ["a"])
    answers = [tail.recent(topic, TASK, 2, None) for topic in topics]
    again = [tail.recent(topic, TASK, 2, None) for topic in reversed(topics)]
    assert again == answers[::-1]
    assert [one is other for one, other in zip(again, answers[::-1], strict=True)] == [
        True,
        True,
        False,
    ]


@pytest.mark.integration
def test_search_for_a_window_ends_somewhere(
    kafka_cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recent, "SCAN_MESSAGES_MAX", 120)
    topic = kafka_cluster.topic()
    write(kafka_cluster, topic, 0, ["old"])
    write(kafka_cluster, topic, 60_000, ["new"] * 200)
    found = tail_of(kafka_cluster).recent(topic, TASK, 5, WantedWindow(0))
    assert (found.rows, found.whole(0)) == ((), False)


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
