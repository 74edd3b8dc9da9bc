"""Lines of comma-separated cells (RFC 4180) to columns.

A line with more cells than there are columns is read as far as these go, one with fewer is no row.
A stream may declare another delimiter, and another quote, one ASCII character each.
Each line is a row by itself: a cell cannot hold a line break, so that a stray quote spoils no
other line. An empty cell is NULL, for a text the empty text. Numbers are written as in JSON or
with a leading `+`, booleans `true` or `false`. A line with a NUL byte is unreadable.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.csv as arrow_csv

from mars.core.plan import Field, FieldType, Stream
from mars.core.types import Reason, Records
from mars.engine.decode.assembly import ColumnFaults, assemble
from mars.engine.decode.columns import convert, convert_numbers, texts_of
from mars.engine.decode.decoded import Decoded
from mars.engine.decode.formats.texts import MARK, without_mark
from mars.engine.decode.limits import TooManyRows, unusable

DIALECTS_REMEMBERED = 64


@dataclass(frozen=True, slots=True)
class _Dialect:
    """How cells are told apart. Where none of `careful` is in a text, its lines need not be looked
    at one by one.
    """

    delimiter: bytes
    quote: bytes
    line: re.Pattern[bytes]
    delimiter_or_quoted: re.Pattern[bytes]
    careful: tuple[bytes, ...]


@lru_cache(maxsize=DIALECTS_REMEMBERED)
def _dialect(delimiter: str, quote: str) -> _Dialect:
    between, mark = delimiter.encode(), quote.encode()
    d, q = re.escape(between), re.escape(mark)
    quoted = q + rb"(?:[^" + q + rb"]|" + q + q + rb")*+" + q
    cell = rb"(?:" + quoted + rb"|[^" + q + d + rb"]*+)"
    line = re.compile(cell + rb"(?:" + d + cell + rb")*+")
    careful = (mark, b"\r", b"\0", b"\n\n")
    return _Dialect(between, mark, line, re.compile(quoted + rb"|" + d), careful)


@dataclass(slots=True)
class _Block:
    """Messages with the same columns; `numbers` are those of their rows in the batch."""

    dialect: _Dialect
    columns: tuple[str, ...]
    bodies: list[bytes] = field(default_factory=list)
    numbers: list[range] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Cells:
    """Cells of some rows, by field (None: no such column)."""

    numbers: np.typing.NDArray[np.int64]
    by_field: tuple[pl.Series | None, ...]


def decode_csv(
    stream: Stream,
    fields: tuple[Field, ...],
    records: Records,
    rows_max: int,
    *,
    parts: bool = False,
) -> Decoded:
    """Decode messages of the format csv, or parts of one, in which every line is a row.

    Raises TooManyRows.
    """
    faults = ColumnFaults()
    lines = np.ones(len(records.values), dtype=np.int64)
    blocks, total = _blocks(stream, records, lines, faults, rows_max, parts=parts)
    parsed = [_parse(block, fields, faults) for block in blocks]
    typed = [_typed(at, one, parsed, total, faults) for at, one in enumerate(fields)]
    return assemble(stream, fields, records, lines, typed, faults)


def _blocks(
    stream: Stream,
    records: Records,
    lines: np.typing.NDArray[np.int64],
    faults: ColumnFaults,
    rows_max: int,
    *,
    parts: bool,
) -> tuple[list[_Block], int]:
    """Messages sorted by their columns, and the number of rows of all."""
    declared = tuple(one.name for one in stream.message_fields)
    dialect = _dialect(stream.csv_delimiter, stream.csv_quote)
    blocks: dict[tuple[str, ...], _Block] = {}
    total = 0
    for at, value in enumerate(records.values):
        problem = None if parts else unusable(value)
        columns, body = declared, without_mark(value or b"")
        if not parts:
            body = body.rstrip(b"\r\n")
        if problem is None and stream.csv_header:
            header, line_break, body = body.partition(b"\n")
            columns, problem = _columns(header, dialect)
            if problem is None and not line_break:
                lines[at] = 0
                continue
        if problem is not None:
            faults.spoil(total, problem)
            total += 1
            continue
        lines[at] = body.count(b"\n") + 1
        if total + int(lines[at]) > rows_max:
            raise TooManyRows
        block = blocks.setdefault(columns, _Block(dialect, columns))
        block.bodies.append(body)
        block.numbers.append(range(total, total := total + int(lines[at])))
    return list(blocks.values()), total


def columns_of(stream: Stream, header: bytes) -> tuple[tuple[str, ...], tuple[Reason, str] | None]:
    """The columns that a header names, or why it is none."""
    return _columns(header, _dialect(stream.csv_delimiter, stream.csv_quote))


def _columns(header: bytes, dialect: _Dialect) -> tuple[tuple[str, ...], tuple[Reason, str] | None]:
    """The columns that a header names, or why it is none."""
    line = header.removesuffix(b"\r")
    if _problem(line, dialect, cells=2) is not None:
        return (), (Reason.UNREADABLE, "the header is not a line of cells")
    try:
        cells = csv.reader(
            [line.decode()],
            delimiter=dialect.delimiter.decode(),
            quotechar=dialect.quote.decode(),
            strict=True,
        )
        columns = tuple(next(cells))
    except (UnicodeDecodeError, csv.Error) as error:
        return (), (Reason.UNREADABLE, f"the header cannot be read: {error}")
    if len(set(columns)) < len(columns):
        return (), (Reason.UNREADABLE, "the header names a column twice")
    return columns, None


def _parse(block: _Block, fields: tuple[Field, ...], faults: ColumnFaults) -> _Cells:
    """The cells of a block's rows; rows that are no rows become faults."""
    text = b"\n".join(block.bodies)
    numbers = np.concatenate([np.arange(part.start, part.stop) for part in block.numbers])
    dialect, columns = block.dialect, len(block.columns)
    if b"\n" in (text[:1] or b"\n", text[-1:]) or any(mark in text for mark in dialect.careful):
        text, numbers = _without_broken_lines(text, numbers, dialect, columns, faults)
    wanted = [one.name if one.name in block.columns else None for one in fields]
    try:
        table = _read(text, dialect, block.columns, wanted)
    except pa.ArrowInvalid:  # some line has another number of cells than there are columns
        text, numbers = _cut_to_fit(text, numbers, dialect, columns, faults)
        table = _read(text, dialect, block.columns, wanted)
    return _Cells(
        numbers,
        tuple(None if name is None else _cells(table, block.columns, name) for name in wanted),
    )


