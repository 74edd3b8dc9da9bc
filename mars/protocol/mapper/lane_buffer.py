"""What one reader has read of one lane and not yet offered to every task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import TypeVar

from mars.core.plan import Stream
from mars.core.types import Lane, Mapped, Range, Records, TaskName
from mars.engine.decode.shared import SharedDecoding
from mars.protocol.mapper.slicing import CutBuffer

SIZE_STRIDE = 16
"""To look at every value cost 2 % of a mapper's time."""


@dataclass(slots=True)
class LaneBuffer:
    """Records `[first, next)` of one lane, and what was made of them so far.

    `sought` is False until the reader was told where to begin. `closed` is True once the buffer is
    being offered to tasks: nothing is added to it any more. Rows that come by `quiet_ms` close no
    window. `retry_at_ms` holds back a buffer that
    nobody takes at the moment. `gone`: Kafka does not have these records any more. `offers` holds
    what was made for a task, and for which of its versions. `cut` has an entry for each stream as
    which the records have too many rows to be decoded at once. `failed` are tasks that could not be
    made a batch: the others do not wait for them, they are behind once the buffer is released.
    """

    lane: Lane
    first: int = 0
    next: int = 0
    sought: bool = False
    paused: bool = False
    closed: bool = False
    retry_at_ms: int = 0
    oldest_ms: int = 0
    newest_ms: int = 0
    quiet_ms: int | None = None
    rows: int = 0
    bytes: int = 0
    end: int | None = None
    skipped: bool = False
    gone: bool = False
    pieces: list[Records] = field(default_factory=list)
    decoded: SharedDecoding = field(default_factory=SharedDecoding)
    cut: dict[Stream, CutBuffer] = field(default_factory=dict)
    offers: dict[TaskName, tuple[int, Mapped]] = field(default_factory=dict)
    failed: set[TaskName] = field(default_factory=set)
    outstanding: int = 0

    def seek(self, offset: int) -> None:
        """Begin anew at `offset`."""
        self.first = self.next = offset
        self.sought = True
        self.end = None
        self._forget()

    def release(self) -> None:
        """Everybody who wanted the records has them: go on behind them."""
        self.first = self.next
        self._forget()

    def _forget(self) -> None:
        self.closed = self.gone = False
        self.retry_at_ms = self.rows = self.bytes = 0
        self.pieces, self.offers, self.decoded, self.cut = [], {}, SharedDecoding(), {}
        self.failed = set()
        self.quiet_ms = None
        self.outstanding = 0

    def add(self, records: Records, now_ms: int) -> None:
        """Take the next records of the lane."""
        if not self.pieces:
            self.oldest_ms = now_ms
        self.newest_ms = now_ms
        self.pieces.append(records)
        self.next = records.next
        self.rows += len(records.values)
        self.bytes += _size(records.values) + _size(records.keys or ())

    @property
    def empty(self) -> bool:
        """True if there is nothing to offer."""
        return self.next == self.first

    @property
    def part(self) -> Range:
        """What it covers."""
        return Range(self.lane, self.first, self.next)

    def joined(self) -> Records:
        """All records as one; put together at the first call."""
        if len(self.pieces) > 1:
            whole = Records(
                lane=self.lane,
                first=self.first,
                next=self.next,
                values=_chain([piece.values for piece in self.pieces]),
                offsets=_offsets([piece.offsets for piece in self.pieces]),
                timestamps_ms=_chain([piece.timestamps_ms for piece in self.pieces]),
                keys=_keys(self.pieces),
            )
            self.pieces = [whole]
        return self.pieces[0]


Item = TypeVar("Item")


def _size(values: Sequence[bytes | None]) -> int:
    """About how many bytes these are: every 16th is looked at, which is enough to bound memory."""
    looked_at = values[::SIZE_STRIDE]
    return SIZE_STRIDE * sum(map(len, filter(None, looked_at)))


def _chain(parts: Sequence[Sequence[Item]]) -> list[Item]:
    return list(chain.from_iterable(parts))


def _keys(pieces: Sequence[Records]) -> list[bytes | None] | None:
    """The keys of all; None where some were read without."""
    keys = [piece.keys for piece in pieces if piece.keys is not None]
    return _chain(keys) if len(keys) == len(pieces) else None


def _offsets(parts: Sequence[Sequence[int]]) -> Sequence[int]:
    """The offsets of all parts; a range where they are contiguous ranges."""
    filled = [part for part in parts if len(part)]
    whole = all(isinstance(part, range) for part in filled) and all(
        before[-1] + 1 == after[0] for before, after in pairwise(filled)
    )
    if filled and whole:
        return range(filled[0][0], filled[-1][-1] + 1)
    return _chain(filled)
