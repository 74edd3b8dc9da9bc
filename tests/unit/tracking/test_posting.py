"""Notes on their way: added up, posted to the ackers, dropped rather than waited for."""

from __future__ import annotations

import time

import pytest

from mars.adapters.memory.coordinator import MemoryCoordinator, MemoryEnsemble
from mars.adapters.memory.notes import MemoryNoteBox
from mars.core.types import Bucket, Mapped, MemberId, Partial, RowCounts, Sequence64
from mars.process.tracking import NOTES_WAITING_MAX, RING_INTERVAL_S, Outbox
from mars.protocol.ports import MemberInfo
from tests.unit.tracking.samples import LIFE, TASK, counted, ranges, root, stored

ACKER, OTHER = MemberId("reducer-1"), MemberId("reducer-2")


class Office:
    """An outbox, its mailboxes, and ackers that come."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now_s = 0.0
        patch.setattr(time, "monotonic", lambda: self.now_s)
        self.ensemble = MemoryEnsemble()
        self.box = MemoryNoteBox()
        self.outbox = Outbox(self.box, MemoryCoordinator(self.ensemble, MemberId("mapper-1")))

    def join(self, acker: MemberId) -> None:
        info = MemberInfo(acker, "reducer", "host", 1, 0)
        MemoryCoordinator(self.ensemble, acker).join(info)


@pytest.fixture
def office(monkeypatch: pytest.MonkeyPatch) -> Office:
    return Office(monkeypatch)


def test_notes_of_one_batch_are_posted_as_one(office: Office) -> None:
    office.join(ACKER)
    partials = tuple(Partial(Bucket(one), RowCounts(1), (), b"") for one in (0, 3))
    office.outbox.stored(
        TASK, LIFE.epoch, LIFE.version, Sequence64(5), Mapped(ranges(5), {}, partials)
    )
    office.outbox.counted(TASK, LIFE.epoch, Bucket(3), [(LIFE.version, Sequence64(5))])
    office.outbox.post()
    assert office.box.take(ACKER) == [stored(5, 0, 3) + counted(5, 3)]
    office.outbox.post()
    assert office.box.take(ACKER) == []


def test_each_acker_gets_the_notes_of_its_own_roots(office: Office) -> None:
    for acker in (ACKER, OTHER):
        office.join(acker)
    notes = [stored(seq, 0) for seq in range(0, 6_400, 64)]
    office.outbox.put(notes)
    office.outbox.post()
    taken = {acker: office.box.take(acker) for acker in (ACKER, OTHER)}
    assert sum(map(len, taken.values())) == len(notes)
    for acker, some in taken.items():
        assert some
        assert all(office.outbox.ring.owner(note.root.place) == acker for note in some)


def test_who_the_ackers_are_is_looked_up_now_and_then(office: Office) -> None:
    office.outbox.post()
    office.join(ACKER)
    office.now_s = RING_INTERVAL_S - 0.1
    office.outbox.post()
    assert office.outbox.ring.members == frozenset()
    office.now_s = RING_INTERVAL_S
    office.outbox.post()
    assert office.outbox.ring.members == {ACKER}


@pytest.mark.parametrize("before", [True, False])
def test_notes_that_cannot_be_posted_are_not_sent_again(office: Office, before: bool) -> None:
    office.join(ACKER)
    office.box.fail_next("send", before=before)
    office.outbox.put([stored(1, 0)])
    office.outbox.post()
    office.outbox.post()
    assert len(office.box.take(ACKER)) == (0 if before else 1)


def test_while_there_is_no_acker_or_nobody_posts_notes_are_dropped(office: Office) -> None:
    office.outbox.put([stored(1, 0)])
    office.outbox.post()
    office.join(ACKER)
    office.now_s = RING_INTERVAL_S
    for seq in range(NOTES_WAITING_MAX + 1):
        office.outbox.put([counted(seq, 0)])
    office.outbox.put([counted(7, 0)])
    office.outbox.post()
    assert [note.root for note in office.box.take(ACKER)] == [root(7)]


def test_an_acker_that_leaves_posts_its_records_to_the_others(office: Office) -> None:
    for acker in (ACKER, OTHER):
        office.join(acker)
    office.outbox.post()
    notes = [stored(seq, 0) for seq in range(0, 6_400, 64)]
    office.outbox.leave(ACKER, notes)
    assert len(office.box.take(OTHER)) == len(notes)
    assert office.box.take(ACKER) == []
