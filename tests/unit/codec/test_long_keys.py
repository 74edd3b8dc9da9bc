"""Rows whose keys are too long are bad for the tasks that group by them, and for no others."""

from __future__ import annotations

import sys

import polars as pl
import pytest

from mars.core.plan import Call, Column, Expression, Function, Literal, Plan, ValueType
from mars.core.types import Reason, RowCounts
from mars.engine.decode import long_keys
from mars.engine.decode.long_keys import CASE_GROWTH, KEY_BYTES_MAX
from mars.engine.decode.usable import Usable, usable_rows
from mars.engine.evaluate import to_polars
from mars.engine.kernel import decode, map_batch
from tests.unit.codec.samples import FIELDS, JSON, LOAD, NAME, SIZE, plan_of, records, row

LONG = "x" * (KEY_BYTES_MAX + 1)


def text(function: Function, *arguments: Expression) -> Call:
    return Call(function, arguments, ValueType.STRING)


def number(value: int) -> Literal:
    return Literal(value, ValueType.INT64)


def sorted_out(plan: Plan, *names: str | None) -> Usable:
    """Rows with these names, one a millisecond."""
    values = [row(at=at, name=name) for at, name in enumerate(names, 1)]
    return usable_rows(plan, decode(JSON, FIELDS, records(values)))


def test_a_row_whose_key_is_too_long_is_bad_and_moves_no_mark() -> None:
    usable = sorted_out(plan_of(NAME), "a", LONG[:-1], LONG)
    assert (usable.rows.height, usable.bad, usable.mark_ms) == (2, 1, 2)
    (bad,) = usable.rejections.rows
    assert (bad.offset, bad.reason) == (2, Reason.TOO_LARGE)
    assert bad.detail == ("the texts it is grouped by have 262145 bytes, at most 262144 are taken")


def test_a_task_that_does_not_group_by_it_counts_it() -> None:
    assert sorted_out(plan_of(SIZE, LOAD), LONG).bad == 0
    assert sorted_out(plan_of(), LONG).bad == 0


def test_all_texts_among_the_keys_count_together_in_bytes() -> None:
    plan = plan_of(NAME, SIZE, text(Function.LOWER, NAME))
    half = "é" * (KEY_BYTES_MAX // 4)
    assert sorted_out(plan, half, None, half + "a").rejections.rows[0].offset == 2


def test_the_key_counts_as_the_task_groups_by_it() -> None:
    short = text(Function.SUBSTR, NAME, number(1), number(100))
    assert sorted_out(plan_of(short), LONG, None).bad == 0
    six_for_two = "\u0390" * (KEY_BYTES_MAX // 6)
    shouted = plan_of(text(Function.UPPER, NAME))
    assert sorted_out(shouted, six_for_two, six_for_two + "aaaaa").rejections.rows[0].offset == 1


def test_it_is_decided_before_the_filter_is_asked() -> None:
    short = Call(
        Function.LESS, (Call(Function.LENGTH, (NAME,), ValueType.INT64), number(9)), ValueType.BOOL
    )
    batch = records([row(at=1, name="a"), row(at=2, name="longer text"), row(at=3, name=LONG)])
    mapped = map_batch(plan_of(NAME, filter_=short), 4, decode(JSON, FIELDS, batch))
    counts = sum((one.counts for one in mapped.partials), RowCounts())
    assert counts == RowCounts(counted=1, filtered=1, bad=1)
    assert list(mapped.marks_ms.values()) == [2]


@pytest.mark.parametrize(
    "key",
    [
        NAME,
        text(Function.COALESCE, NAME, Literal("none", ValueType.STRING)),
        text(Function.CONCAT, NAME, NAME, text(Function.CAST, SIZE)),
        text(Function.UPPER, text(Function.LOWER, NAME)),
    ],
)
def test_where_no_text_is_long_no_key_is_made_for_it(
    key: Expression, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Expression] = []

    def told(one: Expression) -> pl.Expr:
        made.append(one)
        return to_polars(one)

    monkeypatch.setattr(long_keys, "to_polars", told)
    assert sorted_out(plan_of(key, NAME), "a" * 10_000, None).bad == 0
    assert made == []
    sorted_out(plan_of(key, NAME), LONG)
    assert made == [key, NAME]


def test_no_character_grows_by_more_than_the_bound_says() -> None:
    every = [chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]
    column = pl.Series("name", every)
    size = pl.col("name").str.len_bytes()
    for function in (Function.UPPER, Function.LOWER):
        mapped = to_polars(text(function, Column("name", ValueType.STRING))).str.len_bytes()
        grown = column.to_frame().select((mapped / size).max()).item()
        assert 1 < grown <= CASE_GROWTH
