"""Arrow IPC streams, one a message, to columns.

A column may be of any Arrow type whose values all are values of the declared type: narrower or
unsigned integers, large texts and views of texts, Arrow's own timestamps, and dictionaries of all
of these. With any other type, a run-end encoded one among them, its values are invalid; with a
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

from mars.codec.arrow_size import Problem, is_text, too_large, too_large_texts
from mars.codec.assembly import Faults, assemble
from mars.codec.columns import RAW_TYPES, Typed, convert
from mars.codec.decoded import Decoded
from mars.codec.limits import unusable
from mars.evaluate.values import dtype_of
from mars.plan import Field, FieldType, Stream, ValueType
from mars.types import Reason, Records

_FAILURES = (pa.ArrowException, OSError, ValueError, KeyError, TypeError, MemoryError)
"""What reading a stream of arbitrary bytes may raise."""


@dataclass(frozen=True, slots=True)
class _Run:
    """Messages in a row whose columns are alike, or one that is unreadable (None: one row)."""

    first: int
    table: pa.Table | None

    @property
    def rows(self) -> int:
        return 1 if self.table is None else int(self.table.num_rows)


def decode_arrow(stream: Stream, fields: tuple[Field, ...], records: Records) -> Decoded:
    """Decode messages of the format arrow."""
    faults = Faults()
    lines = np.ones(len(records.values), dtype=np.int64)
    tables: list[pa.Table | None] = []
    total = 0
    for at, value in enumerate(records.values):
        table = _read(value, fields, total, faults)
        lines[at] = 1 if table is None else table.num_rows
        total += int(lines[at])
        tables.append(table)
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


def _typed(at: int, one: Field, runs: list[_Run], faults: Faults) -> pl.Series:
    """One field of all rows."""
    pieces = [pl.Series(dtype=dtype_of(one.type.value_type))]
    for run in runs:
        column = _column(run.table, one, run.rows)
        pieces.append(column.values)
        if column.invalid is not None:
            faults.mark(at, column.invalid, run.first)
    return pl.concat([piece.alias(one.name) for piece in pieces])


def _read(
    value: bytes | None, fields: tuple[Field, ...], at: int, faults: Faults
) -> pa.Table | None:
    """The rows of a message; None, and a fault noted, if it has none that can be read."""
    table, problem = None, unusable(value)
    if problem is None and value is not None:
        try:
            table, problem = _table(value, fields)
        except _FAILURES as error:
            problem = (Reason.UNREADABLE, f"no Arrow IPC stream: {error}"[:200])
    if problem is not None:
        faults.unreadable[at] = problem
    return table


def _table(value: bytes, fields: tuple[Field, ...]) -> tuple[pa.Table | None, Problem | None]:
    """The rows of a message, or what is wrong with it. May raise any of _FAILURES."""
    problem = too_large(value)
    if problem is not None:
        return None, problem
    with pa.ipc.open_stream(value) as reader:
        table = reader.read_all()
    table.validate(full=True)
    names = set(table.column_names)
    if len(names) != table.num_columns:
        return None, (Reason.UNREADABLE, "a column name appears twice")
    # All columns: whether a message is read depends on nobody's fields, see `Decoded`.
    problem = too_large_texts(table.columns)
    return (_looked_up(table, fields), None) if problem is None else (None, problem)


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
    return _values(pl.Series(column), one.type)


def _is_acceptable(found: pa.DataType, wanted: FieldType) -> bool:
    """Whether all values of a type, that of a plain column, are values of the field's."""
    kind = wanted.value_type
    if pa.types.is_null(found):
        return True
    if kind is ValueType.STRING:
        return is_text(found)
    if kind is ValueType.BOOL:
        return bool(pa.types.is_boolean(found))
    if kind is ValueType.FLOAT64:
        return bool(pa.types.is_floating(found) or pa.types.is_integer(found))
    if kind is ValueType.TIMESTAMP and pa.types.is_timestamp(found):
        return True
    if wanted is FieldType.TIMESTAMP_ISO:
        return is_text(found)
    return bool(pa.types.is_integer(found))


def _values(column: pl.Series, wanted: FieldType) -> Typed:
    raw = column.cast(RAW_TYPES[wanted], strict=False)
    overflown = column.is_not_null() & raw.is_null()
    typed = convert(raw, wanted)
    return Typed(typed.values, overflown if typed.invalid is None else overflown | typed.invalid)


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
