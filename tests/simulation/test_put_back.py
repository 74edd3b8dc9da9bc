"""Bugs of the past that are put back are seen in the usual mix, first by these seeds."""

from __future__ import annotations

import pytest

from tests.simulation import put_back
from tests.simulation.conditions import USUAL


@pytest.mark.parametrize(
    ("name", "seed", "breaks"),
    [
        ("versions_know_the_newest_bound_alone", 88, "I1: never emitted: "),
        ("former_leaders_are_heeded", 631, "I2: "),
        ("one_abort_settles_a_place", 67, "I1: no row, but what settles aborts"),
    ],
)
def test_a_bug_that_is_put_back_is_seen(name: str, seed: int, breaks: str) -> None:
    with put_back.Patch.context() as patch:
        put_back.BUGS[name](patch)
        problem = USUAL.problem(seed)

    assert problem is not None
    assert problem.startswith(breaks)
    assert USUAL.problem(seed) is None


@pytest.mark.parametrize(
    "arguments",
    [[], ["x"], ["one_abort_settles_a_place", "x"], ["one_abort_settles_a_place", "1", "2", "3"]],
)
def test_wrong_call_is_told(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert put_back.main(arguments) == 2
    assert capsys.readouterr().err == put_back.USAGE
