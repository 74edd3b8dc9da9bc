"""States that are left unread, and read together, are those that were written."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mars.engine.codec.entry import CorruptEntry
from mars.engine.codec.states import PLAIN_BYTES_MAX, encode_states
from mars.engine.codec.streams import UnreadStates, read, unread

GROUP = st.tuples(
    st.none() | st.text(max_size=20), st.integers(-(2**100), 2**100), st.none() | st.floats(-9, 9)
)
LONG = [("key" * number, 2**80, None) for number in range(200)]
"""More than stay uncompressed."""

FRAMES = st.lists(st.lists(GROUP, max_size=9) | st.just(LONG), min_size=1, max_size=5)


def frame(groups: Sequence[tuple[str | None, int, float | None]]) -> pl.DataFrame:
    schema = {"k0": pl.String, "a0_sum": pl.Int128, "a1_value": pl.Float64}
    return pl.DataFrame(groups, schema=schema, orient="row")


def left(states: bytes) -> UnreadStates:
    found = unread(states)
    assert found is not None
    return found


@given(FRAMES, st.data())
def test_what_is_read_together_is_what_each_is(
    groups: list[list[tuple[str | None, int, float | None]]], data: st.DataObject
) -> None:
    frames = [frame(each) for each in groups]
    pieces = [each if data.draw(st.booleans()) else left(encode_states(each)) for each in frames]
    assert [one.height for one in pieces] == [one.height for one in frames]
    assert pl.concat(read(pieces)).equals(pl.concat(frames))


def test_side_by_side_they_are_one_frame_whether_compressed_or_not() -> None:
    short, long = encode_states(frame([("a", 1, 0.5)])), encode_states(frame(LONG))
    assert len(short) <= PLAIN_BYTES_MAX
    assert long.startswith(b"MLZ4")
    (whole,) = read([left(short), left(long), left(short)])
    assert whole.height == 2 + len(LONG)


def test_another_schema_is_another_frame() -> None:
    other = pl.DataFrame({"k0": [1]})
    first, second = read([left(encode_states(frame([("a", 1, 0.5)]))), left(encode_states(other))])
    assert second.equals(other)
    assert first.width == 3


def two_batches() -> bytes:
    piece = left(encode_states(frame([("a", 1, 0.5)])))
    return piece.schema + 2 * piece.batch + b"\xff\xff\xff\xff\0\0\0\0"


@pytest.mark.parametrize("cut", [1, 8, 40, 300, -1, -9])
def test_a_stream_that_is_cut_is_not_left_unread(cut: int) -> None:
    assert unread(encode_states(frame([("a", 1, 0.5)]))[:cut]) is None


def test_what_says_nothing_of_its_rows_at_its_begin_is_not_left_unread() -> None:
    assert unread(b"") is None
    assert unread(b"no stream at all, but as long as one that has a schema") is None
    assert unread(two_batches()) is None


def test_a_batch_that_cannot_be_read_says_so() -> None:
    piece = left(encode_states(frame([("a", 1, 0.5)])))
    broken = UnreadStates(piece.schema, piece.batch[:30], piece.height)
    with pytest.raises(CorruptEntry):
        list(read([broken]))
