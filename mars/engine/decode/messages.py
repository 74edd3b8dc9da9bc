"""The messages of a stream to columns, whatever their format."""

from __future__ import annotations

from mars.core.plan import Field, Format, Stream
from mars.core.types import Records
from mars.engine.decode.decoded import Decoded
from mars.engine.decode.record_fields import with_record_fields
from mars.engine.decode.too_many import UNLIMITED


def decode(
    stream: Stream, fields: tuple[Field, ...], records: Records, rows_max: int = UNLIMITED
) -> Decoded:
    """Decode the given fields of a batch of messages, once for all tasks that read the stream.

    `fields` is the union of what these tasks need. No content of a message makes this fail: bad
    rows are in the result. The same messages give the same result. Raises TooManyRows, whatever the
    fields, rather than decode many more rows than `rows_max`.
    """
    return with_record_fields(
        stream, fields, lambda inside: _decode(stream, inside, records, rows_max)
    )


def _decode(stream: Stream, fields: tuple[Field, ...], records: Records, rows_max: int) -> Decoded:
    """Decode fields that messages hold."""
    match stream.format:
        case Format.JSON | Format.NDJSON:
            from mars.engine.decode.formats.json_rows import decode_json  # noqa: PLC0415 -- see below

            return decode_json(stream, fields, records, rows_max)
        case Format.CSV:
            from mars.engine.decode.formats.csv_rows import decode_csv  # noqa: PLC0415

            return decode_csv(stream, fields, records, rows_max)
        case Format.ARROW:
            # Arrow's own library takes 50 MB, so only processes that need it load it.
            from mars.engine.decode.formats.arrow_rows import decode_arrow  # noqa: PLC0415

            return decode_arrow(stream, fields, records, rows_max)
