"""Answers of ad-hoc queries, on the twin and on a real Kafka: there once or not at all."""

from __future__ import annotations

import json

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource

from mars.adapters.kafka import KafkaQueryRows
from mars.adapters.kafka.read.answers import CHUNK_BYTES
from mars.adapters.kafka.read.results import KafkaResultTail
from mars.adapters.memory.queries import MemoryQueryRows
from mars.adapters.memory.results import MemoryResultTail
from mars.core.errors import JobFailed, NotFound, Unavailable
from mars.core.settings import KafkaSettings, Settings
from mars.core.types import RowCounts, TaskName, Topic
from mars.engine.codec import result_headers
from mars.protocol.ports import Answer, AnswerSlot, OutputRow, OutputRows, QueryId, QueryRows
from tests.contracts.kafka_servers import BUCKETS, Cluster, KafkaCluster, MemoryCluster

ID = QueryId("q-1")
OTHER = QueryId("q-2")
ROWS = tuple(b'{"window_start":0,"sip":"%d"}' % number for number in range(5))
COUNTS = RowCounts(1, 2, 3, 4)


@pytest.fixture
def cluster(cluster: Cluster) -> Cluster:
    """With the topics of Mars in it."""
    cluster.admin().ensure_internal(BUCKETS)
    return cluster


def rows_of(cluster: Cluster) -> QueryRows:
    """Those of one more process."""
    if isinstance(cluster, MemoryCluster):
        return MemoryQueryRows(cluster.broker)
    assert isinstance(cluster, KafkaCluster)
    return KafkaQueryRows(cluster.settings)


def answer(query: QueryId = ID, output: OutputRows | None = None) -> Answer:
    return Answer(query, ROWS, COUNTS, output)


def output_to(topic: Topic, partition: int = 0) -> OutputRows:
    headers = ((result_headers.TASK, ID.encode()), (result_headers.COMPLETE, b"1"))
    return OutputRows(topic, partition, tuple(OutputRow(b"[0]", row, headers) for row in ROWS))


def written_to(cluster: Cluster, topic: Topic) -> list[bytes]:
    """The committed rows of the query in a topic."""
    tail: MemoryResultTail | KafkaResultTail
    if isinstance(cluster, MemoryCluster):
        tail = MemoryResultTail(cluster.broker)
    else:
        assert isinstance(cluster, KafkaCluster)
        tail = KafkaResultTail(cluster.settings)
    return [row.value for row in tail.recent(topic, TaskName(ID), 1_000, None).rows]


def test_answer_is_read_back_as_it_was_written(cluster: Cluster) -> None:
    ours, theirs = rows_of(cluster), rows_of(cluster)
    slot = ours.reserve(ID)
    assert theirs.recover(ID, slot) is None
    written = ours.write(answer(), slot)
    assert (written.counts, written.place.rows) == (COUNTS, 5)
    assert written.place.size_bytes == sum(map(len, ROWS))
    assert theirs.read(ID, written.place) == list(ROWS)
    assert theirs.recover(ID, slot) == written


def test_answer_without_rows_is_an_answer(cluster: Cluster) -> None:
    rows = rows_of(cluster)
    slot = rows.reserve(ID)
    written = rows.write(Answer(ID, (), COUNTS), slot)
    assert written.place.rows == 0
    assert rows.read(ID, written.place) == []
    assert rows.recover(ID, slot) == written


def test_answers_of_several_queries_do_not_mix(cluster: Cluster) -> None:
    rows = rows_of(cluster)
    partition = rows.reserve(ID).partition
    slots = {query: AnswerSlot(partition, 0) for query in (ID, OTHER)}
    places = {}
    for query, slot in slots.items():
        texts = tuple(b'{"query":"%s","n":%d}' % (query.encode(), n) for n in range(3))
        places[query] = rows.write(Answer(query, texts, COUNTS), slot).place
    assert {json.loads(row)["query"] for row in rows.read(OTHER, places[OTHER])} == {OTHER}
    for query, slot in slots.items():
        found = rows.recover(query, slot)
        assert found is not None
        assert found.place == places[query]


