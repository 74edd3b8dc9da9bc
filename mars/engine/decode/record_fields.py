"""Fields that are taken from the records themselves, beside those that their messages hold.

Of each record: its key as text, Kafka's own time of it, its partition, its offset. All rows of a
message have the same. A record without a key, or without a time, has NULL there; a key that is not
UTF-8 is no text, so its rows are bad for the tasks that read it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import assert_never

import polars as pl

from mars.core.plan import Field, Origin, Stream
from mars.core.types import Lane, lane_partition
from mars.engine.decode.columns import texts_of
from mars.engine.decode.decoded import Decoded
from mars.engine.decode.lanes import lane_numbers


def with_record_fields(
    stream: Stream, fields: tuple[Field, ...], decode: Callable[[tuple[Field, ...]], Decoded]
) -> Decoded:
    """Rows with all of the fields; `decode` gives those that messages hold.

    Raises ValueError where the records were read without what a field is taken from.
    """
    inside = tuple(one for one in fields if one.origin is None)
    if len(inside) == len(fields):
        return decode(fields)
    # Whether there is a row is known only where something of a message is looked for.
    return _with(decode(inside or stream.message_fields[:1]), fields)


def _with(decoded: Decoded, fields: tuple[Field, ...]) -> Decoded:
    columns, invalid = [], decoded.invalid.get_columns()
    for one in fields:
        if one.origin is None:
            columns.append(decoded.frame.get_column(one.name))
            continue
        values, broken = _of_records(decoded, one.origin)
        columns.append(_by_row(decoded, values).alias(one.name))
        if broken is not None and broken.any():
            invalid.append(_by_row(decoded, broken).alias(one.name))
    return replace(
        decoded, fields=fields, frame=pl.DataFrame(columns), invalid=pl.DataFrame(invalid)
    )


def _by_row(decoded: Decoded, of_messages: pl.Series) -> pl.Series:
    return of_messages if decoded.messages is None else of_messages.gather(decoded.messages)


def _of_records(decoded: Decoded, origin: Origin) -> tuple[pl.Series, pl.Series | None]:
    """A value for each record, and which of them are none."""
    records = decoded.records
    match origin:
        case Origin.KEY:
            if records.keys is None:
                raise ValueError("the records were read without their keys")
            return texts_of(pl.Series(records.keys, dtype=pl.Binary))
        case Origin.TIMESTAMP:
            stamps = decoded.timestamps_ms
            return stamps.set(stamps < 0, None), None
        case Origin.PARTITION:
            partitions = pl.Series(
                [_partition(part.lane) for part in records.ranges], dtype=pl.Int64
            )
            return partitions.gather(lane_numbers(records)), None
        case Origin.OFFSET:
            return pl.Series(records.offsets, dtype=pl.Int64), None
        case _:
            assert_never(origin)


def _partition(lane: Lane) -> int:
    partition = lane_partition(lane)
    if partition is None:
        raise ValueError(f"lane {lane} reads files, which have no partitions")
    return partition
