"""What is remembered of a task's log in one bucket: which entries it still holds, for how long."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mars.core.types import Entry, Lane, Range, Sequence64
from mars.engine.codec.entry import encode_entry
from mars.engine.codec.states import states_bytes
from mars.protocol.windows.input import StoreWentBack

STORE_OVERHEAD_BYTES = 256
"""At least what a store counts for an entry besides its content."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """An entry, or a base, that is still in the log."""

    seq: Sequence64
    ranges: tuple[Range, ...]

    def below(self, needed: Mapping[Lane, int]) -> bool:
        for part in self.ranges:  # noqa: SIM110 -- asked of each entry after each commit
            if part.next > needed.get(part.lane, 0):
                return False
        return True


class LogIndex:
    """The entries and the base of a log, without their states.

    The base is tight if it holds no groups of windows that have been closed since it was merged.
    """

    def __init__(self) -> None:
        self._entries: list[_Kept] = []
        self._contained: list[Sequence64] = []
        """Entries whose rows the base contains."""
        self._base: _Kept | None = None
        self._base_bytes = 0
        self._base_is_tight = False
        self._highest: dict[Lane, int] = {}

    # ------------------------------------------------------------------------------- reading

    def follows(self, entry: Entry) -> None:
        """The entry was read. Raises StoreWentBack if it repeats offsets that were read before."""
        for part in entry.ranges:
            if part.first < self._highest.get(part.lane, 0):
                raise StoreWentBack(
                    f"lane {part.lane}: entry {entry.seq} begins at {part.first}, "
                    f"below {self._highest[part.lane]}, which was read before"
                )
            self._highest[part.lane] = part.next

    def keep(self, entry: Entry) -> None:
        """Its rows are in no base."""
        self._entries.append(_Kept(entry.seq, entry.ranges))

    def keep_contained(self, entry: Entry) -> None:
        """Its rows are in the base."""
        self._contained.append(entry.seq)

    def knows(self, base: Entry, last_seq: Sequence64) -> bool:
        """True for a base that was read, or made, before: one below all entries is answered again
        and again, as long as none of them was read.
        """
        return self._base is not None and base.seq <= last_seq

    def has_bases(self, bases: Sequence[Entry]) -> None:
        """Merged entries were read: those of two versions may cover the same offsets."""
        self._base, self._base_is_tight = _of_all(bases[0].seq, bases), False

    # ------------------------------------------------------------------------------- merging

    @property
    def last(self) -> Sequence64 | None:
        """The SEQ that an entry in place of all would have; None if there is none."""
        last = self._entries[-1] if self._entries else self._base
        return None if last is None else last.seq

    @property
    def is_merged(self) -> bool:
        """True if merging again what is in the log would change nothing."""
        return not self._entries and (self._base is None or self._base_is_tight)

    @property
    def is_worth_merging(self) -> bool:
        """True if one entry could stand for several."""
        return len(self._entries) > 1 or bool(self._contained)

    def merged(self, last: Sequence64, bases: Sequence[Entry]) -> None:
        """These stand for all entries now."""
        self._base, self._base_is_tight = _of_all(last, bases), True
        self._base_bytes = sum(map(_stored_bytes, bases))
        self._entries = []

    def loosened(self) -> None:
        """Windows have been closed: the base may hold groups of them."""
        self._base_is_tight = False

    def exceeds(self, share_bytes: float) -> bool:
        """True if what was merged, which cannot be merged further, takes more than that."""
        return self.is_merged and self._base_bytes > share_bytes

    # ------------------------------------------------------------------------------- trimming

    def trim(self, needed: Mapping[Lane, int]) -> tuple[Sequence64, ...]:
        """The entries that lie below these offsets, or that the base contains; forgets them."""
        gone, kept = self._contained, list[_Kept]()
        for entry in self._entries:
            if entry.below(needed):
                gone.append(entry.seq)
            else:
                kept.append(entry)
        self._entries, self._contained = kept, []
        return tuple(gone)

    @property
    def has_base(self) -> bool:
        """True if merged entries are in the log."""
        return self._base is not None

    def take_base_below(
        self, needed: Mapping[Lane, int]
    ) -> tuple[Sequence64, tuple[Range, ...]] | None:
        """SEQ and ranges of the base if it lies below these offsets; forgets it."""
        base = self._base
        if base is None or not base.below(needed):
            return None
        self._base, self._base_bytes = None, 0
        return base.seq, base.ranges


def _of_all(seq: Sequence64, bases: Sequence[Entry]) -> _Kept:
    return _Kept(seq, tuple(part for base in bases for part in base.ranges))


def _stored_bytes(entry: Entry) -> int:
    """At least what an entry counts for in the store."""
    header, states = encode_entry(entry.version, entry.ranges, entry.partial)
    return len(header) + states_bytes(states) + STORE_OVERHEAD_BYTES
