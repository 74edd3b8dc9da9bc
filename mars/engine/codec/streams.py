"""Small streams of states, left unread until they are merged, and then read as one.

A log has thousands of partials of a few groups: to read each takes longer than to merge them all.
Each is an Arrow IPC stream, and those of a task begin with the same schema:

    schema  batch  end     schema  batch  end          schema  batch  batch  end
    ─────────────────────  ─────────────────────  ──▶  ─────────────────────────

What is in a stream, its first bytes tell (Arrow's "Encapsulated message format": a marker, the
length of the metadata, a flatbuffer). One that is not of this kind is read at once.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

import polars as pl

from mars.engine.codec.states import decode_states, stream_of

_MARKER = b"\xff\xff\xff\xff"
_END = _MARKER + bytes(4)
_PREFIX = len(_END)

_SCHEMA, _BATCH = 1, 3
"""Kinds of messages."""

_UINT16, _INT32, _INT64 = struct.Struct("<H"), struct.Struct("<i"), struct.Struct("<q")


@dataclass(frozen=True, slots=True)
class UnreadStates:
    """States of one pane as they lie in the log, and how many they are."""

    schema: bytes
    batch: bytes
    height: int


def unread(states: bytes) -> UnreadStates | None:
    """States that need not be read yet; None if only reading them tells how many they are."""
    stream = stream_of(states)
    try:
        kind, _head, batch_at = _message(stream, 0)
        if kind != _SCHEMA:
            return None
        kind, head, end_at = _message(stream, batch_at)
        if kind != _BATCH or stream[end_at:] != _END:
            return None
        at = _place(stream, head, 0)
        height = _INT64.unpack_from(stream, at)[0] if at else 0
    except (struct.error, IndexError):
        return None
    return UnreadStates(stream[:batch_at], stream[batch_at:end_at], height)


def read(pieces: Iterable[pl.DataFrame | UnreadStates]) -> Iterator[pl.DataFrame]:
    """The frames, in their order; what lies side by side unread is one. Raises CorruptEntry."""
    for schema, side_by_side in groupby(pieces, _schema_of):
        if schema is None:
            yield from (one for one in side_by_side if isinstance(one, pl.DataFrame))
        else:
            batches = (one.batch for one in side_by_side if isinstance(one, UnreadStates))
            yield decode_states(b"".join([schema, *batches, _END]))


def _schema_of(piece: pl.DataFrame | UnreadStates) -> bytes | None:
    return piece.schema if isinstance(piece, UnreadStates) else None


def _message(stream: bytes, at: int) -> tuple[int, int, int]:
    """Of the message that begins there: its kind, where its head lies, and where the next begins.

    Raises struct.error or IndexError where there is none.
    """
    if stream[at : at + len(_MARKER)] != _MARKER:
        raise IndexError
    begin = at + _PREFIX
    length = _INT32.unpack_from(stream, at + len(_MARKER))[0]
    message = begin + _INT32.unpack_from(stream, begin)[0]
    head_at, body_at = _place(stream, message, 2), _place(stream, message, 3)
    head = head_at + _INT32.unpack_from(stream, head_at)[0]
    body = _INT64.unpack_from(stream, body_at)[0] if body_at else 0
    return stream[_place(stream, message, 1)], head, begin + length + body


def _place(stream: bytes, table: int, member: int) -> int:
    """Where a member of a flatbuffer's table lies; 0 where it has its default."""
    members = table - _INT32.unpack_from(stream, table)[0]
    at = 4 + 2 * member
    if at >= _UINT16.unpack_from(stream, members)[0]:
        return 0
    place: int = _UINT16.unpack_from(stream, members + at)[0]
    return table + place if place else 0
