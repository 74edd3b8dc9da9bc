"""What a test sees of Kafka, and does to it, beside reading and writing."""

from __future__ import annotations

from confluent_kafka import OFFSET_END, Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.support.cluster import MarsCluster

MAPPERS = "mars.default.mappers"
ANSWER_S = 20


def admin(mars: MarsCluster) -> AdminClient:
    """A client of the test's own."""
    return AdminClient({"bootstrap.servers": mars.file["kafka"]})


def group_members(mars: MarsCluster) -> set[str]:
    """The mappers' members of their group, by the names that the broker gave them."""
    client = admin(mars)  # answers come only as long as somebody has it
    described = client.describe_consumer_groups([MAPPERS])[MAPPERS].result(ANSWER_S)
    return {member.member_id for member in described.members}


def ends(mars: MarsCluster, topic: str) -> dict[int, int]:
    """The last stable offset of each partition."""
    client = Consumer({"bootstrap.servers": mars.file["kafka"], "group.id": "nobody"})
    partitions = client.list_topics(topic, ANSWER_S).topics[topic].partitions
    asked = [TopicPartition(topic, number, OFFSET_END) for number in partitions]
    answers = client.offsets_for_times(asked, ANSWER_S)
    client.close()
    assert all(place.error is None for place in answers)
    return {place.partition: place.offset for place in answers}


def delete_records(mars: MarsCluster, topic: str, below: dict[int, int]) -> None:
    """Let retention have taken everything below these offsets."""
    wanted = [TopicPartition(topic, number, offset) for number, offset in below.items()]
    client = admin(mars)
    # What it has not met it may crash on: see `mars.adapters.kafka.offsets`.
    client.list_topics(topic, ANSWER_S)
    for answer in client.delete_records(wanted).values():
        answer.result(ANSWER_S)
