"""A batch of messages cut into what can be decoded at once.

    messages   ── a ── b ──────── C ──────── d ──▶     C alone has more than ROWS_MAX rows

    sections     [a  b]  [         C         ] [d]     whole messages each, which tile the batch
    parts        [a  b]  [C1][C2][C3]...[C30]  [d]     at most ROWS_MAX rows each

Rows have the same fate wherever a batch is cut. The parts of a message cover no offset but the
last, which covers it: what is made of them one by one combines to what is made of the message.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from mars.core.plan import Field, Format, Stream
from mars.core.types import Range, Records
from mars.engine.decode.decoded import Decoded
from mars.engine.decode.formats.json_rows import barred
from mars.engine.decode.formats.nesting import commas_of_array
from mars.engine.decode.formats.texts import BLANK, FAILURES, MARK, elements, is_array, without_mark
from mars.engine.decode.limits import ROWS_MAX, UNPACKED_BYTES_MAX, unusable
from mars.engine.decode.messages import decode
from mars.engine.decode.record_fields import with_record_fields
from mars.engine.decode.too_many import UNLIMITED, TooManyRows

if TYPE_CHECKING:
    from mars.engine.decode.formats.arrow_rows import Unpacked

_LINE_FEED = np.uint8(ord("\n"))


@dataclass(frozen=True, slots=True)
class Section:
    """Some messages of a batch; `large`: one that has to be decoded in parts."""

    records: Records
    large: bool = False

    def holds(self, offset: int) -> bool:
        """Whether an offset lies in the section."""
        return self.records.first <= offset < self.records.next


@dataclass(frozen=True, slots=True)
class Part:
    """What is decoded at once. `of_one`: some rows of one message, of Arrow if `unpacked`."""

    records: Records
    of_one: bool = False
    unpacked: Unpacked | None = None

    def within(self, part: Range) -> bool:
        """Whether some of its messages may lie in a range of their lane."""
        first = self.records.first
        after = first + 1 if self.of_one else self.records.next
        return max(first, part.first) < min(after, part.next)

    def decode(
        self, stream: Stream, fields: tuple[Field, ...], rows_max: int = UNLIMITED
    ) -> Decoded:
        """The given fields. Raises TooManyRows, which parts that were cut never do."""
        unpacked, records = self.unpacked, self.records
        if unpacked is not None:
            from mars.engine.decode.formats.arrow_rows import decode_unpacked  # noqa: PLC0415 -- see `messages`

            return with_record_fields(
                stream, fields, lambda inside: decode_unpacked(stream, inside, records, [unpacked])
            )
        if self.of_one and stream.format is Format.CSV:
            from mars.engine.decode.formats.csv_rows import decode_csv  # noqa: PLC0415

            return with_record_fields(
                stream,
                fields,
                lambda inside: decode_csv(stream, inside, records, rows_max, parts=True),
            )
        return decode(stream, fields, records, rows_max)


def decode_slices(stream: Stream, fields: tuple[Field, ...], records: Records) -> Iterator[Decoded]:
    """The rows of a batch, at most ROWS_MAX at once."""
    try:
        whole = decode(stream, fields, records, ROWS_MAX)
    except TooManyRows:
        yield from (part.decode(stream, fields) for part in cut(stream, records))
    else:
        yield whole


def cut(stream: Stream, records: Records) -> Iterator[Part]:
    """The parts of a batch."""
    for section in sections(stream, records):
        yield from parts(stream, section)


# ------------------------------------------------------------------------------------ sections


def sections(stream: Stream, records: Records) -> Iterator[Section]:
    """Messages that are decoded together, in order; they tile the batch."""
    begin, first, rows, size = 0, records.first, 0, 0
    for at, value in enumerate(records.values):
        more_rows, more_size = _weight(stream, value)
        rows, size = rows + more_rows, size + more_size
        offset, large = records.offsets[at], more_rows > ROWS_MAX
        full = rows > ROWS_MAX or size > UNPACKED_BYTES_MAX
        if first < offset and ((full and begin < at) or large):
            yield Section(records.some(begin, at, first, offset))
            begin, first, rows, size = at, offset, more_rows, more_size
        if large:
            yield Section(records.some(at, at + 1, offset, offset + 1), large=True)
            begin, first, rows, size = at + 1, offset + 1, 0, 0
    if first < records.next:
        yield Section(records.some(begin, len(records.values), first, records.next))


def _weight(stream: Stream, value: bytes | None) -> tuple[int, int]:
    """How many rows a message has, or some more, and how many bytes it takes beyond its own."""
    if stream.format is Format.ARROW:
        from mars.engine.decode.formats.arrow_rows import unpack  # noqa: PLC0415

        message = unpack(value)
        return message.rows, message.size
    if value is None or unusable(value) is not None:
        return 1, 0
    if stream.format is Format.JSON:
        return _elements(value), 0
    if stream.format is Format.CSV:
        return _cell_lines(stream, value), 0
    return value.count(b"\n") + 1, 0


def _cell_lines(stream: Stream, message: bytes) -> int:
    from mars.engine.decode.formats.csv_rows import columns_of  # noqa: PLC0415

    header, text = _without_header(stream, message)
    if header and columns_of(stream, header.removesuffix(b"\n"))[1] is not None:
        return 1
    return text.count(b"\n") + 1


def _elements(message: bytes) -> int:
    if barred(message) is not None or not is_array(message):
        return 1
    try:
        elements(message, ROWS_MAX)
    except FAILURES:
        return 1
    except TooManyRows:
        pass
    return message.count(b",") + 1


# --------------------------------------------------------------------------------------- parts


def parts(stream: Stream, section: Section) -> Iterator[Part]:
    """The parts of a section: itself, unless it is large."""
    if not section.large:
        yield Part(section.records)
    elif stream.format is Format.ARROW:
        yield from _arrow(section.records)
    else:
        yield from _texts(stream, section.records)


def _arrow(records: Records) -> Iterator[Part]:
    from mars.engine.decode.formats.arrow_rows import Unpacked, unpack  # noqa: PLC0415

    table = unpack(records.values[0]).table
    if table is None:
        raise ValueError("a message that cannot be unpacked has no parts")
    for begin in range(0, table.num_rows, ROWS_MAX):
        rows = Unpacked(table.slice(begin, ROWS_MAX), None)
        last = begin + ROWS_MAX >= table.num_rows
        yield Part(_covering(records, records.values, last=last), of_one=True, unpacked=rows)


def _texts(stream: Stream, records: Records) -> Iterator[Part]:
    (message,) = records.values
    pieces = iter(_pieces(stream, message or b""))
    piece = next(pieces)
    for following in pieces:
        yield Part(_covering(records, [piece], last=False), of_one=True)
        piece = following
    yield Part(_covering(records, [piece], last=True), of_one=True)


def _covering(records: Records, values: Sequence[bytes | None], *, last: bool) -> Records:
    next_ = records.next if last else records.first
    return replace(records, next=next_, values=values)


def _pieces(stream: Stream, message: bytes) -> Iterator[bytes]:
    """Messages of some of the rows each."""
    if stream.format is Format.JSON:
        text = without_mark(message).strip(BLANK)
        for begin, end in _between(text, commas_of_array(text)):
            yield (
                (b"" if begin == 0 else b"[")
                + text[begin:end]
                + (b"" if end == len(text) else b"]")
            )
        return
    header, text = _without_header(stream, message)
    letters = np.frombuffer(text, dtype=np.uint8)
    for begin, end in _between(text, np.flatnonzero(letters == _LINE_FEED)):
        piece = header + text[begin:end]
        if stream.format is Format.CSV or not (piece == b"" or piece.isspace()):
            # A mark within a message is no mark.
            yield MARK + piece if piece.startswith(MARK) else piece


def _without_header(stream: Stream, message: bytes) -> tuple[bytes, bytes]:
    """The header of a message of lines, with its line break, and the other lines."""
    text = without_mark(message)
    if stream.format is Format.CSV:
        text = text.rstrip(b"\r\n")
    if not stream.csv_header:
        return b"", text
    header, line_break, lines = text.partition(b"\n")
    return header + line_break, lines


def _between(text: bytes, places: np.typing.NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Begin and end of the text between each ROWS_MAX of the places, which are left out."""
    begin = 0
    for end in places[ROWS_MAX - 1 :: ROWS_MAX].tolist():
        yield begin, end
        begin = end + 1
    yield begin, len(text)
