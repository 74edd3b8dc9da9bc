"""Which copy of a task in `mars.control` counts, whoever made one late."""

from __future__ import annotations

from dataclasses import replace

from mars.adapters.copies import TaskCopies
from mars.core.definitions import TaskDefinition, TaskState
from mars.core.types import LeaderEpoch, live_lane
from tests.unit.machines.reducing_rows import NAME, make_version

P0 = live_lane(0)
WAITING = replace(make_version(2), starts=None)
ONE = TaskDefinition(NAME, TaskState.RUNNING, (make_version(1),))
TWO = replace(ONE, versions=(*ONE.versions, WAITING))
HALF_WAY = replace(TWO, state=TaskState.PAUSED)


def begun(at: int) -> TaskDefinition:
    """Version 2 has begun there."""
    return replace(TWO, versions=(*ONE.versions, make_version(2, {P0: at})))


def newest(*copies: tuple[int | None, TaskDefinition]) -> TaskDefinition:
    """What counts of copies made in this order, each by a leader or for a user."""
    known = TaskCopies()
    for leader, definition in copies:
        known.put(definition, None if leader is None else LeaderEpoch(leader))
    return known.newest()[NAME]


def test_the_last_of_equal_copies_counts() -> None:
    assert newest((None, TWO), (5, HALF_WAY)) == HALF_WAY
    assert newest((5, HALF_WAY), (None, TWO)) == TWO
    assert newest((4, HALF_WAY), (5, TWO)) == TWO


def test_a_version_that_has_begun_does_not_wait_again_whoever_copies_that_late() -> None:
    assert newest((5, begun(9)), (None, TWO)) == begun(9)
    assert newest((5, begun(9)), (4, TWO)) == begun(9)
    assert newest((None, TWO), (5, ONE)) == TWO


def test_a_leader_of_before_does_not_say_where_a_version_begins() -> None:
    assert newest((5, begun(16)), (4, begun(10))) == begun(16)
    assert newest((5, begun(16)), (None, begun(16)), (4, begun(10))) == begun(16)
    assert newest((4, begun(10)), (5, begun(16))) == begun(16)


def test_where_a_later_leader_sees_a_version_wait_one_of_before_has_not_begun_it() -> None:
    assert newest((5, TWO), (4, begun(10))) == TWO
    assert newest((4, begun(10)), (None, TWO), (5, TWO)) == TWO
    assert newest((5, ONE), (4, begun(10))) == begun(10), "that leader has not heard of version 2"


def test_a_leader_takes_back_a_beginning_that_zookeeper_did_not_get() -> None:
    assert newest((5, begun(9)), (5, TWO)) == TWO


def test_copies_of_leaders_before_one_are_named_and_taken_away() -> None:
    known = TaskCopies()
    for leader in (3, 4, 5):
        known.put(begun(leader), LeaderEpoch(leader))
    known.put(TWO, None)
    assert known.of_leaders_before(NAME, LeaderEpoch(5)) == [3, 4]
    known.remove(NAME, LeaderEpoch(5))
    known.remove(NAME, LeaderEpoch(9))
    assert known.newest() == {NAME: begun(4)}
    assert known.leader == 4


def test_where_no_leader_has_made_a_copy_the_highest_is_none() -> None:
    known = TaskCopies()
    assert (known.newest(), known.leader) == ({}, 0)
    known.put(ONE, None)
    assert (known.newest(), known.leader) == ({NAME: ONE}, 0)
