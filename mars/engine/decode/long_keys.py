"""Rows whose keys are too long: such a row is bad for the tasks that group by them.

All texts among a row's keys count together, in bytes of UTF-8, as the task groups by them: after
UPPER, SUBSTR and the like. It is decided before the filter is asked, as for a value of a wrong
type. Keys are made for it only where the longest texts of a batch could make one that is too long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import polars as pl

from mars.core.plan import Call, Column, Expression, Function, Literal, Plan, ValueType
from mars.engine.decode.decoded import Decoded
from mars.engine.evaluate import to_polars
from mars.engine.evaluate.texts import TEXT_BYTES_MAX

KEY_BYTES_MAX = 256 * 1024
"""Of the texts among a row's keys together. A result has them twice, in Kafka's key and among its
members: they fit into what Kafka takes, 1 MiB, unless many of their characters must be escaped."""

OTHER_BYTES_MAX = 64
"""More than the text of any number, truth or time has."""

CASE_GROWTH = 3
"""How many times as long UPPER and LOWER make a text at most: two bytes can become six."""


def long_texts(plan: Plan, decoded: Decoded) -> tuple[Expression, ...]:
    """The texts among the plan's keys if those of some row may be over KEY_BYTES_MAX, else none."""
    texts = tuple(key.expression for key in plan.keys if key.expression.type is ValueType.STRING)

    def held(name: str) -> int:
        return int(decoded.frame.get_column(name).estimated_size())

    # All texts of a column together are a bound that costs nothing; for small batches it will do.
    for longest in (held, decoded.longest_text):
        if sum(_bound(text, longest) for text in texts) <= KEY_BYTES_MAX:
            return ()
    return texts if decoded.rows else ()


def text_bytes(texts: Sequence[Expression], rows: pl.DataFrame) -> pl.Series:
    """The bytes of these texts of each row, together."""
    names = [f"__bytes{at}" for at in range(len(texts))]
    sizes = rows.with_columns_seq(
        to_polars(text).str.len_bytes().cast(pl.Int64).fill_null(0).alias(name)
        for name, text in zip(names, texts, strict=True)
    )
    return sizes.select(pl.sum_horizontal(names)).to_series()


def _bound(expression: Expression, longest: Callable[[str], int]) -> int:
    """No value of the expression is longer as a text, given the longest of each column."""
    if expression.type is not ValueType.STRING:
        return OTHER_BYTES_MAX
    match expression:
        case Column(name=name):
            return longest(name)
        case Literal(value=value):
            return len(str(value).encode())
        case Call(function=Function.CONCAT, arguments=arguments):
            return min(TEXT_BYTES_MAX, sum(_bound(one, longest) for one in arguments))
        case Call(function=Function.UPPER | Function.LOWER, arguments=arguments):
            return CASE_GROWTH * _bound(arguments[0], longest)
        case Call(arguments=arguments):
            return max(_bound(one, longest) for one in arguments)
