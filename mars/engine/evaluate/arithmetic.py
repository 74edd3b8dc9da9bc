"""Arithmetic and rounding. Integers are exact: 128 bits wide, NULL beyond, never wrapped."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import reduce

import numpy as np
import polars as pl

from mars.core.plan import Call, Column, Expression, Function, Literal, ValueType
from mars.engine.evaluate.values import INTEGER_MAX, common, dtype_of, within_integer


def add(call: Call, arguments: list[pl.Expr]) -> pl.Expr:
    """Sum of two numbers."""
    return _exact(call, arguments, operator.add)


def subtract(call: Call, arguments: list[pl.Expr]) -> pl.Expr:
    """Difference of two numbers."""
    return _exact(call, arguments, operator.sub)


def multiply(call: Call, arguments: list[pl.Expr]) -> pl.Expr:
    """Product of two numbers."""
    return _exact(call, arguments, operator.mul)


def divide(_call: Call, arguments: list[pl.Expr]) -> pl.Expr:
    """Quotient as FLOAT64; NULL for a divisor of 0."""
    dividend, divisor = (argument.cast(pl.Float64) for argument in arguments)
    return pl.when(divisor != 0).then(_by_numpy(np.divide, dividend, divisor))


def modulo(call: Call, arguments: list[pl.Expr]) -> pl.Expr:
    """Remainder with the sign of the dividend; NULL for a divisor of 0."""
    dividend, divisor = common(call, arguments)
    if call.type is ValueType.FLOAT64:
        return pl.when(divisor != 0).then(_by_numpy(np.fmod, dividend, divisor))
    # polars rounds the quotient down, SQL rounds it towards zero.
    floored = dividend % divisor
    other_sign = (floored != 0) & ((floored < 0) != (dividend < 0))
    return pl.when(divisor != 0).then(
        pl.when(other_sign).then(floored - divisor).otherwise(floored)
    )


def negate(call: Call, arguments: list[pl.Expr]) -> pl.Expr:
    """The number with the other sign; polars negates no Int128, so it is taken from zero."""
    if call.type is ValueType.FLOAT64:
        return -arguments[0]
    return pl.lit(0, dtype=pl.Int128()) - arguments[0].cast(pl.Int128)


def absolute(call: Call, arguments: list[pl.Expr]) -> pl.Expr:
    """Magnitude of a number."""
    return arguments[0].cast(dtype_of(call.type)).abs()


def floor(call: Call, arguments: list[pl.Expr]) -> pl.Expr:
    """Largest whole number that is not greater; an integer stays as it is."""
    return arguments[0].floor() if call.type is ValueType.FLOAT64 else arguments[0]


def ceiling(call: Call, arguments: list[pl.Expr]) -> pl.Expr:
    """Smallest whole number that is not less; an integer stays as it is."""
    return arguments[0].ceil() if call.type is ValueType.FLOAT64 else arguments[0]


def round_half_away(call: Call, arguments: list[pl.Expr]) -> pl.Expr:
    """Rounded to some digits after the point (before it if negative), halves away from zero."""
    value, digits = arguments[0], _digits(call)
    if call.type is ValueType.FLOAT64:
        return _round_float(value, digits)
    return value if digits >= 0 else _round_integer(value, 10**-digits)


def magnitude(expression: Expression) -> int:
    """A bound of the absolute value of an integer expression, from its shape alone."""
    match expression:
        case Literal(value=int(value)):
            return abs(value)
        case Literal():
            return 0
        case Column(type=ValueType.INTEGER):
            return INTEGER_MAX
        case Call(type=ValueType.INTEGER):
            return min(_call_magnitude(expression), INTEGER_MAX)
    return 2**63


def _call_magnitude(call: Call) -> int:
    parts = call.arguments
    match call.function:
        case Function.ADD | Function.SUBTRACT:
            return sum(map(magnitude, parts))
        case Function.MULTIPLY:
            return magnitude(parts[0]) * magnitude(parts[1])
        case Function.ABS | Function.NEGATE | Function.FLOOR | Function.CEIL:
            return magnitude(parts[0])
    return INTEGER_MAX


def is_bounded(call: Call) -> bool:
    """Whether a sum, difference or product lies within INTEGER for certain, or is FLOAT64."""
    return call.type is ValueType.FLOAT64 or _call_magnitude(call) <= INTEGER_MAX


def _exact(
    call: Call, arguments: list[pl.Expr], operate: Callable[[pl.Expr, pl.Expr], pl.Expr]
) -> pl.Expr:
    dtype = dtype_of(call.type)
    result = reduce(operate, [argument.cast(dtype) for argument in arguments])
    if is_bounded(call):
        return result
    return within_integer(
        result, reduce(operate, [argument.cast(pl.Float64) for argument in arguments])
    )


def _by_numpy(function: np.ufunc, left: pl.Expr, right: pl.Expr) -> pl.Expr:
    """A function of two FLOAT64 columns where polars has no exact one.

    It has no remainder that is exact, and divides by a constant by multiplying with the inverse,
    which is wrong in the last digit: 3 / 10 = 0.30000000000000004.
    """

    def of_columns(columns: Sequence[pl.Series]) -> pl.Series:
        with np.errstate(all="ignore"):
            return pl.Series(function(columns[0].to_numpy(), columns[1].to_numpy()))

    computed = pl.map_batches([left, right], of_columns, return_dtype=pl.Float64)
    return pl.when(left.is_not_null() & right.is_not_null()).then(computed)


def _digits(call: Call) -> int:
    match call.arguments[1:]:
        case (Literal(value=int(digits)),):
            return digits
    return 0


def _round_float(value: pl.Expr, digits: int) -> pl.Expr:
    scale = pl.lit(float(10 ** abs(digits)))
    if digits == 0:
        return value.round(0, mode="half_away_from_zero")
    if digits < 0:
        scaled = _by_numpy(np.divide, value, scale)
        return scaled.round(0, mode="half_away_from_zero") * scale
    whole = (value * scale).round(0, mode="half_away_from_zero")
    rounded = _by_numpy(np.divide, whole, scale)
    # A value too large to be scaled has no digits after the point.
    return pl.when(rounded.is_finite()).then(rounded).otherwise(value)


def _round_integer(value: pl.Expr, unit: int) -> pl.Expr:
    wide = value.cast(pl.Int128)
    scale = pl.lit(unit, dtype=pl.Int128())
    half = pl.lit(unit // 2, dtype=pl.Int128())
    magnitude_rounded = (wide.abs() + half) // scale * scale
    zero = pl.lit(0, dtype=pl.Int128())
    return pl.when(wide < 0).then(zero - magnitude_rounded).otherwise(magnitude_rounded)
