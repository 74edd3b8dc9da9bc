"""Values of each aggregate over small groups, also cut in two and merged."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
import pytest

from mars.core.errors import TaskLimit
from mars.core.plan import Aggregate, AggregateFunction, Column, ValueType
from mars.core.windows import Sliding, Window
from mars.engine.aggregates import (
    DISTINCT_VALUES_MAX,
    ROWS,
    finish,
    lift,
    merge,
    merge_panes,
    stacked,
    state_schema,
)
from mars.engine.aggregates.states import STACKED_MAX
from mars.engine.evaluate.values import dtype_of
from tests.unit.codec.samples import COUNT, NAME, plan_of

A = AggregateFunction
V = ValueType
NAN, INFINITY = float("nan"), float("inf")


def value_of(function: A, values: Sequence[object], kind: V, *, cut: int | None = None) -> object:
    """The aggregate of `values`; with `cut`, of two batches that are merged."""
    aggregate = Aggregate("a0", function, Column("x", kind), None, V.INT64)
    plan = plan_of(aggregates=[aggregate])
    parts = [values] if cut is None else [values[:cut], values[cut:]]
    frames = []
    for part in parts:
        rows = pl.DataFrame({"pane": pl.Series([0] * len(part), dtype=pl.Int64)}).with_columns(
            pl.Series("v0", part, dtype=dtype_of(kind))
        )
        frames.append(lift(plan, rows, ["v0"], ["pane"]).drop(ROWS))
    states = merge(plan, frames)
    assert states.schema == state_schema(plan)
    (found,) = finish(plan, states).get_column("a0").to_list()
    return found


CASES: list[tuple[A, V, list[object], object]] = [
    (A.COUNT, V.INT64, [1, None, 2], 2),
    (A.COUNT, V.STRING, [None, None], 0),
    (A.COUNT_IF, V.BOOL, [True, None, False, True], 2),
    (A.COUNT_DISTINCT, V.INT64, [1, 1, None, 2], 2),
    (A.COUNT_DISTINCT, V.STRING, ["a", "b", "a"], 2),
    (A.COUNT_DISTINCT, V.FLOAT64, [0.0, -0.0, NAN, -NAN, None], 2),
    (A.COUNT_DISTINCT, V.BOOL, [None, None], 0),
    (A.COUNT_DISTINCT, V.INTEGER, [2**100, 2**100, 1], 2),
    (A.SUM, V.INT64, [1, None, 2], 3),
    (A.SUM, V.INT64, [None, None], None),
    (A.SUM, V.INT64, [2**63 - 1] * 4, 4 * (2**63 - 1)),
    (A.SUM, V.INT64, [-(2**63)] * 3, -3 * 2**63),
    (A.SUM, V.INTEGER, [2**126, -(2**126), 5, -7], -2),
    (A.SUM, V.INTEGER, [2**126, 2**126 - 1], 2**127 - 1),
    (A.SUM, V.INTEGER, [2**126, 2**126, 2**126, -(2**126), -(2**126)], 2**126),
    (A.SUM, V.INTEGER, [2**126, 2**126], None),
    (A.SUM, V.INTEGER, [-(2**126), -(2**126)], -(2**127)),
    (A.SUM, V.INTEGER, [None, None], None),
    (A.SUM, V.FLOAT64, [0.5, None, 0.25], 0.75),
    (A.SUM, V.FLOAT64, [INFINITY, 1.0], INFINITY),
    (A.SUM, V.FLOAT64, [None, None], None),
    (A.AVG, V.INT64, [1, None, 2], 1.5),
    (A.AVG, V.INT64, [2**63 - 1, 2**63 - 1], float(2**63 - 1)),
    (A.AVG, V.INTEGER, [2**126, 2**126, 2**126], float(2**126)),
    (A.AVG, V.INTEGER, [-25], -25.0),
    (A.AVG, V.INTEGER, [3, None, -(2**64), 1], -6148914691236517204.0),
    (A.AVG, V.INTEGER, [-(2**126), -(2**126), -(2**126)], -float(2**126)),
    (A.AVG, V.FLOAT64, [1.0, 2.0], 1.5),
    (A.AVG, V.FLOAT64, [None, None], None),
    (A.MIN, V.INT64, [3, None, -2], -2),
    (A.MAX, V.INT64, [3, None, -2], 3),
    (A.MIN, V.INTEGER, [2**100, -(2**100)], -(2**100)),
    (A.MAX, V.INTEGER, [2**100, -(2**100)], 2**100),
    (A.MIN, V.STRING, ["b", "", None], ""),
    (A.MAX, V.STRING, ["é", "z", None], "é"),
    (A.MIN, V.BOOL, [True, None], True),
    (A.MAX, V.BOOL, [False, True], True),
    (A.MIN, V.FLOAT64, [NAN, 1.0, None], 1.0),
    (A.MAX, V.FLOAT64, [1.0, INFINITY, None], INFINITY),
    (A.MIN, V.FLOAT64, [None, None], None),
    (A.ANY_VALUE, V.STRING, ["b", "a", None], "a"),
    (A.BOOL_AND, V.BOOL, [True, None, True], True),
    (A.BOOL_AND, V.BOOL, [True, False], False),
    (A.BOOL_OR, V.BOOL, [False, None], False),
    (A.BOOL_OR, V.BOOL, [None, None], None),
    (A.VAR_SAMP, V.INT64, [1, 3], 2.0),
    (A.VAR_SAMP, V.INT64, [1, None], None),
    (A.VAR_POP, V.INT64, [1, 3], 1.0),
    (A.VAR_POP, V.INT64, [5, None], 0.0),
    (A.VAR_POP, V.INT64, [None, None], None),
    (A.STDDEV_SAMP, V.FLOAT64, [1.0, 2.0, 3.0], 1.0),
    (A.STDDEV_POP, V.FLOAT64, [1.0, 3.0], 1.0),
    (A.STDDEV_POP, V.INTEGER, [1, 3], 1.0),
]


@pytest.mark.parametrize(("function", "kind", "values", "expected"), CASES)
def test_value_of_a_group_however_it_is_cut(
    function: A, kind: V, values: list[object], expected: object
) -> None:
    assert value_of(function, values, kind) == expected
    for cut in range(len(values) + 1):
        found = value_of(function, values, kind, cut=cut)
        close = pytest.approx(expected, rel=1e-12) if isinstance(expected, float) else expected
        assert found == close


@pytest.mark.parametrize("values", [[NAN, 1.0], [1.0, NAN], [NAN, NAN]])
def test_nan_is_the_greatest_number(values: list[float]) -> None:
    for cut in (None, 1):
        found = value_of(A.MAX, values, V.FLOAT64, cut=cut)
        assert isinstance(found, float)
        assert found != found  # noqa: PLR0124 -- NaN


@pytest.mark.parametrize("function", [A.MIN, A.MAX, A.ANY_VALUE])
@pytest.mark.parametrize("values", [[0.0, -0.0], [-0.0, 0.0], [-0.0]])
def test_zeros_of_both_signs_give_the_same_bits(function: A, values: list[float]) -> None:
    assert str(value_of(function, values, V.FLOAT64)) == "0.0"


def test_variance_keeps_its_digits_where_the_mean_is_large() -> None:
    values: list[object] = [1e9 + at * 1e-3 for at in range(100)]
    expected = value_of(A.VAR_POP, [at * 1e-3 for at in range(100)], V.FLOAT64)
    for cut in (None, 1, 50, 99):
        found = value_of(A.VAR_POP, values, V.FLOAT64, cut=cut)
        assert found == pytest.approx(expected, rel=1e-4)


def test_infinite_values_make_the_variance_nan() -> None:
    found = value_of(A.VAR_POP, [INFINITY, 1.0, 2.0], V.FLOAT64, cut=2)
    assert isinstance(found, float)
    assert found != found  # noqa: PLR0124 -- NaN


def test_count_of_all_rows_counts_nulls_and_a_filtered_one_the_true_rows() -> None:
    rows = pl.DataFrame({"pane": [0, 0, 0], "v0": [True, None, False]})
    plain = plan_of(aggregates=[COUNT])
    assert finish(plain, lift(plain, rows, ["pane"], ["pane"])).item() == 3
    only = Aggregate("a0", A.COUNT_ALL, None, Column("ok", V.BOOL), V.INT64)
    filtered = plan_of(aggregates=[only])
    assert finish(filtered, lift(filtered, rows, ["v0"], ["pane"])).item() == 1


def test_too_many_distinct_values_are_refused_by_name() -> None:
    with pytest.raises(TaskLimit, match="count\\(DISTINCT\\)"):
        value_of(A.COUNT_DISTINCT, list(range(DISTINCT_VALUES_MAX + 1)), V.INT64)
    half = DISTINCT_VALUES_MAX // 2 + 1
    with pytest.raises(TaskLimit, match="count\\(DISTINCT\\)"):
        value_of(A.COUNT_DISTINCT, list(range(2 * half)), V.INT64, cut=half)


def test_merge_of_nothing_is_a_frame_without_rows() -> None:
    plan = plan_of(NAME)
    assert merge(plan, []).schema == state_schema(plan)


def test_groups_are_told_apart_by_pane_and_key_and_null_is_a_key() -> None:
    plan = plan_of(NAME)
    schema = state_schema(plan)
    one = pl.DataFrame({"pane": [0, 0, 60], "k0": ["a", None, "a"], "a0_n": [1, 2, 3]}, schema)
    other = pl.DataFrame({"pane": [60, 0], "k0": ["a", None], "a0_n": [10, 20]}, schema)
    assert merge(plan, [one, other]).rows() == [(0, "a", 1), (0, None, 22), (60, "a", 13)]


def test_window_is_merged_from_its_panes() -> None:
    # panes    0    10    20    30         window [10, 30)
    plan = plan_of(NAME, window=Sliding(20, 10))
    frame = pl.DataFrame(
        {"pane": [0, 10, 20, 20, 30], "k0": ["a", "a", "a", "b", "a"], "a0_n": [1, 2, 4, 8, 16]},
        state_schema(plan),
    )
    assert merge_panes(plan, frame, Window(30, 10)).rows() == [(10, "a", 6), (10, "b", 8)]


@pytest.mark.parametrize("count", [1, 2, STACKED_MAX, STACKED_MAX + 1])
def test_frames_are_stacked_as_polars_concatenates_them(count: int) -> None:
    """In their order, and what was given stays as it is."""
    frames = [pl.DataFrame({"a": [number, None], "b": [[number], []]}) for number in range(count)]
    whole = stacked(frames)
    assert whole.equals(pl.concat(frames))
    assert whole.n_chunks() == count
    assert [frame.height for frame in frames] == [2] * count
