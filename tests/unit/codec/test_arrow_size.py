from __future__ import annotations

import io
import random

import numpy as np
import pyarrow as pa
import pytest

from mars.core.types import Reason
from mars.engine.decode.formats import arrow_size
from mars.engine.decode.formats.arrow_size import MESSAGE_ROWS_MAX, too_large
from mars.engine.decode.limits import MESSAGE_BYTES_MAX, UNPACKED_BYTES_MAX
from mars.engine.decode.messages import decode
from tests.unit.codec.samples import ARROW, FIELDS, records

GOOD = pa.table({"at": [1], "name": ["a"], "size": [5]})


def message(table: pa.Table, compression: str | None = None) -> bytes:
    buffer = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(buffer, table.schema, options=options) as writer:
        writer.write_table(table)
    return buffer.getvalue()


def refusal(value: bytes) -> str:
    """Why a message is one bad row; the rows of the messages beside it are there."""
    decoded = decode(ARROW, FIELDS, records([message(GOOD), value, message(GOOD)]))
    assert decoded.frame.get_column("at").to_list() == [1, 1]
    (bad,) = decoded.unreadable
    assert (bad.message, bad.reason) == (1, Reason.TOO_LARGE)
    return bad.detail


def test_a_damaged_byte_of_a_file_spoils_that_message_alone() -> None:
    buffer = io.BytesIO()
    with pa.ipc.new_file(buffer, GOOD.schema) as writer:
        writer.write_table(GOOD)
    whole = buffer.getvalue()
    for at in range(len(whole)):
        damaged = whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :]
        zeroed = whole[:at] + b"\0" + whole[at + 1 :]
        for value in (damaged, zeroed):
            decoded = decode(ARROW, FIELDS, records([message(GOOD), value, message(GOOD)]))
            times = decoded.frame.get_column("at").to_list()
            assert (times[0], times[-1]) == (1, 1)
            assert len(decoded.unreadable) <= 1


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_rows_that_unpack_to_more_than_the_limit_are_refused_unpacked_by_nobody(
    compression: str,
) -> None:
    rows = UNPACKED_BYTES_MAX // 8 // 2 + 1
    bomb = message(pa.table({"at": np.zeros(rows, int), "size": np.zeros(rows, int)}), compression)
    assert len(bomb) < MESSAGE_BYTES_MAX // 10
    before = pa.total_allocated_bytes()
    assert refusal(bomb) == (
        f"its rows unpack to {rows * 16} bytes or more, at most {UNPACKED_BYTES_MAX} are read"
    )
    assert pa.total_allocated_bytes() == before


def test_batches_of_a_message_count_together() -> None:
    rows = UNPACKED_BYTES_MAX // 8 // 2
    batch = pa.record_batch({"at": np.zeros(rows, int)})
    assert too_large(message(pa.Table.from_batches([batch] * 2), "zstd")) is None
    assert too_large(message(pa.Table.from_batches([batch] * 3), "zstd")) is not None


def test_the_words_of_a_dictionary_count() -> None:
    words = pa.array(["x" * (UNPACKED_BYTES_MAX + 1)]).dictionary_encode()
    assert "unpack" in refusal(message(pa.table({"at": [1], "other": words}), "zstd"))


@pytest.mark.parametrize("kind", ["dictionary", "view"])
def test_a_text_that_many_rows_share_counts_for_each(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow_size, "UNPACKED_BYTES_MAX", 1_000_000)
    text = "x" * 1_000

    def shared(rows: int) -> bytes:
        names = pa.DictionaryArray.from_arrays(pa.array([0] * rows + [None]), pa.array([text]))
        if kind == "view":
            view = pa.array([text], pa.string_view()).buffers()
            heads = pa.py_buffer(view[1].to_pybytes() * (rows + 1))
            valid = pa.array([True] * rows + [False]).buffers()[1]
            names = pa.Array.from_buffers(pa.string_view(), rows + 1, [valid, heads, view[2]])
        return message(pa.table({"at": [*range(rows + 1)], "name": names}))

    allowed = decode(ARROW, FIELDS, records([shared(1_000)]))
    assert allowed.frame.get_column("name").to_list() == [text] * 1_000 + [None]
    assert "unpack to 1001000 bytes" in refusal(shared(1_001))


