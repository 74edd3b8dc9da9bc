"""Ids and notes: what adds up to 0, and what goes over the wire."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mars.core.types import Bucket, Lane, Range, StoreEpoch, TaskName
from mars.protocol.ports.notes import Note, Root, decode_notes, encode_notes, partial_id
from tests.unit.tracking.samples import LIFE, UNHURRIED, counted, root, stored

buckets = st.sets(st.integers(0, 4_095), min_size=1, max_size=64)


def total(notes: list[Note]) -> Note:
    whole = notes[0]
    for note in notes[1:]:
        whole += note
    return whole


@UNHURRIED
@given(buckets, st.randoms(use_true_random=False))
def test_all_notes_of_a_batch_add_up_to_zero_in_any_order(found: set[int], chance: object) -> None:
    notes = [stored(5, *found), *(counted(5, bucket) for bucket in found)]
    chance.shuffle(notes)  # type: ignore[attr-defined]
    assert total(notes).check == 0
    assert total(notes).stored == stored(5, *found).stored


@UNHURRIED
@given(buckets)
def test_without_one_of_them_they_do_not(found: set[int]) -> None:
    missing, *rest = sorted(found)
    whole = total([stored(5, *found), *(counted(5, bucket) for bucket in rest)])
    assert whole.check == partial_id(root(5), Bucket(missing)) != 0


def test_a_note_twice_is_as_if_it_had_not_come() -> None:
    assert total([stored(5, 1, 2), counted(5, 1), counted(5, 1)]) == stored(5, 1, 2)


def test_ids_differ_by_task_life_version_entry_and_bucket() -> None:
    others = [
        Root(LIFE._replace(task=TaskName("other")), root(5).seq),
        Root(LIFE._replace(epoch=StoreEpoch(4)), root(5).seq),
        Root(LIFE._replace(version=2), root(5).seq),
        root(6),
    ]
    ids = {partial_id(one, Bucket(1)) for one in [root(5), *others]}
    assert len(ids | {partial_id(root(5), Bucket(2))}) == 6


def test_the_id_of_a_partial_never_changes() -> None:
    """Mappers and reducers of two releases must mean the same partial."""
    assert partial_id(root(5), Bucket(1)) == 216_080_417_948_972_677


def test_notes_come_out_of_a_letter_as_they_went_in() -> None:
    parts = (Range(Lane("0@b1"), 0, 2**40), Range(Lane("f@b2"), 1, 2))
    notes = [stored(1, 0, 7, parts=parts), counted(2, 3)]
    assert decode_notes(encode_notes(notes)) == notes


@pytest.mark.parametrize("letter", [b"", b"\xc1", encode_notes([counted(1, 1)])[:-1], b"\x91\x01"])
def test_a_letter_that_cannot_be_read_holds_no_notes(letter: bytes) -> None:
    assert decode_notes(letter) == []
