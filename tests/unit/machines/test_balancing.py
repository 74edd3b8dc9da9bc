from __future__ import annotations

from collections import Counter
from dataclasses import replace
from statistics import pstdev

from hypothesis import given
from hypothesis import strategies as st

from mars.core.types import Bucket, MemberId
from mars.protocol.balance.placement import SpreadLimits, Welcome, deviation, place, spread
from mars.protocol.ports import Move
from tests.unit.machines.loads import owned_by, reducers

MEMBERS = st.frozensets(
    st.sampled_from([MemberId(f"reducer-{number}") for number in range(6)]), min_size=1
)


@given(buckets=st.integers(1, 64), before=MEMBERS, after=MEMBERS)
def test_every_bucket_goes_to_a_living_reducer_and_the_shares_differ_by_one_at_most(
    buckets: int, before: frozenset[MemberId], after: frozenset[MemberId]
) -> None:
    targets = place(buckets, place(buckets, {}, before), after)

    assert sorted(targets) == list(range(buckets))
    assert set(targets.values()) <= after
    shares = Counter(targets.values())
    counts = [shares[member] for member in after]
    assert max(counts) - min(counts) <= 1


@given(buckets=st.integers(1, 64), members=MEMBERS)
def test_an_even_assignment_stays_as_it_is(buckets: int, members: frozenset[MemberId]) -> None:
    once = place(buckets, {}, members)

    assert place(buckets, once, members) == once


def test_only_the_buckets_of_a_dead_reducer_move_when_two_of_three_remain() -> None:
    three = frozenset(MemberId(name) for name in "abc")
    before = place(9, {}, three)

    after = place(9, before, three - {MemberId("c")})

    moved = {bucket for bucket in before if before[bucket] != after[bucket]}
    assert moved == {bucket for bucket, member in before.items() if member == "c"}


def test_a_new_reducer_takes_no_more_than_its_share() -> None:
    before = place(8, {}, frozenset({MemberId("a")}))

    after = place(8, before, frozenset({MemberId("a"), MemberId("b")}))

    assert sum(before[Bucket(number)] != after[Bucket(number)] for number in range(8)) == 4


@given(
    uses=st.lists(st.floats(0, 1), min_size=1, max_size=40),
    before=MEMBERS,
    after=MEMBERS,
)
def test_placing_gives_each_bucket_one_living_owner_and_moves_nothing_between_old_members(
    uses: list[float], before: frozenset[MemberId], after: frozenset[MemberId]
) -> None:
    use = {Bucket(number): each for number, each in enumerate(uses)}
    first = place(len(uses), {}, before, use)

    then = place(len(uses), first, after, use)

    assert sorted(then) == sorted(use)
    assert set(then.values()) <= after
    holders = set(first.values())
    for bucket, member in then.items():
        if first[bucket] in after and first[bucket] != member:
            assert member not in holders, "only members that had nothing take from the living"


def test_a_dead_reducers_hot_bucket_goes_to_the_least_busy() -> None:
    current = {Bucket(n): MemberId(name) for n, name in enumerate("aabbcc")}
    use = {Bucket(n): each for n, each in enumerate([0.3, 0.1, 0.1, 0.1, 0.5, 0.0])}

    then = place(6, current, frozenset({MemberId("a"), MemberId("b")}), use)

    assert then[Bucket(4)] == "b"
    assert then[Bucket(5)] == "a"
    assert [then[Bucket(n)] for n in range(4)] == ["a", "a", "b", "b"]


def test_a_newcomer_gets_load_and_not_just_a_number_of_buckets() -> None:
    current = {Bucket(n): MemberId("a") for n in range(5)}
    use = {Bucket(n): each for n, each in enumerate([0.4, 0.1, 0.1, 0.1, 0.1])}

    then = place(5, current, frozenset({MemberId("a"), MemberId("b")}), use)

    assert [bucket for bucket, member in then.items() if member == "b"] == [0]


def test_a_newcomer_takes_a_quarter_of_the_working_buckets_at_once_and_the_rest_later() -> None:
    a, b = MemberId("a"), MemberId("b")
    current = {Bucket(n): a for n in range(16)}
    working = frozenset(current)

    first = place(16, current, frozenset({a, b}), welcome=Welcome(working=working))
    again = place(16, first, frozenset({a, b}), welcome=Welcome(working=working))
    second = place(16, first, frozenset({a, b}), welcome=Welcome(filling={b}, working=working))
    idle = place(16, current, frozenset({a, b}), welcome=Welcome(working={Bucket(0)}))

    assert Counter(first.values()) == {a: 12, b: 4}
    assert again == first, "it has something, so it is no newcomer any more"
    assert Counter(second.values()) == {a: 8, b: 8}
    assert Counter(idle.values()) == {a: 8, b: 8}


