"""How large the rows of an Arrow IPC stream or file become, told before any of them is unpacked.

A few kilobytes can stand for gigabytes: compressed buffers, buffers that share bytes,
one text that a million rows of a dictionary name, rows of a column that has no buffers at all.

Sizes of buffers stand in the metadata of each message, which pyarrow reads but does not show; where
the messages of a file lie stands in its footer. They are flatbuffers (format/Message.fbs, File.fbs
and Schema.fbs of Apache Arrow, format version 5), of which the little that is needed is read here;
pyarrow has checked before that no offset in them leads out.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mars.core.types import Reason
from mars.engine.decode.formats.arrow_end import MAGIC, check_alone
from mars.engine.decode.limits import UNPACKED_BYTES_MAX
from mars.engine.decode.unreadable import Problem

MESSAGE_ROWS_MAX = UNPACKED_BYTES_MAX // 8
"""Most rows of one message: a row without an event time, which has 8 bytes, is none."""

OLD_COMPRESSION = b"ARROW:experimental_compression"
"""The key by which versions of Arrow from before 1.0 said that buffers are compressed."""

_DICTIONARY_BATCH, _RECORD_BATCH = 2, 3
"""Kinds of messages (`MessageHeader`)."""

_KIND, _HEADER = 1, 2
_DATA = 1
_LENGTH, _BUFFERS, _COMPRESSION = 0, 2, 3
"""Places of fields in the tables `Message`, `DictionaryBatch` and `RecordBatch`."""

_FOOTER_BYTES = struct.Struct("<i")
"""Stands behind the footer, before the magic."""

_DICTIONARIES, _RECORD_BATCHES = 2, 3
"""Places of fields in the table `Footer`."""

_BLOCK = struct.Struct("<qi4xq")
"""Where a message of a file begins, and the bytes of its metadata and its body."""

_BUFFER = struct.Struct("<qq")
"""Where a buffer begins in the body, and how many bytes it has there."""

_UNPACKED = struct.Struct("<q")
"""How a compressed buffer begins: bytes when unpacked; -1 if it is not compressed after all."""


def too_large(value: bytes) -> Problem | None:
    """Why the rows of a stream or file may not be unpacked, or None if they may.

    Raises pa.ArrowException, OSError or ValueError where the bytes are neither.
    """
    size = rows = 0
    try:
        for message in _messages(value):
            batch = _batch(message)
            if batch is None:
                continue
            size += sum(batch.sizes())
            rows += batch.rows
            if size > UNPACKED_BYTES_MAX or rows > MESSAGE_ROWS_MAX:
                return _problem(size, rows)
    except (struct.error, EOFError) as error:
        raise ValueError(f"metadata that leads nowhere: {error}") from error
    return None


def is_file(value: bytes) -> bool:
    """Whether the bytes are of the format for files, which pyarrow calls Feather as well."""
    return value.startswith(MAGIC)


def _messages(value: bytes) -> Iterator[pa.Message]:
    """The messages of a stream; of a file its dictionaries and record batches."""
    if not is_file(value):
        yield from pa.ipc.MessageReader.open_stream(value)
        return
    pa.ipc.open_file(value)  # which checks the footer
    blocks = list(_file_blocks(value))
    check_alone(value, _footer_place(value).start, max((sum(one) for one in blocks), default=None))
    view = memoryview(value)
    for offset, length in blocks:
        yield pa.ipc.read_message(view[offset : offset + length])


def _file_blocks(value: bytes) -> Iterator[tuple[int, int]]:
    """Where each dictionary and record batch of a file lies: its first byte, and its length."""
    data = value[_footer_place(value)]
    footer = _Table(data, struct.unpack_from("<I", data, 0)[0])
    for field in (_DICTIONARIES, _RECORD_BATCHES):
        for offset, metadata, body in _structs(footer, field, _BLOCK):
            yield offset, metadata + body


def _footer_place(value: bytes) -> slice:
    """Where the footer of a file lies, which must be one."""
    end = len(value) - len(MAGIC) - _FOOTER_BYTES.size
    (length,) = _FOOTER_BYTES.unpack_from(value, end)
    return slice(end - length, end)


def text_bytes(columns: Iterable[pa.ChunkedArray]) -> int:
    """Bytes of texts that many rows share: all rows together, as if each had its own."""
    return sum(_text_bytes(chunk) for column in columns for chunk in column.chunks)


def too_large_texts(size: int) -> Problem | None:
    """Why texts of so many bytes may not be looked up, or None if they may."""
    return _problem(size, 0) if size > UNPACKED_BYTES_MAX else None


def _problem(size: int, rows: int) -> Problem:
    if rows > MESSAGE_ROWS_MAX:
        return Reason.TOO_LARGE, f"it has {rows} rows or more, at most {MESSAGE_ROWS_MAX} are read"
    limit = f"at most {UNPACKED_BYTES_MAX} are read"
    return Reason.TOO_LARGE, f"its rows unpack to {size} bytes or more, {limit}"


# ------------------------------------------------------------------------------ metadata


@dataclass(frozen=True, slots=True)
class _Table:
    """A table of a flatbuffer, at a position."""

    data: bytes
    at: int

    def place(self, field: int) -> int | None:
        """Where the value of a field is; None: the field is not there."""
        (back,) = struct.unpack_from("<i", self.data, self.at)
        fields = self.at - back
        (end,) = struct.unpack_from("<H", self.data, fields)
        slot = 4 + 2 * field
        if slot >= end:
            return None
        (offset,) = struct.unpack_from("<H", self.data, fields + slot)
        return self.at + offset if offset else None

    def number(self, field: int, form: str) -> int:
        """A number; 0, as in all fields that we read, if it is not there."""
        place = self.place(field)
        return 0 if place is None else int(struct.unpack_from(form, self.data, place)[0])

    def target(self, field: int) -> int | None:
        """Where that is to which a field leads."""
        place = self.place(field)
        if place is None:
            return None
        return place + int(struct.unpack_from("<I", self.data, place)[0])


@dataclass(frozen=True, slots=True)
class _Batch:
    """The buffers of a record batch or of a dictionary."""

    rows: int
    buffers: list[tuple[int, int]]
    body: memoryview
    compressed: bool

    def sizes(self) -> Iterator[int]:
        """Bytes of each buffer, unpacked."""
        for offset, length in self.buffers:
            if not self.compressed or length < _UNPACKED.size:
                yield length
                continue
            (unpacked,) = _UNPACKED.unpack_from(self.body, offset)
            yield length if unpacked < 0 else unpacked


def _batch(message: pa.Message) -> _Batch | None:
    """What a message of a stream holds; None for one without rows."""
    data = message.metadata.to_pybytes()
    top = _Table(data, struct.unpack_from("<I", data, 0)[0])
    kind, target = top.number(_KIND, "<B"), top.target(_HEADER)
    if kind == _DICTIONARY_BATCH and target is not None:
        target = _Table(data, target).target(_DATA)
    if kind not in {_DICTIONARY_BATCH, _RECORD_BATCH} or target is None or message.body is None:
        return None
    header = _Table(data, target)
    compressed = header.place(_COMPRESSION) is not None or OLD_COMPRESSION in data
    body = memoryview(message.body)
    return _Batch(header.number(_LENGTH, "<q"), _buffers(header), body, compressed)


def _buffers(header: _Table) -> list[tuple[int, int]]:
    return [(offset, length) for offset, length in _structs(header, _BUFFERS, _BUFFER)]


def _structs(table: _Table, field: int, form: struct.Struct) -> Iterator[tuple[int, ...]]:
    """The structs of a vector."""
    start = table.target(field)
    if start is None:
        return iter(())
    (count,) = struct.unpack_from("<I", table.data, start)
    first = start + 4
    return form.iter_unpack(table.data[first : first + count * form.size])


# ------------------------------------------------------------------------------ shared texts


def _text_bytes(chunk: pa.Array) -> int:
    """The bytes of a chunk's texts; 0 for types whose buffers say all, and those were counted."""
    if pa.types.is_string_view(chunk.type):
        return int(_lengths(chunk).sum())
    if not pa.types.is_dictionary(chunk.type) or not is_text(chunk.type.value_type):
        return 0
    uses = pc.value_counts(chunk.indices.drop_null())
    lengths = _lengths(chunk.dictionary)
    used = int((lengths[uses.field(0).to_numpy()] * uses.field(1).to_numpy()).sum())
    # A dictionary of views is unpacked before rows take texts from it, unused ones too.
    views = pa.types.is_string_view(chunk.type.value_type)
    return max(used, int(lengths.sum())) if views else used


def is_text(kind: pa.DataType) -> bool:
    """Whether values of this type are texts."""
    kinds = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return any(is_kind(kind) for is_kind in kinds)


def _lengths(texts: pa.Array) -> NDArray[np.int64]:
    """Bytes of each text; 0 for NULL."""
    if not pa.types.is_string_view(texts.type):
        return np.asarray(pc.binary_length(texts).fill_null(0)).astype(np.int64)
    # A view is four numbers of four bytes, the first of them the length of its text.
    views = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset * 4 :: 4][: len(texts)]
    return np.where(np.asarray(texts.is_valid()), views, 0).astype(np.int64)
