"""Streams."""

from __future__ import annotations

import msgspec

from mars.answers.base import Answer


class FieldOfRecord(Answer, frozen=True):
    """A field that is taken from each record: `$key`, `$timestamp`, `$partition` or `$offset`."""

    type: str
    origin: str = msgspec.field(name="from")


class Stream(Answer, frozen=True):
    """A declared stream; `fields` are types by name, in the order of a CSV row."""

    name: str
    topic: str
    format: str
    fields: dict[str, str | FieldOfRecord]
    event_time: str
    csv_header: bool
    csv_delimiter: str = ","
    csv_quote: str = '"'
    record_time: str = "check"


class Streams(Answer, frozen=True):
    """All streams."""

    streams: list[Stream]
