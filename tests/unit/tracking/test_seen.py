"""Which entries a bucket has counted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mars.protocol.ports.seen import KEPT, Seen, SeenWindow
from tests.unit.tracking.samples import UNHURRIED


def test_what_was_read_is_held_and_what_was_passed_over_is_not() -> None:
    seeing = SeenWindow(Seen(0, 0))
    assert seeing.take(1)
    assert seeing.take(3)
    seeing.drained(4)
    seen = seeing.seen()
    assert seen is not None
    assert [seq for seq in range(1, 6) if seen.holds(seq)] == [1, 3]
    assert [seq for seq in range(6) if seen.knows(seq)] == [1, 2, 3, 4]


def test_the_next_owner_goes_on_and_knows_what_was_counted_before() -> None:
    first = SeenWindow(Seen(0, 0))
    first.take(1)
    first.drained(2)
    second = SeenWindow(first.seen())
    assert not second.take(1)
    assert second.take(3)
    second.drained(3)
    assert second.seen() == Seen(0, 3, bytes([0b101]))


def test_an_entry_that_comes_late_says_nothing_of_those_behind_it() -> None:
    seeing = SeenWindow(Seen(0, 4, bytes([0b1001])))
    assert seeing.take(2)
    seen = seeing.seen()
    assert seen is not None
    assert [seq for seq in range(1, 5) if seen.holds(seq)] == [1, 2, 4]


def test_an_owner_that_reads_from_the_start_does_not_go_back() -> None:
    seeing = SeenWindow(Seen(0, 9, bytes([0b1])))
    seeing.drained(4)
    assert seeing.seen() == Seen(0, 9, bytes([0b1]))


def test_what_was_counted_before_the_tracker_was_switched_on_is_not_known() -> None:
    seeing = SeenWindow(None)
    assert seeing.take(7)
    assert seeing.seen() is None
    seeing.drained(8)
    seeing.take(9)
    seen = seeing.seen()
    assert seen is not None
    assert not seen.knows(7)
    assert not seen.knows(8)
    assert seen.holds(9)


def test_old_entries_are_no_longer_known() -> None:
    seeing = SeenWindow(Seen(0, 0))
    seeing.take(1)
    seeing.take(2)
    seeing.drained(KEPT + 1)
    seen = seeing.seen()
    assert seen is not None
    assert not seen.knows(1)
    assert seen.holds(2)
    assert len(seen.bits) == KEPT // 8
    assert seeing.take(10**15)


@UNHURRIED
@given(st.lists(st.sets(st.integers(1, 5_000)), max_size=5))
def test_it_holds_what_a_set_would_through_any_owners(rounds: list[set[int]]) -> None:
    known: set[int] = set()
    seen: Seen | None = Seen(0, 0)
    through = 0
    for some in rounds:
        seeing = SeenWindow(seen)
        for seq in sorted(one for one in some if one > through):
            seeing.take(seq)
            known.add(seq)
        through = max([through, *some])
        seeing.drained(through)
        seen = seeing.seen()
    assert seen is not None
    assert {seq for seq in range(5_001) if seen.holds(seq)} == {
        seq for seq in known if seq > through - KEPT
    }
