"""Bugs of the past that are put back are seen in the usual mix.

`first` is the first seed of all that showed it when this was written. Where a change of the code
gives runs other steps, `python -m tests.simulation.put_back NAME` finds the one that does now.
"""

from __future__ import annotations

import pytest

from tests.simulation import put_back
from tests.simulation.conditions import USUAL

SEEDS = 60


@pytest.mark.parametrize(
    ("name", "first", "breaks"),
    [
        ("versions_know_the_newest_bound_alone", 34, ("I1: ", "I2: ")),
        ("former_leaders_are_heeded", 1071, ("I1: ", "I2: ", "ZooKeeper is whole, and lacks")),
        ("one_abort_settles_a_place", 247, ("I1: no row, but", "I6: no reference, but")),
        ("versions_between_others_are_forgotten", 56, "I1: "),
    ],
)
def test_a_bug_that_is_put_back_is_seen(
    name: str, first: int, breaks: str | tuple[str, ...]
) -> None:
    with put_back.Patch.context() as patch:
        put_back.BUGS[name](patch)
        problems = ((seed, USUAL.problem(seed)) for seed in range(first, first + SEEDS))
        seed, problem = next((one for one in problems if one[1] is not None), (first, None))

    assert problem is not None, f"none of {SEEDS} seeds shows it"
    assert problem.startswith(breaks)
    assert USUAL.problem(seed) is None


@pytest.mark.parametrize(
    "arguments",
    [[], ["x"], ["one_abort_settles_a_place", "x"], ["one_abort_settles_a_place", "1", "2", "3"]],
)
def test_wrong_call_is_told(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert put_back.main(arguments) == 2
    assert capsys.readouterr().err == put_back.USAGE
