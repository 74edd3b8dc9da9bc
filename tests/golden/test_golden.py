"""Every golden case, here and in DuckDB, whole and cut into pieces."""

from __future__ import annotations

import random
from collections.abc import Iterator

import duckdb
import pytest

from mars.core.plan import Plan
from mars.core.types import Mapped
from tests.golden.golden_cases import (
    Case,
    case_names,
    differences,
    mapped,
    oracle_results,
    read_case,
    records_of,
    results,
)
from tests.golden.reduced import reduced

CUTS = 2
"""Random ways in which each case is cut."""

RUNS = 3
"""Random runs of each case through a reducer."""


@pytest.fixture(params=case_names())
def case(request: pytest.FixtureRequest) -> Case:
    return read_case(request.param)


@pytest.fixture(scope="module")
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(config={"threads": 1}) as connection:
        yield connection


def test_case_has_the_expected_rows_in_order(case: Case) -> None:
    plan = case.plan()
    found = results(plan, [mapped(case, plan, records_of(case.messages), buckets=1)])
    assert not differences(found, case.expected, ordered=True)


def test_case_has_the_rows_that_duckdb_computes(
    case: Case, duck: duckdb.DuckDBPyConnection
) -> None:
    assert not differences(oracle_results(duck, case, case.plan()), case.expected)


def test_case_is_the_same_in_any_batches_buckets_and_order(case: Case) -> None:
    plan = case.plan()
    chance = random.Random(case.sql)
    for _ in range(CUTS):
        batches = list(cut_at_random(case, plan, chance))
        chance.shuffle(batches)
        found = results(plan, batches, one_by_one=chance.random() < 0.5)
        assert not differences(found, case.expected)


def test_case_is_the_same_through_a_reducer_that_is_replaced_with_no_row_late(case: Case) -> None:
    chance = random.Random(f"reduced {case.sql}")
    for _ in range(RUNS):
        found, ledgers = reduced(case, chance)
        found.sort(key=lambda row: row["window_start"])
        assert not differences(found, case.expected, ordered=case.plan().single_bucket)
        assert not any(one.late or one.late_partly or one.open for one in ledgers)


def cut_at_random(case: Case, plan: Plan, chance: random.Random) -> Iterator[Mapped]:
    """The messages dealt to three lanes, each of which is cut into batches of 1 to 6."""
    buckets = chance.randint(1, 8)
    lanes: dict[str, list[bytes]] = {"0": [], "1": [], "f@b1": []}
    for message in case.messages:
        lanes[chance.choice(list(lanes))].append(message)
    for lane, messages in lanes.items():
        first = 0
        while first < len(messages):
            size = chance.randint(1, 6)
            batch = records_of(messages[first : first + size], lane, first)
            yield mapped(case, plan, batch, buckets)
            first += size