def _without_broken_lines(
    text: bytes,
    numbers: np.typing.NDArray[np.int64],
    dialect: _Dialect,
    columns: int,
    faults: ColumnFaults,
) -> tuple[bytes, np.typing.NDArray[np.int64]]:
    rows = [row.removesuffix(b"\r") for row in text.split(b"\n")]
    kept = []
    for at, row in enumerate(rows):
        problem = _problem(row, dialect, columns)
        if problem is None:
            kept.append(at)
        else:
            faults.spoil(int(numbers[at]), (Reason.UNREADABLE, problem))
    return b"\n".join([rows[at] for at in kept]), numbers[kept]


def _problem(row: bytes, dialect: _Dialect, cells: int) -> str | None:
    """Why a line is no line of cells, or None."""
    if not row and cells > 1:
        return "empty"
    if b"\0" in row:
        return "a NUL byte"
    if b"\r" in row:
        return "a carriage return within a line"
    if dialect.quote in row and dialect.line.fullmatch(row) is None:
        return "a quote that is not closed, or not at the beginning of a cell"
    return None


def _cut_to_fit(
    text: bytes,
    numbers: np.typing.NDArray[np.int64],
    dialect: _Dialect,
    columns: int,
    faults: ColumnFaults,
) -> tuple[bytes, np.typing.NDArray[np.int64]]:
    """The lines that have a cell for each column, without further cells."""
    rows, kept = text.split(b"\n"), []
    for at, row in enumerate(rows):
        cells, rows[at] = _first_cells(row, dialect, columns)
        if cells >= columns:
            kept.append(at)
            faults.longer += cells > columns
        else:
            problem = f"{cells} cells instead of {columns}"
            faults.spoil(int(numbers[at]), (Reason.UNREADABLE, problem))
    return b"\n".join([rows[at] for at in kept]), numbers[kept]


