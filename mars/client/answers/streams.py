"""Streams."""

from __future__ import annotations

from typing import Annotated

import msgspec

from mars.client.answers.base import Answer, says


class FieldOfRecord(Answer, frozen=True):
    """A field that is taken from the record."""

    type: str
    origin: str = msgspec.field(name="from")


class Stream(Answer, frozen=True):
    """A declared stream."""

    name: str
    topic: str
    format: str
    fields: Annotated[dict[str, str | FieldOfRecord], says("types, in the order of a CSV row")]
    event_time: str
    csv_header: bool
    csv_delimiter: str = ","
    csv_quote: str = '"'
    record_time: str = "check"
    warnings: Annotated[list[str], says("what to know before tasks read it")] = []


class Streams(Answer, frozen=True):
    """All streams, by name."""

    streams: list[Stream]
