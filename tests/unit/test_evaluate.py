"""What DuckDB cannot say about expressions: where Mars goes its own way, and how it is held."""

from __future__ import annotations

import math
from typing import Any

import polars as pl
import pytest

from mars.core.plan import Call, Column, Expression, Function, Literal, ValueType
from mars.engine.evaluate import CASE_BRANCHES_MAX, to_polars
from mars.engine.evaluate.texts import TEXT_BYTES_MAX
from mars.engine.evaluate.values import DTYPES, INTEGER_MAX

INT64_MAX, INT64_MIN = 2**63 - 1, -(2**63)


def integer(value: int | None) -> Literal:
    return Literal(value, ValueType.INT64)


def text(value: str | None) -> Literal:
    return Literal(value, ValueType.STRING)


def evaluate(expression: Expression, type_: ValueType, values: list[Any]) -> list[Any]:
    """The expression over one column `x` of a type."""
    frame = pl.DataFrame({"x": pl.Series(values, dtype=DTYPES[type_])})
    column = frame.with_columns(to_polars(expression).alias("result")).get_column("result")
    assert column.dtype == DTYPES[expression.type]
    return column.to_list()


def of_x(function: Function, type_: ValueType, result: ValueType, *others: Expression) -> Call:
    return Call(function, (Column("x", type_), *others), result)


@pytest.mark.parametrize("function", [Function.DIVIDE, Function.MODULO])
@pytest.mark.parametrize("divisor", [integer(0), Literal(-0.0, ValueType.FLOAT64)])
def test_division_by_zero_is_null(function: Function, divisor: Literal) -> None:
    by_zero = of_x(function, ValueType.FLOAT64, ValueType.FLOAT64, divisor)
    assert evaluate(by_zero, ValueType.FLOAT64, [1.5, 0.0, math.nan, None]) == [None] * 4


def test_modulo_of_integers_by_zero_is_null() -> None:
    by_zero = of_x(Function.MODULO, ValueType.INT64, ValueType.INT64, integer(0))
    assert evaluate(by_zero, ValueType.INT64, [5, 0, INT64_MIN, None]) == [None] * 4


def test_remainder_has_the_sign_of_the_dividend() -> None:
    by_three = of_x(Function.MODULO, ValueType.INT64, ValueType.INT64, integer(3))
    assert evaluate(by_three, ValueType.INT64, [7, -7, 6, -6, 0]) == [1, -1, 0, 0, 0]
    by_minus_one = of_x(Function.MODULO, ValueType.INT64, ValueType.INT64, integer(-1))
    assert evaluate(by_minus_one, ValueType.INT64, [INT64_MIN, 7]) == [0, 0]


def test_quotient_by_a_constant_is_the_nearest_double() -> None:
    by_ten = of_x(Function.DIVIDE, ValueType.INT64, ValueType.FLOAT64, integer(10))
    assert evaluate(by_ten, ValueType.INT64, [3, 7, 1]) == [0.3, 0.7, 0.1]


@pytest.mark.parametrize("rows", [[3.0], [3.0, 7.0], []])
def test_quotient_does_not_depend_on_the_size_of_the_batch(rows: list[float]) -> None:
    by_ten = of_x(
        Function.DIVIDE, ValueType.FLOAT64, ValueType.FLOAT64, Literal(10.0, ValueType.FLOAT64)
    )
    assert evaluate(by_ten, ValueType.FLOAT64, rows) == [row / 10 for row in rows]


def test_constants_are_evaluated_for_every_row() -> None:
    one_and_a_half = Literal(1.5, ValueType.FLOAT64)
    rest = Call(Function.MODULO, (one_and_a_half, integer(1)), ValueType.FLOAT64)
    assert evaluate(rest, ValueType.INT64, [1, 2, 3]) == [0.5, 0.5, 0.5]
    assert evaluate(rest, ValueType.INT64, []) == []


