"""What is told to an acker, and the ids that it is about.

A note says: "XOR this into the record of that root". Mappers, reducers and ackers that hand a
record over all send the same kind of note, and notes of one root add up in any order:

    mapper, batch stored       stored = x(1) ^ x(2) ^ x(5)    check = x(1) ^ x(2) ^ x(5)
    reducer, bucket 2 counted  stored = 0                     check = x(2)
    acker, record handed over  stored and check as they stand
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import xor
from typing import NamedTuple

import msgspec
import xxhash

from mars.core.types import Bucket, Lane, Mapped, Range, Sequence64, StoreEpoch, TaskName

BLOCK_ROOTS = 64
"""Roots with neighbouring SEQs share an acker and a block of its memory: what finds them (a key in
a hash table) then costs a few bytes a root, and a reader's notes go to few ackers."""


class LogLife(NamedTuple):
    """One version of a task in one life of the store: within it a SEQ names a batch."""

    task: TaskName
    epoch: StoreEpoch
    version: int


class Root(NamedTuple):
    """A batch: the root of the tree of its partials."""

    life: LogLife
    seq: Sequence64

    @property
    def place(self) -> int:
        """Where on the ring its block lies."""
        return place_of(self.life, self.seq // BLOCK_ROOTS)


@dataclass(frozen=True, slots=True)
class Note:
    """`check` is the XOR of ids stored and ids counted, `stored` that of the stored ones alone.

    `ranges` are the batch's offsets where the sender knows them.
    """

    root: Root
    stored: int
    check: int
    ranges: tuple[Range, ...] = ()

    def __add__(self, other: Note) -> Note:
        """Both notes in one; they are of the same root."""
        ranges = self.ranges or other.ranges
        return Note(self.root, self.stored ^ other.stored, self.check ^ other.check, ranges)


def place_of(life: LogLife, block: int) -> int:
    """The place of a block of roots on the ring."""
    return xxhash.xxh3_64_intdigest(f"{life.task}/{life.epoch}/{life.version}/{block}".encode())


def partial_id(root: Root, bucket: Bucket) -> int:
    """The 64 bits by which a partial is known; the same in every process."""
    life, seq = root
    return xxhash.xxh3_64_intdigest(
        f"{life.task}/{life.epoch}/{life.version}/{seq}/{bucket}".encode()
    )


def check_of(root: Root, buckets: Iterable[Bucket]) -> int:
    """The XOR of the ids of a root's partials in these buckets."""
    return reduce(xor, (partial_id(root, bucket) for bucket in buckets), 0)


def stored_note(root: Root, mapped: Mapped) -> Note:
    """A mapper's note: the batch was appended."""
    check = check_of(root, (partial.bucket for partial in mapped.partials))
    return Note(root, check, check, mapped.ranges)


def counted_note(root: Root, bucket: Bucket) -> Note:
    """A reducer's note: the commit that counts this bucket's partial has succeeded."""
    return Note(root, 0, partial_id(root, bucket))


# ------------------------------------------------------------------------------------- wire


class _Row(msgspec.Struct, frozen=True, array_like=True):
    task: str
    epoch: int
    version: int
    seq: int
    stored: int
    check: int
    ranges: tuple[tuple[str, int, int], ...]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[_Row])


def encode_notes(notes: Sequence[Note]) -> bytes:
    """One letter with these notes."""
    return _encoder.encode(
        [
            _Row(
                *note.root.life,
                note.root.seq,
                note.stored,
                note.check,
                tuple((part.lane, part.first, part.next) for part in note.ranges),
            )
            for note in notes
        ]
    )


def decode_notes(letter: bytes) -> list[Note]:
    """The notes of a letter; none if it cannot be read: another release may have written it, and
    whatever it says is not needed."""
    try:
        rows = _decoder.decode(letter)
    except msgspec.MsgspecError:
        return []
    return [
        Note(
            Root(
                LogLife(TaskName(row.task), StoreEpoch(row.epoch), row.version),
                Sequence64(row.seq),
            ),
            row.stored,
            row.check,
            tuple(Range(Lane(lane), first, after) for lane, first, after in row.ranges),
        )
        for row in rows
    ]
