"""The ackers' mailboxes in memory: the twin of Redis's."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from mars.adapters.memory.faults import Faults, fallible
from mars.adapters.store import LETTER_NOTES_MAX, LETTERS_MAX, LETTERS_TAKEN_MAX
from mars.ports import NoteBox
from mars.tracking.notes import Note, decode_notes, encode_notes
from mars.types import MemberId

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
            for start in range(0, len(some), LETTER_NOTES_MAX):
                mailbox.append(encode_notes(some[start : start + LETTER_NOTES_MAX]))

    @fallible
    def take(self, acker: MemberId) -> list[Note]:
        """Some letters at a time."""
        mailbox = self.mailboxes.get(acker, deque())
        letters = [mailbox.popleft() for _ in range(min(len(mailbox), LETTERS_TAKEN_MAX))]
        return [note for letter in letters for note in decode_notes(letter)]
