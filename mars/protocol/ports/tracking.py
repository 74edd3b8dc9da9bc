"""Letters to the ackers of a tuple tracker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from mars.core.types import MemberId
from mars.protocol.ports.notes import Note


class NoteBox(Protocol):
    """A mailbox for each acker. Best effort: what is sent may be lost, or come twice.

    A mailbox that nobody empties is bounded, and vanishes after a while.
    """

    def send(self, notes: Mapping[MemberId, Sequence[Note]]) -> None:
        """Put notes into the mailboxes of these ackers."""

    def take(self, acker: MemberId) -> list[Note]:
        """The notes that came first, removed from the acker's mailbox; none if it is empty."""
