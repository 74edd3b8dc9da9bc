"""Which way of spreading buckets is chosen, and what capacities change."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from mars.core.types import Bucket, MemberId
from mars.protocol.balance.placement import ReducerLoad, SpreadLimits, deviation, place, spread
from mars.protocol.balance.steering import Loads, Steering, SteeringLimits
from mars.protocol.balance.strategies import Strategy, as_seen, choose, rows_ratio
from mars.protocol.ports import Move
from tests.unit.machines.loads import owned_by, reducer

A, B, C = (MemberId(name) for name in "abc")
LIMITS = SpreadLimits(imbalance_max=0.10, gain_min=0.02)


def reading(**rows: float) -> dict[MemberId, ReducerLoad]:
    """Reducers that read so many rows a second, at equal use."""
    return {MemberId(name): ReducerLoad(use=0.3, rows=each) for name, each in rows.items()}


def test_the_ratio_is_that_of_rows_by_capacity_of_whoever_is_heard() -> None:
    loads = reading(a=1_490, b=490, c=90_000)
    loads[C] = replace(loads[C], fresh=False)

    assert rows_ratio(loads) == 3.0
    assert rows_ratio(loads | {B: replace(loads[B], capacity=0.5)}) == 1.5
    assert rows_ratio({}) == 1.0


def test_hardly_any_rows_are_no_uneven_load() -> None:
    assert rows_ratio(reading(a=2, b=0)) < 1.5


def test_even_rows_are_left_to_hashing() -> None:
    choice = choose(reading(a=1_000, b=1_100), Strategy.GREEDY, 0.10)

    assert choice.strategy is Strategy.HASH
    assert choice.reason == "even: rows per reducer max/min 1.1, deviation of use 0.00"


def test_skewed_rows_are_evened_out_by_use() -> None:
    choice = choose(reading(a=4_000, b=1_000), Strategy.HASH, 0.10)

    assert choice.strategy is Strategy.GREEDY
    assert choice.reason == "uneven: rows per reducer max/min 4.0, deviation of use 0.00"


def test_rows_that_differ_in_cost_count_as_uneven_too() -> None:
    loads = {A: ReducerLoad(0.8, rows=1_000), B: ReducerLoad(0.2, rows=1_000)}

    assert choose(loads, Strategy.HASH, 0.10).strategy is Strategy.GREEDY


def test_uneven_machines_are_weighed() -> None:
    loads = reading(a=1_000, b=1_000)
    loads[B] = replace(loads[B], capacity=0.5)

    choice = choose(loads, Strategy.HASH, 0.10)

    assert choice.strategy is Strategy.WEIGHTED
    assert choice.reason.endswith(", capacities from 0.50 to 1.00")


def test_between_even_and_uneven_it_stays_as_it_is() -> None:
    between = reading(a=1_350, b=1_000)

    assert choose(between, Strategy.HASH, 0.10).strategy is Strategy.HASH
    assert choose(between, Strategy.GREEDY, 0.10).strategy is Strategy.GREEDY


@given(
    rows=st.lists(st.floats(0, 1e6), min_size=1, max_size=8),
    uses=st.lists(st.floats(0, 1), min_size=8, max_size=8),
    before=st.sampled_from(Strategy),
)
def test_the_same_figures_do_not_make_it_go_to_and_fro(
    rows: list[float], uses: list[float], before: Strategy
) -> None:
    loads = {
        MemberId(f"r{number}"): ReducerLoad(use, rows=each)
        for number, (each, use) in enumerate(zip(rows, uses, strict=False))
    }
    once = choose(loads, before, 0.10)

    assert choose(loads, once.strategy, 0.10) == once


# ------------------------------------------------------------------------------------ capacities


def test_a_reducer_of_half_the_capacity_counts_as_twice_as_busy() -> None:
    loads = {A: reducer({0: 0.2, 1: 0.2}, capacity=0.5), B: reducer({2: 0.2, 3: 0.2})}

    assert spread(as_seen(loads, Strategy.GREEDY), frozenset(), LIMITS, 4) == []
    (move,) = spread(as_seen(loads, Strategy.WEIGHTED), frozenset(), LIMITS, 4)
    assert (move.source, move.target) == (A, B)


def test_equal_machines_that_may_use_little_of_a_core_are_uneven_sooner() -> None:
    loads = {A: reducer({0: 0.08, 1: 0.08}), B: reducer({2: 0.02, 3: 0.02})}
    small = {member: replace(load, capacity=0.2) for member, load in loads.items()}

    assert spread(as_seen(loads, Strategy.GREEDY), frozenset(), LIMITS, 4) == []
    moves = spread(as_seen(small, Strategy.GREEDY), frozenset(), LIMITS, 4)
    assert [(move.bucket, move.source, move.target) for move in moves] == [(0, A, B)]


def test_buckets_are_placed_by_capacity() -> None:
    shares = Counter(place(12, {}, frozenset({A, B, C}), None, {A: 0.5, B: 0.5}).values())

    assert shares == {A: 3, B: 3, C: 6}


def test_a_small_newcomer_takes_less() -> None:
    before = place(12, {}, frozenset({A}))

    after = place(12, before, frozenset({A, B}), None, {B: 0.5})

    assert Counter(after.values()) == {A: 8, B: 4}


@given(
    uses=st.lists(st.floats(0, 0.4), min_size=2, max_size=40),
    owners=st.lists(st.sampled_from("abcd"), min_size=40, max_size=40),
    sizes=st.lists(st.floats(0.1, 1), min_size=4, max_size=4),
)
def test_by_capacity_too_moves_come_to_an_end_and_leave_everybody_a_bucket(
    uses: list[float], owners: list[str], sizes: list[float]
) -> None:
    use, owner = dict(enumerate(uses)), dict(enumerate(owners[: len(uses)]))
    names = set(owner.values())
    size = dict(zip("abcd", sizes, strict=True))

    def seen() -> dict[MemberId, ReducerLoad]:
        loads = owned_by(use, owner)
        return {name: replace(load, capacity=size[name]) for name, load in loads.items()}

    for _ in range(20 * len(uses)):
        moves = spread(seen(), frozenset(), LIMITS, len(uses))
        owner |= {int(move.bucket): str(move.target) for move in moves}
        assert set(owner.values()) == names
        if not moves:
            break

    assert spread(seen(), frozenset(), LIMITS, len(uses)) == []


# -------------------------------------------------------------------------------------- steering

OWNERS = {Bucket(0): A, Bucket(1): A, Bucket(2): A, Bucket(3): B}


def uneven() -> dict[MemberId, ReducerLoad]:
    return {A: reducer({0: 0.4, 1: 0.3, 2: 0.2}, rows=900.0), B: reducer({3: 0.05}, rows=90.0)}


def look(steering: Steering, now_s: float, loads: dict[MemberId, ReducerLoad]) -> list[Move]:
    seen = Loads(now_s, loads)
    steering.look(seen, 4, 1)
    return steering.moves(seen, OWNERS)


def test_where_hashing_was_set_nothing_moves_because_of_use() -> None:
    steering = Steering(SteeringLimits(strategy=Strategy.HASH, cooldown_s=0))

    assert look(steering, 0.0, uneven()) == []
    assert steering.bucket_use() == {}
    assert steering.balance(Loads(0.0, uneven())).strategy == "hash"


def test_the_leader_changes_the_strategy_while_it_runs_and_says_why() -> None:
    steering = Steering(SteeringLimits(cooldown_s=30))
    even = {A: reducer({0: 0.2, 1: 0.2}, rows=900.0), B: reducer({3: 0.4}, rows=900.0)}

    def told(now_s: float, loads: dict[MemberId, ReducerLoad]) -> tuple[str, str]:
        steering.look(Loads(now_s, loads, wall_ms=int(now_s * 1_000)), 4, 1)
        balance = steering.balance(Loads(now_s, loads))
        return balance.strategy, balance.strategy_reason

    assert told(0.0, uneven()) == ("hash", "no figures yet")
    strategy, reason = told(30.0, uneven())
    assert strategy == "greedy"
    assert reason.startswith("uneven: rows per reducer max/min 9.1")
    assert told(31.0, even)[0] == "hash"

    changes = steering.balance(Loads(31.0, even)).strategy_changes
    assert [change.strategy for change in changes] == ["greedy", "hash"]
    assert changes[0].reason == reason
    assert changes[0].at_ms == 30_000


def test_what_was_set_is_not_changed() -> None:
    steering = Steering(SteeringLimits(strategy=Strategy.WEIGHTED, cooldown_s=0))

    assert look(steering, 0.0, uneven()) != []
    assert steering.balance(Loads(0.0, uneven())).strategy_reason == "balance.strategy says so"
    assert deviation(uneven()) > 0.1
