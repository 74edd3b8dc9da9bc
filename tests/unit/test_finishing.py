"""States to result rows: values, order, JSON."""

from __future__ import annotations

import json
from dataclasses import replace

import polars as pl
import pytest

from mars.core.plan import (
    Aggregate,
    AggregateFunction,
    Call,
    Column,
    Expression,
    Function,
    Literal,
    Order,
    Output,
    OverMaxKeys,
    Plan,
    ValueType,
)
from mars.core.windows import Cumulating, Window
from mars.engine.aggregates import state_schema
from mars.engine.finishing import (
    RESULT_BYTES_MAX,
    Finished,
    ResultRow,
    Withheld,
    finish,
    retractions,
    rows,
)
from tests.unit.codec.samples import LOAD, NAME, OK, SIZE, plan_of

A = AggregateFunction
V = ValueType
COUNTS = Column("a0", V.INT64)
MINUTE = Window(120_000, 60_000)


def finished(plan: Plan, *states: tuple[object, ...]) -> Finished:
    frame = pl.DataFrame([(0, *state) for state in states], schema=state_schema(plan), orient="row")
    return finish(plan, frame, MINUTE)


def values_of(result: Finished) -> list[dict[str, object]]:
    return [json.loads(value) for value in result.values]


def test_row_has_the_window_then_the_items() -> None:
    plan = plan_of(NAME)
    result = finished(plan, ("a", 3))
    assert result.window == MINUTE
    assert result.keys == [b'[60000,"a"]']
    assert result.values == [b'{"window_start":60000,"window_end":120000,"key0":"a","agg0":3}']


def test_task_without_keys_has_the_window_alone_as_key() -> None:
    assert finished(plan_of(), (3,)).keys == [b"[60000]"]


def test_window_bounds_selected_as_items_appear_once() -> None:
    bound = Output("window_start", Column("window_start", V.TIMESTAMP))
    event_time = Output("at", Column("window_start", V.TIMESTAMP))
    plan = replace(plan_of(), outputs=(event_time, bound))
    assert finished(plan, (1,)).values == [b'{"window_start":60000,"window_end":120000,"at":60000}']


def test_zeros_of_both_signs_are_written_as_they_are() -> None:
    """Plans are equal that differ in such a zero alone."""
    plans = [
        replace(plan_of(), outputs=(Output("zero", Literal(zero, V.FLOAT64)),))
        for zero in (0.0, -0.0)
    ]
    assert plans[0] == plans[1]
    assert [finished(plan, (1,)).values[0][-5:] for plan in plans] == [b":0.0}", b"-0.0}"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "plain",
        'quote " and \\ backslash / slash',
        "".join(map(chr, range(0x20))) + "\x7f",
        "é漢\U0001f600\u2028",
        "null",
    ],
)
def test_texts_are_escaped_as_json(text: str) -> None:
    plan = plan_of(NAME)
    result = finished(plan, (text, 1), ("other", 1))
    assert text in [value["key0"] for value in values_of(result)]
    assert [60_000, text] in [json.loads(key) for key in result.keys]


def test_item_names_are_escaped_as_json() -> None:
    plan = replace(plan_of(), outputs=(Output('a "b"\n{}', COUNTS),))
    assert values_of(finished(plan, (5,)))[0]['a "b"\n{}'] == 5


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        (SIZE, 2**63 - 1, b"9223372036854775807"),
        (SIZE, None, b"null"),
        (Column("w", V.INTEGER), -(2**127), str(-(2**127)).encode()),
        (LOAD, 0.1, b"0.1"),
        (LOAD, 5.0, b"5.0"),
        (LOAD, float("nan"), b"null"),
        (LOAD, float("inf"), b"null"),
        (LOAD, None, b"null"),
        (OK, True, b"true"),
        (OK, False, b"false"),
        (OK, None, b"null"),
        (NAME, None, b"null"),
        (Column("t", V.TIMESTAMP), -1, b"-1"),
    ],
)
def test_values_of_each_type_are_json(key: Expression, value: object, text: bytes) -> None:
    result = finished(plan_of(key), (value, 1))
    assert result.keys == [b"[60000," + text + b"]"]
    assert b'"key0":' + text + b"," in result.values[0]


