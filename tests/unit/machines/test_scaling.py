"""How many members are asked for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mars.machines.scaling import Demand, ScaleLimits, wanted

LIMITS = ScaleLimits(low=0.30, high=0.75, target=0.55)


def shared(whole: float, members: int) -> list[Demand]:
    return [Demand(whole / members)] * members


def test_between_the_bounds_everything_stays() -> None:
    asked = wanted("reducer", [Demand(0.7), Demand(0.4)], 8, LIMITS)

    assert (asked.present, asked.wanted) == (2, 2)
    assert asked.reason == "mean load 55%"


def test_above_the_upper_bound_as_many_are_wanted_as_bring_the_mean_to_the_target() -> None:
    asked = wanted("reducer", [Demand(0.95), Demand(0.90)], 8, LIMITS)

    assert asked.wanted == 4
    assert asked.reason == "mean load 92% is above 30% to 75%: 4 bring it to 55%"


def test_below_the_lower_bound_fewer_will_do_but_never_none() -> None:
    assert wanted("mapper", [Demand(0.1)] * 6, 8, LIMITS).wanted == 2
    assert wanted("mapper", [Demand(0.0)], 8, LIMITS).wanted == 1


def test_no_more_are_wanted_than_can_have_work() -> None:
    asked = wanted("mapper", [Demand(1.0)] * 4, 4, LIMITS)

    assert asked.wanted == 4
    assert "4 are of use at most" in asked.reason


def test_a_growing_backlog_counts_as_load_so_that_the_number_is_found_at_once() -> None:
    """A member that is full shows no more than a full processor; what it leaves lying shows."""
    saturated = Demand(use=1.0, done=1_000, growth=2_000, backlog=0)

    assert saturated.whole == 3.0
    assert wanted("mapper", [saturated], 16, LIMITS).wanted == 6


def test_a_backlog_is_worked_off_within_a_minute() -> None:
    assert Demand(use=0.5, done=1_000, backlog=60_000).whole == 1.0


def test_whoever_does_nothing_is_not_overloaded() -> None:
    assert Demand(use=0.01, done=0, growth=10, backlog=10**9).whole == 0.01


@given(whole=st.floats(0, 50), members=st.integers(1, 100), most=st.integers(1, 100))
def test_one_step_is_enough(whole: float, members: int, most: int) -> None:
    first = wanted("reducer", shared(whole, members), most, LIMITS).wanted

    again = wanted("reducer", shared(whole, first), most, LIMITS).wanted

    assert again == first
