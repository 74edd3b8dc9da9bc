"""The ackers' mailboxes in memory: the twin of Redis's."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from mars.adapters.memory.faults import Faults, fallible
from mars.adapters.store import LETTERS_MAX, LETTERS_TAKEN_MAX, letters_of, notes_of
from mars.core.types import MemberId
from mars.protocol.ports import NoteBox
from mars.protocol.ports.notes import Note

Mailboxes = dict[MemberId, deque[bytes]]


class MemoryNoteBox(NoteBox):
    """`NoteBox` in memory; what lies in it are the bytes that Redis would hold."""

    def __init__(self, mailboxes: Mailboxes | None = None) -> None:
        self.faults = Faults("redis")
        self.mailboxes: Mailboxes = {} if mailboxes is None else mailboxes

    def fail_next(self, method: str, *, before: bool = True) -> None:
        """Let the next call of `method` raise `Unavailable`, before or after its effect."""
        self.faults.plan(method, before=before)

    @fallible
    def send(self, notes: Mapping[MemberId, Sequence[Note]]) -> None:
        """Append letters; the oldest ones go where there are too many."""
        for acker, some in notes.items():
            mailbox = self.mailboxes.setdefault(acker, deque(maxlen=LETTERS_MAX))
            mailbox.extend(letters_of(some))

    @fallible
    def take(self, acker: MemberId) -> list[Note]:
        """Some letters at a time."""
        mailbox = self.mailboxes.get(acker, deque())
        return notes_of(mailbox.popleft() for _ in range(min(len(mailbox), LETTERS_TAKEN_MAX)))
