from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource

from mars.adapters.kafka import asking
from mars.adapters.kafka.errors import NO_LEADER
from mars.core.errors import SettingsError, TopicRefused, Unavailable
from mars.core.types import Topic
from tests.contracts.kafka_servers import BUCKETS, Cluster, KafkaCluster
from tests.contracts.waiting import eventually

NOWHERE = Topic("nowhere")


def test_a_topic_that_does_not_exist_has_no_description_and_no_offsets(cluster: Cluster) -> None:
    admin = cluster.admin()
    assert admin.describe(NOWHERE) is None
    assert admin.ends(NOWHERE) == admin.starts(NOWHERE) == admin.offsets_at(NOWHERE, 0) == {}


def test_an_output_topic_is_made_once_and_stays_as_it_is(cluster: Cluster) -> None:
    admin = cluster.admin()
    topic = Topic(f"{cluster.topic()}.output")
    made = admin.ensure_output(topic, 3)
    assert made.partitions == 3
    assert admin.ensure_output(topic, 5) == made == admin.describe(topic)


def test_many_output_topics_are_made_and_found_together(cluster: Cluster) -> None:
    admin = cluster.admin()
    there, missing = (Topic(f"{cluster.topic()}.{name}") for name in ("there", "missing"))
    made = admin.ensure_output(there, 3)

    found = admin.ensure_outputs([there, missing], 2)

    assert found == {there: made, missing: admin.describe(missing)}
    assert admin.ensure_outputs([], 2) == {}


