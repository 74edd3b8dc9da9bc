"""Columns of what was written -> columns of the declared types.

A timestamp in seconds or microseconds becomes milliseconds (rounded down); a text in ISO 8601
becomes the same, in UTC where it names no zone. What cannot be a value of the type is NULL, and
marked in a Boolean column beside it.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from mars.plan import FieldType

_SECONDS_MAX = (2**63 - 1) // 1000

_ISO = (
    r"^(\d{4}-\d{2}-\d{2})"  # date
    r"(?:[Tt ](\d{2}:\d{2})(:\d{2})?(?:[.,](\d{1,9}))?"  # time of day
    r"(?:[Zz]|([+-]\d{2}):?(\d{2})?)?)?$"  # zone
)


@dataclass(frozen=True, slots=True)
class Typed:
    """A column of a declared type, and which of its values were none (None: all were fine)."""

    values: pl.Series
    invalid: pl.Series | None


RAW_TYPES = {
    FieldType.STRING: pl.String(),
    FieldType.INT64: pl.Int64(),
    FieldType.FLOAT64: pl.Float64(),
    FieldType.BOOL: pl.Boolean(),
    FieldType.TIMESTAMP_MS: pl.Int64(),
    FieldType.TIMESTAMP_US: pl.Int64(),
    FieldType.TIMESTAMP_S: pl.Int64(),
    FieldType.TIMESTAMP_ISO: pl.String(),
}
"""How a field is written, before `convert`."""


def convert(raw: pl.Series, kind: FieldType) -> Typed:
    """A column of `RAW_TYPES[kind]` as the declared type."""
    match kind:
        case FieldType.TIMESTAMP_US:
            return Typed(raw // 1000, None)
        case FieldType.TIMESTAMP_S:
            return _within(raw, raw.is_between(-_SECONDS_MAX, _SECONDS_MAX), raw * 1000)
        case FieldType.TIMESTAMP_ISO:
            values = parse_iso(raw)
            return _within(raw, values.is_not_null(), values)
        case _:
            return Typed(raw, None)


def _within(raw: pl.Series, valid: pl.Series, values: pl.Series) -> Typed:
    """`values` where valid; a NULL that was NULL before is not invalid."""
    invalid = raw.is_not_null() & ~valid.fill_null(False)
    if not invalid.any():
        return Typed(values, None)
    return Typed(values.set(invalid, None), invalid)


def parse_iso(texts: pl.Series) -> pl.Series:
    """ISO 8601 dates and times as epoch milliseconds, rounded down; NULL where it is none."""
    name = texts.name
    parts = (
        texts.rename("text")
        .to_frame()
        .select(pl.col("text").str.extract_groups(_ISO))
        .unnest("text")
    )
    date, minute, second, fraction, zone_hours, zone_minutes = map(pl.col, parts.columns)
    clock = pl.concat_str(date, pl.lit("T"), minute.fill_null("00:00"), second.fill_null(":00"))
    local = clock.str.to_datetime("%Y-%m-%dT%H:%M:%S", time_unit="ms", strict=False)
    millis = fraction.fill_null("0").str.pad_end(3, "0").str.slice(0, 3).cast(pl.Int64)
    sign = pl.when(zone_hours.str.starts_with("-")).then(-1).otherwise(1)
    hours = zone_hours.str.slice(1).cast(pl.Int64).fill_null(0)
    minutes = zone_minutes.cast(pl.Int64).fill_null(0)
    offset = sign * (hours * 60 + minutes) * 60_000
    leap = second == ":60"
    in_range = (hours < 24) & (minutes < 60) & ~leap.fill_null(False)
    epoch = local.dt.epoch("ms") + millis - offset
    return parts.select(pl.when(in_range).then(epoch).alias(name)).get_column(name)
