"""Output topics and `mars.dead` as people read them, on a real Kafka."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator

import msgspec
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from mars.adapters.kafka import results
from mars.adapters.kafka.results import KafkaDeadLetters, KafkaResultTail
from mars.codec.dead import DeadRange, DeadRow
from mars.errors import Unavailable
from mars.local.servers import KafkaServer
from mars.ports import CommittedRow
from mars.settings import KafkaSettings, Settings
from mars.types import TaskName, Topic
from tests.contracts.waiting import eventually

pytestmark = pytest.mark.integration

TASK = TaskName("by_sip")
PARTITIONS = 2


class Output:
    """An output topic of its own, and somebody who writes to it in transactions."""

    def __init__(self, server: KafkaServer) -> None:
        self.namespace = f"n{uuid.uuid4().hex[:10]}"
        self.topic = Topic(f"results-{self.namespace}")
        self.settings = Settings(
            namespace=self.namespace, kafka=KafkaSettings(bootstrap=server.bootstrap)
        )
        self._admin = AdminClient({"bootstrap.servers": server.bootstrap})
        self._producer = Producer(
            {"bootstrap.servers": server.bootstrap, "transactional.id": self.namespace}
        )
        self._producer.init_transactions()
        self.make(self.topic)

    def make(self, topic: str) -> None:
        for made in self._admin.create_topics([NewTopic(topic, PARTITIONS, 1)]).values():
            made.result(10)

    def write(
        self,
        windows: list[tuple[int, str]],
        *,
        partition: int = 0,
        task: str = TASK,
        commit: bool = True,
        complete: bool = True,
    ) -> None:
        """One row per window start and key."""
        self._producer.begin_transaction()
        for start, sip in windows:
            self._producer.produce(
                self.topic,
                key=json.dumps([start, sip], separators=(",", ":")).encode(),
                value=json.dumps({"window_start": start, "sip": sip}).encode(),
                partition=partition,
                headers={
                    "mars-task": task,
                    "mars-version": "3",
                    "mars-revision": "1",
                    "mars-complete": "1" if complete else "0",
                    "mars-bucket": "0",
                    "mars-emit": "1",
                },
            )
        self._end(commit=commit)

    def reject(self, *letters: DeadRow | DeadRange, partition: int = 0) -> None:
        self._producer.begin_transaction()
        for letter in letters:
            value = msgspec.json.encode(letter)
            self._producer.produce(f"mars.{self.namespace}.dead", value, partition=partition)
        self._end(commit=True)

    def _end(self, *, commit: bool) -> None:
        if commit:
            self._producer.commit_transaction(10)
        else:
            self._producer.flush(10)
            self._producer.abort_transaction(10)


@pytest.fixture
def output(kafka_server: KafkaServer) -> Iterator[Output]:
    return Output(kafka_server)


def names(rows: list[CommittedRow]) -> list[str]:
    return [json.loads(row.value)["sip"] for row in rows]


def test_newest_rows_of_each_partition_come_in_offset_order(output: Output) -> None:
    output.write([(0, f"a{number}") for number in range(5)])
    output.write([(0, f"b{number}") for number in range(2)], partition=1)
    rows = KafkaResultTail(output.settings).recent(output.topic, TASK, 3, None)
    assert names(rows) == ["a2", "a3", "a4", "b0", "b1"]
    assert rows[0] == CommittedRow(
        partition=0,
        offset=2,
        key=b'[0,"a2"]',
        value=b'{"window_start": 0, "sip": "a2"}',
        version=3,
        revision=1,
        complete=True,
    )


def test_rows_of_other_tasks_and_aborted_ones_are_passed_over(output: Output) -> None:
    output.write([(0, "mine")], complete=False)
    output.write([(0, f"other{number}") for number in range(400)], task="other")
    output.write([(0, "aborted")], commit=False)
    (row,) = KafkaResultTail(output.settings).recent(output.topic, TASK, 1, None)
    assert (row.value, row.complete) == (b'{"window_start": 0, "sip": "mine"}', False)


def test_window_is_found_behind_newer_ones(output: Output) -> None:
    for start in (-60_000, 0, 60_000, 120_000):
        output.write([(start, f"{start}-{number}") for number in range(150)])
    tail = KafkaResultTail(output.settings)
    assert len(tail.recent(output.topic, TASK, 1_000, 0)) == 150
    assert names(tail.recent(output.topic, TASK, 2, -60_000)) == ["-60000-148", "-60000-149"]
    assert tail.recent(output.topic, TASK, 1_000, 180_000) == []


def test_search_for_a_window_ends_somewhere(
    output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "SCAN_MESSAGES_MAX", 120)
    output.write([(0, "old")])
    output.write([(60_000, f"new{number}") for number in range(200)])
    assert KafkaResultTail(output.settings).recent(output.topic, TASK, 5, 0) == []


def test_topic_that_does_not_exist_has_no_rows_and_nothing_to_follow(output: Output) -> None:
    tail = KafkaResultTail(output.settings)
    assert tail.recent(Topic("absent"), TASK, 5, None) == []
    with pytest.raises(Unavailable, match="no topic absent"):
        tail.follow(Topic("absent"), TASK)


def test_follower_gives_what_is_committed_after_it_was_made(output: Output) -> None:
    output.write([(0, "before")])
    follower = KafkaResultTail(output.settings).follow(output.topic, TASK)
    try:
        output.write([(0, "aborted")], commit=False)
        output.write([(60_000, "other")], task="other")
        output.write([(60_000, "first")])
        output.write([(60_000, "second")], partition=1)
        seen: list[str] = []

        def both() -> bool:
            seen.extend(names(follower.poll(0.1)))
            return len(seen) >= 2

        eventually(both)
        assert sorted(seen) == ["first", "second"]
    finally:
        follower.close()


def test_dead_letters_come_newest_first_and_are_read_on(output: Output) -> None:
    dead = KafkaDeadLetters(output.settings)
    assert dead.recent(TASK, 10) == []
    output.make(f"mars.{output.namespace}.dead")
    output.reject(
        DeadRow(TASK, 1, "flows", 1, 7, "wrong_type", "bytes: text", b"{}"),
        DeadRow("other", 1, "flows", 1, 8, "wrong_type", "bytes: text", b"{}"),
    )
    assert [(letter.first, letter.next, letter.rows) for letter in dead.recent(TASK, 10)] == [
        (7, 8, 1)
    ]
    output.reject(
        DeadRange(TASK, 1, "flows", 1, 10, 30, "unreadable", 20),
        DeadRange(TASK, 1, "flows", 1, 40, 90, "late", 3, window_start=60_000),
        partition=1,
    )
    newest = dead.recent(TASK, 2)
    assert [(each.first, each.reason, each.rows, each.window_start_ms) for each in newest] == [
        (40, "late", 3, 60_000),
        (10, "unreadable", 20, None),
    ]
    assert len(dead.recent(TASK, 10)) == 3


def test_no_error_of_the_client_escapes_when_nobody_listens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(results, "CALL_TIMEOUT_S", 0.5)
    nobody = Settings(kafka=KafkaSettings(bootstrap="127.0.0.1:1"))
    results_tail = KafkaResultTail(nobody)
    for call in (
        lambda: results_tail.recent(Topic("t"), TASK, 1, None),
        lambda: results_tail.follow(Topic("t"), TASK),
        lambda: KafkaDeadLetters(nobody).recent(TASK, 1),
    ):
        with pytest.raises(Unavailable):
            call()
