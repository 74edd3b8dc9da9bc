"""The notes of one process on their way to the ackers of the tuple tracker."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress

from mars.core.errors import Unavailable
from mars.core.types import Bucket, Mapped, MemberId, Sequence64, StoreEpoch, TaskName
from mars.process.life import Life
from mars.process.outliving import Outliving
from mars.protocol.ports import Coordinator, NoteBox
from mars.protocol.ports.notes import LogLife, Note, Root, counted_note, stored_note
from mars.protocol.tracker.ring import HashRing

POST_INTERVAL_S = 0.5
"""Between two letters of a process: notes of one root are added up meanwhile, and half a second is
little beside the deadline of a root."""

RING_INTERVAL_S = 5.0
"""How often it is looked who the ackers are. Until all processes have looked, notes of one root may
lie with two ackers; the one to which it does not belong hands its record over."""

NOTES_WAITING_MAX = 100_000
"""Roots that wait to be posted while Redis is away, about 50 MB; of more, none is proven."""

ACKERS = "reducer"
"""The role of the processes that are ackers."""


class Outbox:
    """Takes notes from any thread at the cost of some hashes; `run` posts them in one of its own.

    Nothing here raises or waits for a server: notes that cannot be posted are dropped.
    """

    def __init__(self, box: NoteBox, coordinator: Coordinator) -> None:
        self.ring = HashRing()
        self._box = box
        self._coordinator = coordinator
        self._lock = threading.Lock()
        self._waiting: dict[Root, Note] = {}
        self._looked_s = -RING_INTERVAL_S

    def stored(
        self, task: TaskName, epoch: StoreEpoch, version: int, seq: Sequence64, mapped: Mapped
    ) -> None:
        """A batch is in the log under `seq`."""
        self.put([stored_note(Root(LogLife(task, epoch, version), seq), mapped)])

    def counted(
        self,
        task: TaskName,
        epoch: StoreEpoch,
        bucket: Bucket,
        entries: Iterable[tuple[int, Sequence64]],
    ) -> None:
        """A bucket's commit accounts for these entries: (version, SEQ)."""
        self.put(
            [
                counted_note(Root(LogLife(task, epoch, version), seq), bucket)
                for version, seq in entries
            ]
        )

    def put(self, notes: Sequence[Note]) -> None:
        """Any notes."""
        with self._lock:
            for note in notes:
                known = self._waiting.get(note.root)
                self._waiting[note.root] = note if known is None else known + note
            if len(self._waiting) > NOTES_WAITING_MAX:
                self._waiting.clear()

    def run(self, life: Life) -> None:
        """Post now and then until asked to stop, and once more then."""
        Outliving("the post of the tracker").until(life, POST_INTERVAL_S, self.post)
        self.post()

    def leave(self, acker: MemberId, notes: Sequence[Note]) -> None:
        """An acker stops: post its records to the others, and everything that waits."""
        self.put(notes)
        self.ring = HashRing(self.ring.members - {acker})
        self._post()

    def post(self) -> None:
        """One letter to each acker that there is something for."""
        self._look()
        self._post()

    def _post(self) -> None:
        with self._lock:
            notes, self._waiting = self._waiting, {}
        letters: defaultdict[MemberId, list[Note]] = defaultdict(list)
        for root, note in notes.items():
            acker = self.ring.owner(root.place)
            if acker is not None:
                letters[acker].append(note)
        if letters:
            with suppress(Unavailable):
                self._box.send(letters)

    def _look(self) -> None:
        """Who the ackers are. Raises nothing: who does not know goes by what was."""
        now_s = time.monotonic()
        if now_s - self._looked_s < RING_INTERVAL_S or not self._coordinator.connected():
            return
        self._looked_s = now_s
        with suppress(Unavailable):
            members = frozenset(self._coordinator.members(ACKERS))
            if members != self.ring.members:
                self.ring = HashRing(members)