def test_large_answer_is_cut_into_records_and_comes_back_whole(cluster: Cluster) -> None:
    rows = rows_of(cluster)
    texts = [json.dumps({"n": n, "text": "x" * 1_000}).encode() for n in range(1_000)]
    texts.append(b'"%s"' % (b"y" * (CHUNK_BYTES * 2)))
    place = rows.write(Answer(ID, texts, COUNTS), rows.reserve(ID)).place
    assert place.next - place.first >= 5
    assert rows.read(ID, place) == texts


def test_answer_written_again_is_the_one_that_is_there(cluster: Cluster) -> None:
    topic = cluster.topic(2)
    ours, theirs = rows_of(cluster), rows_of(cluster)
    slot = ours.reserve(ID)
    first = ours.write(answer(output=output_to(topic, 1)), slot)
    again = theirs.write(Answer(ID, ROWS[:2], RowCounts(), output_to(topic)), slot)
    assert again == first
    assert written_to(cluster, topic) == list(ROWS)


def test_output_topic_that_is_not_there_fails_and_leaves_no_answer(cluster: Cluster) -> None:
    rows = rows_of(cluster)
    slot = rows.reserve(ID)
    with pytest.raises(JobFailed, match="nowhere"):
        rows.write(answer(output=output_to(Topic("nowhere"))), slot)
    assert rows.recover(ID, slot) is None
    assert rows.write(answer(), slot).place.rows == 5


def test_rows_that_retention_has_taken_are_not_found(cluster: Cluster) -> None:
    rows = rows_of(cluster)
    slot = rows.reserve(ID)
    place = rows.write(answer(), slot).place
    cluster.truncate(cluster.names.queries, place.partition, place.first + 1)
    with pytest.raises(NotFound, match="run it again"):
        rows.read(ID, place)


def test_namespace_without_its_topics_says_who_makes_them() -> None:
    with pytest.raises(Unavailable, match=r"no topic mars\.queries"):
        rows_of(MemoryCluster()).reserve(ID)


# ------------------------------------------------------------------------------- Kafka alone


@pytest.mark.integration
def test_row_that_no_broker_takes_fails_for_good(kafka_cluster: KafkaCluster) -> None:
    kafka_cluster.admin().ensure_internal(BUCKETS)
    rows = rows_of(kafka_cluster)
    slot = rows.reserve(ID)
    with pytest.raises(JobFailed, match="does not take a row"):
        rows.write(Answer(ID, (b'"%s"' % (b"x" * 2**21),), COUNTS), slot)
    assert rows.recover(ID, slot) is None


@pytest.mark.integration
def test_open_transaction_of_a_dead_attempt_is_ended_by_the_next_one(
    kafka_cluster: KafkaCluster,
) -> None:
    kafka_cluster.admin().ensure_internal(BUCKETS)
    rows = rows_of(kafka_cluster)
    slot = rows.reserve(ID)
    writer = kafka_cluster.writer(kafka_cluster.names.query_transactional_id(ID))
    writer.write(kafka_cluster.names.queries, slot.partition, [b"half"])
    assert rows.write(answer(), slot).place.rows == 5
    with pytest.raises(Exception, match=r"(?i)fence|epoch"):
        writer.commit()


@pytest.mark.integration
def test_answers_are_kept_for_a_day_in_small_segments(kafka_cluster: KafkaCluster) -> None:
    kafka_cluster.admin().ensure_internal(BUCKETS)
    client = AdminClient({"bootstrap.servers": kafka_cluster.bootstrap, "log_level": 0})
    resource = ConfigResource("topic", kafka_cluster.names.queries)
    found = client.describe_configs([resource])[resource].result(10)
    assert found["cleanup.policy"].value == "delete"
    assert found["retention.ms"].value == "86400000"
    assert found["segment.bytes"].value == str(64 * 2**20)


@pytest.mark.integration
def test_no_error_of_the_client_escapes_when_nobody_listens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mars.adapters.kafka.read.queries.INIT_TIMEOUT_S", 0.5)
    monkeypatch.setattr("mars.adapters.kafka.asking.ASK_TIMEOUT_S", 0.5)
    rows = KafkaQueryRows(Settings(kafka=KafkaSettings(bootstrap="127.0.0.1:1")))
    slot = AnswerSlot(0, 0)
    for call in (
        lambda: rows.reserve(ID),
        lambda: rows.recover(ID, slot),
        lambda: rows.write(answer(), slot),
    ):
        with pytest.raises(Unavailable):
            call()
