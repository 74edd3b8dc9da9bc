"""Random expressions over random rows mean the same here and in DuckDB."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import duckdb
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mars.core.plan import Call, Column, Expression, Function, Literal, ValueType
from mars.engine.evaluate import to_polars
from mars.engine.evaluate.values import DTYPES, INTEGER_MAX
from tests.properties.duckdb_text import render

Row = dict[str, Any]
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
COLUMNS = {
    "i": ValueType.INT64,
    "j": ValueType.INT64,
    "n": ValueType.INTEGER,
    "f": ValueType.FLOAT64,
    "g": ValueType.FLOAT64,
    "s": ValueType.STRING,
    "u": ValueType.STRING,
    "b": ValueType.BOOL,
    "t": ValueType.TIMESTAMP,
}
NUMBERS = (ValueType.INT64, ValueType.INTEGER, ValueType.FLOAT64)
FLOAT = NUMBERS[2:]

# ------------------------------------------------------------------------------ random rows

int64s = st.one_of(
    st.integers(-20, 20),
    st.integers(INT64_MIN, INT64_MAX),
    st.sampled_from([INT64_MIN, INT64_MAX, 0, -1, 2**53 + 1]),
)
integers = st.one_of(int64s, st.integers(-INTEGER_MAX + 1, INTEGER_MAX - 1))
floats = st.one_of(
    st.floats(width=64),
    st.sampled_from([0.0, -0.0, 0.5, -0.5, 1.5, 2.5, 2.675, 1e-5, 1e300, 9.3e18, math.nan]),
    st.integers(-1000, 1000).map(lambda number: number / 8),
)
texts = st.one_of(
    st.text(alphabet="aAbB%_!.é\u0301漢🤦\n \\'", max_size=8),
    st.text(alphabet="0123456789+-.eE ", max_size=8),
    st.sampled_from(["", "true", "F", "no", "1", "inf", "-nan", "NaN", "1e400", "Infinity"]),
    st.sampled_from(["2026-01-31", "2026-02-30", "2026-01-01 10:00:00.5", "2026-01-01T23:59Z"]),
    st.sampled_from(["9223372036854775807.4", "-9223372036854775808.5", "17" + "0" * 37]),
)
instants = st.one_of(st.integers(-(10**13), 10**13), st.integers(INT64_MIN, INT64_MAX))
VALUES: Mapping[ValueType, st.SearchStrategy[str | int | float | bool]] = {
    ValueType.STRING: texts,
    ValueType.INT64: int64s,
    ValueType.INTEGER: integers,
    ValueType.FLOAT64: floats,
    ValueType.BOOL: st.booleans(),
    ValueType.TIMESTAMP: instants,
}
rows = st.lists(
    st.fixed_dictionaries({name: st.none() | VALUES[type_] for name, type_ in COLUMNS.items()}),
    min_size=1,
    max_size=12,
)

# ----------------------------------------------------------------------- random expressions

COMPARISONS = [Function(sign) for sign in ("=", "<>", "<", "<=", ">", ">=")]
patterns = st.text(alphabet="aAbB%_.\n\\-#& é", max_size=5)
escaped_patterns = st.lists(st.sampled_from(["a", "!!", "!%", "!_", "%", "_"]), max_size=4).map(
    "".join
)


class Maker:
    """Draws expressions step by step, so that only the chosen branches are ever built."""

    def __init__(self, data: st.DataObject) -> None:
        self.draw = data.draw

    def expression(self, type_: ValueType, depth: int) -> Expression:
        if depth == 0 or self.draw(st.integers(0, 3)) == 0:
            return self.leaf(type_)
        makers = [self.cast, self.case, self.coalesce, self.nullif, *self.specific(type_)]
        return self.draw(st.sampled_from(makers))(type_, depth - 1)

    def leaf(self, type_: ValueType) -> Expression:
        if self.draw(st.booleans()):
            return Literal(self.draw(st.none() | VALUES[type_]), type_)
        return self.draw(
            st.sampled_from([Column(n, of) for n, of in COLUMNS.items() if of is type_])
        )

    def one_of(self, types: Sequence[ValueType], depth: int) -> Expression:
        return self.expression(self.draw(st.sampled_from(types)), depth)

    def specific(self, type_: ValueType) -> list[Callable[[ValueType, int], Expression]]:
        makers: dict[ValueType, list[Callable[[ValueType, int], Expression]]] = {
            ValueType.INTEGER: [self.arithmetic, self.sign, self.rounded],
            ValueType.FLOAT64: [
                self.arithmetic, self.sign, self.rounded, self.quotient, self.remainder, self.whole
            ],
            ValueType.INT64: [self.remainder, self.length, self.whole],
            ValueType.STRING: [self.concat, self.letters, self.substring],
            ValueType.BOOL: [
                self.comparison, self.comparison, self.connected, self.negated, self.is_null,
                self.listed, self.like, self.like_escaped,
            ],
            ValueType.TIMESTAMP: [],
        }  # fmt: skip
        return makers[type_]

    def cast(self, type_: ValueType, depth: int) -> Expression:
        sources = list(ValueType)
        if type_ is ValueType.TIMESTAMP:
            sources.remove(ValueType.BOOL)
        if type_ is ValueType.BOOL:
            sources.remove(ValueType.TIMESTAMP)
        return Call(Function.CAST, (self.one_of(sources, depth),), type_)

    def case(self, type_: ValueType, depth: int) -> Expression:
        parts = (ValueType.BOOL, type_, ValueType.BOOL, type_, type_)
        return Call(Function.CASE, tuple(self.expression(of, depth) for of in parts), type_)

    def coalesce(self, type_: ValueType, depth: int) -> Expression:
        return self.pair(Function.COALESCE, type_, [type_], depth)

    def nullif(self, type_: ValueType, depth: int) -> Expression:
        other = NUMBERS if type_ in NUMBERS else [type_]
        arguments = self.expression(type_, depth), self.one_of(other, depth)
        return Call(Function.NULLIF, arguments, type_)

    def pair(
        self, function: Function, type_: ValueType, of: Sequence[ValueType], depth: int
    ) -> Call:
        return Call(function, (self.one_of(of, depth), self.one_of(of, depth)), type_)

    def arithmetic(self, type_: ValueType, depth: int) -> Expression:
        function = self.draw(st.sampled_from([Function.ADD, Function.SUBTRACT, Function.MULTIPLY]))
        call = self.pair(function, type_, NUMBERS if type_ in FLOAT else NUMBERS[:2], depth)
        if type_ in FLOAT and ValueType.FLOAT64 not in {part.type for part in call.arguments}:
            return Call(function, (call.arguments[0], self.leaf(type_)), type_)
        return call

    def sign(self, type_: ValueType, depth: int) -> Expression:
        function = self.draw(st.sampled_from([Function.NEGATE, Function.ABS]))
        return Call(
            function, (self.one_of(FLOAT if type_ in FLOAT else NUMBERS[:2], depth),), type_
        )

    def rounded(self, type_: ValueType, depth: int) -> Expression:
        digits = self.draw(st.integers(-3, 4) if type_ in FLOAT else st.integers(-4, -1))
        value = self.one_of(FLOAT if type_ in FLOAT else NUMBERS[:2], depth)
        return Call(Function.ROUND, (value, Literal(digits, ValueType.INT64)), type_)

    def whole(self, type_: ValueType, depth: int) -> Expression:
        function = self.draw(st.sampled_from([Function.FLOOR, Function.CEIL]))
        return Call(function, (self.expression(type_, depth),), type_)

    def quotient(self, type_: ValueType, depth: int) -> Expression:
        return self.pair(Function.DIVIDE, type_, NUMBERS, depth)

    def remainder(self, type_: ValueType, depth: int) -> Expression:
        return self.pair(Function.MODULO, type_, [type_], depth)

    def length(self, type_: ValueType, depth: int) -> Expression:
        return Call(Function.LENGTH, (self.expression(ValueType.STRING, depth),), type_)

    def concat(self, type_: ValueType, depth: int) -> Expression:
        return self.pair(Function.CONCAT, type_, [type_], depth)

    def letters(self, type_: ValueType, depth: int) -> Expression:
        function = self.draw(st.sampled_from([Function.LOWER, Function.UPPER]))
        return Call(function, (self.expression(type_, depth),), type_)

    def substring(self, type_: ValueType, depth: int) -> Expression:
        positions = [self.position(depth) for _ in range(self.draw(st.integers(1, 2)))]
        return Call(Function.SUBSTR, (self.expression(type_, depth), *positions), type_)

    def position(self, depth: int) -> Expression:
        if self.draw(st.booleans()):
            return self.length(ValueType.INT64, depth)
        return Literal(self.draw(st.none() | st.integers(-6, 6)), ValueType.INT64)

    def comparison(self, type_: ValueType, depth: int) -> Expression:
        function = self.draw(st.sampled_from(COMPARISONS))
        kinds = [NUMBERS, [ValueType.TIMESTAMP, ValueType.INT64], *([of] for of in ValueType)]
        return self.pair(function, type_, self.draw(st.sampled_from(kinds)), depth)

    def connected(self, type_: ValueType, depth: int) -> Expression:
        function = self.draw(st.sampled_from([Function.AND, Function.OR]))
        count = self.draw(st.integers(2, 3))
        return Call(function, tuple(self.expression(type_, depth) for _ in range(count)), type_)

    def negated(self, type_: ValueType, depth: int) -> Expression:
        return Call(Function.NOT, (self.expression(type_, depth),), type_)

    def is_null(self, type_: ValueType, depth: int) -> Expression:
        return Call(Function.IS_NULL, (self.one_of(list(ValueType), depth),), type_)

    def listed(self, type_: ValueType, depth: int) -> Expression:
        of = self.draw(st.sampled_from(list(ValueType)))
        value = self.expression(of, depth)
        items: tuple[Expression, ...]
        if self.draw(st.booleans()):
            items = tuple(Literal(item, of) for item in self.draw(st.lists(VALUES[of], min_size=1)))
        else:
            others = NUMBERS if of in NUMBERS else [of]
            items = tuple(self.one_of(others, depth) for _ in range(2))
        return Call(Function.IN, (value, *items), type_)

    def like(self, type_: ValueType, depth: int) -> Expression:
        pattern = Literal(self.draw(st.none() | patterns), ValueType.STRING)
        return Call(Function.LIKE, (self.expression(ValueType.STRING, depth), pattern), type_)

    def like_escaped(self, type_: ValueType, depth: int) -> Expression:
        pattern = Literal(self.draw(escaped_patterns), ValueType.STRING)
        escape = Literal("!", ValueType.STRING)
        value = self.expression(ValueType.STRING, depth)
        return Call(Function.LIKE, (value, pattern, escape), type_)


# ------------------------------------------------------------------------------- properties


@pytest.fixture(scope="module")
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(config={"threads": 1}) as connection:
        yield connection


def frame_of(table: list[Row]) -> pl.DataFrame:
    return pl.DataFrame(table, schema={name: DTYPES[of] for name, of in COLUMNS.items()})


def in_duckdb(
    duck: duckdb.DuckDBPyConnection, chosen: Expression, table: list[Row]
) -> list[object]:
    # Arrow has no 128-bit integers: they cross as text.
    crossing = frame_of(table).with_columns(pl.col("n").cast(pl.String)).with_row_index("line")
    duck.register("given_rows", crossing.to_arrow())
    query = f"""
        SELECT {render(chosen)}
        FROM (SELECT * REPLACE (CAST(n AS HUGEINT) AS n) FROM given_rows) ORDER BY line"""
    return [value for (value,) in duck.execute(query).fetchall()]


def in_polars(chosen: Expression, table: list[Row]) -> list[object]:
    column = frame_of(table).with_columns(to_polars(chosen).alias("result"))["result"]
    assert column.dtype == DTYPES[chosen.type]
    return column.to_list()


def equal(ours: object, theirs: object) -> bool:
    """Equal to the last bit; all NaNs are one."""
    if isinstance(ours, float) and isinstance(theirs, float):
        return ours == theirs or (math.isnan(ours) and math.isnan(theirs))
    return ours == theirs and type(ours) is type(theirs)


@settings(
    max_examples=200,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(st.data(), rows)
def test_expression_has_the_value_it_has_in_duckdb(
    duck: duckdb.DuckDBPyConnection, data: st.DataObject, table: list[Row]
) -> None:
    type_ = data.draw(st.sampled_from(list(ValueType)))
    chosen = Maker(data).expression(type_, depth=2)
    ours, theirs = in_polars(chosen, table), in_duckdb(duck, chosen, table)
    assert all(map(equal, ours, theirs)), f"{render(chosen)}: {ours} is not {theirs}"


@settings(
    max_examples=100,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(st.data(), rows, st.integers(0, 12))
def test_expression_has_the_same_value_in_any_batch(
    data: st.DataObject, table: list[Row], cut: int
) -> None:
    chosen = Maker(data).expression(data.draw(st.sampled_from(list(ValueType))), depth=2)
    parts = in_polars(chosen, table[:cut]) + in_polars(chosen, table[cut:])
    assert all(map(equal, in_polars(chosen, table), parts))
