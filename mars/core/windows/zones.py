"""What the clocks of a time zone show, and when they are put forward or back.

A zone is the table of its clock's jumps, and the table is part of whatever is made of it: no
database of zones is asked again. Those change several times a year, and a row that is read once
more must fall into the window that it fell into before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from itertools import pairwise
from typing import Final, NamedTuple

ZONES_SHARED: Final = 256
"""Zones of which there is one object for all."""

FOREVER_MS: Final = 1 << 61
"""Later, and with a minus sign earlier, than any event time that is looked at."""


class Stretch(NamedTuple):
    """A time `[from_ms, until_ms)` in which a clock is ahead of UTC by the same `offset_ms`."""

    from_ms: int
    until_ms: int
    offset_ms: int


@dataclass(frozen=True, slots=True)
class Zone:
    """A time zone as its definition has it: what the clocks were ahead of UTC in 1970, and since.

    `jumps` are pairs: a moment, and how far ahead of UTC the clocks are from then on; in order of
    time, each to another value. Before the first there is `offset_ms`, after the last the last.
    `database` is the version of the database that they were taken from.
    """

    name: str
    database: str
    offset_ms: int
    jumps: tuple[tuple[int, int], ...] = ()

    def __hash__(self) -> int:
        """Cheap, as plans are looked up often: equal ones have equal names."""
        return hash((self.name, self.database))

    def stretches(self) -> Iterator[Stretch]:
        """All of time, in the order of time."""
        ends = [(-FOREVER_MS, self.offset_ms), *self.jumps, (FOREVER_MS, 0)]
        for (from_ms, offset_ms), (until_ms, _) in pairwise(ends):
            yield Stretch(from_ms, until_ms, offset_ms)

    def offset_at(self, time_ms: int) -> int:
        """How far its clocks are ahead of UTC at a moment."""
        return next(one.offset_ms for one in self.stretches() if time_ms < one.until_ms)

    def clock(self, time_ms: int) -> datetime | None:
        """What its clocks show; None where no calendar has it."""
        offset = timezone(timedelta(milliseconds=self.offset_at(time_ms)))
        try:
            return datetime.fromtimestamp(time_ms / 1000, offset)
        except (OverflowError, OSError, ValueError):
            return None


@lru_cache(maxsize=ZONES_SHARED)
def shared(zone: Zone) -> Zone:
    """An equal zone, the same object for all: what is kept of it is found at once."""
    return zone
