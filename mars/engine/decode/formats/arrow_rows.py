"""Arrow IPC streams or files, one a message, to columns.

A column may be of any Arrow type whose values can be values of the declared type: narrower or
unsigned integers, large texts and views of texts, Arrow's own timestamps and dates, decimals, and
dictionaries of all of these; floats count as integers and timestamps as in `columns`. With any
other type, a run-end encoded one among them, its values are invalid; with a
column name that appears twice the message is unreadable. One that unpacks to more than `arrow_size`
allows is too large.

All that Arrow may refuse is done while a message is read, so that it spoils that message alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import polars as pl
import pyarrow as pa

from mars.core.plan import Field, FieldType, Stream, ValueType
from mars.core.types import Reason, Records
from mars.engine.decode.assembly import ColumnFaults, assemble
from mars.engine.decode.columns import RAW_TYPES, Typed, convert, convert_floats, either
from mars.engine.decode.decoded import Decoded
from mars.engine.decode.formats.arrow_end import check_stream
from mars.engine.decode.formats.arrow_size import (
    is_file,
    is_text,
    text_bytes,
    too_large,
    too_large_texts,
)
from mars.engine.decode.formats.texts import without_mark
from mars.engine.decode.limits import UNPACKED_BYTES_MAX, TooManyRows, unusable
from mars.engine.decode.too_many import UNLIMITED
from mars.engine.decode.unreadable import Problem
from mars.engine.evaluate.values import dtype_of

_FAILURES = (pa.ArrowException, OSError, ValueError, KeyError, TypeError, MemoryError)
"""What reading a stream of arbitrary bytes may raise."""

_DECIMALS = (pa.types.is_decimal32, pa.types.is_decimal64, pa.types.is_decimal128)
_NUMBERS = (pa.types.is_integer, pa.types.is_floating, *_DECIMALS)

_DECIMAL_DIGITS = 38
"""Of Arrow's decimals of 128 bits; wider ones are no values of any field."""


@dataclass(frozen=True, slots=True)
class _Run:
    """Messages in a row whose columns are alike, or one that is unreadable (None: one row)."""

    first: int
    table: pa.Table | None

    @property
    def rows(self) -> int:
        return 1 if self.table is None else int(self.table.num_rows)


@dataclass(frozen=True, slots=True)
class Unpacked:
    """A message: its rows, or why it is one that cannot be read, and the bytes that they take.

    The bytes count all columns: whether a message is read depends on nobody's fields.
    """

    table: pa.Table | None
    problem: Problem | None
    size: int = 0

    @property
    def rows(self) -> int:
        """Rows, of which an unreadable message is one."""
        return 1 if self.table is None else int(self.table.num_rows)


def decode_arrow(
    stream: Stream, fields: tuple[Field, ...], records: Records, rows_max: int
) -> Decoded:
    """Decode messages of the format arrow. Raises TooManyRows, also for what takes many bytes."""
    messages: list[Unpacked] = []
    rows = size = 0
    for value in records.values:
        message = unpack(value)
        rows, size = rows + message.rows, size + message.size
        if rows > rows_max or (messages and rows_max < UNLIMITED and size > UNPACKED_BYTES_MAX):
            raise TooManyRows
        messages.append(message)
    return decode_unpacked(stream, fields, records, messages)


def decode_unpacked(
    stream: Stream, fields: tuple[Field, ...], records: Records, messages: list[Unpacked]
) -> Decoded:
    """Decode messages that are unpacked."""
    faults = ColumnFaults()
    lines = np.array([message.rows for message in messages], dtype=np.int64)
    for first, message in zip((np.cumsum(lines) - lines).tolist(), messages, strict=True):
        if message.problem is not None:
            faults.spoil(first, message.problem)
    tables = [
        None if message.table is None else _looked_up(message.table, fields) for message in messages
    ]
    runs = list(_runs(tables))
    typed = [_typed(at, one, runs, faults) for at, one in enumerate(fields)]
    return assemble(stream, fields, records, lines, typed, faults)


def _runs(tables: list[pa.Table | None]) -> Iterator[_Run]:
    """Tables put together where they can be: a column is converted once for all of a run."""
    first = 0
    for schema, group in groupby(tables, key=lambda table: None if table is None else table.schema):
        members = list(group)
        if schema is None:
            for at in range(len(members)):
                yield _Run(first + at, None)
            first += len(members)
        else:
            run = _Run(first, pa.concat_tables(members))
            yield run
            first += run.rows


def _typed(at: int, one: Field, runs: list[_Run], faults: ColumnFaults) -> pl.Series:
    """One field of all rows."""
    pieces = [pl.Series(dtype=dtype_of(one.type.value_type))]
    for run in runs:
        column = _column(run.table, one, run.rows)
        pieces.append(column.values)
        if column.invalid is not None:
            faults.mark(at, column.invalid, run.first)
    return pl.concat([piece.alias(one.name) for piece in pieces])


