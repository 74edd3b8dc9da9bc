"""What a lane's buffer makes of the pieces that it was given."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from mars.core.types import Lane, Records
from mars.protocol.mapper.lane_buffer import LaneBuffer

LANE = Lane("0")


def piece(first: int, keys: Sequence[bytes | None] | None, value: bytes = b"v") -> Records:
    return Records(LANE, first, first + 2, [value] * 2, range(first, first + 2), [1, 2], keys)


@pytest.mark.parametrize(
    ("keys", "joined"),
    [
        (([b"a", None], [b"b", b"c"]), [b"a", None, b"b", b"c"]),
        ((None, None), None),
        ((None, [b"b", b"c"]), None),
    ],
)
def test_pieces_are_joined_with_the_keys_of_all_or_none(
    keys: tuple[Sequence[bytes | None] | None, ...], joined: list[bytes | None] | None
) -> None:
    buffer = LaneBuffer(LANE)
    for at, some in enumerate(keys):
        buffer.add(piece(2 * at, some), 0)
    assert buffer.joined().keys == joined
    assert buffer.joined().offsets == range(4)


def test_keys_count_among_the_bytes_that_are_held() -> None:
    with_keys, without = LaneBuffer(LANE), LaneBuffer(LANE)
    with_keys.add(piece(0, [b"k" * 1_000] * 2), 0)
    without.add(piece(0, None), 0)
    assert with_keys.bytes - without.bytes >= 2_000
