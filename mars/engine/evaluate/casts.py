"""CAST between the types of a plan. A value that has no counterpart becomes NULL."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from mars.core.plan import Call, ValueType
from mars.engine.evaluate.instants import SPACES, YEAR_1_MS, YEAR_10000_MS, instants_ms
from mars.engine.evaluate.values import DTYPES, within_integer

_DECIMAL = r"^[+-]?(?:[0-9]+\.[0-9]*|\.[0-9]+)$"
_EXPONENT = r"^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)[eE][+-]?[0-9]+$"


def cast(call: Call, arguments: list[pl.Expr]) -> pl.Expr:
    """The value as the type of the call; NULL where it has no counterpart there."""
    source, target, value = call.arguments[0].type, call.type, arguments[0]
    if source is target:
        return value
    if source is ValueType.STRING:
        return _FROM_TEXT[target](value)
    if target is ValueType.STRING:
        return _to_text(source, value)
    if source is ValueType.FLOAT64 and target is not ValueType.BOOL:
        return _as_integer(value.round(0, mode="half_to_even"), target)
    return value.cast(DTYPES[target], strict=False)


def _as_integer(value: pl.Expr, target: ValueType) -> pl.Expr:
    """A whole float as an integer."""
    if target is ValueType.INTEGER:
        return within_integer(value.cast(pl.Int128, strict=False), value)
    return value.cast(pl.Int64, strict=False)


def _text_to_integer(text: pl.Expr) -> pl.Expr:
    trimmed = text.str.strip_chars(SPACES)
    whole = trimmed.cast(pl.Int128, strict=False)
    scientific = (
        pl.when(trimmed.str.contains(_EXPONENT))
        .then(trimmed)
        .cast(pl.Float64, strict=False)
        .round(0, mode="half_away_from_zero")
    )
    exact = pl.coalesce(whole, _decimal_to_integer(trimmed))
    return pl.coalesce(
        within_integer(exact, exact.cast(pl.Float64)), _as_integer(scientific, ValueType.INTEGER)
    )


def _decimal_to_integer(text: pl.Expr) -> pl.Expr:
    """`-12.5` as -13: exact, because only the first digit after the point decides."""
    decimal = pl.when(text.str.contains(_DECIMAL)).then(text)
    before = decimal.str.extract(r"([0-9]*)\.", 1)
    whole = pl.when(before == "").then(pl.lit("0")).otherwise(before)
    up = decimal.str.contains(r"\.[5-9]")
    magnitude = whole.cast(pl.Int128, strict=False) + up.cast(pl.Int128)
    zero = pl.lit(0, dtype=pl.Int128())
    return pl.when(text.str.starts_with("-")).then(zero - magnitude).otherwise(magnitude)


def _text_to_int64(text: pl.Expr) -> pl.Expr:
    return _text_to_integer(text).cast(pl.Int64, strict=False)


def _text_to_float(text: pl.Expr) -> pl.Expr:
    return text.str.strip_chars(SPACES).cast(pl.Float64, strict=False)


def _text_to_bool(text: pl.Expr) -> pl.Expr:
    lowered = text.str.to_lowercase()
    known = lowered.is_in(["true", "t", "yes", "y", "1", "false", "f", "no", "n", "0"])
    return pl.when(known).then(lowered.is_in(["true", "t", "yes", "y", "1"]))


def _text_to_timestamp(text: pl.Expr) -> pl.Expr:
    return text.map_batches(instants_ms, return_dtype=pl.Int64())


def _to_text(source: ValueType, value: pl.Expr) -> pl.Expr:
    if source is ValueType.FLOAT64:
        return _float_to_text(value)
    if source is ValueType.TIMESTAMP:
        return _timestamp_to_text(value)
    return value.cast(pl.String)


def _float_to_text(value: pl.Expr) -> pl.Expr:
    """Shortest text that reads back as the same number, written as DuckDB does."""
    text = value.cast(pl.String)
    # polars writes 0.00001234 and 1e-7 where DuckDB writes 1.234e-05 and 1e-07.
    text = text.str.replace(r"^(-?)0\.0000([1-9])$", "${1}${2}e-05")
    text = text.str.replace(r"^(-?)0\.0000([1-9])([0-9]+)$", "${1}${2}.${3}e-05")
    text = text.str.replace(r"e([+-])([0-9])$", "e${1}0${2}")
    return pl.when(value.is_nan()).then(pl.lit("nan")).otherwise(text)


def _timestamp_to_text(value: pl.Expr) -> pl.Expr:
    usable = value.is_between(YEAR_1_MS, YEAR_10000_MS, closed="left")
    moment = pl.when(usable).then(value).cast(pl.Datetime("ms"))
    text = moment.dt.to_string("%Y-%m-%d %H:%M:%S%.3f")
    return text.str.replace(r"\.000$", "").str.replace(r"(\.[0-9]*?)0+$", "${1}")


_FROM_TEXT: dict[ValueType, Callable[[pl.Expr], pl.Expr]] = {
    ValueType.INT64: _text_to_int64,
    ValueType.INTEGER: _text_to_integer,
    ValueType.FLOAT64: _text_to_float,
    ValueType.BOOL: _text_to_bool,
    ValueType.TIMESTAMP: _text_to_timestamp,
}
