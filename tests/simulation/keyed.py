"""What windows hold that count the rows of each key: the rows of a partition, one by one.

A row is in no life but that of its key, which ends where event time of the partition has gone on
by more than EXPIRE since the key's last row. What a life that is over has not filled is emitted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mars.core.types import Lane, live_lane
from mars.core.windows import CountingByKey, Window
from mars.core.windows.counting import BEFORE_ALL_MS, first_place

if TYPE_CHECKING:
    from tests.simulation.rows import Place, Row, Span, Values, Written


@dataclass(slots=True)
class _Life:
    """Number and value of each row of a key, and how far event time had come with the last one."""

    seen_ms: int
    rows: list[tuple[int, int]] = field(default_factory=list)


@dataclass(slots=True)
class _Partition:
    """The lives of the keys of a partition, and the windows found: all, or those that are full."""

    span: Span
    shape: CountingByKey
    partition: int
    full: bool
    lives: dict[str, _Life] = field(default_factory=dict)
    found: dict[Place, Values] = field(default_factory=dict)
    seen_ms: int = BEFORE_ALL_MS
    number: int = 0

    def take(self, row: Row) -> None:
        """The next row."""
        self.seen_ms = max(self.seen_ms, row.time_ms)
        if not self.span.query.takes(row.value, row.time_ms):
            return
        if row.key in self.lives and self.is_silent(row.key):
            self.end(row.key)
        life = self.lives.setdefault(row.key, _Life(self.seen_ms))
        life.rows.append((self.number, row.value))
        life.seen_ms, self.number = self.seen_ms, self.number + 1
        begin = len(life.rows) - self.shape.size
        if begin >= 0 and begin % self.shape.slide == 0:
            self._tell(row.key, life, begin)

    def is_silent(self, key: str) -> bool:
        """Whether the life of a key is over by what was seen."""
        return self.seen_ms - self.lives[key].seen_ms > self.shape.expire_ms

    def end(self, key: str) -> None:
        """A life is over: the windows that it has begun and not filled come as they are."""
        life = self.lives.pop(key)
        for begin in range(0, len(life.rows), self.shape.slide):
            if begin + self.shape.size > len(life.rows) and not self.full:
                self._tell(key, life, begin)

    def _tell(self, key: str, life: _Life, begin: int) -> None:
        own = life.rows[begin : begin + self.shape.size]
        start = first_place(self.partition) + own[0][0]
        window = Window(start + self.shape.size, start)
        place = (self.span.task, self.span.version, window, key)
        assert place not in self.found, "no two windows have one name"
        self.found[place] = len(own), sum(value for _number, value in own)


def counted_by_key(
    span: Span, shape: CountingByKey, written: Written, *, full: bool
) -> dict[Place, Values]:
    """The windows that are `full`, or all that a version has emitted once it has read everything:
    those, too, that silent keys have left, and where it has ended, all keys.
    """
    found: dict[Place, Values] = {}
    for number in written:
        partition = _Partition(span, shape, number, full)
        for row in rows_of(span, written, number):
            partition.take(row)
        for key in list(partition.lives):
            if span.ends is not None or partition.is_silent(key):
                partition.end(key)
        found |= partition.found
    return found


def rows_of(span: Span, written: Written, partition: int) -> Iterator[Row]:
    """The readable rows of a version in a partition, filtered ones too, in order."""
    lane = live_lane(partition)
    for offset, row in sorted(written[partition].items()):
        if span.holds(lane, offset) and row.key:
            yield row


def seen_in(span: Span, written: Written) -> dict[Lane, int]:
    """What C is in the end, for each lane that has rows: how far event time has come."""
    newest = {
        live_lane(one): max((row.time_ms for row in rows_of(span, written, one)), default=None)
        for one in written
    }
    return {lane: at - BEFORE_ALL_MS for lane, at in newest.items() if at is not None}