def test_newcomers_leave_what_has_assistants_or_is_hot_and_take_from_the_next_busiest() -> None:
    a, b, c = (MemberId(name) for name in "abc")
    current = {Bucket(n): a if n < 2 else b for n in range(6)}
    use = {Bucket(n): each for n, each in enumerate([0.9, 0.8, 0.1, 0.1, 0.1, 0.1])}
    fixed = Welcome(fixed={Bucket(0), Bucket(1)})

    then = place(6, current, frozenset({a, b, c}), use, welcome=fixed)
    gone = place(6, current, frozenset({b, c}), use, welcome=fixed)

    assert then[Bucket(0)] == then[Bucket(1)] == a
    assert sum(member == c for member in then.values()) == 2
    assert {gone[Bucket(0)], gone[Bucket(1)]} == {b, c}


# --------------------------------------------------------------------------------- uneven use

LIMITS = SpreadLimits(imbalance_max=0.10, gain_min=0.02)

USES = st.lists(st.floats(0, 0.4), min_size=2, max_size=40)


def moved(owners: dict[int, str], moves: list[Move]) -> dict[int, str]:
    """The owners after the moves, each of which must be from whoever has the bucket."""
    after = dict(owners)
    for move in moves:
        assert after[move.bucket] == move.source
        after[move.bucket] = move.target
    return after


def test_an_even_use_moves_nothing() -> None:
    even = reducers(a={0: 0.3, 1: 0.2}, b={2: 0.3, 3: 0.25})

    assert spread(even, frozenset(), LIMITS, 4) == []


def test_the_hottest_bucket_that_fits_goes_from_the_busiest_to_the_least_busy() -> None:
    uneven = reducers(a={0: 0.3, 1: 0.2, 2: 0.1}, b={3: 0.3}, c={4: 0.02})

    (move,) = spread(uneven, frozenset(), LIMITS, 5)

    assert (move.bucket, move.source, move.target) == (0, "a", "c")
    assert move.reason.startswith("use is uneven (deviation 0.24, at most 0.10): a at 0.60 gives")


def test_a_giant_stays_and_its_neighbours_go() -> None:
    uneven = reducers(a={0: 0.6, 1: 0.05, 2: 0.05}, b={3: 0.1, 4: 0.05})

    moves = spread(uneven, frozenset(), LIMITS, 20)

    assert {move.bucket for move in moves} == {1, 2}


def test_the_last_bucket_of_a_reducer_stays_however_hot() -> None:
    assert spread(reducers(a={0: 0.9}, b={1: 0.1}, c={2: 0.1}), frozenset(), LIMITS, 3) == []


def test_resting_buckets_and_reducers_with_old_figures_are_left_alone() -> None:
    uneven = reducers(a={0: 0.4, 1: 0.1}, b={2: 0.01}, c={3: 0.05})
    silent = uneven | {MemberId("b"): replace(uneven[MemberId("b")], fresh=False)}
    moving = uneven | {
        MemberId("a"): replace(uneven[MemberId("a")], settled=frozenset([Bucket(1), Bucket(5)]))
    }

    rested = spread(uneven, frozenset({Bucket(0)}), LIMITS, 4)

    assert [move.bucket for move in rested] == [1]
    assert {move.target for move in spread(silent, frozenset(), LIMITS, 4)} == {"c"}
    assert {move.bucket for move in spread(moving, frozenset(), LIMITS, 4)} == {1}


@given(uses=USES, owners=st.lists(st.sampled_from("abcd"), min_size=40, max_size=40))
def test_moves_narrow_the_deviation_each_by_each_and_lose_no_bucket(
    uses: list[float], owners: list[str]
) -> None:
    use, owner = dict(enumerate(uses)), dict(enumerate(owners[: len(uses)]))
    names = sorted(set(owner.values()))

    moves = spread(owned_by(use, owner), frozenset(), LIMITS, len(uses))

    assert len(moves) <= max(1, len(uses) // 4)
    before = pstdev(sum(use[b] for b in use if owner[b] == name) for name in names)
    for number in range(len(moves)):
        then = moved(owner, moves[: number + 1])
        after = pstdev(sum(use[b] for b in use if then[b] == name) for name in names)
        assert after < before
        assert set(then.values()) == set(names), "nobody is left without a bucket"
        before = after


@given(uses=USES, owners=st.lists(st.sampled_from("abcd"), min_size=40, max_size=40))
def test_under_a_constant_load_the_moves_come_to_an_end_and_stay_ended(
    uses: list[float], owners: list[str]
) -> None:
    use, owner = dict(enumerate(uses)), dict(enumerate(owners[: len(uses)]))

    for _ in range(len(uses)):
        moves = spread(owned_by(use, owner), frozenset(), LIMITS, len(uses))
        owner = moved(owner, moves)
        if not moves:
            break

    loads = owned_by(use, owner)
    assert spread(loads, frozenset(), LIMITS, len(uses)) == []
    if deviation(loads) <= LIMITS.imbalance_max:
        return
    # What is left is a bucket too large to move, or reducers that differ by less than is gained.
    busiest = max(loads.values(), key=lambda load: load.use)
    gap = busiest.use - min(load.use for load in loads.values())
    weights = [each.use for each in busiest.buckets.values()]
    assert len(weights) == 1 or all(min(w, gap - w) <= LIMITS.gain_min for w in weights)
