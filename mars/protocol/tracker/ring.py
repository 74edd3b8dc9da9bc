"""Which acker a root belongs to: consistent hashing with virtual nodes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

import xxhash

from mars.core.types import MemberId

POINTS = 256
"""Places of one acker on the ring: with six ackers the fullest one then has about a tenth more than
its share. More places cost 16 bytes each in every process."""


class HashRing:
    """Places from 0 to 2**64; each belongs to the acker whose point comes next.

    The points of an acker depend on its name only, so an acker that joins takes places from the
    others and moves none between them, and one that leaves gives its own away.
    """

    def __init__(self, members: Iterable[MemberId] = (), points: int = POINTS) -> None:
        self.members = frozenset(members)
        placed = sorted(
            (xxhash.xxh3_64_intdigest(f"{member}#{number}".encode()), member)
            for member in self.members
            for number in range(points)
        )
        self._places = [place for place, _ in placed]
        self._owners = [member for _, member in placed]

    def owner(self, place: int) -> MemberId | None:
        """The acker of a place; None while there is no acker."""
        if not self._owners:
            return None
        return self._owners[bisect_right(self._places, place) % len(self._owners)]
