"""What the parts of `mars.engine.evaluate` share: how types are held, and how far integers go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import polars as pl

from mars.core.plan import Call, ValueType

INTEGER_MAX = 17 * 10**37
"""Largest magnitude of an INTEGER. A little under 2^127, so that a result beyond it is seen in
its double-precision estimate before 128 bits wrap (at 1.7014e38)."""

DTYPES: Mapping[ValueType, pl.DataType] = MappingProxyType(
    {
        ValueType.STRING: pl.String(),
        ValueType.INT64: pl.Int64(),
        ValueType.INTEGER: pl.Int128(),
        ValueType.FLOAT64: pl.Float64(),
        ValueType.BOOL: pl.Boolean(),
        ValueType.TIMESTAMP: pl.Int64(),
    }
)


def dtype_of(type_: ValueType) -> pl.DataType:
    """The polars type in which values of a plan's type are held."""
    return DTYPES[type_]


def common_dtype(types: Sequence[ValueType]) -> pl.DataType:
    """The type in which values of these types can be compared with each other."""
    if ValueType.FLOAT64 in types:
        return pl.Float64()
    if ValueType.INTEGER in types:
        return pl.Int128()
    return DTYPES[types[0]]


def common(call: Call, arguments: list[pl.Expr]) -> list[pl.Expr]:
    """The arguments of a call, numbers widened to one type."""
    types = [argument.type for argument in call.arguments]
    target = common_dtype(types)
    return [
        argument if DTYPES[type_] == target else argument.cast(target)
        for argument, type_ in zip(arguments, types, strict=True)
    ]


def within_integer(exact: pl.Expr, estimate: pl.Expr) -> pl.Expr:
    """`exact`, or NULL where its double-precision estimate lies beyond `INTEGER_MAX`."""
    return pl.when(estimate.abs() <= float(INTEGER_MAX)).then(exact)
