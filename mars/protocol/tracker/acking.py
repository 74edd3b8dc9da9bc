"""The machine of one acker: which of its roots are done, overdue, or another acker's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mars.core.types import MemberId
from mars.protocol.ports.notes import Note, Root
from mars.protocol.tracker.judging import Verdict
from mars.protocol.tracker.records import RootRecords
from mars.protocol.tracker.ring import HashRing

ROOTS_MAX = 1_000_000
"""Roots of one acker, about 40 MB: past it the oldest ones are given up, not proven."""

JUDGEMENTS_MAX = 10
"""How often a root is looked at, a deadline apart, before it is given up: its buckets have no owner
for so long, or its task has failed."""


@dataclass(frozen=True, slots=True)
class Figures:
    """How many roots wait, and how many of those before were proven, given up, or found lost."""

    pending: int = 0
    proven: int = 0
    unproven: int = 0
    lost: int = 0


@dataclass(frozen=True, slots=True)
class Ticked:
    """What a tick found: records that belong to others, and roots to be judged."""

    forward: tuple[Note, ...]
    suspects: tuple[Note, ...]


class Acking:
    """Adds notes up by root. `deadline_ms`: how long a root may take from its first note on."""

    def __init__(self, member: MemberId, deadline_ms: int, roots_max: int = ROOTS_MAX) -> None:
        self._member = member
        self._deadline_ms = deadline_ms
        self._roots_max = roots_max
        self._records = RootRecords()
        self._ring = HashRing([member])
        self._judged: dict[Root, int] = {}
        self._proven = self._unproven = self._lost = 0

    @property
    def figures(self) -> Figures:
        """For people."""
        return Figures(len(self._records), self._proven, self._unproven, self._lost)

    def ring_changed(self, ring: HashRing) -> list[Note]:
        """Ackers joined or left; returns the records that belong to others now."""
        self._ring = ring
        return self._records.take_blocks(self._is_foreign)

    def _is_foreign(self, place: int) -> bool:
        owner = self._ring.owner(place)
        return owner is not None and owner != self._member

    def take(self, notes: Iterable[Note], now_ms: int) -> None:
        """Add notes to their records, also to those of other ackers: who sent them may have known
        another ring."""
        for note in notes:
            if self._records.add(note, now_ms + self._deadline_ms):
                self._proven += 1
                self._judged.pop(note.root, None)
        while len(self._records) > self._roots_max:
            self._unproven += len(self._records.take_oldest())

    def tick(self, now_ms: int) -> Ticked:
        """What is overdue by now. A record without anything stored is given up: the mapper's note
        was lost, so nothing can be said of the root."""
        forward: list[Note] = []
        suspects: list[Note] = []
        for record in self._records.overdue(now_ms, now_ms + self._deadline_ms):
            if self._is_foreign(record.root.place):
                self._records.remove(record.root)
                forward.append(record)
            elif not record.stored:
                self._give_up(record.root)
            else:
                suspects.append(record)
        return Ticked(tuple(forward), tuple(suspects))

    def judged(self, verdicts: Sequence[tuple[Root, Verdict]]) -> None:
        """What came of the roots that a tick named."""
        for root, verdict in verdicts:
            match verdict:
                case Verdict.COUNTED:
                    self._end(root)
                    self._proven += 1
                case Verdict.LOST:
                    self._end(root)
                    self._lost += 1
                case Verdict.UNKNOWN | Verdict.REWOUND:
                    self._give_up(root)
                case Verdict.WAITING:
                    self._wait(root)

    def _wait(self, root: Root) -> None:
        looks = self._judged[root] = self._judged.get(root, 0) + 1
        if looks >= JUDGEMENTS_MAX:
            self._give_up(root)

    def _give_up(self, root: Root) -> None:
        self._end(root)
        self._unproven += 1

    def _end(self, root: Root) -> None:
        self._records.remove(root)
        self._judged.pop(root, None)