def test_int64_arithmetic_is_exact_beyond_64_bits() -> None:
    square = of_x(
        Function.MULTIPLY, ValueType.INT64, ValueType.INTEGER, Column("x", ValueType.INT64)
    )
    values = [INT64_MAX, INT64_MIN, -3, None]
    assert evaluate(square, ValueType.INT64, values) == [INT64_MAX**2, INT64_MIN**2, 9, None]
    negated = of_x(Function.NEGATE, ValueType.INT64, ValueType.INTEGER)
    assert evaluate(negated, ValueType.INT64, [INT64_MIN, 1]) == [2**63, -1]
    absolute = of_x(Function.ABS, ValueType.INT64, ValueType.INTEGER)
    assert evaluate(absolute, ValueType.INT64, [INT64_MIN, 1]) == [2**63, 1]


@pytest.mark.parametrize(
    ("function", "other"),
    [
        (Function.ADD, INTEGER_MAX),
        (Function.SUBTRACT, -INTEGER_MAX),
        (Function.MULTIPLY, 2),
        (Function.MULTIPLY, 2**100),
    ],
)
def test_integers_beyond_128_bits_are_null_and_never_wrap(function: Function, other: int) -> None:
    literal = Literal(other, ValueType.INTEGER)
    call = of_x(function, ValueType.INTEGER, ValueType.INTEGER, literal)
    assert evaluate(call, ValueType.INTEGER, [INTEGER_MAX, None]) == [None, None]


def test_rounding_an_integer_cannot_overflow() -> None:
    tens = of_x(Function.ROUND, ValueType.INT64, ValueType.INTEGER, integer(-1))
    found = evaluate(tens, ValueType.INT64, [INT64_MAX, INT64_MIN, 15, -15, 14, None])
    assert found == [9223372036854775810, -9223372036854775810, 20, -20, 10, None]


def test_floor_and_ceiling_of_integers_are_exact() -> None:
    for function in (Function.FLOOR, Function.CEIL):
        same = of_x(function, ValueType.INT64, ValueType.INT64)
        assert evaluate(same, ValueType.INT64, [2**53 + 1, None]) == [2**53 + 1, None]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("2026-01-02", 1767312000000),
        ("2026-01-02 03:04", 1767323040000),
        ("2026-01-02T03:04:05Z", 1767323045000),
        ("2026-01-02T03:04:05.6789+01:30", 1767317645678),
        ("2026-01-02 03:04:05-0300", 1767333845000),
        ("2026-01-02 03:04:05.1234567891", 1767323045123),
        ("1969-12-31T23:59:59.999Z", -1),
        ("2026-02-30", None),
        ("2026-01-02T24:00:00", None),
        ("2026-01-02T03:04:60Z", None),
        ("2026-1-2", None),
        ("0000-01-01", None),
        ("yesterday", None),
        ("", None),
    ],
)
def test_text_becomes_a_timestamp_or_null(written: str, expected: int | None) -> None:
    cast = of_x(Function.CAST, ValueType.STRING, ValueType.TIMESTAMP)
    assert evaluate(cast, ValueType.STRING, [written, None]) == [expected, None]


def test_timestamps_that_have_no_text_become_null() -> None:
    cast = of_x(Function.CAST, ValueType.TIMESTAMP, ValueType.STRING)
    instants = [0, 1_500, INT64_MAX, INT64_MIN, -62135596800001, 253402300799999, None]
    assert evaluate(cast, ValueType.TIMESTAMP, instants) == [
        *("1970-01-01 00:00:00", "1970-01-01 00:00:01.5", None, None, None),
        *("9999-12-31 23:59:59.999", None),
    ]


@pytest.mark.parametrize("written", ["1_000", "0x10", "1e", "\u0661", "1 2", "--1", "+"])
def test_text_that_is_no_number_becomes_null(written: str) -> None:
    for target in (ValueType.INT64, ValueType.INTEGER, ValueType.FLOAT64):
        cast = of_x(Function.CAST, ValueType.STRING, target)
        assert evaluate(cast, ValueType.STRING, [written]) == [None]


