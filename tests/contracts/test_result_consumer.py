"""Results as a program of the user's reads them, on a real Kafka: each row handled once."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from threading import Event, Thread

import pytest

from mars.adapters.kafka.read.groups import KafkaResultConsumer
from mars.core.errors import MarsError, NotFound, Unavailable
from mars.core.types import Bucket, TaskName, Topic
from mars.engine.codec.result_headers import result_headers
from tests.contracts.deaf import GoesDeaf
from tests.contracts.kafka_servers import KafkaCluster

pytestmark = pytest.mark.integration

TASK = TaskName("by_sip")
SILENCE_S = 3.0
"""After which a reader takes it that there is no more; joining a group is no silence."""


def write(
    kafka: KafkaCluster, topic: Topic, numbers: Sequence[int], *, task: TaskName = TASK
) -> None:
    headers = result_headers(task, 3, Bucket(0), 1, complete=False, revision=2)
    for number in numbers:
        value = json.dumps({"window_start": 0, "number": number}).encode()
        kafka.append(topic, number % 2, [value], key=b'[0,"a"]', headers=headers)


def consumer(
    kafka: KafkaCluster,
    topic: Topic,
    group: str,
    *,
    begin: dict[int, int] | None = None,
    silence_s: float = SILENCE_S,
) -> KafkaResultConsumer:
    return KafkaResultConsumer(kafka.settings, topic, TASK, group, begin=begin, silence_s=silence_s)


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex}"


def test_rows_come_with_what_is_known_of_them(kafka_cluster: KafkaCluster, group: str) -> None:
    topic = kafka_cluster.topic(2)
    write(kafka_cluster, topic, [0], task=TaskName("other"))
    write(kafka_cluster, topic, [4])
    with consumer(kafka_cluster, topic, group) as rows:
        found = next(rows)
    assert (found.topic, found.partition, found.key) == (topic, 0, [0, "a"])
    assert found.row == {"window_start": 0, "number": 4}
    assert (found.version, found.revision, found.complete) == (3, 2, False)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"[0", b'{"number":2}'),
        (b'{"a":0}', b'{"number":2}'),
        (b"[0]", b'{"number":2'),
        (b"[0]", b'{"number":"\xff"}'),
        (b"[0]", b'{"number":' + b"[" * 5_000 + b"]" * 5_000 + b"}"),
    ],
    ids=["key-cut", "key-is-no-list", "value-cut", "no-utf-8", "too-deep"],
)
def test_record_that_only_looks_like_a_row_is_passed_over(
    kafka_cluster: KafkaCluster, group: str, key: bytes, value: bytes
) -> None:
    topic = kafka_cluster.topic(2)
    headers = result_headers(TASK, 3, Bucket(0), 1, complete=True)
    kafka_cluster.append(topic, 0, [value], key=key, headers=headers)
    write(kafka_cluster, topic, [4])
    with consumer(kafka_cluster, topic, group) as rows:
        assert next(rows).row["number"] == 4


def test_consumer_that_has_gone_deaf_says_so_and_the_next_one_goes_on(
    kafka_cluster: KafkaCluster, group: str, goes_deaf: type[GoesDeaf]
) -> None:
    topic = kafka_cluster.topic(2)
    write(kafka_cluster, topic, [0])
    handled: list[int] = []

    def handle(rows: KafkaResultConsumer) -> None:
        with rows:
            for row in rows:
                handled.append(row.row["number"])
                goes_deaf.deaf.update(goes_deaf.made)
                write(kafka_cluster, topic, [2])

    with pytest.raises(Unavailable, match=rf"no more rows come from {topic}\[0\]"):
        handle(consumer(kafka_cluster, topic, group, silence_s=60))

    with consumer(kafka_cluster, topic, group) as rows:
        handled.append(next(rows).row["number"])
    assert handled == [0, 2]


def test_consumer_that_has_no_broker_any_more_says_so(
    kafka_cluster: KafkaCluster, group: str, goes_deaf: type[GoesDeaf]
) -> None:
    topic = kafka_cluster.topic(2)
    with consumer(kafka_cluster, topic, group, silence_s=60) as rows:
        goes_deaf.deaf.update(goes_deaf.made)
        goes_deaf.cut_off.update(goes_deaf.made)
        with pytest.raises(Unavailable, match="no broker was found for some time: close this"):
            next(rows)


def test_each_row_is_handled_once_over_several_runs(
    kafka_cluster: KafkaCluster, group: str
) -> None:
    topic = kafka_cluster.topic(2)
    write(kafka_cluster, topic, range(20))
    handled = []
    for run in range(3):
        with consumer(kafka_cluster, topic, group) as rows:
            for row in rows:
                handled.append(row.row["number"])
                if run < 2 and len(handled) == 7 * (run + 1):
                    break
    assert sorted(handled) == list(range(20))


def test_row_whose_handling_failed_comes_again_and_no_other(
    kafka_cluster: KafkaCluster, group: str
) -> None:
    topic = kafka_cluster.topic(2)
    write(kafka_cluster, topic, range(10))
    handled: list[int] = []

    def handle(rows: KafkaResultConsumer) -> None:
        with rows:
            for row in rows:
                if len(handled) == 4:
                    raise ZeroDivisionError
                handled.append(row.row["number"])

    with pytest.raises(ZeroDivisionError):
        handle(consumer(kafka_cluster, topic, group))
    with consumer(kafka_cluster, topic, group) as rows:
        handled += [row.row["number"] for row in rows]
    assert sorted(handled) == list(range(10))


def test_members_of_a_group_handle_each_row_once_while_partitions_move(
    kafka_cluster: KafkaCluster, group: str
) -> None:
    topic = kafka_cluster.topic(2)
    write(kafka_cluster, topic, range(200))
    handled: list[tuple[str, int, int]] = []
    joined = Event()

    def take(name: str, rows: KafkaResultConsumer) -> None:
        with rows:
            for row in rows:
                handled.append((name, row.partition, row.row["number"]))
                # The first goes slowly until the second has something, so that both have a part.
                if name == "second":
                    joined.set()
                elif len(handled) < 150:
                    joined.wait(0.1)

    def second() -> None:
        take("second", consumer(kafka_cluster, topic, group))

    other = Thread(target=second)
    other.start()
    take("first", consumer(kafka_cluster, topic, group))
    other.join()
    assert sorted(number for _name, _partition, number in handled) == list(range(200))


def test_program_that_keeps_offsets_itself_begins_where_it_says(
    kafka_cluster: KafkaCluster, group: str
) -> None:
    topic = kafka_cluster.topic(2)
    write(kafka_cluster, topic, range(10))
    with consumer(kafka_cluster, topic, group) as rows:
        second = [row for row in rows if row.partition == 0][1]
    for _again in range(2):
        with consumer(kafka_cluster, topic, group, begin={0: second.offset}) as rows:
            found = [row.row["number"] for row in rows]
        assert sorted(found) == [1, 2, 3, 4, 5, 6, 7, 8, 9]


def test_topic_that_does_not_exist_is_named(kafka_cluster: KafkaCluster, group: str) -> None:
    with pytest.raises(NotFound, match="no topic"):
        consumer(kafka_cluster, Topic("none"), group)


def test_frame_has_all_rows_with_their_revisions_and_takes_them_as_handled_at_the_end(
    kafka_cluster: KafkaCluster, group: str
) -> None:
    topic = kafka_cluster.topic(2)
    write(kafka_cluster, topic, range(4))

    def broken_off(rows: KafkaResultConsumer) -> None:
        with rows:
            assert rows.df().height == 4
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        broken_off(consumer(kafka_cluster, topic, group))
    with consumer(kafka_cluster, topic, group) as rows:
        frame = rows.df()
    assert sorted(frame["number"]) == list(range(4))
    assert set(frame["mars_revision"]) == {2}
    write(kafka_cluster, topic, [4])
    with consumer(kafka_cluster, topic, group) as rows:
        assert list(rows.df()["number"]) == [4]


def test_waiting_for_a_place_in_the_group_is_no_silence(
    kafka_cluster: KafkaCluster, group: str
) -> None:
    topic = kafka_cluster.topic(2)
    write(kafka_cluster, topic, range(4))
    with consumer(kafka_cluster, topic, group, silence_s=2.0) as rows:
        assert rows.df().height == 4


def test_frame_without_an_end_is_refused(kafka_cluster: KafkaCluster, group: str) -> None:
    topic = kafka_cluster.topic()
    endless = KafkaResultConsumer(kafka_cluster.settings, topic, TASK, group, begin={})
    with endless as rows, pytest.raises(MarsError, match="silence_s"):
        rows.df()
