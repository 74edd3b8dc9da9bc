"""One acker: what is done, what is looked into, what is given up and what is handed over."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from mars.core.types import MemberId
from mars.protocol.ports.notes import BLOCK_ROOTS, Note
from mars.protocol.tracker.acking import JUDGEMENTS_MAX, Acking, Figures
from mars.protocol.tracker.judging import Verdict
from mars.protocol.tracker.ring import HashRing
from tests.unit.tracking.samples import UNHURRIED, counted, root, stored

ME, OTHER = MemberId("reducer-1"), MemberId("reducer-2")
DEADLINE_MS = 30_000
BATCHES = 3 * BLOCK_ROOTS


def acker(name: MemberId = ME, roots_max: int = 10**6) -> Acking:
    return Acking(name, DEADLINE_MS, roots_max)


def test_a_batch_whose_partials_are_all_counted_is_proven() -> None:
    acking = acker()
    acking.take([stored(1, 0, 3), counted(1, 3), counted(1, 0)], 0)
    assert acking.tick(DEADLINE_MS).suspects == ()
    assert acking.figures == Figures(proven=1)


def test_a_batch_that_is_overdue_is_looked_into_once_a_deadline() -> None:
    acking = acker()
    acking.take([stored(1, 0, 3), counted(1, 3)], 0)
    assert acking.tick(DEADLINE_MS - 1).suspects == ()
    assert [one.root for one in acking.tick(DEADLINE_MS).suspects] == [root(1)]
    assert acking.tick(DEADLINE_MS + 1).suspects == ()
    assert len(acking.tick(2 * DEADLINE_MS).suspects) == 1


def test_verdicts_end_a_root() -> None:
    acking = acker()
    acking.take([stored(seq, 0) for seq in range(1, 6)], 0)
    acking.judged(
        [
            (root(1), Verdict.COUNTED),
            (root(2), Verdict.LOST),
            (root(3), Verdict.UNKNOWN),
            (root(4), Verdict.REWOUND),
            (root(5), Verdict.WAITING),
        ]
    )
    assert acking.figures == Figures(pending=1, proven=1, unproven=2, lost=1)


def test_a_root_that_nobody_counts_for_very_long_is_given_up() -> None:
    acking = acker()
    acking.take([stored(1, 0)], 0)
    for _ in range(JUDGEMENTS_MAX):
        acking.judged([(root(1), Verdict.WAITING)])
    assert acking.figures == Figures(unproven=1)


def test_counts_of_a_batch_that_no_mapper_told_of_are_given_up_without_a_look() -> None:
    acking = acker()
    acking.take([counted(1, 0)], 0)
    assert acking.tick(DEADLINE_MS).suspects == ()
    assert acking.figures == Figures(unproven=1)


def test_past_its_limit_an_acker_gives_the_oldest_roots_up() -> None:
    acking = acker(roots_max=2 * BLOCK_ROOTS)
    acking.take([stored(seq, 0) for seq in range(BATCHES)], 0)
    assert acking.figures == Figures(pending=2 * BLOCK_ROOTS, unproven=BLOCK_ROOTS)


def test_a_record_that_came_to_the_wrong_acker_is_forwarded_when_it_is_due() -> None:
    acking = acker()
    acking.ring_changed(HashRing([OTHER]))
    acking.take([stored(1, 0)], 0)
    assert acking.tick(DEADLINE_MS).forward == (stored(1, 0),)
    assert acking.figures == Figures()


@UNHURRIED
@given(st.randoms(use_true_random=False), st.integers(0, 40))
def test_ackers_that_come_and_go_prove_every_batch(chance: random.Random, changes: int) -> None:
    """Notes in any order, sent by what the sender last knew of the ring, while the ring changes."""
    notes = [stored(seq, 0, 1) for seq in range(BATCHES)]
    notes += [counted(seq, bucket) for seq in range(BATCHES) for bucket in (0, 1)]
    chance.shuffle(notes)
    rings = [HashRing([ME]), HashRing([ME, OTHER]), HashRing([OTHER])]
    ackers = {name: acker(name) for name in (ME, OTHER)}

    def post(some: list[Note], ring: HashRing) -> None:
        for note in some:
            owner = ring.owner(note.root.place)
            assert owner is not None
            ackers[owner].take([note], 0)

    for number in range(changes + 1):
        known = chance.choice(rings)
        post(notes[number * 10 : number * 10 + 10], known)
        now = chance.choice(rings)
        for one in ackers.values():
            post(one.ring_changed(now), now)
    post(notes[changes * 10 + 10 :], rings[1])
    for one in ackers.values():
        post(one.ring_changed(rings[1]), rings[1])

    assert sum(one.figures.proven for one in ackers.values()) == BATCHES
    assert all(one.figures.pending == 0 for one in ackers.values())


@UNHURRIED
@given(st.randoms(use_true_random=False))
def test_doubled_and_lost_notes_never_leave_a_root_that_was_not_stored(
    chance: random.Random,
) -> None:
    acking = acker()
    true_value = stored(1, 0, 1, 2)
    notes = [true_value, counted(1, 0), counted(1, 1), counted(1, 2)]
    acking.take([note for note in notes * 3 if chance.random() < 0.6], 0)
    for suspect in acking.tick(DEADLINE_MS).suspects:
        assert suspect.stored == true_value.stored