def test_casts_out_of_range_become_null() -> None:
    to_int64 = of_x(Function.CAST, ValueType.FLOAT64, ValueType.INT64)
    floats = [2.0**63, -(2.0**63), 1e300, math.nan, -math.inf, 0.5, 1.5, None]
    found = evaluate(to_int64, ValueType.FLOAT64, floats)
    assert found == [None, INT64_MIN, None, None, None, 0, 2, None]
    narrowed = of_x(Function.CAST, ValueType.INTEGER, ValueType.INT64)
    assert evaluate(narrowed, ValueType.INTEGER, [2**63, 5]) == [None, 5]


def test_upper_and_lower_know_all_of_unicode() -> None:
    upper = of_x(Function.UPPER, ValueType.STRING, ValueType.STRING)
    assert evaluate(upper, ValueType.STRING, ["straße", "ŉ"]) == ["STRASSE", "\u02bcN"]
    lower = of_x(Function.LOWER, ValueType.STRING, ValueType.STRING)
    assert evaluate(lower, ValueType.STRING, ["ÀÉ", "Д"]) == ["àé", "д"]


@pytest.mark.parametrize("character", [chr(code) for code in (*range(1, 128), 0xE9, 0x1F926)])
def test_every_other_character_of_a_pattern_means_itself(character: str) -> None:
    if character in "%_":
        pattern, escape = f"a!{character}b", [text("!")]
    else:
        pattern, escape = f"a{character}b", []
    call = of_x(Function.LIKE, ValueType.STRING, ValueType.BOOL, text(pattern), *escape)
    found = evaluate(call, ValueType.STRING, [f"a{character}b", "ab", f"a{character}bc"])
    assert found == [True, False, False]


def test_the_longest_pattern_compiles() -> None:
    pattern = text("_" * 999 + "%")
    call = of_x(Function.LIKE, ValueType.STRING, ValueType.BOOL, pattern)
    assert evaluate(call, ValueType.STRING, ["x" * 998, "é" * 999]) == [False, True]


def test_a_deep_expression_is_evaluated() -> None:
    deep: Expression = Column("x", ValueType.INT64)
    for _ in range(100):
        deep = Call(Function.ADD, (deep, integer(1)), ValueType.INTEGER)
    assert evaluate(deep, ValueType.INT64, [0, INT64_MAX]) == [100, INT64_MAX + 100]


NESTED = {
    "modulo": lambda x: Call(Function.MODULO, (x, integer(7)), ValueType.INT64),
    "nullif": lambda x: Call(Function.NULLIF, (x, integer(3)), ValueType.INT64),
    "round": lambda x: Call(Function.ROUND, (x, integer(-1)), ValueType.INTEGER),
    "cast": lambda x: Call(
        Function.CAST, (Call(Function.CAST, (x,), ValueType.STRING),), ValueType.INT64
    ),
    "substr": lambda x: Call(
        Function.SUBSTR,
        (Call(Function.CAST, (x,), ValueType.STRING), integer(1), integer(9)),
        ValueType.STRING,
    ),
    "in": lambda x: Call(Function.IN, (x, Column("x", ValueType.INT64)), ValueType.BOOL),
    "product": lambda x: Call(
        Function.MULTIPLY, (x, Column("x", ValueType.INT64)), ValueType.INTEGER
    ),
}


@pytest.mark.parametrize("name", NESTED)
def test_an_argument_that_is_used_several_times_is_computed_once(name: str) -> None:
    """Fifty deep, polars would never end. The results agree with DuckDB by the property tests."""
    deep: Expression = Column("x", ValueType.INT64)
    for _ in range(50):
        deep = NESTED[name](deep)
        if deep.type in (ValueType.STRING, ValueType.BOOL):
            deep = Call(Function.CAST, (deep,), ValueType.INT64)
    assert len(evaluate(deep, ValueType.INT64, [1, None, 5])) == 3


