"""The ackers' mailboxes: the twin, and lists on a real Valkey."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from mars.adapters.memory.notes import MemoryNoteBox
from mars.adapters.redis.keys import mailbox_key
from mars.adapters.redis.notes import MAILBOX_LIFE_S, RedisNoteBox
from mars.adapters.store import LETTER_NOTES_MAX, LETTERS_MAX, LETTERS_TAKEN_MAX
from mars.core.settings import RedisSettings, Settings
from mars.core.types import Lane, MemberId, Range, Sequence64, StoreEpoch, TaskName
from mars.local.servers import ValkeyServer
from mars.protocol.ports import NoteBox
from mars.protocol.ports.notes import LogLife, Note, Root
from tests.contracts.redis_servers import REAL

ME, OTHER = MemberId("reducer-1"), MemberId("reducer-2")
LIFE = LogLife(TaskName("flows"), StoreEpoch(1), 1)


def note(seq: int) -> Note:
    return Note(Root(LIFE, Sequence64(seq)), 2**64 - 1, seq, (Range(Lane("0"), seq, seq + 1),))


def opened(url: str) -> RedisNoteBox:
    settings = Settings(namespace=f"test_{uuid.uuid4().hex}", redis=RedisSettings(url=url))
    return RedisNoteBox.open(settings)


@pytest.fixture(params=["memory", *REAL])
def box(request: pytest.FixtureRequest) -> Iterator[NoteBox]:
    """Empty mailboxes."""
    if request.param == "memory":
        yield MemoryNoteBox()
        return
    real = opened(request.getfixturevalue(f"{request.param}_store").url)
    yield real
    for acker in (ME, OTHER):
        while real.take(acker):
            pass
    real.close()


def test_an_empty_mailbox_has_no_notes(box: NoteBox) -> None:
    assert box.take(ME) == []


def test_notes_come_to_their_acker_once_and_in_order(box: NoteBox) -> None:
    box.send({ME: [note(1), note(2)], OTHER: [note(3)]})
    box.send({ME: [note(4)]})
    assert box.take(ME) == [note(1), note(2), note(4)]
    assert box.take(ME) == []
    assert box.take(OTHER) == [note(3)]


def test_many_notes_are_several_letters(box: NoteBox) -> None:
    notes = [note(seq) for seq in range(2 * LETTER_NOTES_MAX + 1)]
    box.send({ME: notes})
    assert box.take(ME) == notes


def test_a_mailbox_is_emptied_some_letters_at_a_time(box: NoteBox) -> None:
    for seq in range(LETTERS_TAKEN_MAX + 1):
        box.send({ME: [note(seq)]})
    assert len(box.take(ME)) == LETTERS_TAKEN_MAX
    assert box.take(ME) == [note(LETTERS_TAKEN_MAX)]


def test_a_mailbox_that_nobody_empties_loses_its_oldest_letters(box: NoteBox) -> None:
    for seq in range(LETTERS_MAX + 5):
        box.send({ME: [note(seq)]})
    taken: list[Note] = []
    while some := box.take(ME):
        taken += some
    assert [one.root.seq for one in taken] == list(range(5, LETTERS_MAX + 5))


@pytest.mark.integration
def test_a_mailbox_of_nobody_vanishes_by_itself(valkey_server: ValkeyServer) -> None:
    box = opened(valkey_server.url)
    box.send({ME: [note(1)]})
    key = mailbox_key(box._namespace, ME)
    left_s = box._servers.of(key).ttl(key)
    assert 0 < left_s <= MAILBOX_LIFE_S
    assert box.take(ME) == [note(1)]
    box.close()