def unpack(value: bytes | None) -> Unpacked:
    """The rows of a message, or why there are none that can be read."""
    problem = unusable(value)
    if problem is not None or value is None:
        return Unpacked(None, problem)
    try:
        return _unpack(without_mark(value))
    except _FAILURES as error:
        detail = f"no Arrow IPC stream or file: {error}"[:200]
        return Unpacked(None, (Reason.UNREADABLE, detail))


def _unpack(value: bytes) -> Unpacked:
    """The same. May raise any of _FAILURES."""
    file, problem = is_file(value), too_large(value)
    if problem is not None:
        return Unpacked(None, problem)
    source = pa.BufferReader(value)
    with (pa.ipc.open_file if file else pa.ipc.open_stream)(source) as reader:
        table = reader.read_all()
    if not file:
        check_stream(value, source.tell())
    table.validate(full=True)
    names = set(table.column_names)
    if len(names) != table.num_columns:
        return Unpacked(None, (Reason.UNREADABLE, "a column name appears twice"))
    texts = text_bytes(table.columns)
    problem = too_large_texts(texts)
    if problem is not None:
        return Unpacked(None, problem)
    return Unpacked(table, None, table.nbytes + texts)


def _looked_up(table: pa.Table, fields: tuple[Field, ...]) -> pa.Table:
    """The table with the values of acceptable dictionaries in their place."""
    for one in fields:
        at = table.schema.get_field_index(one.name)
        column = table.column(at) if at >= 0 else None
        if column is None or not pa.types.is_dictionary(column.type):
            continue
        if _is_acceptable(column.type.value_type, one.type):
            table = table.set_column(at, one.name, _values_of(column))
    return table


def _values_of(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The values that a dictionary column stands for."""
    kind = column.type.value_type
    # Arrow takes no values by index from views of texts.
    plain = pa.large_string() if pa.types.is_string_view(kind) else kind
    chunks = [chunk.dictionary.cast(plain).take(chunk.indices) for chunk in column.chunks]
    return pa.chunked_array(chunks, plain)


def _column(table: pa.Table | None, one: Field, rows: int) -> Typed:
    """One field of a message."""
    nothing = pl.Series([None], dtype=dtype_of(one.type.value_type)).new_from_index(0, rows)
    if table is None or one.name not in table.column_names:
        return Typed(nothing, None)
    column = table.column(one.name)
    if not _is_acceptable(column.type, one.type):
        return Typed(nothing, pl.repeat(True, rows, eager=True))
    if pa.types.is_null(column.type):
        return Typed(nothing, None)
    if pa.types.is_timestamp(column.type):
        return _timestamps(column)
    if pa.types.is_date(column.type):
        return Typed(pl.Series(column.cast(pa.timestamp("ms")).cast(pa.int64())), None)
    return _values(_numbers(column), one.type)


def _is_acceptable(found: pa.DataType, wanted: FieldType) -> bool:
    """Whether values of a type, that of a plain column, can be values of the field's."""
    if pa.types.is_null(found):
        return True
    moment = wanted.value_type is ValueType.TIMESTAMP
    if moment and (pa.types.is_timestamp(found) or pa.types.is_date(found)):
        return True
    if wanted in {FieldType.STRING, FieldType.TIMESTAMP_ISO}:
        return is_text(found)
    if wanted is FieldType.BOOL:
        return bool(pa.types.is_boolean(found))
    if any(is_kind(found) for is_kind in _DECIMALS):
        return bool(found.scale >= 0)  # polars has no others
    return any(is_kind(found) for is_kind in _NUMBERS)


def _numbers(column: pa.ChunkedArray) -> pl.Series:
    """The values, decimals as doubles unless they are whole by their type."""
    if pa.types.is_string_view(column.type):
        # What a view holds where the value is NULL is anybody's, and polars follows it.
        return pl.Series(column.cast(pa.large_string()))
    if not any(is_kind(column.type) for is_kind in _DECIMALS):
        return pl.Series(column)
    scale = column.type.scale
    values = pl.Series(column.cast(pa.decimal128(_DECIMAL_DIGITS, scale)))
    return values.cast(pl.Int128 if scale == 0 else pl.Float64, strict=False)


def _values(column: pl.Series, wanted: FieldType) -> Typed:
    if column.dtype.is_float() and wanted is not FieldType.FLOAT64:
        return convert_floats(column.cast(pl.Float64), wanted)
    raw = column.cast(RAW_TYPES[wanted], strict=False)
    overflown = column.is_not_null() & raw.is_null()
    typed = convert(raw, wanted)
    return Typed(typed.values, either(overflown, typed.invalid))


def _timestamps(column: pa.ChunkedArray) -> Typed:
    """Arrow's own timestamps, by their unit and not the field's."""
    counts = pl.Series(column.cast(pa.int64()))
    match column.type.unit:
        case "s":
            return convert(counts, FieldType.TIMESTAMP_S)
        case "ms":
            return Typed(counts, None)
        case "us":
            return convert(counts, FieldType.TIMESTAMP_US)
        case _:
            return Typed(counts // 1_000_000, None)
