"""JSON objects to columns: one a message or an array of them (`json`), or one a line (`ndjson`).

Each row is parsed into a small object that has only the wanted fields, the rest is skipped over;
the objects of a chunk become columns before the next chunk is parsed, so that they stay in the
processor's cache. A row that fails is looked at by itself and the chunk goes on after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from typing import Any, cast

import msgspec
import numpy as np
import polars as pl

from mars.core.plan import Field, FieldType, Format, Stream
from mars.core.types import Reason, Records
from mars.engine.decode.assembly import ColumnFaults, assemble
from mars.engine.decode.columns import RAW_TYPES, Typed, convert, convert_numbers, either
from mars.engine.decode.decoded import Decoded
from mars.engine.decode.formats.nesting import (
    NESTING_MAX,
    SHALLOW_BYTES_MAX,
    is_too_deep,
    may_be_deep,
)
from mars.engine.decode.formats.texts import (
    BLANK,
    FAILURES,
    elements,
    filled_lines,
    is_array,
    without_mark,
)
from mars.engine.decode.limits import MESSAGE_BYTES_MAX, TooManyRows, unusable

CHUNK_ROWS = 1_000
"""Rows parsed before their values go to columns: what fits into the second-level cache."""

SERIES_ROWS = 5_000
"""Rows whose values wait as Python objects; more of them fall out of the cache, fewer make many
small series."""

FIELD_SETS_REMEMBERED = 256
"""Generated parsers that are kept; there is one per topic."""

_PYTHON_TYPES: dict[FieldType, Any] = {
    FieldType.STRING: str,
    FieldType.INT64: int | float,
    FieldType.FLOAT64: float,
    FieldType.BOOL: bool,
    FieldType.TIMESTAMP_MS: int | float,
    FieldType.TIMESTAMP_US: int | float,
    FieldType.TIMESTAMP_S: int | float,
    FieldType.TIMESTAMP_ISO: str,
}

WHOLE_BYTES_MIN = 16 * 1024
"""A message of lines is parsed as a whole from this length on; below it, the check costs more than
to cut it into lines."""

_LINE_FEED, _CARRIAGE_RETURN = np.uint8(ord("\n")), np.uint8(ord("\r"))
_OPENING, _CLOSING = np.uint8(ord("{")), np.uint8(ord("}"))
_BRACKET = np.uint8(ord("["))
_BRACE_TO_BRACKET = np.uint8(0xFF ^ (ord("{") ^ ord("[")))
"""Clears the one bit in which `{` differs from `[`; no other byte becomes `[` by it."""

_INT64 = range(-(2**63), 2**63)

_Reader = Callable[[list[Any]], list[object]]

# An attribute named in the code is read in half the time of one named in a variable, and reading
# attributes is a tenth of all decoding: so the first fields, of which most tasks need no more,
# have their own readers.
_FIRST_READERS: tuple[_Reader, ...] = (
    lambda rows: [row.f0 for row in rows],
    lambda rows: [row.f1 for row in rows],
    lambda rows: [row.f2 for row in rows],
    lambda rows: [row.f3 for row in rows],
    lambda rows: [row.f4 for row in rows],
    lambda rows: [row.f5 for row in rows],
    lambda rows: [row.f6 for row in rows],
    lambda rows: [row.f7 for row in rows],
)


class _Nothing(msgspec.Struct, gc=False):
    """An object of which no field is wanted."""


_anything = msgspec.json.Decoder(_Nothing)


@dataclass(frozen=True, slots=True)
class _Parser:
    """Parsers for a set of fields: for all of them at once, and for each alone."""

    row: type[msgspec.Struct]
    together: msgspec.json.Decoder[msgspec.Struct]
    alone: tuple[msgspec.json.Decoder[msgspec.Struct], ...]
    readers: tuple[_Reader, ...]


def _reader(at: int) -> _Reader:
    """A function that takes the values of the attribute `f<at>` out of rows."""
    if at < len(_FIRST_READERS):
        return _FIRST_READERS[at]
    attribute = attrgetter(f"f{at}")
    return lambda rows: list(map(attribute, rows))


@lru_cache(maxsize=FIELD_SETS_REMEMBERED)
def _parser(fields: tuple[Field, ...]) -> _Parser:
    row = _row_type(fields)
    readers = tuple(map(_reader, range(len(fields))))
    alone = tuple(msgspec.json.Decoder(_row_type((one,))) for one in fields)
    return _Parser(row, msgspec.json.Decoder(row), alone, readers)


def _row_type(fields: tuple[Field, ...]) -> type[msgspec.Struct]:
    """A struct with the attributes f0, f1 ..., so that any field name will do."""
    members = [(f"f{at}", _PYTHON_TYPES[one.type] | None, None) for at, one in enumerate(fields)]
    rename = {f"f{at}": one.name for at, one in enumerate(fields)}
    return msgspec.defstruct("Row", members, rename=rename, gc=False)


def decode_json(
    stream: Stream, fields: tuple[Field, ...], records: Records, rows_max: int
) -> Decoded:
    """Decode messages of the formats json and ndjson. Raises TooManyRows."""
    parser, faults = _parser(fields), ColumnFaults()
    columns = _Columns(fields, parser.readers, faults)
    lines = np.ones(len(records.values), dtype=np.int64)
    if stream.format is Format.JSON:
        chunks = _messages(records.values, lines, parser, faults, rows_max)
    else:
        chunks = _lines(records.values, lines, parser, faults, rows_max)
    for rows in chunks:
        columns.add(rows)
    return assemble(stream, fields, records, lines, columns.finished(), faults)


class _Columns:
    """Values of rows, put away as polars series every SERIES_ROWS rows.

    That frees the Python objects while they are still in the cache, and their memory is taken
    again for the next ones.
    """

    def __init__(
        self, fields: tuple[Field, ...], readers: tuple[_Reader, ...], faults: ColumnFaults
    ) -> None:
        self._fields = fields
        self._readers = readers
        self._faults = faults
        self._values: list[list[object]] = [[] for _ in fields]
        self._series: list[list[pl.Series]] = [[] for _ in fields]
        self._first = 0

    def add(self, rows: list[msgspec.Struct]) -> None:
        """Take the values of some more rows."""
        for values, values_of in zip(self._values, self._readers, strict=True):
            values.extend(values_of(rows))
        if len(self._values[0]) >= SERIES_ROWS:
            self._put_away()

    def _put_away(self) -> None:
        for at, (one, values) in enumerate(zip(self._fields, self._values, strict=True)):
            column = _column(values, one.type)
            if column.invalid is not None:
                self._faults.mark(at, column.invalid, self._first)
            self._series[at].append(column.values)
        self._first += len(self._values[0])
        self._values = [[] for _ in self._fields]

    def finished(self) -> list[pl.Series]:
        """One column per field, of the declared type."""
        self._put_away()
        return [pl.concat(pieces, rechunk=True) for pieces in self._series]


def _column(values: list[Any], kind: FieldType) -> Typed:
    """Values as a column of the declared type."""
    dtype = RAW_TYPES[kind]
    try:
        return convert(pl.Series(values, dtype=dtype), kind)
    except (TypeError, OverflowError):  # floats among integers; beyond 64 bits, or even beyond 128
        return _numbers(values, kind)


def _numbers(values: list[Any], kind: FieldType) -> Typed:
    """The same where some are floats, or integers that are no values of any type."""
    floats = [value if isinstance(value, float) else None for value in values]
    whole = [value if isinstance(value, int) and value in _INT64 else None for value in values]
    beyond = [isinstance(value, int) and value not in _INT64 for value in values]
    column = convert_numbers(
        pl.Series(whole, dtype=pl.Int64), pl.Series(floats, dtype=pl.Float64), kind
    )
    return Typed(column.values, either(column.invalid, pl.Series(beyond)))


def _messages(
    values: Sequence[bytes | None],
    rows_of: np.typing.NDArray[np.int64],
    parser: _Parser,
    faults: ColumnFaults,
    rows_max: int,
) -> Iterator[list[msgspec.Struct]]:
    """An object a message, or an array of objects, in chunks.

    How many rows each message has is written into `rows_of`.
    """
    total = 0
    for at in range(0, len(values), CHUNK_ROWS):
        chunk = values[at : at + CHUNK_ROWS]
        rows = _parse(parser, chunk, total, faults, rows_of[at : at + len(chunk)], rows_max)
        total += len(rows)
        _check(total, rows_max)
        yield rows


def _lines(
    values: Sequence[bytes | None],
    lines: np.typing.NDArray[np.int64],
    parser: _Parser,
    faults: ColumnFaults,
    rows_max: int,
) -> Iterator[list[msgspec.Struct]]:
    """One object a line, in chunks; how many rows each message has is written into `lines`.

    Empty lines are no rows, but a message without any other line is one unreadable row.
    """
    chunk: list[bytes | None] = []
    total = 0
    for at, value in enumerate(values):
        text = value
        if value and len(value) <= MESSAGE_BYTES_MAX:
            text = without_mark(value).rstrip(BLANK)
        rows = _parse_whole(parser, text, rows_max - total - len(chunk))
        if rows is None:
            pieces = _split(text)
            chunk += pieces
            lines[at] = len(pieces)
            _check(total + len(chunk), rows_max)
        if chunk and (rows is not None or len(chunk) >= CHUNK_ROWS):
            yield _parse(parser, chunk, total, faults)
            total += len(chunk)
            chunk = []
        if rows is not None:
            lines[at] = len(rows)
            total += len(rows)
            yield rows
    if chunk:
        yield _parse(parser, chunk, total, faults)


def _check(rows: int, rows_max: int) -> None:
    if rows > rows_max:
        raise TooManyRows


def _split(text: bytes | None) -> Sequence[bytes | None]:
    if not text or len(text) > MESSAGE_BYTES_MAX:
        return [text]
    return filled_lines(text) or [text]


def _parse_whole(parser: _Parser, text: bytes | None, rows_max: int) -> list[msgspec.Struct] | None:
    """All lines of a long message at once; None where they must be looked at one by one.

    The parser takes an object over several lines for one row, and two objects in a line for two.
    Where each line begins with `{` and ends with `}`, no line break lies within an object, because
    nothing in JSON has `}` and then `{` but two values in a row; so each line has one object or
    more, and as many rows as lines mean one in each. Raises TooManyRows.
    """
    if text is None or not WHOLE_BYTES_MIN <= len(text) <= MESSAGE_BYTES_MAX:
        return None
    letters = np.frombuffer(text, dtype=np.uint8)
    breaks = letters == _LINE_FEED
    lines = int(np.count_nonzero(breaks)) + 1
    _check(lines, rows_max)
    if not _between_objects(letters, breaks, lines - 1):
        return None
    try:
        rows = parser.together.decode_lines(text)
    except FAILURES:
        return None
    if len(rows) != lines:
        return None
    opening = np.count_nonzero((letters & _BRACE_TO_BRACKET) == _BRACKET)
    return rows if opening - len(rows) < NESTING_MAX else None


def _between_objects(
    letters: np.typing.NDArray[np.uint8], breaks: np.typing.NDArray[np.bool_], count: int
) -> bool:
    """Whether each line begins with `{` and ends with `}`, carriage returns aside.

    Masks are compared, not places: to find those takes longer than all of this.
    """
    if letters[0] != _OPENING or letters[-1] != _CLOSING:
        return False
    opening, closing = letters == _OPENING, letters == _CLOSING
    found = np.count_nonzero(closing[:-2] & breaks[1:-1] & opening[2:])
    if found < count:
        returns = closing[:-3] & (letters[1:-2] == _CARRIAGE_RETURN)
        found += np.count_nonzero(returns & breaks[2:-1] & opening[3:])
    return bool(found == count)


def _parse(
    parser: _Parser,
    chunk: Sequence[bytes | None],
    first: int,
    faults: ColumnFaults,
    rows_of: np.typing.NDArray[np.int64] | None = None,
    rows_max: int = 0,
) -> list[msgspec.Struct]:
    """One object per row. The objects of bad rows hold what could be read, and a fault is noted.

    With `rows_of` the chunk holds messages, each of which may be an array of rows, `rows_max` with
    those before it.
    """
    rows: list[msgspec.Struct] = []
    pending = iter(_screened(chunk))
    beyond = 0  # rows that are more than one a message
    while True:
        try:
            # What was parsed before a failure stays in `rows`, and `pending` stands after it.
            rows.extend(map(parser.together.decode, pending))
        except FAILURES:
            at = len(rows) - beyond
            if rows_of is None:
                rows.append(_rescue(parser, chunk[at], first + len(rows), faults))
            else:
                found = _rescue_message(parser, chunk[at], first + len(rows), faults, rows_max)
                rows += found
                rows_of[at] = len(found)
                beyond += len(found) - 1
        else:
            return rows


def _rescue_message(
    parser: _Parser, message: bytes | None, at: int, faults: ColumnFaults, rows_max: int
) -> list[msgspec.Struct]:
    """The rows of a message that is not just an object: behind a mark, of an array, or bad."""
    text = without_mark(message or b"")
    if barred(message) is None and is_array(text):
        try:
            found = elements(text, rows_max - at)
            return _parse(parser, found, at, faults)
        except FAILURES as error:
            faults.spoil(at, (Reason.UNREADABLE, str(error)))
            return [parser.row()]
    if message is None or len(text) == len(message):
        return [_rescue(parser, message, at, faults)]
    return _parse(parser, [text], at, faults)


def _screened(chunk: Sequence[bytes | None]) -> Sequence[bytes]:
    """The chunk with rows that the parser must not see replaced by empty ones, which fail."""
    present = cast(Sequence[bytes], chunk)
    try:
        longest = max(map(len, present), default=0)
    except TypeError:  # a tombstone; `None in chunk` would compare each row with it
        return _screened([row or b"" for row in chunk])
    if longest <= SHALLOW_BYTES_MAX or (longest <= MESSAGE_BYTES_MAX and not may_be_deep(present)):
        return present
    return [b"" if len(row) > MESSAGE_BYTES_MAX or is_too_deep(row) else row for row in present]


def _rescue(parser: _Parser, row: bytes | None, at: int, faults: ColumnFaults) -> msgspec.Struct:
    """Read each field of a bad row by itself."""
    fault = barred(row) or _no_object(row or b"")
    if fault is not None:
        faults.spoil(at, fault)
        return parser.row()
    values: list[object] = []
    for number, decoder in enumerate(parser.alone):
        try:
            values.append(decoder.decode(row or b"").f0)  # type: ignore[attr-defined]
        except FAILURES:
            values.append(None)
            faults.refuse(number, at)
    return parser.row(*values)


def barred(row: bytes | None) -> tuple[Reason, str] | None:
    """Why the parser must not see a row, or None."""
    problem = unusable(row)
    if problem is None and row is not None and is_too_deep(row):
        return Reason.UNREADABLE, f"JSON is nested deeper than {NESTING_MAX} levels"
    return problem


def _no_object(row: bytes) -> tuple[Reason, str] | None:
    """Why a row is no JSON object at all, or None if it is one."""
    try:
        _anything.decode(row)
    except FAILURES as error:
        return Reason.UNREADABLE, str(error)
    return None
