"""Whoever adds an aggregate or a function is told what of it is missing."""

from __future__ import annotations

from mars.core.plan import AggregateFunction, Function
from mars.engine import evaluate
from mars.engine.aggregates import states
from mars.sql.examples import AGGREGATES
from mars.sql.reference import _plan as plan_of


def test_what_queries_may_ask_for_can_be_computed() -> None:
    assert set(states._BUILDERS) == set(AggregateFunction)
    assert set(evaluate._BUILDERS) == set(Function)


def test_each_aggregate_has_an_example() -> None:
    plans = [plan_of(example) for forms in AGGREGATES.values() for example in forms]
    shown = {one.function for plan in plans for one in plan.aggregates}
    assert shown >= set(AggregateFunction)
