"""When the leader acts on loads, and when it keeps still."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from mars.core.types import Bucket, MemberId
from mars.protocol.balance.placement import SpreadLimits
from mars.protocol.balance.scaling import Demand
from mars.protocol.balance.steering import Loads, Steering, SteeringLimits
from mars.protocol.balance.strategies import Strategy
from mars.protocol.ports import Lent, Move, MoveKind
from tests.unit.machines.loads import bucket_load, owned_by, reducer, reducers

LIMITS = SteeringLimits(cooldown_s=30, bucket_rest_s=60, spread=SpreadLimits(0.10, 0.02))
UNEVEN = reducers(a={0: 0.4, 1: 0.3, 2: 0.2}, b={3: 0.05})
OWNERS = {Bucket(n): MemberId("a" if n < 3 else "b") for n in range(4)}


def look(steering: Steering, loads: Loads, partitions: int = 8) -> list[Move]:
    steering.look(loads, 8, partitions)
    return steering.moves(loads, OWNERS)


def test_a_new_leader_first_keeps_still_for_one_cool_down() -> None:
    steering = Steering(LIMITS)

    assert look(steering, Loads(100.0, UNEVEN)) == []
    assert look(steering, Loads(129.9, UNEVEN)) == []
    assert look(steering, Loads(130.0, UNEVEN)) != []


def test_after_a_move_all_keep_still_and_the_bucket_rests_longer() -> None:
    steering = Steering(LIMITS)
    look(steering, Loads(0.0, UNEVEN))
    (move,) = look(steering, Loads(30.0, UNEVEN))
    steering.moving([move], 30.0)

    assert look(steering, Loads(59.0, UNEVEN)) == []
    then = look(steering, Loads(60.0, UNEVEN))
    assert then
    assert move.bucket not in {each.bucket for each in then}
    assert look(steering, Loads(90.0, UNEVEN))[0].bucket == move.bucket


def test_a_move_for_another_reason_makes_all_keep_still_too() -> None:
    steering = Steering(LIMITS)
    look(steering, Loads(0.0, UNEVEN))
    steering.moving([Move(Bucket(7), None, MemberId("b"), "b has come")], 25.0)

    assert look(steering, Loads(54.0, UNEVEN)) == []


def test_nothing_moves_where_balancing_is_switched_off() -> None:
    steering = Steering(replace(LIMITS, enabled=False))
    look(steering, Loads(0.0, UNEVEN))

    assert look(steering, Loads(1_000.0, UNEVEN)) == []


def test_pressure_is_relieved_without_waiting_for_the_cool_down_and_given_back() -> None:
    steering = Steering(LIMITS)
    light = reducer({3: 0.05})
    full = reducer(
        {0: 0.4, 1: 0.3},
        queue=0.9,
        growth=0.1,
        buckets={Bucket(0): bucket_load(0, 0.4, 9), Bucket(1): bucket_load(1, 0.3, 1)},
    )
    a, b = MemberId("a"), MemberId("b")

    steering.look(Loads(0.0, {a: full, b: light}), 8, 8)
    (lent,) = steering.moves(Loads(0.0, {a: full, b: light}), OWNERS)
    steering.moving([lent], 0.0)
    after = {**OWNERS, Bucket(0): b}
    relieved = {a: reducer({1: 0.3}), b: reducer({0: 0.4, 3: 0.05})}

    assert (lent.bucket, lent.target) == (0, b)
    assert steering.moves(Loads(59.0, relieved), after) == []
    (back,) = steering.moves(Loads(61.0, relieved), after)
    assert (back.bucket, back.target) == (0, a)


@pytest.mark.parametrize("strategy", [Strategy.HASH, Strategy.GREEDY, None])
def test_relief_heeds_what_reducers_may_use_whatever_the_strategy(
    strategy: Strategy | None,
) -> None:
    steering = Steering(replace(LIMITS, strategy=strategy))
    a, b = MemberId("a"), MemberId("b")
    full = reducer({0: 0.2, 1: 0.3}, queue=0.9, growth=0.1)
    half, whole = (reducer({3: 0.4}, capacity=capacity) for capacity in (0.5, 1.0))

    assert look(steering, Loads(0.0, {a: full, b: half})) == []  # 0.375 of a core, and no more
    (lent,) = look(steering, Loads(1.0, {a: full, b: whole}))
    steering.moving([lent], 1.0)
    after = {**OWNERS, lent.bucket: b}
    borrower = reducer({lent.bucket: 0.2, 3: 0.05})
    homes = (reducer({1: 0.3}, capacity=capacity) for capacity in (0.5, 1.0))
    narrow, wide = (Loads(90.0, {a: home, b: borrower}) for home in homes)

    assert steering.moves(narrow, after) == []
    (back,) = steering.moves(wide, after)
    assert (back.bucket, back.target) == (lent.bucket, a)


def test_who_is_leaving_is_neither_relieved_nor_a_target() -> None:
    steering = Steering(LIMITS)
    idle = {MemberId("b"): UNEVEN[MemberId("b")]}
    staying = {MemberId("a"): UNEVEN[MemberId("a")]}

    for now_s in (0.0, 30.0):
        assert look(steering, Loads(now_s, staying, leaving=idle)) == []
    assert steering.bucket_use() == {0: 0.4, 1: 0.3, 2: 0.2, 3: 0.05}


def test_reducers_are_asked_for_a_hot_bucket_only_where_it_may_be_split() -> None:
    hot = (Demand(1.0, 1_000, backlog=10**7, parts=1.2), Demand(0.1, 1_000, parts=8.0))

    def asked(strategy: Strategy | None) -> int:
        steering = Steering(replace(LIMITS, strategy=strategy))
        loads = Loads(0.0, UNEVEN, reducer_demands=hot)
        steering.look(loads, 64, 8)
        (found,) = steering.balance(loads).wanted
        return found.wanted

    assert asked(Strategy.GREEDY) == 2
    assert asked(None) == 6


def test_noise_about_an_even_load_moves_nothing_and_about_an_uneven_one_little() -> None:
    """Figures that differ by a tenth from second to second: no bucket goes to and fro."""
    chance = random.Random(7)
    steering, owners = Steering(LIMITS), {number: f"r{number % 4}" for number in range(32)}
    use = {number: 0.05 if number % 4 else 0.12 for number in range(32)}
    moves: list[Move] = []

    for second in range(1_800):
        noisy = {number: each * chance.uniform(0.9, 1.1) for number, each in use.items()}
        loads = Loads(float(second), owned_by(noisy, owners))
        steering.look(loads, 32, 8)
        made = steering.moves(loads, {Bucket(n): MemberId(o) for n, o in owners.items()})
        steering.moving(made, float(second))
        owners |= {move.bucket: move.target for move in made}
        moves += made

    assert 0 < len(moves) <= 8
    assert len({move.bucket for move in moves}) == len(moves)


def test_fewer_members_are_asked_for_only_when_that_has_lasted() -> None:
    steering = Steering(LIMITS)
    idle = (Demand(0.05), Demand(0.05))

    def asked(now_s: float, demands: tuple[Demand, ...]) -> int:
        loads = Loads(now_s, reducers(a={0: 0.1}), reducer_demands=demands)
        steering.look(loads, 8, 8)
        (found,) = steering.balance(loads).wanted
        return found.wanted

    assert asked(0.0, idle) == 2
    assert asked(59.0, idle) == 2
    assert asked(60.0, idle) == 1
    assert asked(61.0, (Demand(0.5), Demand(0.5))) == 2
    assert asked(62.0, idle) == 2
    assert asked(63.0, (Demand(0.9), Demand(0.9))) == 4


def test_without_figures_of_all_members_the_last_word_stands() -> None:
    steering = Steering(LIMITS)
    busy = Loads(0.0, reducers(a={0: 0.9}), mapper_demands=(Demand(0.9),))
    steering.look(busy, 8, 8)

    steering.look(replace(busy, mapper_demands=()), 8, 8)

    assert [each.wanted for each in steering.balance(busy).wanted] == [2]


def test_the_last_moves_are_told_with_their_reasons() -> None:
    steering = Steering(LIMITS)
    steering.published([Move(Bucket(n), MemberId("a"), MemberId("b"), "why", n) for n in range(12)])

    told = steering.balance(Loads(0.0, UNEVEN))

    assert [move.bucket for move in told.moves] == list(range(2, 12))
    assert told.deviation == 0.425
    assert told.mean_use == 0.475


def test_a_bucket_on_loan_is_told_with_its_home_until_it_is_back() -> None:
    steering = Steering(LIMITS)
    a, b = MemberId("a"), MemberId("b")
    full = reducer({0: 0.2, 1: 0.3}, queue=0.9, growth=0.1)
    pressed = Loads(0.0, {a: full, b: reducer({3: 0.1})})
    (lent,) = look(steering, pressed)
    steering.moving([lent], 0.0)
    steering.published([lent])

    said = steering.balance(pressed)
    assert (lent.kind, said.moves_by_kind[MoveKind.PRESSURE]) == (MoveKind.PRESSURE, 1)
    assert said.lent == (Lent(lent.bucket, a, b),)
    assert said.lent_total == 1

    relieved = Loads(90.0, {a: reducer({1: 0.3}), b: reducer({lent.bucket: 0.2, 3: 0.1})})
    (back,) = steering.moves(relieved, {**OWNERS, lent.bucket: b})
    steering.moving([back], 90.0)
    assert back.kind is MoveKind.RETURN
    assert steering.balance(relieved).lent == ()


def test_what_a_bucket_cost_is_remembered_until_its_owner_says_otherwise() -> None:
    steering = Steering(LIMITS)
    steering.look(Loads(0.0, reducers(a={0: 0.4}, b={1: 0.1})), 8, 8)
    steering.look(Loads(1.0, reducers(b={1: 0.1})), 8, 8)

    assert steering.bucket_use() == {0: 0.4, 1: 0.1}

    quiet = replace(reducer({0: 0.0}), buckets={})
    steering.look(Loads(2.0, {MemberId("a"): quiet}), 8, 8)

    assert steering.bucket_use() == {0: 0.0, 1: 0.1}
