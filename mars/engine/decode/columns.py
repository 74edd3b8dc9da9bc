"""Columns of what was written -> columns of the declared types.

A timestamp in seconds or microseconds becomes milliseconds (rounded down); a text that names an
instant becomes the same, see `evaluate.instants`. What cannot be a value of the type is NULL,
and marked in a Boolean column beside it.

A number that was written with a fraction or an exponent is read as a double, as whoever wrote it
had it. As a timestamp it counts to the microsecond, which a double of this century holds in any
unit; as an integer it counts if it is whole, and no larger than a double can tell apart (2^53).
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from mars.core.plan import FieldType
from mars.engine.evaluate.instants import instants_ms

_SECONDS_MAX = (2**63 - 1) // 1000

WHOLE_MAX = 2**53
"""Up to here each integer is a double of its own."""

_MICROSECONDS_MAX = 2**62
"""Far beyond the calendar, and far within 64 bits."""

_MICROSECONDS = {
    FieldType.TIMESTAMP_S: 1_000_000,
    FieldType.TIMESTAMP_MS: 1_000,
    FieldType.TIMESTAMP_US: 1,
}
"""In the unit of a timestamp."""


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
            values = instants_ms(raw)
            return _within(raw, values.is_not_null(), values)
        case _:
            return Typed(raw, None)


def _within(raw: pl.Series, valid: pl.Series, values: pl.Series) -> Typed:
    """`values` where valid; a NULL that was NULL before is not invalid."""
    invalid = raw.is_not_null() & ~valid.fill_null(False)
    if not invalid.any():
        return Typed(values, None)
    return Typed(values.set(invalid, None), invalid)


def convert_numbers(whole: pl.Series, floats: pl.Series, kind: FieldType) -> Typed:
    """Integers (Int64), and numbers that were not written as such (Float64), as the declared type.

    Each row has one of them, or neither (NULL).
    """
    integers = convert(whole, kind)
    if floats.null_count() == len(floats):
        return integers
    others = convert_floats(floats, kind)
    values = others.values.zip_with(floats.is_not_null(), integers.values)
    return Typed(values, either(integers.invalid, others.invalid))


def convert_floats(floats: pl.Series, kind: FieldType) -> Typed:
    """Doubles as integers or timestamps."""
    if kind is FieldType.INT64:
        fine = floats.is_between(-WHOLE_MAX, WHOLE_MAX) & (floats.floor() == floats)
        return _within(floats, fine, floats.cast(pl.Int64, strict=False))
    moments = (floats * _MICROSECONDS[kind]).round()
    fine = moments.is_between(-_MICROSECONDS_MAX, _MICROSECONDS_MAX)
    return _within(floats, fine, moments.cast(pl.Int64, strict=False) // 1000)


def texts_of(raw: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Bytes (Binary) as texts, and which of them are none because they are not UTF-8."""
    try:
        return raw.cast(pl.String), pl.repeat(False, raw.len(), eager=True)
    except pl.exceptions.ComputeError:
        texts = [None if value is None else _text(value) for value in raw]
        found = pl.Series(raw.name, texts, dtype=pl.String)
        return found, found.is_null() & raw.is_not_null()


def _text(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def either(one: pl.Series | None, other: pl.Series | None) -> pl.Series | None:
    """What is invalid by one of two marks."""
    if one is None or other is None:
        return other if one is None else one
    return one | other
