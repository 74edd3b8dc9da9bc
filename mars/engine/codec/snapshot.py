"""Open panes <-> the parts of a snapshot: one merged log entry, cut where messages have to end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
import xxhash

from mars.core.types import Entry, Sequence64
from mars.engine.codec.entry import CorruptEntry, decode_entry, encode_entry

PART_BYTES_MAX = 512 * 1024
"""Bytes of one part: half of what brokers take for a message by default (1 MiB)."""

BEFORE_THE_LOG = Sequence64(0)
"""The SEQ of an entry made of a snapshot: no entry of a log is in it, each has a higher one."""


class _Whole(msgspec.Struct, frozen=True, array_like=True):
    header: bytes
    states: bytes


_decoder = msgspec.msgpack.Decoder(_Whole)


def encode_snapshot(entry: Entry) -> tuple[bytes, ...]:
    """The parts, none of them empty."""
    header, states = encode_entry(entry.version, entry.ranges, entry.partial)
    whole = msgspec.msgpack.encode(_Whole(header, states))
    return tuple(
        whole[start : start + PART_BYTES_MAX] for start in range(0, len(whole), PART_BYTES_MAX)
    )


def decode_snapshot(parts: Sequence[bytes]) -> Entry:
    """The entry that was cut into these parts. Raises CorruptEntry."""
    try:
        whole = _decoder.decode(b"".join(parts))
    except msgspec.DecodeError as error:
        raise CorruptEntry(f"a snapshot of {len(parts)} parts cannot be read: {error}") from error
    return decode_entry(BEFORE_THE_LOG, whole.header, whole.states)


def parts_checksum(parts: Iterable[bytes]) -> int:
    """xxh3_64 over the bytes of all parts, in their order."""
    digest = xxhash.xxh3_64()
    for part in parts:
        digest.update(part)
    return digest.intdigest()