def test_a_text_that_many_rows_share_counts_in_a_column_that_nobody_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(arrow_size, "UNPACKED_BYTES_MAX", 1_000_000)
    words = pa.DictionaryArray.from_arrays(pa.array([0] * 1_001), pa.array(["x" * 1_000]))
    assert "unpack to" in refusal(message(pa.table({"at": [1] * 1_001, "other": words})))


def test_texts_that_share_bytes_in_a_dictionary_of_views_count_though_no_row_has_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(arrow_size, "UNPACKED_BYTES_MAX", 1_000_000)
    view = pa.array(["x" * 1_000], pa.string_view()).buffers()
    heads = pa.py_buffer(view[1].to_pybytes() * 1_001)
    words = pa.Array.from_buffers(pa.string_view(), 1_001, [None, heads, view[2]])
    names = pa.DictionaryArray.from_arrays(pa.array([None], pa.int32()), words)
    assert "unpack to 1001000 bytes" in refusal(message(pa.table({"at": [1], "name": names})))


def test_rows_without_any_bytes_are_limited_too() -> None:
    table = pa.table({"at": pa.nulls(MESSAGE_ROWS_MAX + 1)})
    assert (
        refusal(message(table))
        == f"it has {MESSAGE_ROWS_MAX + 1} rows or more, at most {MESSAGE_ROWS_MAX} are read"
    )


@pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
def test_messages_within_the_limit_are_read_compressed_or_not(compression: str | None) -> None:
    table = pa.table(
        {
            "at": [*range(10_000)],
            "name": pa.array([f"n{at % 7}" for at in range(10_000)]).dictionary_encode(),
            "size": [None, *range(1, 10_000)],
        }
    )
    decoded = decode(ARROW, FIELDS, records([message(table, compression)]))
    assert decoded.unreadable == ()
    assert decoded.frame.get_column("size").to_list() == [None, *range(1, 10_000)]
    assert decoded.frame.get_column("name").to_list()[:8] == [*(f"n{at}" for at in range(7)), "n0"]


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_the_size_is_what_pyarrow_says_after_unpacking(compression: str | None) -> None:
    chance = random.Random(4)
    for rows in (0, 1, 100, 5_000):
        table = pa.table(
            {
                "at": pa.array([chance.randrange(9) for _ in range(rows)], pa.int64()),
                "name": pa.array(["ab" * chance.randrange(9) for _ in range(rows)], pa.string()),
            }
        )
        value = message(table, compression)
        found = sum(
            sum(batch.sizes())
            for batch in map(arrow_size._batch, pa.ipc.MessageReader.open_stream(value))
            if batch is not None
        )
        # Buffers that are not compressed, because that gains nothing, are padded to 8 bytes.
        assert 0 <= found - table.nbytes <= 3 * 8


def test_a_stream_with_bytes_changed_is_read_or_refused_and_raises_nothing() -> None:
    chance = random.Random(7)
    words = pa.array(["a", "b", "a"]).dictionary_encode()
    sound = message(pa.table({"at": [1, 2, 3], "name": words, "size": [4, 5, 6]}), "lz4")
    for _ in range(500):
        spoilt = bytearray(sound)
        for _ in range(chance.randrange(1, 4)):
            spoilt[chance.randrange(len(spoilt))] = chance.randrange(256)
        decoded = decode(ARROW, FIELDS, records([bytes(spoilt)]))
        assert len(decoded.unreadable) <= 1
        assert decoded.frame.height <= MESSAGE_ROWS_MAX
