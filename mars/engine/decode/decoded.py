"""What has been decoded of a batch of messages."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import polars as pl

from mars.core.plan import Field, Format, Stream
from mars.core.types import Records
from mars.engine.decode.formats.texts import elements_or_whole, filled_lines, without_mark
from mars.engine.decode.unreadable import NONE_UNREADABLE, UnreadableRows

PAYLOAD_BYTES_MAX = 512
"""Bytes of a row kept for its reference: enough to recognise it, 100 of them a batch."""


def header_lines(stream: Stream) -> int:
    """Lines at the begin of a message that are no rows."""
    return int(stream.format is Format.CSV and stream.csv_header)


@dataclass(frozen=True, eq=False)
class Decoded:
    """The rows of a batch of messages in columns, for any task that reads no more than `fields`.

    `frame` has one row per readable row, in order, and a column per field of the type in
    `evaluate.values`; timestamps are epoch milliseconds. `invalid` has as many rows, and a
    Boolean column for each field that has values of a wrong type (they are NULL in `frame`): such
    a row is bad for the tasks that read this field, and good for the others. So what a task sees
    depends on its own fields only. `unreadable` are the rows that are in no column.

    `messages` (UInt32) says which message of `records` each row comes from; None: row i is
    message i. `longer` rows of the batch had cells that no field takes; they were passed over.
    """

    stream: Stream
    fields: tuple[Field, ...]
    records: Records
    frame: pl.DataFrame
    invalid: pl.DataFrame
    unreadable: UnreadableRows = NONE_UNREADABLE
    messages: pl.Series | None = None
    longer: int = 0

    @property
    def rows(self) -> int:
        """Readable rows."""
        return self.frame.height

    def holds(self, fields: tuple[Field, ...]) -> bool:
        """Whether all of these fields are decoded."""
        names = {one.name for one in self.fields}
        return all(one.name in names for one in fields)

    @cached_property
    def timestamps_ms(self) -> pl.Series:
        """The Kafka timestamp of each message (Int64; -1: none)."""
        return pl.Series("kafka_timestamp", self.records.timestamps_ms, dtype=pl.Int64)

    @cached_property
    def earliest_timestamp_ms(self) -> int:
        """The lowest Kafka timestamp of any message; -1 if some have none, or there are none."""
        earliest = self.timestamps_ms.min()
        return earliest if isinstance(earliest, int) else -1

    @cached_property
    def times_ms(self) -> tuple[int, int] | None:
        """The earliest and the latest event time; None where no row has one."""
        times = self.frame.get_column(self.stream.event_time)
        low, high = times.min(), times.max()
        return (low, high) if isinstance(low, int) and isinstance(high, int) else None

    def longest_text(self, name: str) -> int:
        """How many bytes the longest text of a field has."""
        if name not in self._longest:
            found = self.frame.get_column(name).str.len_bytes().max()
            self._longest[name] = found if isinstance(found, int) else 0
        return self._longest[name]

    @cached_property
    def _longest(self) -> dict[str, int]:
        """What `longest_text` has found."""
        return {}

    def message_of(self, row: int) -> int:
        """Which message a row comes from."""
        return row if self.messages is None else int(self.messages[row])

    def line_of(self, row: int) -> int:
        """Which row of its message a row is, from 0; a header counts too, a blank line does not."""
        skipped = header_lines(self.stream)
        if self.messages is None:
            return skipped
        message = self.message_of(row)
        readable = row - int(self.messages.search_sorted(message, "left"))
        return self.unreadable.line_of(message, readable + skipped)

    def payload(self, message: int, line: int) -> bytes:
        """The first bytes of a row: of its line or element where rows are such, else its message's.

        `line` is what `line_of` answers.
        """
        if message not in self._rows_of:
            self._rows_of.clear()
            value = self.records.values[message] or b""
            self._rows_of[message] = _rows_of(self.stream.format, value)
        rows = self._rows_of[message]
        row = rows[line] if line < len(rows) else self.records.values[message] or b""
        return row[:PAYLOAD_BYTES_MAX]

    @cached_property
    def _rows_of(self) -> dict[int, Sequence[bytes]]:
        """The rows of the message that was looked at last."""
        return {}

    def from_offset(self, offset: int) -> Decoded:
        """The rows at or after an offset; the range then begins there."""
        first = max(offset, self.records.first)
        return self._slice(first, max(first, self.records.next))

    def until(self, offset: int) -> Decoded:
        """The rows before an offset; the range then ends there."""
        next_ = min(offset, self.records.next)
        return self._slice(min(self.records.first, next_), next_)

    def _slice(self, first: int, next_: int) -> Decoded:
        records = self.records
        if (first, next_) == (records.first, records.next):
            return self
        begin, end = bisect_left(records.offsets, first), bisect_left(records.offsets, next_)
        row, rows = self._rows_before(begin), self._rows_before(end) - self._rows_before(begin)
        messages = self.messages
        return replace(
            self,
            records=records.some(begin, end, first, next_),
            frame=self.frame.slice(row, rows),
            invalid=self.invalid.slice(row, rows),
            unreadable=self.unreadable.of_messages(begin, end),
            messages=None if messages is None else messages.slice(row, rows) - begin,
        )

    def _rows_before(self, message: int) -> int:
        """How many rows come from the messages before one."""
        if self.messages is None:
            return min(message, self.rows)
        return int(self.messages.search_sorted(message, "left"))


def _rows_of(format: Format, message: bytes) -> Sequence[bytes]:
    """The rows of a message as written; the message where they are no text of their own."""
    match format:
        case Format.JSON:
            return elements_or_whole(message)
        case Format.NDJSON:
            text = without_mark(message)
            return filled_lines(text) or text.split(b"\n", 1)
        case Format.CSV:
            return [line.rstrip(b"\r") for line in without_mark(message).split(b"\n")]
        case Format.ARROW:
            return [message]