def test_very_many_partitions_are_made_in_several_requests(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mars.adapters.kafka.admin.MADE_AT_ONCE", 5)
    admin = cluster.admin()
    base = cluster.topic()
    topics = [Topic(f"{base}.{number}") for number in range(5)]
    found = admin.ensure_outputs(topics, 2)
    assert list(found) == topics
    assert found == {topic: admin.describe(topic) for topic in topics}


def test_topics_that_keep_one_record_of_a_key_are_told_from_others(cluster: Cluster) -> None:
    admin = cluster.admin()
    admin.ensure_internal(4)
    output = Topic(f"{cluster.topic()}.output")
    assert not admin.compacted(output)
    admin.ensure_output(output, 2)
    assert not admin.compacted(output)
    assert admin.compacted(cluster.names.progress)


def test_a_topic_made_again_has_another_id(cluster: Cluster) -> None:
    admin = cluster.admin()
    topic = Topic(f"{cluster.topic()}.again")
    first = admin.ensure_output(topic, 1)
    cluster.delete(topic)
    eventually(lambda: admin.describe(topic) is None)
    assert admin.ensure_output(topic, 1).topic_id != first.topic_id


def test_partitions_are_counted_anew_when_there_are_more(cluster: Cluster) -> None:
    topic = cluster.topic(1)
    cluster.grow(topic, 3)
    admin = cluster.admin()
    grown = eventually(lambda: (found := admin.describe(topic)) and found.partitions == 3 and found)
    assert grown.partitions == 3


def test_the_internal_topics_are_made_and_found_again(cluster: Cluster) -> None:
    admin = cluster.admin()
    admin.ensure_internal(BUCKETS)
    admin.ensure_internal(BUCKETS)
    progress, control = (
        admin.describe(name) for name in (cluster.names.progress, cluster.names.control)
    )
    assert progress is not None
    assert control is not None
    assert (progress.partitions, control.partitions) == (BUCKETS, 1)
    assert admin.describe(cluster.names.dead) is not None


def test_another_number_of_buckets_than_the_namespace_has_is_refused(cluster: Cluster) -> None:
    admin = cluster.admin()
    admin.ensure_internal(BUCKETS)
    with pytest.raises(SettingsError, match=rf"{BUCKETS} partitions.*cluster\.buckets"):
        admin.ensure_internal(BUCKETS + 1)


def test_ends_are_those_of_committed_records(cluster: Cluster) -> None:
    topic = cluster.topic(2)
    admin = cluster.admin()
    assert admin.ends(topic) == {0: 0, 1: 0}
    cluster.append(topic, 1, [b"a", b"b"])
    writer = cluster.writer()
    writer.write(topic, 1, [b"c"])
    cluster.append(topic, 1, [b"d"])
    assert admin.ends(topic) == {0: 0, 1: 2}
    writer.commit()
    eventually(lambda: admin.ends(topic) == {0: 0, 1: 5})


def test_starts_are_what_retention_has_left(cluster: Cluster) -> None:
    topic = cluster.topic(2)
    cluster.append(topic, 0, [b"a", b"b", b"c"])
    cluster.truncate(topic, 0, 2)
    assert cluster.admin().starts(topic) == {0: 2, 1: 0}


def test_offsets_at_a_time_are_the_first_at_or_after_it_else_the_end(cluster: Cluster) -> None:
    topic = cluster.topic(2)
    for timestamp_ms in (1_000, 2_000, 3_000):
        cluster.append(topic, 0, [b"row"], timestamp_ms=timestamp_ms)
    admin = cluster.admin()
    found = [admin.offsets_at(topic, at) for at in (0, 1_000, 1_001, 3_000, 3_001)]
    assert found == [{0: offset, 1: 0} for offset in (0, 0, 1, 2, 3)]


def test_rows_that_come_between_two_questions_are_behind_a_start_by_time(
    kafka_cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kafka_cluster.topic(1)
    kafka_cluster.append(topic, 0, [b"before"], timestamp_ms=1_000)
    admin = kafka_cluster.admin()
    asked = admin._ask

    def ask_and_let_one_come(*question: object) -> object:
        answer = asked(*question)  # type: ignore[arg-type]
        kafka_cluster.append(topic, 0, [b"of the time"], timestamp_ms=2_000)
        return answer

    monkeypatch.setattr(admin, "_ask", ask_and_let_one_come)
    assert admin.offsets_at(topic, 2_000) == {0: 1}


@dataclass
class FailsOnce:
    """A client whose first question fails, or with `apart` that for its one partition."""

    client: Consumer
    error: KafkaError
    apart: bool
    asked: int = 0
    looked: int = 0

    def offsets_for_times(
        self, places: list[TopicPartition], timeout: float
    ) -> Sequence[TopicPartition | SimpleNamespace]:
        self.asked += 1
        if self.asked > 1:
            return self.client.offsets_for_times(places, timeout)
        if self.apart:
            (place,) = places
            return [SimpleNamespace(topic=place.topic, partition=0, offset=-1, error=self.error)]
        raise KafkaException(self.error)

    def poll(self, timeout: float) -> None:
        """It has nothing to tell."""

    def list_topics(self, timeout: float) -> object:
        self.looked += 1
        return self.client.list_topics(timeout=timeout)


@pytest.mark.integration
@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("code", sorted(NO_LEADER))
def test_a_partition_without_a_leader_known_to_the_client_is_asked_again_once_it_looked_for_it(
    kafka_cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch, code: int, apart: bool
) -> None:
    topic, admin = kafka_cluster.topic(1), kafka_cluster.admin()
    asker = admin.offsets_of._asker(committed=True)
    client = FailsOnce(asker.client, KafkaError(code, "no leader yet"), apart)
    monkeypatch.setattr(asker, "client", client)
    assert admin.ends(topic) == {0: 0}
    assert (client.asked, client.looked) == (2, 1)


@pytest.mark.integration
def test_a_client_that_has_no_answer_for_long_is_replaced(
    kafka_cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, kafka = kafka_cluster.topic(1), kafka_cluster.admin()
    monkeypatch.setattr(asking, "CUT_OFF_S", 0.0)
    unheard: Future[object] = Future()
    unheard.set_exception(KafkaException(KafkaError(KafkaError._TRANSPORT)))
    monkeypatch.setattr(
        kafka._asker.client, "describe_topics", lambda *_topics, **_more: {topic: unheard}
    )
    with pytest.raises(Unavailable):
        kafka.describe(topic)

    found = kafka.describe(topic)

    assert found is not None
    assert found.partitions == 1


@pytest.mark.integration
def test_a_client_for_offsets_that_has_no_answer_for_long_is_replaced(
    kafka_cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, kafka = kafka_cluster.topic(1), kafka_cluster.admin()
    monkeypatch.setattr(asking, "CUT_OFF_S", 0.0)
    asker = kafka.offsets_of._asker(committed=True)
    unheard: object = FailsOnce(asker.client, KafkaError(KafkaError._TRANSPORT), apart=False)
    monkeypatch.setattr(asker, "client", unheard)
    with pytest.raises(Unavailable):
        kafka.end(topic, 0)

    assert kafka.end(topic, 0) == 0
    assert asker.client is not unheard


@pytest.mark.integration
def test_many_may_ask_at_once_for_the_ends_of_topics_that_the_client_has_not_met(
    kafka_cluster: KafkaCluster,
) -> None:
    topics, admin = [kafka_cluster.topic(2) for _ in range(12)], kafka_cluster.admin()
    with ThreadPoolExecutor(12) as threads:
        ends = list(threads.map(admin.ends, topics))
        written = list(threads.map(lambda topic: admin.written_ends_of(topic, [0, 1]), topics))
    assert ends == written == [{0: 0, 1: 0}] * len(topics)


@pytest.mark.integration
def test_who_still_asks_while_the_process_ends_is_told_so(kafka_cluster: KafkaCluster) -> None:
    topic, admin = kafka_cluster.topic(1), kafka_cluster.admin()
    admin.offsets_of._threads.shutdown()  # as the interpreter does
    with pytest.raises(Unavailable, match="stopping"):
        admin.end(topic, 0)


@pytest.mark.integration
def test_a_topic_that_kafka_refuses_is_named(kafka_cluster: KafkaCluster) -> None:
    topic, admin = kafka_cluster.topic(1), kafka_cluster.admin()
    admin.ensure_output(Topic(f"{topic}.taken"), 1)

    with pytest.raises(TopicRefused, match=rf"topic {topic}_taken: .*differs only in"):
        admin.ensure_output(Topic(f"{topic}_taken"), 1)


@pytest.mark.integration
def test_a_refused_topic_does_not_keep_others_from_being_made(kafka_cluster: KafkaCluster) -> None:
    topic, admin = kafka_cluster.topic(1), kafka_cluster.admin()
    admin.ensure_output(Topic(f"{topic}.taken"), 1)
    refused, fine = Topic(f"{topic}_taken"), Topic(f"{topic}.fine")

    found = admin.ensure_outputs([refused, fine], 1)

    assert isinstance(found[refused], TopicRefused)
    assert found[fine] == admin.describe(fine) is not None


def test_several_processes_may_make_the_same_topics_at_once(kafka_cluster: KafkaCluster) -> None:
    topic = Topic(f"{kafka_cluster.settings.namespace}.race")

    def make(_number: int) -> str:
        admin = kafka_cluster.admin()
        admin.ensure_internal(BUCKETS)
        return admin.ensure_output(topic, 2).topic_id

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(make, range(4)))) == 1


@pytest.mark.integration
def test_progress_and_control_are_compacted_soon_and_in_small_segments(
    kafka_cluster: KafkaCluster,
) -> None:
    kafka_cluster.admin().ensure_internal(BUCKETS)
    client = AdminClient({"bootstrap.servers": kafka_cluster.bootstrap, "log_level": 0})
    names = kafka_cluster.names
    for topic in (names.progress, names.control):
        resource = ConfigResource("topic", topic)
        found = client.describe_configs([resource])[resource].result(10)
        assert found["cleanup.policy"].value == "compact"
        assert found["segment.bytes"].value == str(16 * 2**20)
        assert found["min.cleanable.dirty.ratio"].value == "0.1"
        assert found["max.compaction.lag.ms"].value == "60000"
