"""Which entries of its log a bucket has counted: the truth that a suspicion is held against."""

from __future__ import annotations

from dataclasses import dataclass

KEPT = 4_096
"""How many SEQs are remembered: at 20 batches a second those of three minutes, some times the
deadline of a root, in 512 bytes of each progress record."""

_MASK = (1 << KEPT) - 1


@dataclass(frozen=True, slots=True)
class Seen:
    """The SEQs that one bucket took from its log, up to `through`.

    Bit n of `bits` (little-endian) stands for SEQ `through - n`. Nothing is known of SEQs up to
    `since`, nor of those more than `KEPT` below `through`.
    """

    since: int
    through: int
    bits: bytes = b""

    def knows(self, seq: int) -> bool:
        """True if it can say whether `seq` was counted."""
        return max(self.since, self.through - KEPT) < seq <= self.through

    def holds(self, seq: int) -> bool:
        """True if `seq` was counted."""
        if not self.knows(seq):
            return False
        byte, bit = divmod(self.through - seq, 8)
        return byte < len(self.bits) and bool(self.bits[byte] >> bit & 1)


class SeenWindow:
    """A `Seen` that grows."""

    def __init__(self, begun: Seen | None) -> None:
        self._begun = begun
        """What is known from before; None: it is not known what was counted before."""
        self._since = begun.since if begun is not None else -1
        self._through = begun.through if begun is not None else 0
        self._bits = int.from_bytes(begun.bits, "little") if begun is not None else 0

    def take(self, seq: int) -> bool:
        """An entry was read; False if it was known to be counted before."""
        if self._begun is not None and self._begun.holds(seq):
            return False
        self.reach(seq)
        age = self._through - seq
        self._bits |= 1 << age if age < KEPT else 0
        return True

    def reach(self, seq: int) -> None:
        """Everything up to `seq` has been read."""
        if seq > self._through:
            self._bits = self._bits << min(seq - self._through, KEPT) & _MASK
            self._through = seq

    def drained(self, seq: int) -> None:
        """The log was read to its end at `seq`: from here on everything is known."""
        self.reach(seq)
        if self._since < 0:
            self._since = seq

    def seen(self) -> Seen | None:
        """As of now; None while nothing is known."""
        if self._since < 0:
            return None
        length = (self._bits.bit_length() + 7) // 8
        return Seen(self._since, self._through, self._bits.to_bytes(length, "little"))
