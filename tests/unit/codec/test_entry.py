from __future__ import annotations

from dataclasses import replace

import msgspec
import polars as pl
import pytest

from mars.core.types import (
    Bucket,
    Lane,
    PaneRows,
    Partial,
    Range,
    Reason,
    RejectedRange,
    RejectedRow,
    Rejections,
    RowCounts,
    Sequence64,
)
from mars.engine.codec.dead import dead_rejections, decode_dead
from mars.engine.codec.entry import CorruptEntry, decode_entry, encode_entry
from mars.engine.codec.states import decode_states, encode_states
from tests.unit.codec.samples import plan_of

LANE = Lane("3@b1")
RANGES = (Range(LANE, 5, 9), Range(Lane("4"), 0, 2**62))
PARTIAL = Partial(
    bucket=Bucket(7),
    counts=RowCounts(1, 2, 3, 4),
    panes=(PaneRows(-60_000, 1, {LANE: 5}), PaneRows(0, 2, {LANE: 5, Lane("4"): 0})),
    states=b"some bytes",
    rejections=Rejections(
        (RejectedRow(LANE, 6, Reason.FUTURE, "why", b"\0\xff"),),
        (RejectedRange(LANE, 7, 9, Reason.UNREADABLE, 2),),
    ),
)


def test_entry_comes_back_as_it_was() -> None:
    header, body = encode_entry(3, RANGES, PARTIAL)
    entry = decode_entry(Sequence64(12), header, body)
    assert (entry.seq, entry.version, entry.ranges) == (12, 3, RANGES)
    assert entry.partial == PARTIAL


def test_numbers_of_rows_come_back_and_entries_of_before_have_none() -> None:
    counted = replace(PARTIAL, numbers={LANE: {5: 3, 9: 7}})
    header, body = encode_entry(3, RANGES, counted)
    assert decode_entry(Sequence64(12), header, body).partial == counted

    *before, numbers = msgspec.msgpack.decode(header)
    assert numbers == {"3@b1": {5: 3, 9: 7}}
    older = msgspec.msgpack.encode(before)
    assert decode_entry(Sequence64(12), older, body).partial == PARTIAL


def test_reasons_of_a_newer_release_are_passed_on() -> None:
    """During a rolling upgrade: the newer mappers reject rows for reasons that readers lack."""
    newer = Rejections(
        (RejectedRow(LANE, 6, "cursed", "why", b"\0"),), (RejectedRange(LANE, 7, 9, "cursed", 2),)
    )
    header, body = encode_entry(3, RANGES, replace(PARTIAL, rejections=newer))
    entry = decode_entry(Sequence64(12), header, body)
    assert entry.partial.rejections == newer
    written = dead_rejections(plan_of(), entry.partial.rejections)
    assert [decode_dead(one).reason for one in written] == ["cursed", "cursed"]


def test_known_reasons_come_back_as_themselves() -> None:
    header, body = encode_entry(3, RANGES, PARTIAL)
    (row,) = decode_entry(Sequence64(12), header, body).partial.rejections.rows
    assert row.reason is Reason.FUTURE


def test_equal_entries_have_equal_bytes() -> None:
    assert encode_entry(3, RANGES, PARTIAL) == encode_entry(3, RANGES, PARTIAL)


def test_header_of_an_entry_with_rows_only_is_small() -> None:
    partial = Partial(Bucket(1), RowCounts(5), (PaneRows(0, 5, {LANE: 5}),), b"")
    header, _ = encode_entry(1, RANGES[:1], partial)
    assert len(header) < 64


@pytest.mark.parametrize("cut", [0, 1, 10, -1])
def test_cut_header_is_corrupt(cut: int) -> None:
    header, body = encode_entry(3, RANGES, PARTIAL)
    with pytest.raises(CorruptEntry, match="12"):
        decode_entry(Sequence64(12), header[:cut], body)


def test_other_body_is_corrupt() -> None:
    header, body = encode_entry(3, RANGES, PARTIAL)
    with pytest.raises(CorruptEntry):
        decode_entry(Sequence64(12), header, body + b"!")


def test_header_of_another_form_is_refused() -> None:
    header, body = encode_entry(3, RANGES, PARTIAL)
    with pytest.raises(CorruptEntry, match="form 3, this reads 1 to 2"):
        decode_entry(Sequence64(12), header[:1] + b"\x03" + header[2:], body)


def test_entry_of_the_release_before_is_read() -> None:
    stream = pl.DataFrame({"pane": [0, 1]}).write_ipc_stream(None).getvalue()
    header, body = encode_entry(3, RANGES, replace(PARTIAL, states=stream))
    found = decode_entry(Sequence64(12), header[:1] + b"\x01" + header[2:], body)
    assert decode_states(found.partial.states).to_dict(as_series=False) == {"pane": [0, 1]}


def test_states_come_back_as_they_were() -> None:
    frame = pl.DataFrame(
        {"pane": [0, 1], "k0": ["a", None], "a0_sum": pl.Series([2**100, None], dtype=pl.Int128)}
    )
    assert decode_states(encode_states(frame)).equals(frame)
    assert encode_states(frame) == encode_states(frame.clone())


def test_no_states_are_no_bytes() -> None:
    assert decode_states(b"").is_empty()


@pytest.mark.parametrize("states", [b"nonsense", encode_states(pl.DataFrame({"a": [1]}))[:50]])
def test_broken_states_are_corrupt(states: bytes) -> None:
    with pytest.raises(CorruptEntry):
        decode_states(states)
