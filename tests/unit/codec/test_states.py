"""Frames of states and their bytes."""

from __future__ import annotations

import polars as pl
import pytest

from mars.core.errors import StatesTooLarge
from mars.engine.codec import states as states_module
from mars.engine.codec.entry import CorruptEntry
from mars.engine.codec.states import decode_states, encode_states, states_bytes

FRAME = pl.DataFrame({"pane": [0, 10], "k0": ["a", None], "a0_n": [1, 2]})


def test_a_frame_comes_back_as_it_was() -> None:
    assert decode_states(encode_states(FRAME)).equals(FRAME)


def test_no_bytes_are_no_columns() -> None:
    assert decode_states(b"").width == 0


@pytest.mark.parametrize("states", [b"other", b"MLZ4", b"MLZ4\x0c\0\0\0other"])
def test_bytes_that_are_none_of_ours_are_told(states: bytes) -> None:
    with pytest.raises(CorruptEntry, match=f"{len(states)} bytes"):
        decode_states(states)


def test_bytes_without_a_head_count_for_what_they_are() -> None:
    assert [states_bytes(one) for one in (b"", b"other", b"MLZ4")] == [0, 5, 4]


def test_states_are_compressed_and_say_how_large_they_are_without() -> None:
    frame = pl.DataFrame({"k0": [f"10.0.{n % 200}.{n}" for n in range(5_000)], "a0_n": [1] * 5_000})
    plain, states = frame.write_ipc_stream(None).getvalue(), encode_states(frame)
    assert len(states) < len(plain) / 2
    assert states_bytes(states) == len(plain)


def test_small_states_are_a_plain_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = FRAME.write_ipc_stream(None).getvalue()
    monkeypatch.setattr(states_module, "PLAIN_BYTES_MAX", len(plain))
    assert encode_states(FRAME) == plain
    monkeypatch.setattr(states_module, "PLAIN_BYTES_MAX", len(plain) - 1)
    longer = encode_states(FRAME)
    assert longer.startswith(b"MLZ4")
    assert states_bytes(longer) == len(plain)
    assert decode_states(longer).equals(FRAME)


def test_states_of_the_release_before_are_read_and_count_for_what_they_are() -> None:
    plain = FRAME.write_ipc_stream(None).getvalue()
    assert decode_states(plain).equals(FRAME)
    assert states_bytes(plain) == len(plain)


def test_states_that_the_store_would_not_take_as_one_value_are_over_a_limit() -> None:
    with pytest.raises(StatesTooLarge, match=r"2 groups .* 100 is the most .* fewer groups"):
        encode_states(FRAME, 100)
