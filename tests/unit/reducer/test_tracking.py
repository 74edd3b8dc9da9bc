"""The acker of a reducer, from the notes that come to what people are told."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

import reducer.tracking
from mars.adapters.kafka.wire import encode_progress
from mars.adapters.memory.admin import MemoryTopicAdmin
from mars.adapters.memory.broker import MemoryBroker
from mars.adapters.memory.coordinator import MemoryCoordinator, MemoryEnsemble
from mars.adapters.memory.notes import MemoryNoteBox
from mars.adapters.memory.partial_log import MemoryPartialLog
from mars.adapters.memory.progress import MemoryProgressLog
from mars.core.types import Bucket, Lane, MemberId, Topic
from mars.process.tracking import Outbox
from mars.protocol.ports import Incident, IncidentKind, MemberInfo, TaskStart
from mars.protocol.ports.notes import Note
from mars.protocol.ports.seen import Seen
from reducer.tracking import LOST_EPOCH, TrackerLoop
from tests.unit.machines.reducing_rows import make_progress
from tests.unit.tracking.samples import LIFE, TASK, counted, stored

MEMBER = MemberId("reducer-1")
BUCKETS = 2
DEADLINE_MS = 5_000
CLOSED_MS = 60_000


class World:
    """One acker, its servers, and a clock."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.broker = MemoryBroker()
        MemoryTopicAdmin(self.broker).ensure_internal(BUCKETS)
        store = MemoryPartialLog(lambda: 0, buckets=BUCKETS)
        store.initialise(TASK, LIFE.epoch, TaskStart(LIFE.version, True, {}, {}, {}))
        coordinator = MemoryCoordinator(MemoryEnsemble(), MEMBER)
        coordinator.join(MemberInfo(MEMBER, "reducer", "host", 1, 0))
        self.box = MemoryNoteBox()
        self.told: list[Incident] = []
        self.tracker = TrackerLoop(
            MEMBER,
            DEADLINE_MS,
            BUCKETS,
            outbox=Outbox(self.box, coordinator),
            box=self.box,
            log=store,
            progress=MemoryProgressLog(self.broker),
            tell=self.told.append,
        )

    def monotonic(self) -> float:
        return self.now_s

    def commit(self, bucket: int, *seqs: int) -> None:
        """A progress record that has read to SEQ 9 and found these."""
        bits = sum(1 << (9 - seq) for seq in seqs)
        record = make_progress(
            {Lane("0"): 100},
            TASK,
            bucket=Bucket(bucket),
            store_epoch=LIFE.epoch,
            closed_ms=CLOSED_MS,
            seen=Seen(0, 9, bits.to_bytes(2, "little")),
        )
        self.broker.append(Topic("mars.progress"), bucket, encode_progress(record))

    def overdue(self, *notes: Note) -> Sequence[Incident]:
        """What is told once the deadline of these has passed."""
        self.box.send({MEMBER: notes})
        self.tracker.round()
        self.now_s += DEADLINE_MS / 1_000 + 1
        self.tracker.round()
        return self.told


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr(reducer.tracking, "time", made)
    return made


def test_a_lost_partial_is_an_incident_and_raises_the_epoch(world: World) -> None:
    world.commit(0, 5)
    world.commit(1)

    (incident,) = world.overdue(stored(5, 0, 1), counted(5, 0))

    assert incident.kind is IncidentKind.PARTIAL_LOST
    assert (incident.task, incident.bucket, incident.lane) == (TASK, Bucket(1), Lane("0"))
    assert (incident.first, incident.next) == (50, 60)
    assert "1970-01-01 00:01:00Z" in incident.means
    assert world.tracker.load()[LOST_EPOCH] == LIFE.epoch
    assert world.tracker.load()["tracker_lost_total"] == 1


def test_a_partial_of_which_only_the_notes_were_lost_is_no_incident(world: World) -> None:
    world.commit(0, 5)
    world.commit(1, 5)

    assert world.overdue(stored(5, 0, 1)) == []
    assert LOST_EPOCH not in world.tracker.load()
    assert world.tracker.load()["tracker_proven_total"] == 1


def test_whoever_finds_a_loss_tells_it_by_the_same_name(world: World) -> None:
    world.commit(0, 5)
    world.commit(1)
    (incident,) = world.overdue(stored(5, 0, 1))
    world.told.clear()
    (again,) = world.overdue(stored(5, 0, 1))
    assert again.id == incident.id
