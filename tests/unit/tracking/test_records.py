"""The packed records, beside a plain dictionary."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mars.core.types import Lane, Range
from mars.protocol.ports.notes import BLOCK_ROOTS, Note
from mars.protocol.tracker.records import RECORD_BYTES, RootRecords
from tests.unit.tracking.samples import UNHURRIED, counted, ranges, root, stored

PAIR = (Range(Lane("0@b1"), 0, 50), Range(Lane("1@b1"), 7, 90))


def held(records: RootRecords) -> dict[int, Note]:
    """All records; asking for them makes them due again at once."""
    return {note.root.seq: note for note in records.overdue(2**40, 0)}


def test_a_record_is_34_bytes() -> None:
    assert RECORD_BYTES == 34


def test_a_root_is_done_and_forgotten_when_everything_stored_is_counted() -> None:
    records = RootRecords()
    assert not records.add(stored(5, 1, 2), 0)
    assert not records.add(counted(5, 2), 0)
    assert records.add(counted(5, 1), 0)
    assert len(records) == 0
    assert held(records) == {}


def test_what_was_counted_may_be_heard_of_first() -> None:
    records = RootRecords()
    assert not records.add(counted(5, 1), 0)
    assert records.add(stored(5, 1), 0)
    assert len(records) == 0


def test_a_doubled_count_completes_nothing() -> None:
    records = RootRecords()
    records.add(counted(5, 1), 0)
    assert not records.add(counted(5, 1), 0)
    assert len(records) == 0


def test_overdue_records_come_with_their_offsets_and_again_later() -> None:
    records = RootRecords()
    records.add(stored(5, 1), 1_000)
    records.add(stored(6, 1), 3_000)
    assert records.overdue(900, 5_000) == []
    assert [note.root.seq for note in records.overdue(1_000, 5_000)] == [5]
    assert [note.root.seq for note in records.overdue(4_000, 9_000)] == [6]
    assert records.overdue(5_000, 9_000) == [stored(5, 1)]


def test_a_batch_of_several_lanes_keeps_them_all() -> None:
    records = RootRecords()
    records.add(stored(5, 1, 2, parts=PAIR), 0)
    records.add(counted(5, 1), 0)
    assert held(records)[5].ranges == PAIR
    records.remove(root(5))
    records.add(counted(5, 1), 0)
    assert held(records)[5].ranges == ()


def test_records_of_unwanted_blocks_are_handed_over_whole() -> None:
    records = RootRecords()
    other = BLOCK_ROOTS + 1
    for seq in (1, 2, other):
        records.add(stored(seq, 1, 2), 0)
    records.add(counted(2, 1), 0)
    moved = records.take_blocks(lambda place: place == root(1).place)
    assert moved == [stored(1, 1, 2), stored(2, 1, 2) + counted(2, 1)]
    assert list(held(records)) == [other]
    assert len(records) == 1


steps = st.lists(
    st.tuples(st.integers(0, 200), st.sampled_from([None, 0, 1, 2])), min_size=1, max_size=200
)


@UNHURRIED
@given(steps)
def test_records_hold_what_a_dictionary_would(given_steps: list[tuple[int, int | None]]) -> None:
    records = RootRecords()
    plain: dict[int, Note] = {}
    for seq, bucket in given_steps:
        note = stored(seq, 0, 1, 2) if bucket is None else counted(seq, bucket)
        records.add(note, 0)
        whole = plain.pop(seq, Note(root(seq), 0, 0)) + note
        if whole.check:
            plain[seq] = whole
    assert {seq: (note.stored, note.check) for seq, note in held(records).items()} == {
        seq: (note.stored, note.check) for seq, note in plain.items()
    }
    assert len(records) == len(plain)
    assert all(note.ranges in ((), ranges(seq)) for seq, note in held(records).items())
