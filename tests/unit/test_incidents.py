"""Incidents are written down once each, by a thread that nobody waits for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_type_hints

import pytest

from mars.adapters.memory.broker import MemoryBroker
from mars.adapters.memory.incidents import MemoryIncidentLog
from mars.client import answers
from mars.core.definitions import REGISTER_AGAIN, TaskDefinition, TaskState, TaskVersion
from mars.core.plan import Field, FieldType, Format, Stream
from mars.core.types import (
    Bucket,
    Lane,
    Range,
    Reason,
    RejectedRange,
    Sequence64,
    StoreEpoch,
    StreamName,
    TaskName,
    Topic,
)
from mars.engine.decode.limits import KAFKA_BATCH_BYTES_MAX
from mars.process.life import Life
from mars.process.telemetry import incidents
from mars.process.telemetry.incidents import IncidentTeller
from mars.protocol.ports import IncidentKind
from mars.protocol.ports.notes import LogLife, Root
from tests.contracts.waiting import eventually


@pytest.fixture
def life() -> Iterator[Life]:
    life = Life()
    yield life
    life.stop()


@pytest.fixture
def log() -> MemoryIncidentLog:
    broker = MemoryBroker(lambda: 0)
    broker.create_topic(Topic("mars.incidents"), 1)
    return MemoryIncidentLog(broker)


def test_an_incident_is_written_until_it_is_kept(
    life: Life, log: MemoryIncidentLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incidents, "RETRY_S", 0.01)
    log.fail_next("put")
    log.fail_next("put", before=False)
    teller = IncidentTeller(log)
    teller.tell(incidents.rewound(StoreEpoch(7), "flushed"))
    teller.tell(incidents.fenced(Bucket(2), "a newer owner."))
    teller.start(life)
    eventually(lambda: len(log.recent(None, None, 9)) == 2)
    kinds = {one.kind for one in log.recent(None, None, 9)}
    assert kinds == {IncidentKind.REWOUND, IncidentKind.FENCED}


def test_what_finds_no_room_holds_nobody_up(
    log: MemoryIncidentLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incidents, "WAITING_MAX", 2)
    teller = IncidentTeller(log)
    for number in range(5):
        teller.tell(incidents.rewound(StoreEpoch(number), "flushed"))
    assert log.recent(None, None, 9) == []


def test_the_same_happening_has_the_same_name_whoever_tells_it() -> None:
    part = RejectedRange(Lane("3"), 7, 19, Reason.GONE, 12)
    one, other = (incidents.incomplete(TaskName("a"), Bucket(1), part) for _ in range(2))
    assert one.id == other.id
    assert (one.first, one.next, one.lane) == (7, 19, Lane("3"))
    assert "7 to 18" in one.what
    assert incidents.audit_mismatch(None, "x").id == incidents.audit_mismatch(None, "x").id
    assert incidents.audit_mismatch(None, "x").id != incidents.audit_mismatch(None, "y").id
    assert incidents.fenced(None, "x").id != incidents.fenced(None, "x").id


def test_the_reference_names_all_kinds() -> None:
    named = get_type_hints(answers.Incident, include_extras=True)["kind"].__metadata__[0]
    words = str(named.description).replace(" or ", ", ").split(", ")
    assert sorted(words) == sorted(kind.value for kind in IncidentKind)


def test_a_lost_partial_names_its_offsets_and_what_cannot_be_mended() -> None:
    root = Root(LogLife(TaskName("a"), StoreEpoch(3), 2), Sequence64(17))
    parts = (Range(Lane("3"), 7, 19), Range(Lane("4"), 0, 5))
    one = incidents.partial_lost(root, parts, [Bucket(1)], None)
    assert "bucket 1" in one.what
    assert "7 to 18 of lane 3, 0 to 4 of lane 4" in one.what
    assert "No window was emitted without them" in one.means
    assert (one.lane, one.bucket) == (None, Bucket(1))
    several = incidents.partial_lost(root, (), [Bucket(1), Bucket(2)], 60_000)
    assert (several.bucket, several.id) == (None, one.id)
    assert "not known" in several.what
    assert "1970-01-01 00:01:00Z" in several.means


def test_withheld_results_are_told_with_what_to_do() -> None:
    one = incidents.withheld(TaskName("a"), Bucket(1), "2 results are withheld, for example [1]")
    assert (one.kind, one.task, one.bucket) == (IncidentKind.WITHHELD, TaskName("a"), Bucket(1))
    assert "2 results are withheld" in one.what
    assert "count as emitted" in one.means
    assert "SUBSTR" in one.do


def failed_task(detail: str) -> TaskDefinition:
    at = Field("at", FieldType.TIMESTAMP_MS)
    stream = Stream(StreamName("flows"), "flows", Format.JSON, (at,), "at")
    version = TaskVersion(1, "SELECT count(*) FROM flows", {}, stream, "id", 0, {})
    return TaskDefinition(TaskName("a"), TaskState.FAILED, (version,), detail)


def test_a_failed_task_is_to_be_resumed_once_the_cause_is_mended() -> None:
    one = incidents.failed(failed_task("the log needs 300 MB"), 7)
    assert "until it is resumed" in one.means
    assert "`mars task resume a`" in one.do


def test_a_task_of_a_topic_made_anew_is_to_be_registered_again_and_not_resumed() -> None:
    one = incidents.failed(failed_task(f"topic flows was made again: {REGISTER_AGAIN}"), 7)
    assert "resume" not in one.means + one.do
    assert "its open windows will not come" in one.means
    assert "`mars task rm a`, then `mars task add --name a`" in one.do


def test_messages_that_cannot_be_unpacked_are_told_with_their_offsets() -> None:
    part = RejectedRange(Lane("3"), 7, 19, Reason.UNDECODABLE, 12)
    one, other = (incidents.undecodable(TaskName("a"), Bucket(1), part) for _ in range(2))
    assert (one.id, one.kind) == (other.id, IncidentKind.UNDECODABLE)
    assert (one.task, one.lane, one.first, one.next) == (TaskName("a"), Lane("3"), 7, 19)
    assert "12 messages of lane 3, from offset 7 to 18" in one.what
    assert f"{KAFKA_BATCH_BYTES_MAX} bytes" in one.what
