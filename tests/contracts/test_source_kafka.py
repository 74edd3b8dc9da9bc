"""What only the real reader can show."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Message
from confluent_kafka.admin import AdminClient

from mars.adapters.kafka.config import SESSION_TIMEOUT_MS
from mars.adapters.kafka.source import deafness, slices
from mars.adapters.kafka.source import reader as source
from mars.core.errors import Unavailable
from mars.core.types import Topic
from mars.protocol.ports import Fetched
from tests.contracts.deaf import GoesDeaf
from tests.contracts.kafka_servers import KafkaCluster, ProxiedKafka
from tests.contracts.reading import Reading
from tests.contracts.waiting import eventually

pytestmark = pytest.mark.integration

ROWS = [b"%d" % number for number in range(2_000)]


@pytest.mark.parametrize("grouped", [True, False])
def test_a_client_that_has_gone_deaf_is_replaced_and_nothing_is_left_out(
    kafka_cluster: KafkaCluster, goes_deaf: type[GoesDeaf], *, grouped: bool
) -> None:
    topic = kafka_cluster.topic(1)
    kafka_cluster.append(topic, 0, ROWS[:5])
    reading = Reading(kafka_cluster.member() if grouped else kafka_cluster.alone())
    if grouped:
        reading.reader.subscribe([topic])
        reading.until_owned([(topic, 0)])
    reading.seek(topic, 0, 0)
    reading.until_end(topic)
    goes_deaf.deaf.update(goes_deaf.made)
    kafka_cluster.append(topic, 0, ROWS[5:9])

    with pytest.raises(Unavailable, match=rf"no more rows come from {topic}\[0\]"):
        eventually(lambda: reading.poll() and False)

    if grouped:
        reading.until_owned([(topic, 0)])
        reading.reader.seek(topic, 0, 5)
    eventually(lambda: reading.poll() and len(reading.values(topic, 0)) == 9)
    assert reading.values(topic, 0) == ROWS[:9]
    assert len(goes_deaf.made) == 2


def test_a_member_without_brokers_is_replaced_though_it_owns_nothing(
    kafka_cluster: KafkaCluster, goes_deaf: type[GoesDeaf]
) -> None:
    topic = kafka_cluster.topic(1)
    reading = Reading(kafka_cluster.member())
    reading.reader.subscribe([topic])
    goes_deaf.deaf.update(goes_deaf.made)
    goes_deaf.cut_off.update(goes_deaf.made)

    with pytest.raises(Unavailable, match="no broker was found for some time; a new client"):
        eventually(lambda: reading.poll() and False)

    reading.until_owned([(topic, 0)])
    assert len(goes_deaf.made) == 2


def test_a_client_at_the_end_of_its_partitions_is_left_in_peace(
    kafka_cluster: KafkaCluster, goes_deaf: type[GoesDeaf], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kafka_cluster.topic(1)
    kafka_cluster.append(topic, 0, ROWS[:5])
    reader = kafka_cluster.alone()
    reading = Reading(reader)
    reading.seek(topic, 0, 0)
    reading.until_end(topic)  # on a busy machine later than a client counts as deaf below
    monkeypatch.setattr(deafness, "DEAF_S", 0.05)
    monkeypatch.setattr(reader, "_deafness", deafness.Deafness(reader._admin))

    for _look in range(10):
        reading.poll()

    assert len(goes_deaf.made) == 1


def test_whoever_waits_for_rows_does_not_ask_for_them_again_and_again(
    kafka_cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0

    class Counted(Consumer):
        def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
            nonlocal asked
            asked += 1
            return super().consume(num_messages, timeout)

    monkeypatch.setattr(source, "Consumer", Counted)
    topic = kafka_cluster.topic(1)
    kafka_cluster.append(topic, 0, ROWS[:5])
    reading = Reading(kafka_cluster.alone())
    reading.seek(topic, 0, 0)
    reading.until_end(topic)
    asked, polls = 0, 20

    for _poll in range(polls):
        assert not reading.reader.poll(100, 0.02)

    # Before the wait, the wait and after it, and once more where it ended too soon.
    assert asked <= 5 * polls


def test_a_stretch_that_a_deaf_client_could_not_read_is_read_by_the_next_one(
    kafka_cluster: KafkaCluster, goes_deaf: type[GoesDeaf]
) -> None:
    topic = kafka_cluster.topic(1)
    kafka_cluster.append(topic, 0, ROWS[:5])
    reader = slices.SliceReader(kafka_cluster.settings, "slices")
    assert [one.value() for portion in reader.read(topic, 0, 0, 2) for one in portion] == ROWS[:2]
    goes_deaf.deaf.update(goes_deaf.made)
    with pytest.raises(Unavailable, match="no progress"):
        list(reader.read(topic, 0, 2, 5))

    found = [one.value() for portion in reader.read(topic, 0, 2, 5) for one in portion]

    assert found == ROWS[2:5]
    reader.close()


def test_partitions_of_a_killed_process_go_to_the_others_after_the_session_time_out(
    kafka_cluster: KafkaCluster,
) -> None:
    topic = kafka_cluster.topic(4)
    stays = Reading(kafka_cluster.member())
    stays.reader.subscribe([topic])
    eventually(lambda: stays.poll() and len(stays.owned) == 4)
    script = Path(__file__).with_name("group_member.py")
    arguments = [kafka_cluster.bootstrap, kafka_cluster.settings.namespace, topic]
    with subprocess.Popen([sys.executable, script, *arguments], stdout=subprocess.PIPE) as victim:
        eventually(lambda: stays.poll() and len(stays.owned) == 2)
        assert victim.stdout is not None
        assert victim.stdout.readline() == b"2\n"
        victim.kill()
    killed = time.monotonic()
    eventually(lambda: stays.poll() and len(stays.owned) == 4)
    assert time.monotonic() - killed < 2 * SESSION_TIMEOUT_MS / 1000


def test_a_storm_of_seeks_and_pauses_delivers_each_time_from_where_it_was_told(
    kafka_cluster: KafkaCluster,
) -> None:
    topic = kafka_cluster.topic(2)
    for partition in (0, 1):
        kafka_cluster.append(topic, partition, ROWS)
    reader, chance = kafka_cluster.alone(), random.Random(7)
    positions = {0: 0, 1: 0}
    for partition in positions:
        reader.seek(topic, partition, 0)
    checked = 0
    for _turn in range(150):
        for event in reader.poll(chance.choice([1, 50, 5_000]), chance.choice([0.0, 0.02])):
            if isinstance(event, Fetched):
                partition = int(event.records.lane)
                assert event.records.first == positions[partition]
                assert list(event.records.values) == ROWS[event.records.first : event.records.next]
                positions[partition] = event.records.next
                checked += len(event.records.values)
        partition, offset = chance.randrange(2), chance.randrange(len(ROWS))
        positions[partition] = offset
        if chance.random() < 0.5:
            reader.pause(topic, partition)
            reader.resume(topic, partition, offset)
        else:
            reader.seek(topic, partition, offset)
    assert checked > len(ROWS)


def test_a_hint_is_the_groups_committed_offset(kafka_cluster: KafkaCluster) -> None:
    topic = kafka_cluster.topic(1)
    kafka_cluster.append(topic, 0, ROWS[:5])
    reading = Reading(kafka_cluster.member())
    reading.reader.subscribe([topic])
    reading.until_owned([(topic, 0)])
    client = AdminClient({"bootstrap.servers": kafka_cluster.bootstrap, "log_level": 0})
    asked = ConsumerGroupTopicPartitions(kafka_cluster.names.mappers)

    def committed() -> dict[Topic, int]:
        answer = client.list_consumer_group_offsets([asked])[asked.group_id].result(5)
        return {Topic(one.topic): one.offset for one in answer.topic_partitions}

    def hinted() -> bool:
        reading.reader.hint({(topic, 0): 4})
        return reading.poll() and committed() == {topic: 4}

    eventually(hinted)


def test_a_reader_says_that_all_brokers_are_away_until_they_are_back(
    kafka: ProxiedKafka, proxied_cluster: KafkaCluster
) -> None:
    topic = proxied_cluster.topic(1)
    proxied_cluster.append(topic, 0, ROWS[:3])
    reading = Reading(proxied_cluster.alone())
    reading.seek(topic, 0, 0)
    reading.until_end(topic)
    kafka.proxy.cut()
    said = eventually(lambda: complaint(reading))
    assert said.service == "kafka"
    assert "kafka.bootstrap" in said.detail
    assert all(complaint(reading) for _turn in range(5))
    kafka.proxy.heal()
    eventually(lambda: complaint(reading) is None)
    proxied_cluster.append(topic, 0, ROWS[3:6])
    reading.until_end(topic, end=6)
    assert reading.values(topic) == ROWS[:6]


def complaint(reading: Reading) -> Unavailable | None:
    """Poll once; what it complains of."""
    try:
        reading.poll()
    except Unavailable as problem:
        return problem
    return None


def test_a_question_to_brokers_that_are_away_is_answered_by_unavailable(
    kafka: ProxiedKafka, proxied_cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = proxied_cluster.topic(1)
    reader = proxied_cluster.alone()
    kafka.proxy.cut()
    monkeypatch.setattr("mars.adapters.kafka.asking.ASK_TIMEOUT_S", 0.5)
    with pytest.raises(Unavailable):
        reader.confirm_ends({(topic, 0): 0})
    reader.hint({(topic, 0): 1})
    reader.seek(topic, 0, 0)
