"""Random expressions over random rows mean the same here and in DuckDB."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import duckdb
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mars.evaluate import to_polars
from mars.evaluate.values import DTYPES, INTEGER_MAX
from mars.plan import Call, Column, Expression, Function, Literal, ValueType

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
SQL_TYPES = {
    ValueType.STRING: "VARCHAR",
    ValueType.INT64: "BIGINT",
    ValueType.INTEGER: "HUGEINT",
    ValueType.FLOAT64: "DOUBLE",
    ValueType.BOOL: "BOOLEAN",
    ValueType.TIMESTAMP: "BIGINT",
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
VALUES = {
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

Draw = Callable[[st.SearchStrategy[Any]], Any]
COMPARISONS = [Function(sign) for sign in ("=", "<>", "<", "<=", ">", ">=")]
patterns = st.text(alphabet="aAbB%_.\n\\-#& é", max_size=5)
escaped_patterns = st.lists(st.sampled_from(["a", "!!", "!%", "!_", "%", "_"]), max_size=4).map(
    "".join
)


class Maker:
    """Draws expressions step by step, so that only the chosen branches are ever built."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw

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
        return {
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
        }[type_]  # fmt: skip

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
    ) -> Expression:
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


# ------------------------------------------------------------------------- the same in DuckDB


def render(expression: Expression) -> str:
    match expression:
        case Column(name):
            return f'"{name}"'
        case Literal(value, type_):
            return render_literal(value, type_)
        case Call():
            return f"({render_call(expression)})"


def render_literal(value: object, type_: ValueType) -> str:
    if value is None:
        return f"CAST(NULL AS {SQL_TYPES[type_]})"
    text = str(value).replace("'", "''")
    return f"CAST('{text}' AS {SQL_TYPES[type_]})"


def as_type(expression: Expression, type_: ValueType) -> str:
    if expression.type is type_:
        return render(expression)
    return f"CAST({render(expression)} AS {SQL_TYPES[type_]})"


def widest(arguments: Sequence[Expression]) -> ValueType:
    types = {argument.type for argument in arguments}
    for type_ in (ValueType.FLOAT64, ValueType.INTEGER):
        if type_ in types:
            return type_
    return arguments[0].type


def render_call(call: Call) -> str:
    arguments = call.arguments
    texts = [render(argument) for argument in arguments]
    same = [as_type(argument, widest(arguments)) for argument in arguments]
    wide = [as_type(argument, call.type) for argument in arguments]
    match call.function:
        case Function.ADD | Function.SUBTRACT | Function.MULTIPLY:
            return limited(f"TRY({wide[0]} {call.function} {wide[1]})", call.type)
        case Function.DIVIDE:
            return f"{wide[0]} / NULLIF({wide[1]}, 0)"
        case Function.MODULO:
            through = ValueType.FLOAT64 if call.type is ValueType.FLOAT64 else ValueType.INTEGER
            left, right = (as_type(argument, through) for argument in arguments)
            return f"CAST({left} % NULLIF({right}, 0) AS {SQL_TYPES[call.type]})"
        case Function.NEGATE:
            return f"- {wide[0]}"
        case Function.AND | Function.OR:
            return f" {call.function} ".join(texts)
        case Function.NOT:
            return f"NOT {texts[0]}"
        case Function.IN:
            return f"{same[0]} IN ({', '.join(same[1:])})"
        case Function.LIKE:
            escape = f" ESCAPE {texts[2]}" if len(texts) > 2 else ""
            return f"{texts[0]} LIKE {texts[1]}{escape}"
        case Function.IS_NULL:
            return f"{texts[0]} IS NULL"
        case Function.CASE:
            whens = zip(texts[:-1:2], wide[1:-1:2], strict=True)
            return f"CASE {' '.join(f'WHEN {w} THEN {t}' for w, t in whens)} ELSE {wide[-1]} END"
        case Function.NULLIF:
            return f"CASE WHEN {same[0]} = {same[1]} THEN NULL ELSE {texts[0]} END"
        case Function.COALESCE:
            return f"COALESCE({', '.join(wide)})"
        case Function.ROUND:
            return render_round(call, wide[0])
        case Function.FLOOR | Function.CEIL if call.type is not ValueType.FLOAT64:
            return texts[0]
        case Function.CAST:
            return render_cast(arguments[0], call.type)
        case Function.ABS:
            return f"ABS({wide[0]})"
    if call.function in set(Function) - {"x"} and call.function.isalpha():
        return f"{call.function}({', '.join(texts)})"
    return f"{same[0]} {call.function} {same[1]}"


