"""Every case in Mars, against the rows that Flink SQL computed for the same text."""

from __future__ import annotations

import random

import pytest

from tests.golden.flink.flink_cases import RESULTS, FlinkCase, flink_cases, saved, without
from tests.golden.golden_cases import Row, differences, mapped, records_of, results
from tests.golden.reduced import reduced

CASES = flink_cases()
DEPARTURES = [case for case in CASES.values() if case.differs]
OF_PANES = [case for case in CASES.values() if "SESSION" not in case.sql]
"""Windows that the kernel finds; sessions are found by reducers."""

RUNS = 3
"""Random runs of each case through a reducer."""


def name_of(case: FlinkCase) -> str:
    return case.name


def emitted(case: FlinkCase, sql: str, chance: random.Random) -> list[Row]:
    found, ledgers = reduced(case.run_by(sql), chance)
    assert not any(one.late or one.late_partly or one.open for one in ledgers)
    return found


def test_results_are_saved_of_the_cases_as_they_are() -> None:
    again = "run python -m tests.golden.flink.generate"
    assert {path.stem for path in RESULTS.iterdir()} == CASES.keys(), again
    stale = [case.name for case in CASES.values() if saved(case)[0]["of"] != case.digest]
    assert not stale, again


@pytest.mark.parametrize("case", CASES.values(), ids=name_of)
def test_case_has_the_rows_that_flink_computed_through_a_reducer_that_is_replaced(
    case: FlinkCase,
) -> None:
    chance = random.Random(f"flink {case.name}")
    wanted = without(case.but, saved(case)[1])
    assert wanted
    for _ in range(RUNS):
        found = emitted(case, case.mars_sql, chance)
        assert not differences(without(case.but, found), wanted)


@pytest.mark.parametrize("case", OF_PANES, ids=name_of)
def test_case_has_the_rows_that_flink_computed_in_one_batch(case: FlinkCase) -> None:
    own = case.run_by(case.mars_sql)
    plan = own.plan()
    found = results(plan, [mapped(own, plan, records_of(own.messages), buckets=1)])
    assert not differences(without(case.but, found), without(case.but, saved(case)[1]))


@pytest.mark.parametrize("case", DEPARTURES, ids=name_of)
def test_departure_is_one(case: FlinkCase) -> None:
    found = emitted(case, case.sql, random.Random(case.name))
    assert differences(found, saved(case)[1])
