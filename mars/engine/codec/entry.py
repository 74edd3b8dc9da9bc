"""One entry of a partial log <-> a header and a body.

The header is msgpack and says what a reducer must know to account for the entry; the body is its
states (`mars.engine.codec.states`), which a reducer that skips the entry never opens.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec
import xxhash

from mars.core.errors import MarsError
from mars.core.types import (
    Bucket,
    Entry,
    Lane,
    PaneRows,
    Partial,
    Range,
    Reason,
    RejectedRange,
    RejectedRow,
    Rejections,
    RowCounts,
    Sequence64,
)

FORM = 2
"""The number of this layout. A change of it must still read the older ones: a log outlives the
processes of one release. 1 had states without a head, uncompressed. Reasons are added without one:
readers pass on what they do not know."""

_NONE_REJECTED = Rejections()

_REASONS: dict[str, str] = {one.value: one for one in Reason}


class CorruptEntry(MarsError):
    """A log entry cannot be read; the log must be made again from Kafka."""


class _Header(msgspec.Struct, frozen=True, array_like=True):
    form: int
    version: int
    bucket: int
    ranges: tuple[Range, ...]
    counts: tuple[int, int, int, int]
    panes: tuple[PaneRows, ...]
    rejected_rows: tuple[tuple[str, int, str, str, bytes], ...]
    rejected_ranges: tuple[tuple[str, int, int, str, int], ...]
    states_checksum: int
    numbers: dict[str, dict[int, int]] = {}
    """Since windows may count rows; empty in entries of all other tasks."""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Header)


def encode_entry(version: int, ranges: tuple[Range, ...], partial: Partial) -> tuple[bytes, bytes]:
    """Header and body of one entry."""
    counts, rejections = partial.counts, partial.rejections
    header = _Header(
        form=FORM,
        version=version,
        bucket=partial.bucket,
        ranges=ranges,
        counts=(counts.counted, counts.filtered, counts.bad, counts.future),
        panes=partial.panes,
        rejected_rows=tuple(
            (row.lane, row.offset, row.reason, row.detail, row.payload) for row in rejections.rows
        ),
        rejected_ranges=tuple(
            (part.lane, part.first, part.next, part.reason, part.rows) for part in rejections.ranges
        ),
        states_checksum=xxhash.xxh3_64_intdigest(partial.states),
        numbers={str(lane): dict(below) for lane, below in partial.numbers.items()},
    )
    return _encoder.encode(header), partial.states


def decode_entry(seq: Sequence64, header: bytes, body: bytes) -> Entry:
    """The entry that was stored under `seq`. Raises CorruptEntry."""
    try:
        found = _decoder.decode(header)
    except msgspec.DecodeError as error:
        raise CorruptEntry(f"log entry {seq}: its header cannot be read: {error}") from error
    if not 1 <= found.form <= FORM:
        raise CorruptEntry(f"log entry {seq}: written in form {found.form}, this reads 1 to {FORM}")
    if found.states_checksum != xxhash.xxh3_64_intdigest(body):
        raise CorruptEntry(f"log entry {seq}: its states are not those that were written")
    return Entry(seq, found.version, found.ranges, _partial(found, body))


def _partial(found: _Header, body: bytes) -> Partial:
    return Partial(
        bucket=Bucket(found.bucket),
        counts=RowCounts(*found.counts),
        panes=found.panes,
        states=body,
        rejections=_rejections(found),
        numbers={Lane(lane): below for lane, below in found.numbers.items()},
    )


def _rejections(found: _Header) -> Rejections:
    if not (found.rejected_rows or found.rejected_ranges):
        return _NONE_REJECTED
    return Rejections(
        tuple(
            RejectedRow(Lane(lane), offset, _reason(reason), detail, payload)
            for lane, offset, reason, detail, payload in found.rejected_rows
        ),
        tuple(
            RejectedRange(Lane(lane), first, next_, _reason(reason), rows)
            for lane, first, next_, reason, rows in found.rejected_ranges
        ),
    )


def _reason(word: str) -> str:
    return _REASONS.get(word, word)


class _Merged(msgspec.Struct, frozen=True, array_like=True):
    seqs: tuple[int, ...]
    header: bytes
    states: bytes


_merged_encoder = msgspec.msgpack.Encoder()
_merged_decoder = msgspec.msgpack.Decoder(_Merged)


def encode_merged(entry: Entry) -> bytes:
    """An entry that stands for several, with their SEQs."""
    header, states = encode_entry(entry.version, entry.ranges, entry.partial)
    return _merged_encoder.encode(_Merged(entry.merged, header, states))


def decode_merged(content: bytes) -> Entry:
    """What `encode_merged` wrote. Raises CorruptEntry."""
    try:
        found = _merged_decoder.decode(content)
    except msgspec.DecodeError as error:
        raise CorruptEntry(f"a merged log entry cannot be read: {error}") from error
    if not found.seqs:
        raise CorruptEntry("a merged log entry stands for no entry")
    seqs = tuple(map(Sequence64, found.seqs))
    return replace(decode_entry(seqs[-1], found.header, found.states), merged=seqs)
