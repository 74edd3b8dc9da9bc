"""Frames of states and their bytes."""

from __future__ import annotations

import polars as pl
import pytest

from mars.codec import states as states_module
from mars.codec.entry import CorruptEntry
from mars.codec.states import decode_states, encode_states
from mars.errors import TaskLimit

FRAME = pl.DataFrame({"pane": [0, 10], "k0": ["a", None], "a0_n": [1, 2]})


def test_a_frame_comes_back_as_it_was() -> None:
    assert decode_states(encode_states(FRAME)).equals(FRAME)


def test_no_bytes_are_no_columns() -> None:
    assert decode_states(b"").width == 0


def test_bytes_that_are_none_of_ours_are_told() -> None:
    with pytest.raises(CorruptEntry, match="5 bytes"):
        decode_states(b"other")


def test_states_that_the_store_would_not_take_as_one_value_are_over_a_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(states_module, "STATES_BYTES_MAX", 100)
    with pytest.raises(TaskLimit, match=r"2 groups .* and 100 fit into the store .* fewer groups"):
        encode_states(FRAME)
