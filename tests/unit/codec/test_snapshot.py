from __future__ import annotations

import pytest

from mars.core.types import Bucket, Entry, Lane, PaneRows, Partial, Range, RowCounts, Sequence64
from mars.engine.codec.entry import CorruptEntry
from mars.engine.codec.snapshot import (
    PART_BYTES_MAX,
    decode_snapshot,
    encode_snapshot,
    parts_checksum,
)

LANE = Lane("3")


def entry(size: int) -> Entry:
    panes = (PaneRows(60_000, 9, {LANE: 4}),)
    partial = Partial(Bucket(2), RowCounts(), panes, b"s" * size)
    return Entry(Sequence64(0), 5, (Range(LANE, 4, 70),), partial)


@pytest.mark.parametrize("size", [0, 1, PART_BYTES_MAX, 3 * PART_BYTES_MAX + 1])
def test_a_snapshot_is_read_as_it_was_written_whatever_its_size(size: int) -> None:
    assert decode_snapshot(encode_snapshot(entry(size))) == entry(size)


def test_no_part_is_longer_than_a_message_may_be_and_none_is_empty() -> None:
    parts = encode_snapshot(entry(3 * PART_BYTES_MAX))
    assert len(parts) == 4
    assert all(0 < len(part) <= PART_BYTES_MAX for part in parts)


def test_a_part_that_is_missing_shows() -> None:
    parts = encode_snapshot(entry(3 * PART_BYTES_MAX))
    with pytest.raises(CorruptEntry):
        decode_snapshot(parts[:-1])


def test_the_checksum_tells_parts_in_another_order() -> None:
    first, second = parts = (b"one", b"two")
    assert parts_checksum(parts) != parts_checksum((second, first))
