"""Batches of messages that the client cannot unpack: where one of them ends.

Of such a batch the client names the first offset, at each attempt to read any offset of it:

    asked for   b  b+1  ···  last   last+1
    answer      b   b    b    b     rows, the end, or the begin of another such batch

So the first offset behind it is found by asking: first for those close by, then for the one in the
middle between the last that is known to lie within it and the first that is known to lie behind.
What is found depends on the topic alone, and on how much this release lets the client unpack.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, TopicPartition

from mars.adapters.kafka.errors import translated
from mars.adapters.kafka.names import Place
from mars.core.types import UNDECODABLE, Lane, Records, live_lane
from mars.protocol.ports import Fetched

LEAP_GROWTH = 32
"""Most such batches are short, and an offset of one costs much more time than one behind it."""

_UNPACKING = "Decompression "
"""How the client's text begins where it was a batch of messages that it could not unpack."""


def is_undecodable(error: KafkaError) -> bool:
    """Whether a batch cannot be unpacked, whoever tries and whenever; its first offset is named.

    Not so where memory lacks, or where a checksum fails: that may be otherwise the next time.
    """
    codes = {KafkaError._BAD_COMPRESSION, KafkaError._BAD_MSG}  # noqa: SLF001 -- public, see `errors`
    return error.code() in codes and error.str().startswith(_UNPACKING)


@dataclass(slots=True)
class Halving:
    """Finds the first offset behind a batch that begins at `base`.

    `within` lies in it; `behind` does not, at first the end of what can be read of the partition.
    `guess` may be where it ends, as it was found before.
    """

    base: int
    behind: int
    within: int
    guess: int = -1
    leap: int = 1

    @property
    def end(self) -> int | None:
        """The first offset behind the batch, once that is known."""
        return self.behind if self.behind <= self.within + 1 else None

    def asks(self) -> int:
        """The offset to ask for next, as long as `end` is not known."""
        for near in (self.guess - 1, self.guess):
            if self.within < near < self.behind:
                return near
        while self.base + self.leap <= self.within:
            self.leap *= LEAP_GROWTH
        return min(self.base + self.leap, (self.within + self.behind) // 2)

    def answered(self, offset: int, named: int | None) -> None:
        """Take the answer for an offset: what the client named as a begin; None: none."""
        if named == self.base:
            self.within = max(self.within, offset)
        else:
            self.behind = min(self.behind, offset)


def undecodable_records(lane: Lane, first: int, next_: int) -> Records:
    """The offsets `[first, next)` as messages that could not be unpacked."""
    rows = next_ - first
    return Records(
        lane, first, next_, [UNDECODABLE] * rows, range(first, next_), [-1] * rows, [None] * rows
    )


@dataclass(slots=True)
class Search:
    """A partition that is read up to `position`, and what is known of the batch there.

    `assigned`: the client reads the partition, though only to answer.
    """

    position: int
    base: int
    guess: int
    halving: Halving | None = None
    assigned: bool = False

    @property
    def end(self) -> int | None:
        """The first offset behind the batch, once that is known."""
        return None if self.halving is None else self.halving.end

    def read_next(
        self, client: Consumer, place: Place, partition_end: Callable[[], int]
    ) -> int | None:
        """Have the client read the next offset to ask for, or nothing once the end is known.

        Raises Unavailable.
        """
        if self.halving is None:
            self.halving = Halving(self.base, partition_end(), self.position, self.guess)
        if self.halving.end is not None:
            return None
        offset = self.halving.asks()
        with translated():
            if self.assigned:
                client.incremental_unassign([TopicPartition(*place)])
            self.assigned = False
            client.incremental_assign([TopicPartition(*place, offset)])
        self.assigned = True
        return offset


class Searches:
    """Partitions that stand before a batch that cannot be unpacked."""

    def __init__(self) -> None:
        self.rows_max = 1
        """Messages of one event."""
        self._searches: dict[Place, Search] = {}
        self._ends: dict[Place, int] = {}
        """Where the last one of a partition ended: whoever comes back to it looks there first."""

    def begin(self, place: Place, position: int, base: int) -> None:
        """Look for the end of the batch that begins at `base`."""
        self._searches[place] = Search(position, base, self._ends.get(place, -1))

    def answered(self, place: Place, offset: int, named: int | None) -> None:
        """Take the answer for an offset of the partition."""
        search = self._searches.get(place)
        if search is not None and search.halving is not None:
            search.halving.answered(offset, named)

    def going_on(self) -> list[tuple[Place, Search]]:
        """Those whose end is not known yet."""
        return [(place, one) for place, one in self._searches.items() if one.end is None]

    def found(self) -> list[Place]:
        """Those whose end is known."""
        return [place for place, one in self._searches.items() if one.end is not None]

    def taken(self, place: Place) -> tuple[Fetched, int | None]:
        """The next messages of a batch whose end is known, and that end if they are the last."""
        search = self._searches[place]
        first, end = search.position, search.end
        if end is None:
            raise ValueError(f"the end of the batch at {search.base} is not known")
        self._ends[place] = end
        search.position = min(first + self.rows_max, end)
        topic, partition = place
        event = Fetched(topic, undecodable_records(live_lane(partition), first, search.position))
        return event, end if search.position == end else None

    def positions(self) -> dict[Place, int]:
        """How far each of these partitions is delivered."""
        return {place: one.position for place, one in self._searches.items()}

    def forget(self, place: Place) -> bool:
        """Search no more; whether the client reads the partition."""
        search = self._searches.pop(place, None)
        return search is not None and search.assigned
