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

LAYOUTS_MAX = 100
"""Layouts of a batch for which Arrow is asked one by one, at half a millisecond each; rows of more
are cut into cells here, which takes longer for each row."""

WIDTH_MAX = 1_000
"""Most cells of a row that Arrow reads: it takes a kilobyte for each column, wanted or not."""


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


@dataclass(frozen=True, slots=True)
class _Layout:
    """How many cells a row has, and which of them is each field's (None: no such column)."""

    width: int
    places: tuple[int | None, ...]


@dataclass(slots=True)
class _Block:
    """Messages of the same layout; `numbers` are those of their rows in the batch."""

    dialect: _Dialect
    layout: _Layout
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
    blocks, total = _blocks(stream, fields, records, lines, faults, rows_max, parts=parts)
    if len(blocks) <= LAYOUTS_MAX and all(block.layout.width <= WIDTH_MAX for block in blocks):
        parsed = [_parse(block, faults) for block in blocks]
    else:
        parsed = [_parse_by_row(blocks, len(fields), faults)]
    typed = [_typed(at, one, parsed, total, faults) for at, one in enumerate(fields)]
    return assemble(stream, fields, records, lines, typed, faults)


def _blocks(
    stream: Stream,
    fields: tuple[Field, ...],
    records: Records,
    lines: np.typing.NDArray[np.int64],
    faults: ColumnFaults,
    rows_max: int,
    *,
    parts: bool,
) -> tuple[list[_Block], int]:
    """Messages sorted by their layout, and the number of rows of all."""
    declared = {one.name: at for at, one in enumerate(stream.message_fields)}
    dialect = _dialect(stream.csv_delimiter, stream.csv_quote)
    blocks: dict[_Layout, _Block] = {}
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
        layout = _Layout(len(columns), tuple(columns.get(one.name) for one in fields))
        block = blocks.setdefault(layout, _Block(dialect, layout))
        block.bodies.append(body)
        block.numbers.append(range(total, total := total + int(lines[at])))
    return list(blocks.values()), total


def columns_of(stream: Stream, header: bytes) -> tuple[dict[str, int], tuple[Reason, str] | None]:
    """The columns that a header names, by their places, or why it is none."""
    return _columns(header, _dialect(stream.csv_delimiter, stream.csv_quote))


def _columns(header: bytes, dialect: _Dialect) -> tuple[dict[str, int], tuple[Reason, str] | None]:
    """The columns that a header names, by their places, or why it is none."""
    line = header.removesuffix(b"\r")
    if _problem(line, dialect, cells=2) is not None:
        return {}, (Reason.UNREADABLE, "the header is not a line of cells")
    try:
        cells = csv.reader(
            [line.decode()],
            delimiter=dialect.delimiter.decode(),
            quotechar=dialect.quote.decode(),
            strict=True,
        )
        names = next(cells)
    except (UnicodeDecodeError, csv.Error) as error:
        return {}, (Reason.UNREADABLE, f"the header cannot be read: {error}")
    columns = {name: at for at, name in enumerate(names)}
    if len(columns) < len(names):
        return {}, (Reason.UNREADABLE, "the header names a column twice")
    return columns, None


def _parse(block: _Block, faults: ColumnFaults) -> _Cells:
    """The cells of a block's rows; rows that are no rows become faults."""
    layout, dialect = block.layout, block.dialect
    text, numbers = _unbroken(block, faults)
    try:
        table = _read(text, dialect, layout)
    except pa.ArrowInvalid:  # some line has another number of cells than there are columns
        text, numbers = _cut_to_fit(text, numbers, dialect, layout.width, faults)
        table = _read(text, dialect, layout)
    return _Cells(
        numbers,
        tuple(
            None if place is None else pl.Series(table.column(str(place)))
            for place in layout.places
        ),
    )


def _parse_by_row(blocks: list[_Block], fields: int, faults: ColumnFaults) -> _Cells:
    """The same for blocks that Arrow would take too long for, or too much memory."""
    kept: list[int] = []
    found: list[list[bytes | None]] = [[] for _ in range(fields)]
    for block in blocks:
        layout, dialect = block.layout, block.dialect
        text, numbers = _unbroken(block, faults)
        for number, row in zip(numbers.tolist(), text.split(b"\n"), strict=False):
            cells = _split(row, dialect)
            if len(cells) < layout.width:
                faults.spoil(number, _too_few(len(cells), layout.width))
                continue
            faults.longer += len(cells) > layout.width
            kept.append(number)
            for values, place in zip(found, layout.places, strict=True):
                values.append(None if place is None else _unquoted(cells[place], dialect))
    series = tuple(pl.Series(values, dtype=pl.Binary) for values in found)
    return _Cells(np.array(kept, dtype=np.int64), series)


def _unbroken(block: _Block, faults: ColumnFaults) -> tuple[bytes, np.typing.NDArray[np.int64]]:
    """The lines of a block that are lines of cells, and the numbers of their rows."""
    text = b"\n".join(block.bodies)
    numbers = np.concatenate([np.arange(part.start, part.stop) for part in block.numbers])
    dialect = block.dialect
    if b"\n" in (text[:1] or b"\n", text[-1:]) or any(mark in text for mark in dialect.careful):
        return _without_broken_lines(text, numbers, dialect, block.layout.width, faults)
    return text, numbers


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
            faults.spoil(int(numbers[at]), _too_few(cells, columns))
    return b"\n".join([rows[at] for at in kept]), numbers[kept]


def _too_few(cells: int, columns: int) -> tuple[Reason, str]:
    return Reason.UNREADABLE, f"{cells} cells instead of {columns}"


def _first_cells(row: bytes, dialect: _Dialect, columns: int) -> tuple[int, bytes]:
    """How many cells a line has, and the line as far as the cells of the columns go."""
    cells = _split(row, dialect)
    return len(cells), dialect.delimiter.join(cells[:columns])


def _split(row: bytes, dialect: _Dialect) -> list[bytes]:
    """The cells of a line, as they stand there."""
    if dialect.quote not in row:
        return row.split(dialect.delimiter)
    found = dialect.delimiter_or_quoted.finditer(row)
    ends = [each.start() for each in found if each[0] == dialect.delimiter]
    begins = [0, *(end + 1 for end in ends)]
    return [row[begin:end] for begin, end in zip(begins, [*ends, len(row)], strict=True)]


def _unquoted(cell: bytes, dialect: _Dialect) -> bytes:
    quote = dialect.quote
    return cell[1:-1].replace(quote * 2, quote) if cell.startswith(quote) else cell


def _read(text: bytes, dialect: _Dialect, layout: _Layout) -> pa.Table:
    """The fields' columns as bytes, called by their places, so that any name will do.

    Raises ArrowInvalid unless each line has a cell per column.
    """
    names = [str(place) for place in layout.places if place is not None] or ["0"]
    # The reader passes over a byte order mark where it begins, which here is within a message.
    mark = MARK if text.startswith(MARK) else b""
    return arrow_csv.read_csv(
        pa.BufferReader(mark + text + b"\n"),
        arrow_csv.ReadOptions(
            use_threads=False,
            block_size=len(mark) + len(text) + 2,
            column_names=[str(at) for at in range(layout.width)],
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
