"""Who assists in a bucket that needs more than a processor, and for how long."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mars.core.types import Bucket, MemberId
from mars.protocol.balance.helpers import (
    ASSISTANTS_MAX,
    VAIN_REST_S,
    help_wanted,
    hotter_than_a_reducer,
    hottest_alone,
    splittable,
    still_there,
    told,
)
from mars.protocol.balance.placement import ReducerLoad, SpreadLimits
from mars.protocol.balance.scaling import Demand, ScaleLimits
from mars.protocol.balance.steering import Loads, Steering, SteeringLimits
from mars.protocol.balance.strategies import Strategy, choose
from mars.protocol.ports import Assisted
from mars.protocol.reducer.assisting import SHRINK_MAX
from tests.unit.machines.loads import bucket_load, owned_by, reducer, reducers

A, B, C, D = (MemberId(name) for name in "abcd")
B0, B1 = Bucket(0), Bucket(1)
LIMITS = ScaleLimits(low=0.30, high=0.75, target=0.55)
HOT = reducers(a={0: 0.95}, b={1: 0.3}, c={2: 0.2})
OWNERS = {B0: A, B1: B, Bucket(2): C}


def assisting(load: ReducerLoad, bucket: int, use: float) -> ReducerLoad:
    """A reducer that assists besides."""
    more = {Bucket(bucket): bucket_load(bucket, use)}
    return replace(load, use=load.use + use, buckets={**load.buckets, **more})


# ------------------------------------------------------------------------------ which bucket is hot


def test_a_bucket_is_hot_where_its_reducer_has_little_else_to_give_away() -> None:
    alone = hottest_alone(reducer({0: 0.80, 1: 0.10}), LIMITS)
    assert alone is not None
    assert alone.bucket == 0
    assert hottest_alone(reducer({0: 0.50, 1: 0.40}), LIMITS) is None
    assert hottest_alone(reducer({0: 0.70}), LIMITS) is None
    assert hottest_alone(replace(reducer({0: 0.9}), fresh=False), LIMITS) is None
    assert hottest_alone(ReducerLoad(0.9), LIMITS) is None


def test_half_a_core_is_full_for_a_reducer_that_may_use_no_more() -> None:
    assert hottest_alone(reducer({0: 0.45}, capacity=0.5), LIMITS) is not None
    assert hottest_alone(reducer({0: 0.45}), LIMITS) is None


def test_what_a_reducer_assists_in_is_not_its_own() -> None:
    load = assisting(reducer({1: 0.1}), 0, 0.8)
    hottest = hottest_alone(load, LIMITS)
    assert hottest is not None
    assert hottest.bucket == 1


def test_it_is_hotter_than_a_reducer_only_if_somebody_could_help() -> None:
    assert hotter_than_a_reducer(HOT, LIMITS) == [0]
    assert hotter_than_a_reducer(reducers(a={0: 0.95}), LIMITS) == []
    assert hotter_than_a_reducer(reducers(a={0: 0.95}, b={1: 0.7}), LIMITS) == []
    assert hotter_than_a_reducer(reducers(a={0: 0.3}, b={1: 0.3}), LIMITS) == []


# -------------------------------------------------------------------------------------- who assists


def test_the_least_busy_one_assists_for_a_stated_reason() -> None:
    wanted = help_wanted(HOT, OWNERS, {}, LIMITS)

    assert wanted[B0].assistants == (C,)
    assert wanted[B0].reason == (
        "a at 0.95 has little else to give away than bucket 0 (0.95); c at 0.20 merges for it"
    )


def test_one_more_assists_while_the_owner_still_is_over_the_upper_bound() -> None:
    loads = HOT | {C: assisting(HOT[C], 0, 0.4)}

    wanted = help_wanted(loads, OWNERS, {B0: (C,)}, LIMITS)

    assert wanted[B0].assistants == (C, B)


def test_there_are_not_more_than_so_many() -> None:
    names = [MemberId(f"r{number}") for number in range(ASSISTANTS_MAX + 1)]
    loads = HOT | {name: reducer({}) for name in names}
    present = {B0: tuple(names[:ASSISTANTS_MAX])}

    assert help_wanted(loads, OWNERS, present, LIMITS) == {}


def test_who_assists_in_one_bucket_is_not_asked_for_another() -> None:
    loads = owned_by({0: 0.95, 1: 0.95, 2: 0.1}, {0: "a", 1: "b", 2: "c"})
    owners = {B0: A, B1: B, Bucket(2): C}

    assert set(help_wanted(loads, owners, {}, LIMITS)) == {B0}
    assert help_wanted(loads, owners, {B0: (C,)}, LIMITS) == {}


def test_assistants_stay_while_bucket_costs_more_than_one_reducer_should_do() -> None:
    helped = {
        A: reducer({0: 0.45}), B: HOT[B], C: assisting(reducer({2: 0.1}), 0, 0.2)
    }  # fmt: skip
    assert help_wanted(helped, OWNERS, {B0: (C,)}, LIMITS) == {}

    gone = helped | {A: reducer({0: 0.3})}
    wanted = help_wanted(gone, OWNERS, {B0: (C,)}, LIMITS)

    assert wanted[B0].assistants == ()
    assert wanted[B0].reason == "bucket 0 costs 0.50 in all: its owner does that alone"


def test_nothing_changes_without_fresh_figures_of_the_owner() -> None:
    silent = HOT | {A: replace(reducer({0: 0.1}), fresh=False)}

    assert help_wanted(silent, OWNERS, {B0: (C,)}, LIMITS) == {}


def test_assistants_who_are_gone_and_those_of_buckets_that_moved_are_dropped() -> None:
    present = {B0: (B, C), B1: (A,), Bucket(2): (D,)}
    moved = OWNERS | {B1: C}

    assert still_there(present, OWNERS, moved, {A, B, C}) == {B0: (B, C)}
    assert still_there(present, OWNERS, OWNERS, {A, C}) == {B0: (C,), B1: (A,)}


def test_they_are_told_with_their_reasons() -> None:
    assert told({B0: (B,), B1: (C,)}, {B0: "why"}) == (
        Assisted(B0, (B,), "why"),
        Assisted(B1, (C,), "an earlier leader named them"),
    )


# ------------------------------------------------------------------------------------------ in time


def steering(strategy: Strategy | None = Strategy.SPLIT) -> Steering:
    spread = SpreadLimits(imbalance_max=0.5)
    return Steering(SteeringLimits(strategy=strategy, scale=LIMITS, spread=spread))


def test_nobody_is_named_in_the_first_cool_down_nor_in_one_after_a_change() -> None:
    steer = steering()

    def asked(now_s: float, present: dict[Bucket, tuple[MemberId, ...]]) -> object:
        loads = Loads(now_s, HOT)
        steer.look(loads, 3, 1, present)
        return steer.assistants(loads, OWNERS, present)

    assert asked(0.0, {}) is None
    assert asked(29.0, {}) is None
    assert asked(30.0, {}) == {B0: (C,)}
    assert "merges for it" in steer.why(B0)
    assert asked(31.0, {B0: (C,)}) is None
    assert asked(60.0, {B0: (C,)}) == {B0: (C, B)}


def test_assistants_go_once_they_have_been_of_no_use_for_a_cool_down() -> None:
    steer = steering()
    calm = reducers(a={0: 0.2}, b={1: 0.3}, c={2: 0.2})
    present = {B0: (C,)}

    def asked(now_s: float, loads: dict[MemberId, ReducerLoad]) -> object:
        steer.look(Loads(now_s, loads), 3, 1, present)
        return steer.assistants(Loads(now_s, loads), OWNERS, present)

    busy = calm | {A: reducer({0: 0.7})}
    assert asked(0.0, calm) is None
    assert asked(40.0, calm) is None
    assert asked(60.0, busy) is None
    assert asked(65.0, calm) is None
    assert asked(94.0, calm) is None
    assert asked(95.0, calm) == {}


def test_a_bucket_with_assistants_stays_where_it_is() -> None:
    steer = steering()
    full = {
        A: reducer({0: 0.9, 1: 0.05}, queue=1.0, growth=0.1),
        B: reducer({2: 0.1}),
    }
    loads, owners = Loads(100.0, full), {B0: A, B1: A, Bucket(2): B}
    steer.look(loads, 3, 1)

    assert {move.bucket for move in steer.moves(loads, owners, {B0: (B,)})} == {1}


def test_assistants_whose_merging_shrinks_nothing_go_and_none_is_named_for_a_while() -> None:
    auto, present = steering(None), dict[Bucket, tuple[MemberId, ...]]()
    vain = HOT | {C: replace(HOT[C], remaining=0.95)}

    def looked(now_s: float, loads: dict[MemberId, ReducerLoad]) -> object:
        auto.look(Loads(now_s, loads), 3, 1, present)
        return auto.assistants(Loads(now_s, loads), OWNERS, present)

    assert looked(0.0, HOT) is None
    assert looked(30.0, HOT) == {B0: (C,)}
    present[B0] = (C,)
    assert looked(59.0, vain) is None
    assert looked(60.0, vain) == {}
    assert auto.why(B0) == "merging leaves 95% of bucket 0: assistants are of no use to it"

    present.clear()
    for now_s in (90.0, 300.0, 60.0 + VAIN_REST_S - 1):
        assert looked(now_s, HOT) is None
        assert auto.balance(Loads(now_s, HOT)).strategy != "split"
    assert looked(60.0 + VAIN_REST_S, HOT) == {B0: (C,)}


@pytest.mark.parametrize("remaining", [None, 0.05, SHRINK_MAX])
def test_they_stay_where_merging_shrinks_the_log_or_that_is_not_known(
    remaining: float | None,
) -> None:
    loads = HOT | {C: replace(HOT[C], remaining=remaining), B: replace(HOT[B], remaining=0.95)}

    assert help_wanted(loads, OWNERS, {B0: (C,)}, LIMITS)[B0].assistants == (C, B)


def test_no_reducers_are_asked_for_a_bucket_that_assistants_do_not_help() -> None:
    hot = Demand(0.95, parts=1.1, hottest=B0)

    assert splittable(hot, LIMITS).parts == 1.1 + ASSISTANTS_MAX
    assert splittable(hot, LIMITS, {B1}).parts == 1.1 + ASSISTANTS_MAX
    assert splittable(hot, LIMITS, {B0}) == hot


def test_another_strategy_lets_them_go_and_a_new_leader_keeps_them() -> None:
    present = {B0: (C,)}
    loads = Loads(0.0, HOT)

    assert steering(Strategy.GREEDY).assistants(loads, OWNERS, present) == {}
    auto = steering(None)
    auto.look(loads, 3, 1, present)
    assert auto.assistants(loads, OWNERS, present) is None


def test_a_bucket_that_is_too_hot_is_split_by_itself() -> None:
    auto = steering(None)
    for now_s in (0.0, 30.0):
        auto.look(Loads(now_s, HOT), 3, 1)

    assert auto.assistants(Loads(30.0, HOT), OWNERS, {}) == {B0: (C,)}
    said = auto.balance(Loads(30.0, HOT), {B0: (C,)})
    assert said.strategy == "split"
    assert said.strategy_reason.startswith("bucket 0 needs more than a reducer: ")
    assert said.assisted[0].assistants == (C,)


def test_what_has_assistants_goes_on_being_split() -> None:
    choice = choose(reducers(a={0: 0.3}, b={1: 0.3}), Strategy.SPLIT, 0.10, B0)

    assert choice.strategy is Strategy.SPLIT
