"""The laws of the aggregates, on random groups cut at random."""

from __future__ import annotations

import math
from collections.abc import Sequence

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mars.core.plan import Aggregate, AggregateFunction, Column, Plan, ValueType
from mars.engine.aggregates import ROWS, finish, lift, merge, state_schema
from mars.engine.aggregates.runs import Runs
from mars.engine.evaluate.values import dtype_of
from tests.unit.codec.samples import NAME, plan_of

A = AggregateFunction
V = ValueType

QUICK = settings(max_examples=12)
"""Each law is tried for some fifty aggregates and types, with as many examples each."""

VALUES: dict[V, st.SearchStrategy[object]] = {
    V.INT64: st.one_of(st.integers(-3, 3), st.integers(-(2**63), 2**63 - 1)),
    V.INTEGER: st.one_of(st.integers(-3, 3), st.integers(-(2**127), 2**127 - 1)),
    V.FLOAT64: st.one_of(st.sampled_from([0.0, -0.0, 1.5, math.nan]), st.floats(-1e9, 1e9)),
    V.STRING: st.text(st.sampled_from("abé\0"), max_size=3),
    V.BOOL: st.booleans(),
    V.TIMESTAMP: st.integers(-(2**40), 2**40),
}
NUMBERS = [V.INT64, V.INTEGER, V.FLOAT64]
EVERYTHING = list(VALUES)

EXACT = [
    *((A.COUNT, kind) for kind in EVERYTHING),
    *((A.COUNT_DISTINCT, kind) for kind in EVERYTHING),
    *((function, kind) for function in (A.MIN, A.MAX, A.ANY_VALUE) for kind in EVERYTHING),
    (A.COUNT_IF, V.BOOL),
    (A.BOOL_AND, V.BOOL),
    (A.BOOL_OR, V.BOOL),
    (A.SUM, V.INT64),
    (A.SUM, V.INTEGER),
    (A.AVG, V.INT64),
    (A.AVG, V.INTEGER),
]
ROUNDED = [
    (A.SUM, V.FLOAT64),
    (A.AVG, V.FLOAT64),
    *(
        (function, kind)
        for function in (A.VAR_SAMP, A.VAR_POP, A.STDDEV_SAMP, A.STDDEV_POP)
        for kind in NUMBERS
    ),
]

Rows = list[tuple[str | None, object]]


def plan_for(function: A, kind: V) -> Plan:
    return plan_of(NAME, aggregates=[Aggregate("a0", function, Column("x", kind), None, V.INT64)])


def rows_of(kind: V, *, finite: bool = False) -> st.SearchStrategy[Rows]:
    values = VALUES[kind]
    if finite and kind is V.FLOAT64:
        values = st.floats(-1e6, 1e6)
    row = st.tuples(st.sampled_from(["a", "b", None]), st.one_of(st.none(), values))
    return st.lists(row, max_size=12)


def lifted(
    plan: Plan, kind: V, rows: Sequence[tuple[str | None, object]], *, in_runs: bool = False
) -> pl.DataFrame:
    frame = pl.DataFrame(
        {
            "pane": pl.Series([0] * len(rows), dtype=pl.Int64),
            "k0": pl.Series([key for key, _ in rows], dtype=pl.String),
            "v0": pl.Series([value for _, value in rows], dtype=dtype_of(kind)),
        }
    )
    groups = ["pane", "k0"]
    runs = Runs.of(frame.select(groups)) if in_runs else None
    return lift(plan, frame, ["v0"], groups, runs).drop(ROWS).cast(pl.Schema(state_schema(plan)))


def canonical(plan: Plan, states: pl.DataFrame) -> list[str]:
    """States as texts, in an order of their own."""
    return sorted(map(repr, states.select(state_schema(plan).names()).rows()))


@pytest.mark.parametrize(("function", "kind"), EXACT)
@QUICK
@given(data=st.data())
def test_states_do_not_depend_on_cut_or_order(function: A, kind: V, data: st.DataObject) -> None:
    plan = plan_for(function, kind)
    rows = data.draw(rows_of(kind))
    cuts = sorted(data.draw(st.tuples(*[st.integers(0, len(rows))] * 2)))
    parts = [rows[: cuts[0]], rows[cuts[0] : cuts[1]], rows[cuts[1] :]]
    x, y, z = (lifted(plan, kind, part) for part in parts)
    whole = canonical(plan, lifted(plan, kind, rows))
    assert canonical(plan, merge(plan, [x, y, z])) == whole
    assert canonical(plan, merge(plan, [z, x, y])) == whole
    assert canonical(plan, merge(plan, [x, merge(plan, [y, z])])) == whole
    assert canonical(plan, merge(plan, [merge(plan, [x, y]), z])) == whole
    assert canonical(plan, merge(plan, [merge(plan, [x, y, z]), lifted(plan, kind, [])])) == whole