def limited(text: str, type_: ValueType) -> str:
    if type_ is not ValueType.INTEGER:
        return text
    return f"(CASE WHEN ABS(CAST({text} AS DOUBLE)) <= {float(INTEGER_MAX)!r} THEN {text} END)"


def render_round(call: Call, value: str) -> str:
    digits = call.arguments[1].value
    if call.type is ValueType.FLOAT64:
        return f"ROUND({value}, {digits})"
    unit = f"CAST({10**-digits} AS HUGEINT)"
    return f"SIGN({value}) * ((ABS({value}) + {unit} // 2) // {unit} * {unit})"


def render_cast(argument: Expression, target: ValueType) -> str:
    text, source = render(argument), argument.type
    if source is ValueType.STRING and target is ValueType.TIMESTAMP:
        return f"epoch_ms(TRY_CAST({text} AS TIMESTAMP))"
    if source is ValueType.TIMESTAMP and target is ValueType.STRING:
        inside = f"{text} BETWEEN -62135596800000 AND 253402300799999"
        return f"CASE WHEN {inside} THEN CAST(make_timestamp_ms({text}) AS VARCHAR) END"
    cast = f"TRY_CAST({text} AS {SQL_TYPES[target]})"
    return limited(cast, target) if source is not target else text


# ------------------------------------------------------------------------------- properties


@pytest.fixture(scope="module")
def duck():
    connection = duckdb.connect(config={"threads": 1})
    with connection:
        yield connection


def in_duckdb(duck, chosen: Expression, table: list[dict]) -> list[object]:
    frame = pl.DataFrame(table, schema={name: DTYPES[of] for name, of in COLUMNS.items()})
    # Arrow has no 128-bit integers: they cross as text.
    given_rows = frame.with_columns(pl.col("n").cast(pl.String)).with_row_index("line").to_arrow()
    duck.register("given_rows", given_rows)
    query = f"""
        SELECT {render(chosen)}
        FROM (SELECT * REPLACE (CAST(n AS HUGEINT) AS n) FROM given_rows) ORDER BY line"""
    return [value for (value,) in duck.execute(query).fetchall()]


def in_polars(chosen: Expression, table: list[dict]) -> list[object]:
    frame = pl.DataFrame(table, schema={name: DTYPES[of] for name, of in COLUMNS.items()})
    column = frame.with_columns(to_polars(chosen).alias("result"))["result"]
    assert column.dtype == DTYPES[chosen.type]
    return column.to_list()


def equal(ours: object, theirs: object) -> bool:
    if isinstance(ours, float) and isinstance(theirs, float):
        both_nan = math.isnan(ours) and math.isnan(theirs)
        return both_nan or ours == theirs
    return ours == theirs and type(ours) is type(theirs)


@settings(
    max_examples=400,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(st.data(), rows)
def test_expression_has_the_value_it_has_in_duckdb(duck, data, table):
    type_ = data.draw(st.sampled_from(list(ValueType)))
    chosen = Maker(data.draw).expression(type_, depth=2)
    ours, theirs = in_polars(chosen, table), in_duckdb(duck, chosen, table)
    assert all(map(equal, ours, theirs)), f"{render(chosen)}: {ours} is not {theirs}"
