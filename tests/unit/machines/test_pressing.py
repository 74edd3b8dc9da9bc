"""Relief of reducers whose backlog fills, and the way back."""

from __future__ import annotations

from dataclasses import replace

from mars.core.types import Bucket, MemberId
from mars.protocol.balance.placement import ReducerLoad
from mars.protocol.balance.relief import Loan, PressLimits, pressure, relieve, restore
from tests.unit.machines.loads import bucket_load, reducer

LIMITS = PressLimits(high=0.8, low=0.5, use_high=0.75)
A, B, C = (MemberId(name) for name in "abc")


def pressed(queue: float = 0.9, growth: float = 0.05) -> ReducerLoad:
    """Bucket 1 has most unread, bucket 0 costs most."""
    buckets = {Bucket(0): bucket_load(0, 0.5, 10), Bucket(1): bucket_load(1, 0.2, 900)}
    return reducer({0: 0.5, 1: 0.2}, queue=queue, growth=growth, buckets=buckets)


def test_pressure_rises_with_the_backlog_and_its_growth_and_falls_with_bandwidth() -> None:
    calm = pressure(reducer({0: 0.1}, queue=0.2))

    assert pressure(reducer({0: 0.1}, queue=0.9)) > calm
    assert pressure(reducer({0: 0.1}, queue=0.2, growth=0.1)) > calm
    assert pressure(reducer({0: 0.1}, queue=0.2, bandwidth=0.25)) == 2 * calm
    assert pressure(reducer({0: 0.1}, queue=0.1, growth=-1.0)) == 0


def test_the_bucket_with_most_unread_goes_to_the_reducer_under_least_pressure() -> None:
    light, lighter = reducer({2: 0.3}, queue=0.3), reducer({3: 0.3}, queue=0.1)

    (move,) = relieve({A: pressed(), B: light, C: lighter}, frozenset(), LIMITS)

    assert (move.bucket, move.source, move.target) == (1, A, C)
    assert "backlog 90% of its room, growing by 5.0% a second" in move.reason


def test_a_full_backlog_that_shrinks_is_left_to_shrink() -> None:
    light = reducer({2: 0.3}, queue=0.1)

    assert relieve({A: pressed(growth=-0.01), B: light}, frozenset(), LIMITS) == []
    assert relieve({A: pressed(queue=0.7), B: light}, frozenset(), LIMITS) == []


def test_growth_that_is_noise_is_no_pressure() -> None:
    light = reducer({2: 0.3}, queue=0.1)

    assert relieve({A: pressed(growth=0.01), B: light}, frozenset(), LIMITS) == []
    assert relieve({A: pressed(growth=0.011), B: light}, frozenset(), LIMITS)


def test_a_small_room_that_is_filled_between_two_commits_is_no_pressure() -> None:
    """Of 64 reducers each has 4 MB of room: 5 MB/s and a commit each 0.7 s fill that."""
    light = reducer({2: 0.3}, queue=0.1)
    filled = replace(pressed(queue=1.1, growth=0.05), behind_s=0.7)

    assert relieve({A: filled, B: light}, frozenset(), LIMITS) == []
    assert relieve({A: replace(filled, behind_s=3.1), B: light}, frozenset(), LIMITS)


def test_a_bucket_that_needs_a_reducer_for_itself_is_not_handed_round_its_neighbours_go() -> None:
    full = reducer(
        {0: 0.8, 1: 0.1, 2: 0.05},
        queue=2.0,
        growth=0.1,
        buckets={
            Bucket(0): bucket_load(0, 0.8, 900),
            Bucket(1): bucket_load(1, 0.1, 10),
            Bucket(2): bucket_load(2, 0.05, 20),
        },
    )

    (move,) = relieve({A: full, B: reducer({})}, frozenset(), LIMITS)

    assert (move.bucket, move.target) == (2, B)


def test_nobody_takes_a_bucket_for_which_it_has_no_time() -> None:
    busy, less_busy = reducer({2: 0.6}, queue=0.0), reducer({3: 0.5}, queue=0.2)
    small = replace(busy, capacity=0.5, use=0.2)

    (move,) = relieve({A: pressed(), B: busy, C: less_busy}, frozenset(), LIMITS)

    assert (move.bucket, move.target) == (1, C)
    assert relieve({A: pressed(), B: busy}, frozenset(), LIMITS) == []
    assert relieve({A: pressed(), B: small}, frozenset(), LIMITS) == []


def test_a_room_that_is_full_is_relieved_although_mappers_hold_its_rows_back() -> None:
    light = reducer({2: 0.3}, queue=0.1)

    assert relieve({A: pressed(queue=1.0, growth=0.0), B: light}, frozenset(), LIMITS)


def test_nothing_moves_where_nobody_is_light_or_known_to_be() -> None:
    half_full = reducer({2: 0.3}, queue=0.6)
    silent = reducer({2: 0.3}, queue=0.0, fresh=False)

    assert relieve({A: pressed(), B: half_full, C: silent}, frozenset(), LIMITS) == []


def test_a_light_reducer_takes_from_one_pressed_reducer_only() -> None:
    other = reducer({4: 0.5, 5: 0.2}, queue=0.85, growth=0.05)

    moves = relieve({A: pressed(), B: other, C: reducer({2: 0.1})}, frozenset(), LIMITS)

    assert [(move.source, move.target) for move in moves] == [(A, C)]


def test_resting_and_only_buckets_stay() -> None:
    light = reducer({2: 0.1})
    (second,) = relieve({A: pressed(), B: light}, frozenset({Bucket(1)}), LIMITS)

    assert second.bucket == 0
    assert relieve({A: pressed(), B: light}, frozenset({Bucket(0), Bucket(1)}), LIMITS) == []
    assert (
        relieve({A: reducer({0: 0.9}, queue=0.9, growth=1.0), B: light}, frozenset(), LIMITS) == []
    )


def test_what_was_lent_comes_home_when_there_is_room_for_it() -> None:
    loans = {Bucket(1): Loan(home=A, borrower=B)}
    borrower = reducer({1: 0.2, 2: 0.1})

    home = restore(loans, {A: reducer({0: 0.3}), B: borrower}, frozenset(), LIMITS)
    full = restore(loans, {A: reducer({0: 0.3}, queue=1.0), B: borrower}, frozenset(), LIMITS)
    busy = restore(loans, {A: reducer({0: 0.6}), B: borrower}, frozenset(), LIMITS)
    gone = restore(loans, {B: borrower}, frozenset(), LIMITS)

    assert [(move.bucket, move.source, move.target) for move in home] == [(1, B, A)]
    assert full == busy == gone == []
    assert restore(loans, {A: reducer({0: 0.3}), B: borrower}, frozenset({Bucket(1)}), LIMITS) == []
