"""The roots of one acker, packed: 34 bytes each, of which 20 are the tree and 14 name its offsets.

    stored  check  due  lane  first  span
       8      8     4     2     8      4     bytes

64 neighbouring roots of a log share a block of memory and one key of a hash table. What does not
fit (a batch of several lanes) lies beside, and is rare: batches of histories are large.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from struct import Struct

from mars.core.types import Lane, Range, Sequence64
from mars.protocol.ports.notes import BLOCK_ROOTS, LogLife, Note, Root, place_of

_RECORD = Struct("<QQIHqI")
RECORD_BYTES = _RECORD.size
_EMPTY = bytes(RECORD_BYTES)

DUE_UNIT_MS = 100
"""Deadlines are kept in tenths of a second: 32 bits of them last 13 years."""

_LANES_MAX = 2**16 - 1
_SPAN_MAX = 2**32 - 1
_ELSEWHERE = 0
"""In place of a lane's number: the ranges lie beside, or are not known."""

_NEVER = 2**32

BlockKey = tuple[LogLife, int]


@dataclass(slots=True)
class _Block:
    """The records of neighbouring roots; one of zeros is free."""

    pending: int = 0
    due: int = _NEVER
    cells: bytearray = field(default_factory=lambda: bytearray(BLOCK_ROOTS * RECORD_BYTES))


class RootRecords:
    """What an acker knows of its roots."""

    def __init__(self) -> None:
        self._blocks: dict[BlockKey, _Block] = {}
        self._ranges: dict[Root, tuple[Range, ...]] = {}
        self._lanes: dict[Lane, int] = {}
        self._lane_names: list[Lane] = []
        self._pending = 0

    def __len__(self) -> int:
        return self._pending

    def add(self, note: Note, due_ms: int) -> bool:
        """XOR a note into its record, which is due then if it is new.

        True if that completes the root: all that was stored has been counted. A record whose check
        is 0 is forgotten.
        """
        key, at = _place(note.root)
        block = self._blocks.get(key)
        if block is None:
            block = self._blocks[key] = _Block()
        stored, check, due, lane, first, span = _RECORD.unpack_from(block.cells, at)
        known = bool(stored or check)
        stored, check = stored ^ note.stored, check ^ note.check
        if not check:
            self._forget(key, block, at, known=known)
            return bool(stored)
        if note.ranges:
            lane, first, span = self._pack(note.root, note.ranges)
        if not known:
            due = due_ms // DUE_UNIT_MS
            self._pending, block.pending = self._pending + 1, block.pending + 1
        block.due = min(block.due, due)
        _RECORD.pack_into(block.cells, at, stored, check, due, lane, first, span)
        return False

    def remove(self, root: Root) -> None:
        """Forget a root."""
        key, at = _place(root)
        block = self._blocks.get(key)
        if block is not None:
            known = block.cells[at : at + RECORD_BYTES] != _EMPTY
            self._forget(key, block, at, known=known)

    def _forget(self, key: BlockKey, block: _Block, at: int, *, known: bool) -> None:
        lane = _RECORD.unpack_from(block.cells, at)[3]
        block.cells[at : at + RECORD_BYTES] = _EMPTY
        if known:
            self._pending, block.pending = self._pending - 1, block.pending - 1
            if lane == _ELSEWHERE:
                self._ranges.pop(_root(key, at), None)
        if not block.pending:
            del self._blocks[key]

    # ---------------------------------------------------------------------------------- looking

    def overdue(self, now_ms: int, again_ms: int) -> list[Note]:
        """The records whose deadline has passed; the next one of these is at `again_ms`."""
        now, again = now_ms // DUE_UNIT_MS, again_ms // DUE_UNIT_MS
        found: list[Note] = []
        for key, block in self._blocks.items():
            if block.due <= now:
                found += self._overdue_in(key, block, now, again)
        return found

    def _overdue_in(self, key: BlockKey, block: _Block, now: int, again: int) -> Iterator[Note]:
        lowest = _NEVER
        for at in range(0, len(block.cells), RECORD_BYTES):
            stored, check, due, lane, first, span = _RECORD.unpack_from(block.cells, at)
            if not check:
                continue
            if due <= now:
                yield self._note(key, at)
                due = again
                _RECORD.pack_into(block.cells, at, stored, check, due, lane, first, span)
            lowest = min(lowest, due)
        block.due = lowest

    def take_blocks(self, unwanted: Callable[[int], bool]) -> list[Note]:
        """Remove the blocks whose place on the ring is unwanted, and return their records."""
        keys = [key for key in self._blocks if unwanted(place_of(*key))]
        return [note for key in keys for note in self._take(key)]

    def take_oldest(self) -> list[Note]:
        """Remove the block that was begun first, and return its records."""
        return self._take(next(iter(self._blocks))) if self._blocks else []

    def _take(self, key: BlockKey) -> list[Note]:
        cells = self._blocks[key].cells
        places = [
            at
            for at in range(0, len(cells), RECORD_BYTES)
            if cells[at : at + RECORD_BYTES] != _EMPTY
        ]
        notes = [self._note(key, at) for at in places]
        for note in notes:
            self.remove(note.root)
        return notes

    # -------------------------------------------------------------------------------- packing

    def _note(self, key: BlockKey, at: int) -> Note:
        stored, check, _due, lane, first, span = _RECORD.unpack_from(self._blocks[key].cells, at)
        root = _root(key, at)
        if lane == _ELSEWHERE:
            return Note(root, stored, check, self._ranges.get(root, ()))
        return Note(root, stored, check, (Range(self._lane_names[lane - 1], first, first + span),))

    def _pack(self, root: Root, ranges: tuple[Range, ...]) -> tuple[int, int, int]:
        part = ranges[0]
        span, lane = part.next - part.first, self._lane(part.lane)
        if len(ranges) == 1 and span <= _SPAN_MAX and lane != _ELSEWHERE:
            return lane, part.first, span
        self._ranges[root] = ranges
        return _ELSEWHERE, 0, 0

    def _lane(self, lane: Lane) -> int:
        number = self._lanes.get(lane)
        if number is None:
            if len(self._lane_names) == _LANES_MAX:
                return _ELSEWHERE
            self._lane_names.append(lane)
            number = self._lanes[lane] = len(self._lane_names)
        return number


def _place(root: Root) -> tuple[BlockKey, int]:
    block, number = divmod(root.seq, BLOCK_ROOTS)
    return (root.life, block), number * RECORD_BYTES


def _root(key: BlockKey, at: int) -> Root:
    life, block = key
    return Root(life, Sequence64(block * BLOCK_ROOTS + at // RECORD_BYTES))