@pytest.mark.parametrize(
    "value", [1e16, 1e22, 1.7976931348623157e308, 5e-324, -1e-7, 2.0**53, 1 / 3]
)
def test_floats_read_back_as_the_same_number(value: float) -> None:
    result = finished(plan_of(LOAD), (value, 1))
    assert values_of(result)[0]["key0"] == value
    assert len(json.loads(result.keys[0])) == 2


def test_rows_are_sorted_by_key_with_null_last() -> None:
    plan = plan_of(NAME, SIZE)
    result = finished(plan, ("b", 1, 1), (None, 0, 1), ("a", None, 1), ("a", 10, 1), ("a", 9, 1))
    assert [json.loads(key)[1:] for key in result.keys] == [
        ["a", 9],
        ["a", 10],
        ["a", None],
        ["b", 1],
        [None, 0],
    ]


def test_order_and_limit_come_before_the_key() -> None:
    plan = replace(plan_of(NAME), order_by=(Order(COUNTS, descending=True),), limit=3)
    result = finished(plan, ("d", 1), ("c", 5), ("a", 2), ("b", 5))
    assert [value["key0"] for value in values_of(result)] == ["b", "c", "a"]


@pytest.mark.parametrize("descending", [False, True])
def test_nulls_come_last_in_both_directions(*, descending: bool) -> None:
    extreme = Aggregate("a0", A.MAX, SIZE, None, V.INT64)
    plan = replace(plan_of(NAME, aggregates=[extreme]), order_by=(Order(COUNTS, descending),))
    result = finished(plan, ("a", None), ("b", 1), ("c", 2))
    assert values_of(result)[-1]["key0"] == "a"


def test_having_keeps_groups_for_which_it_is_true() -> None:
    having = Call(Function.GREATER, (COUNTS, Literal(1, V.INT64)), V.BOOL)
    plan = replace(plan_of(NAME), having=having)
    assert [value["key0"] for value in values_of(finished(plan, ("a", 1), ("b", 2)))] == ["b"]


def test_items_may_be_expressions_over_aggregates_and_constants() -> None:
    plan = plan_of(NAME)
    twice = Output("twice", Call(Function.ADD, (COUNTS, COUNTS), V.INTEGER))
    plan = replace(plan, outputs=(twice, Output("one", Literal(1, V.INT64))))
    (value,) = values_of(finished(plan, ("a", 4)))
    assert (value["twice"], value["one"]) == (8, 1)


def test_window_without_groups_has_no_rows() -> None:
    assert finished(plan_of(NAME)) == Finished(MINUTE, [], [])


def test_rows_are_read_back() -> None:
    plan = plan_of(NAME, SIZE)
    (read,) = rows(plan, finished(plan, ("é", None, 2**40)))
    assert read == ResultRow(60_000, 120_000, ("é", None), ("é", None, 2**40))


# ----------------------------------------------------------------- groups over the limit


def folding(plan: Plan, **changes: object) -> Plan:
    """The plan with a limit on its groups; the states have the others' column behind the keys."""
    limited = replace(plan.options, max_keys=1, over_max_keys=OverMaxKeys.FOLD)
    return replace(plan, options=limited, **changes)  # type: ignore[arg-type]


def test_the_row_of_the_others_comes_last_and_can_be_told_apart() -> None:
    result = finished(
        folding(plan_of(NAME)), ("__other__", True, 7), ("z", False, 2), ("a", False, 3)
    )
    assert [(row["key0"], row["agg0"]) for row in values_of(result)] == [
        ("a", 3),
        ("z", 2),
        ("__other__", 7),
    ]
    assert result.part(others=True).keys == result.keys[2:] == [b'[60000,"__other__"]']
    assert result.part(others=False).values == result.values[:2]


