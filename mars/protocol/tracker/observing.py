"""What a bucket tells the tracker: which entries of its log it has counted.

It watches entries as they are read and commits as they become durable; nothing waits for it.
"""

from __future__ import annotations

from collections.abc import Iterable

from mars.core.types import Entry, Sequence64, StoreEpoch
from mars.protocol.ports import Progress
from mars.protocol.ports.seen import Seen, SeenWindow

Counted = tuple[int, Sequence64]
"""A version and the SEQ of one of its entries."""


class CountedEntries:
    """The entries of one task that one bucket has read in a life of the store.

    It goes on from what was committed in this life. The newest version has a part in every commit:
    its record says what was seen last, or that an owner without a tracker came in between.
    """

    def __init__(self, records: Iterable[Progress], store_epoch: StoreEpoch) -> None:
        alive = [record for record in records if record.store_epoch == store_epoch]
        newest = max(alive, key=lambda record: record.version, default=None)
        self._seen = SeenWindow(Seen(0, 0) if newest is None else newest.seen)
        self._fresh: list[Counted] = []

    def read(self, entry: Entry) -> None:
        """An entry was read; what it is made of may be known."""
        new = [seq for seq in entry.seqs if self._seen.take(seq)]
        self._fresh += [(entry.version, seq) for seq in new]

    def drained(self, seq: Sequence64) -> None:
        """The log was read to its end at `seq`."""
        self._seen.drained(seq)

    def seen(self) -> Seen | None:
        """What a record is to say; None while nothing is known."""
        return self._seen.seen()

    def take_accounted(self) -> tuple[Counted, ...]:
        """The entries that the last commit was the first to account for."""
        accounted, self._fresh = tuple(self._fresh), []
        return accounted
