"""Whoever adds an aggregate or a function is told what of it is missing."""

from __future__ import annotations

import pytest

from mars.core.plan import AggregateFunction, Function
from mars.engine import evaluate
from mars.engine.aggregates import states
from mars.sql.examples import AGGREGATES, SPELLINGS
from mars.sql.reference import _plan as plan_of


def test_what_queries_may_ask_for_can_be_computed() -> None:
    assert set(states._BUILDERS) == set(AggregateFunction)
    assert set(evaluate._BUILDERS) == set(Function)


@pytest.mark.parametrize(("one", "other"), SPELLINGS.items())
def test_other_spellings_mean_the_same(one: str, other: str) -> None:
    found, meant = (plan_of("count(*)", f"WHERE {each} WINDOWING 60 s") for each in (one, other))
    assert found.filter is not None
    assert found.filter == meant.filter


def test_each_aggregate_has_an_example() -> None:
    plans = [plan_of(example) for forms in AGGREGATES.values() for example in forms]
    shown = {one.function for plan in plans for one in plan.aggregates}
    assert shown >= set(AggregateFunction)
