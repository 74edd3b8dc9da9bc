from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from mars.machines.balancing import balance
from mars.types import Bucket, MemberId

MEMBERS = st.frozensets(
    st.sampled_from([MemberId(f"reducer-{number}") for number in range(6)]), min_size=1
)


@given(buckets=st.integers(1, 64), before=MEMBERS, after=MEMBERS)
def test_every_bucket_goes_to_a_living_reducer_and_the_shares_differ_by_one_at_most(
    buckets: int, before: frozenset[MemberId], after: frozenset[MemberId]
) -> None:
    targets = balance(buckets, balance(buckets, {}, before), after)

    assert sorted(targets) == list(range(buckets))
    assert set(targets.values()) <= after
    shares = Counter(targets.values())
    counts = [shares[member] for member in after]
    assert max(counts) - min(counts) <= 1


@given(buckets=st.integers(1, 64), members=MEMBERS)
def test_an_even_assignment_stays_as_it_is(buckets: int, members: frozenset[MemberId]) -> None:
    once = balance(buckets, {}, members)

    assert balance(buckets, once, members) == once


def test_only_the_buckets_of_a_dead_reducer_move_when_two_of_three_remain() -> None:
    three = frozenset(MemberId(name) for name in "abc")
    before = balance(9, {}, three)

    after = balance(9, before, three - {MemberId("c")})

    moved = {bucket for bucket in before if before[bucket] != after[bucket]}
    assert moved == {bucket for bucket, member in before.items() if member == "c"}


def test_a_new_reducer_takes_no_more_than_its_share() -> None:
    before = balance(8, {}, frozenset({MemberId("a")}))

    after = balance(8, before, frozenset({MemberId("a"), MemberId("b")}))

    assert sum(before[Bucket(number)] != after[Bucket(number)] for number in range(8)) == 4
