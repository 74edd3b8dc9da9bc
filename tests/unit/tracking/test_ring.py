"""The ring: who owns what, evenly, and as little moved as can be."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from mars.core.types import MemberId, StoreEpoch, TaskName
from mars.protocol.ports.notes import LogLife, place_of
from mars.protocol.tracker.ring import HashRing
from tests.unit.tracking.samples import UNHURRIED

LIFE = LogLife(TaskName("flows"), StoreEpoch(1), 1)
PLACES = [place_of(LIFE, block) for block in range(20_000)]

names = st.sets(st.text("abc0123456789-", min_size=1, max_size=8).map(MemberId), max_size=8)


def ackers(count: int) -> list[MemberId]:
    return [MemberId(f"reducer-{number}") for number in range(count)]


def test_a_ring_without_ackers_owns_nothing() -> None:
    assert HashRing().owner(PLACES[0]) is None


def test_six_ackers_have_about_a_sixth_each() -> None:
    ring = HashRing(ackers(6))
    shares = Counter(ring.owner(place) for place in PLACES)
    assert len(shares) == 6
    assert max(shares.values()) < 1.25 * len(PLACES) / 6
    assert min(shares.values()) > 0.75 * len(PLACES) / 6


def test_a_seventh_acker_takes_about_a_seventh_and_nothing_else_moves() -> None:
    before, after = HashRing(ackers(6)), HashRing(ackers(7))
    moved = [place for place in PLACES if before.owner(place) != after.owner(place)]
    assert all(after.owner(place) == ackers(7)[-1] for place in moved)
    assert 0.7 / 7 < len(moved) / len(PLACES) < 1.3 / 7


@UNHURRIED
@given(names, st.text("xyz", min_size=1).map(MemberId), st.integers(0, 2**64 - 1))
def test_whoever_joins_or_leaves_moves_only_what_is_its_own(
    members: set[MemberId], other: MemberId, place: int
) -> None:
    without, with_other = HashRing(members), HashRing(members | {other})
    assert with_other.owner(place) in {without.owner(place), other}


@UNHURRIED
@given(names, st.integers(0, 2**64 - 1))
def test_every_process_has_the_same_ring(members: set[MemberId], place: int) -> None:
    assert HashRing(sorted(members)).owner(place) == HashRing(members).owner(place)


def test_the_ring_of_a_name_never_changes() -> None:
    """Processes of two releases share the ackers: another hash would part them."""
    assert HashRing(ackers(3)).owner(place_of(LIFE, 7)) == "reducer-1"
