"""Expressions of a plan as polars expressions, over columns of the plan's types.

    to_polars(expression) -> pl.Expr

Types are held as: STRING String, INT64 Int64, INTEGER Int128, FLOAT64 Float64, BOOL Boolean,
TIMESTAMP Int64 (epoch ms). The meaning is DuckDB's, NULL logic three-valued, except where DuckDB
would stop with an error, which a stream cannot do; then the value is NULL:

- x / 0 and x % 0, for floats too
- a CAST that fails, and one to an integer that is out of range
- an INTEGER beyond `INTEGER_MAX` (1.7e38); `+ - *` over INT64 cannot get there in one step
- a text that CONCAT makes beyond `TEXT_BYTES_MAX` (256 KiB)

and except for these:

- FLOOR and CEIL of an integer stay integers; DuckDB makes them DOUBLE
- UPPER and LOWER map all of Unicode (`ß` becomes `SS`); DuckDB maps character by character
- a CAST from text knows no `_` or `0x`, and honours a time zone; without one it is UTC

NaN equals NaN and is greater than any other number, in comparisons, IN, NULLIF and CASE.

A constant expression has length one: evaluate it with `with_columns`, not alone in `select`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from types import MappingProxyType

import polars as pl

from mars.core.plan import Call, Column, Expression, Function, Literal
from mars.engine.evaluate.arithmetic import (
    absolute,
    add,
    ceiling,
    divide,
    floor,
    is_bounded,
    modulo,
    multiply,
    negate,
    round_half_away,
    subtract,
)
from mars.engine.evaluate.casts import cast
from mars.engine.evaluate.texts import concatenate, length, like, lower, substring, upper
from mars.engine.evaluate.values import common, common_dtype, dtype_of

__all__ = ["to_polars"]

CASE_BRANCHES_MAX = 32
"""Of one expression of polars: the time of more grows with the square of their number, and their
memory with all of them times the rows. 1,000 took 1 s and 400 MB for 10,000 rows, in blocks of 32
they take 0.06 s."""


def to_polars(expression: Expression) -> pl.Expr:
    """The same expression for polars; its columns are looked up by the names in the plan."""
    return _built(_folded(expression))


def _folded(expression: Expression) -> Expression:
    """The expression with all its constant parts computed.

    Besides the work, it saves from polars taking the one value of a computed constant for a
    whole column that is too short.
    """
    if not isinstance(expression, Call):
        return expression
    call = replace(expression, arguments=tuple(map(_folded, expression.arguments)))
    if all(isinstance(argument, Literal) for argument in call.arguments):
        return Literal(pl.select(_built(call)).item(), call.type)
    return call


def _built(expression: Expression) -> pl.Expr:
    match expression:
        case Column(name):
            return pl.col(name)
        case Literal(value, type_):
            return pl.lit(value, dtype=dtype_of(type_))
        case Call():
            arguments = [_built(argument) for argument in expression.arguments]
            if _repeats(expression) and any(isinstance(one, Call) for one in expression.arguments):
                return _once(expression, arguments)
            if _is_long_case(expression):
                return _long_case(expression, arguments)
            return _BUILDERS[expression.function](expression, arguments)


def _repeats(call: Call) -> bool:
    """Whether the builder names an argument more than once."""
    match call.function:
        case Function.ADD | Function.SUBTRACT | Function.MULTIPLY:
            return not is_bounded(call)
        case Function.IN:
            return not _is_lookup(call)
        case function:
            return function in _REPEATING


def _is_long_case(call: Call) -> bool:
    return call.function is Function.CASE and len(call.arguments) > 2 * CASE_BRANCHES_MAX + 1


_REPEATING = frozenset(
    {
        Function.DIVIDE,
        Function.MODULO,
        Function.NULLIF,
        Function.ROUND,
        Function.SUBSTR,
        Function.CONCAT,
        Function.CAST,
    }
)


def _once(call: Call, arguments: list[pl.Expr]) -> pl.Expr:
    """The call over columns that hold its arguments.

    Polars would compute an argument as often as it is named, and so on within it: `i % 3 % 3 ...`,
    eight deep, took 11 GB and a minute for two rows.
    """
    built = _BUILDERS[call.function](call, _named(call, arguments)).alias("result")
    return _over(call, arguments, lambda frame: frame.select_seq(built).get_column("result"))


def _long_case(call: Call, arguments: list[pl.Expr]) -> pl.Expr:
    """A CASE of many branches: a block of them after the other, from the last one on."""
    *branches, otherwise = _named(call, arguments)
    starts = range(0, len(branches), 2 * CASE_BRANCHES_MAX)
    blocks = [branches[start : start + 2 * CASE_BRANCHES_MAX] for start in reversed(starts)]

    def chosen(frame: pl.DataFrame) -> pl.Series:
        frame = frame.with_columns(otherwise.cast(dtype_of(call.type)).alias("result"))
        for block in blocks:
            result = _case(call, [*block, pl.col("result")])
            frame = frame.with_columns(result.alias("result"))
        return frame.get_column("result")

    return _over(call, arguments, chosen)


def _named(call: Call, arguments: list[pl.Expr]) -> list[pl.Expr]:
    """The arguments as columns of the frame that `_over` makes; literals stay."""
    return [
        argument if isinstance(of, Literal) else pl.col(f"a{at}")
        for at, (of, argument) in enumerate(zip(call.arguments, arguments, strict=True))
    ]


def _over(
    call: Call, arguments: list[pl.Expr], compute: Callable[[pl.DataFrame], pl.Series]
) -> pl.Expr:
    """What is computed from a frame of the arguments that are no literals."""
    given = [at for at, one in enumerate(call.arguments) if not isinstance(one, Literal)]

    def over_columns(series: Sequence[pl.Series]) -> pl.Series:
        named = [one.alias(f"a{at}") for at, one in zip(given, series, strict=True)]
        return compute(pl.DataFrame(named))

    return pl.map_batches(
        [arguments[at] for at in given], over_columns, return_dtype=dtype_of(call.type)
    )


_Builder = Callable[[Call, list[pl.Expr]], pl.Expr]


_Compare = Callable[[pl.Expr, pl.Expr], pl.Expr]


def _comparison(compare: _Compare, mirrored: _Compare) -> _Builder:
    """A comparison; `mirrored` says the same with the sides exchanged.

    A constant goes to the right: where a column happens to have one value in all rows, polars
    gives the result the length of the left side, and a constant's is one.
    """

    def build(call: Call, arguments: list[pl.Expr]) -> pl.Expr:
        left, right = common(call, arguments)
        if isinstance(call.arguments[0], Literal):
            return mirrored(right, left)
        return compare(left, right)

    return build


_equal = _comparison(pl.Expr.__eq__, pl.Expr.__eq__)


def _and(_call: Call, arguments: list[pl.Expr]) -> pl.Expr:
    return reduce(pl.Expr.__and__, arguments)


def _or(_call: Call, arguments: list[pl.Expr]) -> pl.Expr:
    return reduce(pl.Expr.__or__, arguments)


def _not(_call: Call, arguments: list[pl.Expr]) -> pl.Expr:
    return ~arguments[0]


def _is_null(_call: Call, arguments: list[pl.Expr]) -> pl.Expr:
    return arguments[0].is_null()


def _in(call: Call, arguments: list[pl.Expr]) -> pl.Expr:
    """A list of literals is one lookup; anything else is a chain of equalities."""
    value, *candidates = common(call, arguments)
    if _is_lookup(call):
        literals = [one.value for one in call.arguments[1:] if isinstance(one, Literal)]
        known = [value for value in literals if value is not None]
        dtype = common_dtype([argument.type for argument in call.arguments])
        found = value.is_in(pl.lit(pl.Series([pl.Series(known, dtype=dtype)])))
        # What is not found among values of which one is not known, is not known to be there.
        return found if len(known) == len(literals) else pl.when(found).then(pl.lit(True))
    if isinstance(call.arguments[0], Literal):
        return reduce(pl.Expr.__or__, [candidate == value for candidate in candidates])
    return reduce(pl.Expr.__or__, [value == candidate for candidate in candidates])


def _is_lookup(call: Call) -> bool:
    return all(isinstance(one, Literal) for one in call.arguments[1:])


def _case(call: Call, arguments: list[pl.Expr]) -> pl.Expr:
    *branches, otherwise = arguments
    dtype = dtype_of(call.type)
    result = otherwise.cast(dtype)
    for at in range(len(branches) - 2, -1, -2):
        result = pl.when(branches[at]).then(branches[at + 1].cast(dtype)).otherwise(result)
    return result


def _coalesce(call: Call, arguments: list[pl.Expr]) -> pl.Expr:
    dtype = dtype_of(call.type)
    return pl.coalesce([argument.cast(dtype) for argument in arguments])


def _nullif(call: Call, arguments: list[pl.Expr]) -> pl.Expr:
    return pl.when(_equal(call, arguments)).then(None).otherwise(arguments[0])


_BUILDERS: Mapping[Function, _Builder] = MappingProxyType(
    {
        Function.ADD: add,
        Function.SUBTRACT: subtract,
        Function.MULTIPLY: multiply,
        Function.DIVIDE: divide,
        Function.MODULO: modulo,
        Function.NEGATE: negate,
        Function.EQUAL: _equal,
        Function.NOT_EQUAL: _comparison(pl.Expr.__ne__, pl.Expr.__ne__),
        Function.LESS: _comparison(pl.Expr.__lt__, pl.Expr.__gt__),
        Function.LESS_EQUAL: _comparison(pl.Expr.__le__, pl.Expr.__ge__),
        Function.GREATER: _comparison(pl.Expr.__gt__, pl.Expr.__lt__),
        Function.GREATER_EQUAL: _comparison(pl.Expr.__ge__, pl.Expr.__le__),
        Function.AND: _and,
        Function.OR: _or,
        Function.NOT: _not,
        Function.IN: _in,
        Function.LIKE: like,
        Function.IS_NULL: _is_null,
        Function.CASE: _case,
        Function.COALESCE: _coalesce,
        Function.NULLIF: _nullif,
        Function.ABS: absolute,
        Function.ROUND: round_half_away,
        Function.FLOOR: floor,
        Function.CEIL: ceiling,
        Function.LOWER: lower,
        Function.UPPER: upper,
        Function.LENGTH: length,
        Function.SUBSTR: substring,
        Function.CONCAT: concatenate,
        Function.CAST: cast,
    }
)
