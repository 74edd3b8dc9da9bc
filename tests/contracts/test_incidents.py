"""The topic `mars.incidents`, on the twin and on a real Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from mars.adapters.kafka import KafkaIncidentLog
from mars.adapters.memory.incidents import MemoryIncidentLog
from mars.core.errors import Unavailable
from mars.core.settings import KafkaSettings, Settings
from mars.core.types import Bucket, Lane, TaskName
from mars.protocol.ports import Incident, IncidentKind, IncidentLog
from tests.contracts.kafka_servers import BUCKETS, Cluster, KafkaCluster, MemoryCluster

TASK = TaskName("by_sip")
WHOLE = Incident(
    id="incomplete-1",
    time_ms=1_000,
    kind=IncidentKind.INCOMPLETE,
    what="Rows are gone.",
    means="Windows lack them.",
    do="Keep rows for longer.",
    task=TASK,
    bucket=Bucket(3),
    lane=Lane("1@b2"),
    first=7,
    next=19,
)


def opened(cluster: Cluster) -> IncidentLog:
    if isinstance(cluster, MemoryCluster):
        return MemoryIncidentLog(cluster.broker)
    assert isinstance(cluster, KafkaCluster)
    return KafkaIncidentLog(cluster.settings)


@pytest.fixture
def incidents(cluster: Cluster) -> Iterator[IncidentLog]:
    cluster.admin().ensure_internal(BUCKETS)
    log = opened(cluster)
    yield log
    if isinstance(log, KafkaIncidentLog):
        log.close()


def numbered(number: int, task: str | None = TASK) -> Incident:
    name = None if task is None else TaskName(task)
    return replace(WHOLE, id=f"i{number}", time_ms=1_000 * number, task=name)


def test_an_incident_comes_back_as_it_was(incidents: IncidentLog) -> None:
    assert incidents.recent(None, None, 10) == []
    incidents.put(WHOLE)
    assert incidents.recent(None, None, 10) == [WHOLE]


def test_the_newest_come_first_and_are_read_on(incidents: IncidentLog) -> None:
    for number in (2, 1, 3):
        incidents.put(numbered(number))
    assert [one.id for one in incidents.recent(None, None, 2)] == ["i3", "i2"]
    incidents.put(numbered(4))
    assert [one.id for one in incidents.recent(None, 2_000, 10)] == ["i4", "i3", "i2"]


def test_a_happening_that_is_told_again_is_kept_once(incidents: IncidentLog) -> None:
    incidents.put(numbered(1))
    incidents.put(replace(numbered(1), time_ms=9_000))
    assert incidents.recent(None, None, 10) == [numbered(1)]


def test_those_of_a_task_are_its_own_and_those_of_all(incidents: IncidentLog) -> None:
    for number, task in enumerate((TASK, "other", None)):
        incidents.put(numbered(number, task))
    assert [one.id for one in incidents.recent(TASK, None, 10)] == ["i2", "i0"]


def test_incidents_outlive_whoever_wrote_them(incidents: IncidentLog, cluster: Cluster) -> None:
    incidents.put(WHOLE)
    another = opened(cluster)
    assert another.recent(TASK, None, 1) == [WHOLE]
    if isinstance(another, KafkaIncidentLog):
        another.close()


def test_what_is_no_incident_is_passed_over(incidents: IncidentLog, cluster: Cluster) -> None:
    cluster.append(cluster.names.incidents, 0, [b"not ours", None], key=b"key")
    incidents.put(WHOLE)
    assert incidents.recent(None, None, 10) == [WHOLE]


def test_a_topic_that_is_not_there_yet_is_no_answer(cluster: Cluster) -> None:
    log = opened(cluster)
    with pytest.raises(Unavailable):
        log.recent(None, None, 1)
    if isinstance(log, KafkaIncidentLog):
        log.close()


def test_no_error_of_the_client_escapes_when_nobody_listens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mars.adapters.kafka.asking.ASK_TIMEOUT_S", 0.5)
    log = KafkaIncidentLog(Settings(kafka=KafkaSettings(bootstrap="127.0.0.1:1")))
    with pytest.raises(Unavailable):
        log.recent(None, None, 1)
