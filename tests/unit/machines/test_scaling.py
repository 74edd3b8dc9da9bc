"""How many members are asked for."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from mars.protocol.balance.scaling import OVERLOAD_MAX, Demand, ScaleLimits, needs, wanted

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
    assert "more than 4 would be of no use" in asked.reason


def test_a_growing_backlog_counts_as_load_so_that_the_number_is_found_at_once() -> None:
    """A member that is full shows no more than a full processor; what it leaves lying shows."""
    saturated = Demand(use=1.0, done=1_000, growth=2_000, backlog=0)

    assert needs([saturated]) == [3.0]
    assert wanted("mapper", [saturated], 16, LIMITS).wanted == 6


def test_a_backlog_is_worked_off_within_a_minute() -> None:
    assert needs([Demand(use=0.5, done=1_000, backlog=60_000)]) == [1.0]


def test_whoever_does_nothing_is_not_overloaded() -> None:
    assert needs([Demand(use=0.01, done=0, growth=10, backlog=10**9)]) == [0.01]


def test_what_one_gives_and_another_takes_over_with_its_backlog_is_no_growth() -> None:
    calm = [Demand(0.5, 1_000), Demand(0.5, 1_000)]
    handed_over = [Demand(0.5, 1_000, growth=3_000), Demand(0.5, 1_000, growth=-3_000)]

    assert needs(handed_over) == needs(calm)
    assert wanted("reducer", handed_over, 64, LIMITS) == wanted("reducer", calm, 64, LIMITS)


def test_a_backlog_that_grows_at_one_and_shrinks_at_another_grows_by_the_difference() -> None:
    assert needs([Demand(0.5, 1_000, 3_000), Demand(0.5, 1_000, -1_000)]) == [1.5, 0.5]


def test_an_overload_counts_up_to_a_factor() -> None:
    assert needs([Demand(1.0, 1, backlog=10**9)]) == [OVERLOAD_MAX]


def test_one_hot_bucket_asks_for_no_reducers_that_would_have_nothing_to_take_over() -> None:
    hot = Demand(1.0, 1_000, growth=1_000, backlog=10**7, parts=1.0)

    asked = wanted("reducer", [hot], 64, LIMITS)
    with_assistants = wanted("reducer", [replace(hot, parts=5.0)], 64, LIMITS)
    even = wanted("reducer", [replace(hot, parts=64.0)], 64, LIMITS)

    assert asked.wanted == 1
    assert asked.reason == "mean load 1600%, and more than 1 would be of no use"
    assert with_assistants.wanted == 5
    assert (
        with_assistants.reason == "mean load 1600% is above 30% to 75%: 5 share what can be shared"
    )
    assert even.wanted == 30


def test_beside_one_that_cannot_share_the_others_ask_for_what_they_need() -> None:
    hot = Demand(1.0, 1_000, backlog=10**6, parts=1.0)

    assert wanted("reducer", [hot, Demand(0.9), Demand(0.9)], 64, LIMITS).wanted == 5


def test_mappers_that_are_held_back_are_told_of() -> None:
    held = Demand(0.4, 1_000, held_back=True)

    asked = wanted("mapper", [held, Demand(0.5, 1_000)], 8, LIMITS)

    assert asked.wanted == 2
    assert asked.reason == (
        "mean load 45%; 1 of 2 are held back: what lies ahead of them does not count"
    )


@given(whole=st.floats(0, 50), members=st.integers(1, 100), most=st.integers(1, 100))
def test_one_step_is_enough(whole: float, members: int, most: int) -> None:
    first = wanted("reducer", shared(whole, members), most, LIMITS).wanted

    again = wanted("reducer", shared(whole, first), most, LIMITS).wanted

    assert again == first