@pytest.mark.parametrize(("function", "kind"), ROUNDED)
@QUICK
@given(data=st.data())
def test_values_do_not_depend_on_cut_or_order_but_for_rounding(
    function: A, kind: V, data: st.DataObject
) -> None:
    plan = plan_for(function, kind)
    rows = data.draw(rows_of(kind, finite=True))
    cut = data.draw(st.integers(0, len(rows)))
    x, y = lifted(plan, kind, rows[:cut]), lifted(plan, kind, rows[cut:])
    whole = values_of(plan, lifted(plan, kind, rows))
    scale = max((abs(float(v)) for _, v in rows if isinstance(v, int | float)), default=0.0)
    for merged in (merge(plan, [x, y]), merge(plan, [y, x]), merge(plan, [merge(plan, [y]), x])):
        found = values_of(plan, merged)
        assert found.keys() == whole.keys()
        for key, value in whole.items():
            assert close(function, found[key], value, scale), (key, found[key], value)


@pytest.mark.parametrize(("function", "kind"), EXACT)
@QUICK
@given(data=st.data())
def test_rows_in_runs_have_the_same_states(function: A, kind: V, data: st.DataObject) -> None:
    plan = plan_for(function, kind)
    rows = data.draw(rows_of(kind))
    assert lifted(plan, kind, rows, in_runs=True).equals(lifted(plan, kind, rows))


@pytest.mark.parametrize(("function", "kind"), ROUNDED)
@QUICK
@given(data=st.data())
def test_rows_in_runs_have_the_same_values_but_for_rounding(
    function: A, kind: V, data: st.DataObject
) -> None:
    plan = plan_for(function, kind)
    rows = data.draw(rows_of(kind, finite=True))
    found = values_of(plan, lifted(plan, kind, rows, in_runs=True))
    expected = values_of(plan, lifted(plan, kind, rows))
    scale = max((abs(float(v)) for _, v in rows if isinstance(v, int | float)), default=0.0)
    assert list(found) == list(expected)
    assert all(close(function, found[key], expected[key], scale) for key in found)


def values_of(plan: Plan, states: pl.DataFrame) -> dict[object, float | None]:
    return dict(finish(plan, states).select("k0", "a0").rows())


def close(function: A, found: float | None, expected: float | None, scale: float) -> bool:
    """Equal to rounding: errors grow with the values (squared for a variance), not the result."""
    if found is None or expected is None:
        return found is expected
    error = 1e-12 * scale
    if function in {A.VAR_SAMP, A.VAR_POP}:
        error *= scale
    if function in {A.STDDEV_SAMP, A.STDDEV_POP}:
        return abs(found**2 - expected**2) <= 1e-9 * expected**2 + error * scale
    return abs(found - expected) <= 1e-9 * abs(expected) + error


def reference(function: A, values: list[object]) -> object:
    """Exact aggregates in plain Python."""
    present = [value for value in values if value is not None]
    match function:
        case A.COUNT:
            return len(present)
        case A.SUM if not present:
            return None
        case A.SUM:
            total = sum(value for value in present if isinstance(value, int))
            return total if -(2**127) <= total < 2**127 else None
        case A.COUNT_DISTINCT:
            return len(set(present))
        case A.MIN:
            return min(present, default=None)  # type: ignore[type-var]
        case _:
            return max(present, default=None)  # type: ignore[type-var]


@pytest.mark.parametrize("kind", [V.INT64, V.INTEGER])
@pytest.mark.parametrize("function", [A.COUNT, A.SUM, A.MIN, A.MAX, A.COUNT_DISTINCT])
@QUICK
@given(data=st.data())
def test_integer_aggregates_are_exact(function: A, kind: V, data: st.DataObject) -> None:
    plan = plan_for(function, kind)
    rows = data.draw(rows_of(kind))
    cut = data.draw(st.integers(0, len(rows)))
    states = merge(plan, [lifted(plan, kind, rows[:cut]), lifted(plan, kind, rows[cut:])])
    expected = {
        key: reference(function, [value for own, value in rows if own == key])
        for key in {key for key, _ in rows}
    }
    assert dict(finish(plan, states).select("k0", "a0").rows()) == expected
