"""Many things in portions that are not too large."""

from __future__ import annotations

from mars.core.portions import portions


def itself(weight: int) -> int:
    return weight


def one(_weight: int) -> int:
    return 1


def test_a_portion_takes_what_goes_and_a_heavy_thing_goes_alone() -> None:
    assert list(portions([3, 3, 4, 11, 1], (itself, 10))) == [[3, 3, 4], [11], [1]]


def test_each_limit_holds() -> None:
    assert list(portions([1, 1, 1, 9, 2], (itself, 10), (one, 2))) == [[1, 1], [1, 9], [2]]


def test_of_nothing_there_is_none() -> None:
    assert list(portions([], (itself, 10))) == []