def test_keys_that_are_no_text_are_null_in_the_row_of_the_others() -> None:
    result = finished(folding(plan_of(SIZE)), (5, False, 2), (None, True, 7))
    assert result.keys == [b"[60000,5]", b"[60000,null]"]
    assert result.others == 1


def test_having_order_and_limit_choose_among_groups_and_never_hide_the_others() -> None:
    many = Call(Function.GREATER, (COUNTS, Literal(5, V.INT64)), V.BOOL)
    plan = folding(plan_of(NAME), having=many, order_by=(Order(COUNTS, True),), limit=1)
    result = finished(
        plan, ("a", False, 8), ("b", False, 9), ("c", False, 1), ("__other__", True, 2)
    )
    assert [row["key0"] for row in values_of(result)] == ["b", "__other__"]


def test_without_groups_over_the_limit_no_row_is_of_the_others() -> None:
    result = finished(folding(plan_of(NAME)), ("a", False, 3))
    assert (len(result.keys), result.others) == (1, 0)
    assert result.part(others=True) == Finished(MINUTE, [], [])


# ---------------------------------------------------------------------------- too large for Kafka


def test_rows_that_kafka_does_not_take_are_withheld_and_the_others_sent() -> None:
    fits = b"v" * (RESULT_BYTES_MAX - 1)
    whole = Finished(MINUTE, [b"a", b"b", b"cc", b"d"], [b"1", fits, fits, b"2"], others=1)
    sent = whole.sendable()
    assert (sent.keys, sent.values, sent.others) == ([b"a", b"b", b"d"], [b"1", fits, b"2"], 1)
    assert sent.withheld == (Withheld(b"cc", RESULT_BYTES_MAX + 1),)
    assert sent.sendable().keys == sent.keys


def test_the_row_of_all_others_may_be_withheld() -> None:
    sent = Finished(MINUTE, [b"a", b"b"], [b"1", b"v" * RESULT_BYTES_MAX], others=1).sendable()
    assert (sent.keys, sent.others) == ([b"a"], 0)


def test_what_kafka_takes_is_sent_as_it_is() -> None:
    whole = Finished(MINUTE, [b"a", b"b"], [b"1", b"2"])
    assert whole.sendable() is whole
    assert Finished(MINUTE, [], []).sendable().withheld == ()


def test_a_withheld_result_is_told_with_the_begin_of_its_key() -> None:
    long = Withheld(b'[0,"' + "é".encode() * 500, 2_000_000)
    assert len(long.shown_key.encode()) <= 259
    assert long.shown_key.endswith("é...")
    assert long.shown_key in long.detail
    assert "2000000 bytes" in long.detail
    assert Withheld(b"[0]", 2_000_000).shown_key == "[0]"


def test_a_retraction_has_the_key_and_no_items() -> None:
    long = (Withheld(b'[60000,"a"]', 2_000_000), Withheld(b"k" * 1_000_000, 2_000_000))
    taken_back = retractions(plan_of(NAME), MINUTE, long)
    assert taken_back.keys == [b'[60000,"a"]']
    assert values_of(taken_back) == [
        {"window_start": 60_000, "window_end": 120_000, "key0": None, "agg0": None}
    ]


def test_where_windows_begin_together_the_key_ends_with_the_end_of_its_own() -> None:
    # [0, 60) and [0, 120) s: the same start and group, and two keys
    plan = replace(plan_of(NAME), window=Cumulating(120_000, 60_000))
    frame = pl.DataFrame([(0, "é", 3)], schema=state_schema(plan), orient="row")

    keys = []
    for window in (Window(60_000, 0), Window(120_000, 0)):
        result = finish(plan, frame, window)
        keys += result.keys
        (read,) = rows(plan, result)
        assert (read.window_end_ms, read.key) == (window.end_ms, ("é",))

    assert keys == ['[0,"é",60000]'.encode(), '[0,"é",120000]'.encode()]