def _first_cells(row: bytes, dialect: _Dialect, columns: int) -> tuple[int, bytes]:
    """How many cells a line has, and the line as far as the cells of the columns go."""
    delimiter = dialect.delimiter
    if dialect.quote not in row:
        cells = row.split(delimiter)
        return len(cells), delimiter.join(cells[:columns])
    found = dialect.delimiter_or_quoted.finditer(row)
    ends = [each.start() for each in found if each[0] == delimiter]
    return len(ends) + 1, row if len(ends) < columns else row[: ends[columns - 1]]


def _read(
    text: bytes, dialect: _Dialect, columns: tuple[str, ...], wanted: list[str | None]
) -> pa.Table:
    """The wanted columns as bytes. Raises ArrowInvalid unless each line has a cell per column."""
    names = [_place(columns, name) for name in wanted if name is not None] or ["0"]
    # The reader passes over a byte order mark where it begins, which here is within a message.
    mark = MARK if text.startswith(MARK) else b""
    return arrow_csv.read_csv(
        pa.BufferReader(mark + text + b"\n"),
        arrow_csv.ReadOptions(
            use_threads=False,
            block_size=len(mark) + len(text) + 2,
            column_names=[str(at) for at in range(len(columns))],
        ),
        arrow_csv.ParseOptions(
            delimiter=dialect.delimiter.decode(),
            quote_char=dialect.quote.decode(),
            ignore_empty_lines=False,
        ),
        arrow_csv.ConvertOptions(
            include_columns=names,
            column_types=dict.fromkeys(names, pa.binary()),
            check_utf8=False,
            strings_can_be_null=False,
        ),
    )


def _place(columns: tuple[str, ...], name: str) -> str:
    """Columns are called by their place, so that any name will do."""
    return str(columns.index(name))


def _cells(table: pa.Table, columns: tuple[str, ...], name: str) -> pl.Series:
    return pl.Series(table.column(_place(columns, name)))


def _typed(
    at: int, one: Field, parsed: list[_Cells], total: int, faults: ColumnFaults
) -> pl.Series:
    """One field of all rows, NULL for those that are unreadable."""
    found = [(cells.numbers, cells.by_field[at]) for cells in parsed]
    present = [(numbers, series) for numbers, series in found if series is not None]
    cells = pl.concat([*(series for _, series in present), pl.Series([None], dtype=pl.Binary)])
    places = np.full(total, cells.len() - 1, dtype=np.int64)
    begin = 0
    for numbers, series in present:
        places[numbers] = np.arange(begin, begin + series.len())
        begin += series.len()
    values, invalid = _values(texts_of(cells), one.type)
    faults.mark(at, invalid.gather(places))
    return values.gather(places)


def _values(texts: tuple[pl.Series, pl.Series], kind: FieldType) -> tuple[pl.Series, pl.Series]:
    """Cells as values of the declared type, and which of them are none."""
    cells, broken = texts
    if kind is FieldType.STRING:
        return cells, broken
    present = cells.set(cells == "", None)
    values = _parsed(present, kind)
    return values, broken | (present.is_not_null() & values.is_null())


def _parsed(present: pl.Series, kind: FieldType) -> pl.Series:
    if kind is FieldType.TIMESTAMP_ISO:
        return convert(present, kind).values
    if kind is FieldType.BOOL:
        return pl.select(
            pl.when(present == "true").then(True).when(present == "false").then(False)
        ).to_series()
    if kind is FieldType.FLOAT64:
        floats = present.cast(pl.Float64, strict=False)
        return floats.set(~floats.is_finite(), None)
    whole = present.cast(pl.Int64, strict=False)
    floats = present.set(whole.is_not_null(), None).cast(pl.Float64, strict=False)
    return convert_numbers(whole, floats, kind).values