def test_what_is_not_in_a_list_with_a_null_is_unknown() -> None:
    found = of_x(Function.IN, ValueType.INT64, ValueType.BOOL, integer(1), integer(None))
    assert evaluate(found, ValueType.INT64, [1, 2, None]) == [True, None, None]
    nothing = of_x(Function.IN, ValueType.INT64, ValueType.BOOL, integer(None))
    assert evaluate(nothing, ValueType.INT64, [1, None]) == [None, None]


def test_a_constant_filter_keeps_or_drops_all_rows() -> None:
    frame = pl.DataFrame({"x": [1, 2]})
    for value, height in ((True, 2), (False, 0), (None, 0)):
        assert frame.filter(to_polars(Literal(value, ValueType.BOOL))).height == height


@pytest.mark.parametrize("function", [Function(sign) for sign in ("=", "<>", "<", "<=", ">", ">=")])
def test_a_constant_is_compared_with_each_row_though_all_rows_are_alike(function: Function) -> None:
    nothing = Call(Function.CAST, (Column("x", ValueType.STRING),), ValueType.INT64)
    compared = Call(function, (integer(1), nothing), ValueType.BOOL)
    assert evaluate(compared, ValueType.STRING, [None, "a", ""]) == [None, None, None]


def test_constants_are_compared_from_their_own_side() -> None:
    x = Column("x", ValueType.INT64)
    less = Call(Function.LESS, (integer(1), x), ValueType.BOOL)
    assert evaluate(less, ValueType.INT64, [0, 1, 2]) == [False, False, True]
    found = Call(Function.IN, (integer(1), integer(5), x), ValueType.BOOL)
    assert evaluate(found, ValueType.INT64, [0, 1, None]) == [False, True, None]
    emptied = Call(Function.NULLIF, (integer(1), x), ValueType.INT64)
    assert evaluate(emptied, ValueType.INT64, [0, 1, None]) == [1, None, 1]


def below(limit: Expression) -> Call:
    return of_x(Function.LESS, ValueType.INT64, ValueType.BOOL, limit)


@pytest.mark.parametrize(
    "branches", [1, CASE_BRANCHES_MAX, CASE_BRANCHES_MAX + 1, 5 * CASE_BRANCHES_MAX - 1]
)
def test_of_a_case_the_first_branch_that_holds_counts_however_many_there_are(branches: int) -> None:
    limits = [integer(None), *map(integer, range(1, branches))]
    pairs = [part for limit in limits for part in (below(limit), limit)]
    values = [-5, 0, 1, branches - 2, branches - 1, None]
    fallback = of_x(Function.NEGATE, ValueType.INT64, ValueType.INT64)
    case = Call(Function.CASE, (*pairs, fallback), ValueType.INT64)
    expected = [
        None if x is None else next((limit for limit in range(1, branches) if x < limit), -x)
        for x in values
    ]
    assert evaluate(case, ValueType.INT64, values) == expected
    assert evaluate(case, ValueType.INT64, []) == []


def test_a_long_case_may_have_nothing_but_constants_behind_its_conditions() -> None:
    pairs = [part for at in range(100) for part in (below(integer(at)), text(f"<{at}"))]
    case = Call(Function.CASE, (*pairs, text(None)), ValueType.STRING)
    assert evaluate(case, ValueType.INT64, [-1, 40, 99]) == ["<0", "<41", None]


def test_text_that_concat_makes_is_null_over_the_limit_and_not_made() -> None:
    half = TEXT_BYTES_MAX // 2
    twice = of_x(Function.CONCAT, ValueType.STRING, ValueType.STRING, Column("x", ValueType.STRING))
    values = ["a" * half, "a" * half + "b", "\u00e9" * (half // 2 + 1), "", None]
    assert evaluate(twice, ValueType.STRING, values) == ["a" * (2 * half), None, None, "", ""]


def test_concat_passes_over_a_text_that_was_too_long_within_it() -> None:
    text_: Expression = Column("x", ValueType.STRING)
    for _ in range(2):
        text_ = Call(Function.CONCAT, (text_,) * 32, ValueType.STRING)
    assert evaluate(text_, ValueType.STRING, ["a" * 50_000] * 16 + [""]) == [""] * 17
