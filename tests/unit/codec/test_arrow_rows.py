from __future__ import annotations

import io
import random
import struct
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from mars.core.plan import Field, FieldType, Format, Stream
from mars.core.types import Reason, StreamName
from mars.engine.decode.formats.arrow_end import END_OF_STREAM, SEVERAL
from mars.engine.decode.limits import MESSAGE_BYTES_MAX
from mars.engine.decode.messages import decode
from mars.engine.evaluate.values import dtype_of
from tests.unit.codec.samples import ARROW, FIELDS, records


def message(table: pa.Table, options: pa.ipc.IpcWriteOptions | None = None) -> bytes:
    buffer = io.BytesIO()
    with pa.ipc.new_stream(buffer, table.schema, options=options) as writer:
        writer.write_table(table)
    return buffer.getvalue()


def written(write: Callable[..., Any], *tables: pa.Table) -> bytes:
    """A stream or a file of several batches."""
    buffer = io.BytesIO()
    with write(buffer, (tables or (pa.table({"at": pa.array([], pa.int64())}),))[0].schema) as to:
        for table in tables:
            to.write_table(table)
    return buffer.getvalue()


def column(kind: FieldType, values: pa.Array) -> tuple[list[object], list[bool]]:
    """Values and invalid marks of one field."""
    fields = (Field("at", FieldType.TIMESTAMP_MS), Field("x", kind))
    stream = Stream(StreamName("s"), "t", Format.ARROW, fields, "at")
    table = pa.table({"at": pa.array(range(len(values)), pa.int64()), "x": values})
    decoded = decode(stream, fields, records([message(table)]))
    marks = decoded.invalid.to_dict(as_series=False).get("x", [False] * len(values))
    return decoded.frame.get_column("x").to_list(), marks


VIEWS = pa.string_view()
LONG = "longer than a view holds in itself"


def dictionary(
    texts: list[str | None], indices: list[int | None], kind: pa.DataType = VIEWS
) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(indices, pa.uint32()), pa.array(texts, kind))


def views_with_rubbish() -> pa.Array:
    """A text, and a NULL whose view names a buffer that is not there: Arrow leaves that open."""
    text = struct.pack("<i4sii", 40, b"aaaa", 0, 0)
    rubbish = struct.pack("<iiii", 0x00FF0000, 0, -16777216, 0)
    buffers = [b"\x01", text + rubbish, b"a" * 40]
    return pa.Array.from_buffers(VIEWS, 2, [pa.py_buffer(one) for one in buffers])


def test_each_row_of_a_stream_is_a_row() -> None:
    one = pa.table({"at": [1, 2], "name": ["a", None], "size": [5, 6]})
    other = pa.table({"name": ["c"], "at": [3]})
    decoded = decode(ARROW, FIELDS, records([message(one), message(one), message(other)]))
    assert decoded.frame.select("at", "name", "size").rows() == [
        (1, "a", 5),
        (2, None, 6),
        (1, "a", 5),
        (2, None, 6),
        (3, "c", None),
    ]
    assert decoded.messages is not None
    assert decoded.messages.to_list() == [0, 0, 1, 1, 2]


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        (FieldType.INT64, pa.array([1, None], pa.int8()), [1, None]),
        (FieldType.INT64, pa.array([1, 2**32 - 1], pa.uint32()), [1, 2**32 - 1]),
        (FieldType.INT64, pa.array([None, None]), [None, None]),
        (FieldType.FLOAT64, pa.array([1.5], pa.float32()), [1.5]),
        (FieldType.FLOAT64, pa.array([3], pa.int16()), [3.0]),
        (FieldType.STRING, pa.array(["a", None], pa.large_string()), ["a", None]),
        (FieldType.STRING, pa.array(["a"], pa.string_view()), ["a"]),
        (FieldType.STRING, pa.array(["a", "b", "a"]).dictionary_encode(), ["a", "b", "a"]),
        (
            FieldType.STRING,
            dictionary(["a", LONG], [1, None, 0]),
            [LONG, None, "a"],
        ),
        (FieldType.STRING, dictionary(["a", None], [1, 0]), [None, "a"]),
        (FieldType.STRING, dictionary([], [None]), [None]),
        (FieldType.STRING, views_with_rubbish(), ["a" * 40, None]),
        (FieldType.STRING, dictionary(["a"], [0], pa.large_string()), ["a"]),
        (FieldType.STRING, pa.array([None, None]).dictionary_encode(), [None, None]),
        (FieldType.INT64, pa.array([7, 7]).dictionary_encode(), [7, 7]),
        (FieldType.FLOAT64, pa.array([1.5, None], pa.float16()).dictionary_encode(), [1.5, None]),
        (FieldType.BOOL, pa.array([True, None]), [True, None]),
        (FieldType.TIMESTAMP_US, pa.array([-1, 1999]), [-1, 1]),
        (FieldType.TIMESTAMP_S, pa.array([2]), [2000]),
        (FieldType.TIMESTAMP_ISO, pa.array(["1970-01-01T00:00:01Z"]), [1000]),
        (FieldType.TIMESTAMP_ISO, dictionary(["1970-01-01"], [0]), [0]),
        (FieldType.TIMESTAMP_MS, pa.array([-1, 1], pa.timestamp("us", "UTC")), [-1, 0]),
        (FieldType.TIMESTAMP_S, pa.array([1500], pa.timestamp("ms")), [1500]),
        (FieldType.TIMESTAMP_ISO, pa.array([2], pa.timestamp("s")), [2000]),
        (FieldType.TIMESTAMP_MS, pa.array([-1_500_000], pa.timestamp("ns")), [-2]),
        (FieldType.INT64, pa.array([1.0, None, -3.0]), [1, None, -3]),
        (FieldType.INT64, pa.array([Decimal(5), None]), [5, None]),
        (FieldType.INT64, pa.array([Decimal("5.00")]), [5]),
        (FieldType.INT64, pa.array([Decimal(5)], pa.decimal64(9, 0)), [5]),
        (FieldType.INT64, pa.array([Decimal(5)]).dictionary_encode(), [5]),
        (FieldType.FLOAT64, pa.array([Decimal("1.25"), None]), [1.25, None]),
        (FieldType.TIMESTAMP_S, pa.array([1767225600.123456]), [1_767_225_600_123]),
        (FieldType.TIMESTAMP_MS, pa.array([1.0], pa.float32()), [1]),
        (FieldType.TIMESTAMP_MS, pa.array([date(2026, 1, 1), None]), [1_767_225_600_000, None]),
        (FieldType.TIMESTAMP_ISO, pa.array([date(1969, 12, 31)], pa.date64()), [-86_400_000]),
    ],
)
def test_types_that_hold_the_values_are_accepted(
    kind: FieldType, values: pa.Array, expected: list[object]
) -> None:
    assert column(kind, values) == (expected, [False] * len(expected))


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (FieldType.INT64, pa.array([1.5])),
        (FieldType.INT64, pa.array([float("nan")])),
        (FieldType.INT64, pa.array([Decimal("1.5")])),
        (FieldType.INT64, pa.array([Decimal(2**63)])),
        (FieldType.INT64, pa.array([Decimal(1)], pa.decimal256(50, 0))),
        (FieldType.INT64, pa.array([Decimal(5000)], pa.decimal128(5, -3))),
        (FieldType.FLOAT64, pa.array([Decimal(5000)], pa.decimal128(5, -3)).dictionary_encode()),
        (FieldType.INT64, pa.array([date(2026, 1, 1)])),
        (FieldType.INT64, pa.array(["1"])),
        (FieldType.INT64, pa.array([True])),
        (FieldType.INT64, pa.array([2**63], pa.uint64())),
        (FieldType.INT64, pa.array([1], pa.timestamp("ms"))),
        (FieldType.FLOAT64, pa.array(["1"])),
        (FieldType.STRING, pa.array([b"a"], pa.binary())),
        (FieldType.STRING, pa.array([["a"]])),
        (FieldType.STRING, pa.array(["a"], pa.run_end_encoded(pa.int32(), pa.string()))),
        (FieldType.STRING, pa.array(['"a"'], pa.json_())),
        (FieldType.STRING, pa.array([b"a"]).dictionary_encode()),
        (FieldType.INT64, pa.array([2**63], pa.uint64()).dictionary_encode()),
        (FieldType.BOOL, pa.array([1])),
        (FieldType.TIMESTAMP_MS, pa.array([float("inf")])),
        (FieldType.TIMESTAMP_ISO, pa.array([1.5])),
        (FieldType.TIMESTAMP_MS, pa.array(["1970-01-01"])),
        (FieldType.TIMESTAMP_S, pa.array([2**62])),
        (FieldType.TIMESTAMP_S, pa.array([2**62], pa.timestamp("s"))),
        (FieldType.TIMESTAMP_ISO, pa.array(["yesterday"])),
        (FieldType.TIMESTAMP_ISO, pa.array([1])),
    ],
)
def test_values_of_other_types_are_invalid(kind: FieldType, values: pa.Array) -> None:
    assert column(kind, values) == ([None], [True])


def test_a_categorical_of_polars_is_text() -> None:
    frame = pl.DataFrame(
        {"at": [1, 2, 3], "name": pl.Series(["a", None, LONG], dtype=pl.Categorical)}
    )
    newest = io.BytesIO()
    frame.write_ipc_stream(newest, compat_level=pl.CompatLevel.newest())
    decoded = decode(ARROW, FIELDS, records([newest.getvalue()]))
    assert decoded.frame.get_column("name").to_list() == ["a", None, LONG]
    assert decoded.unreadable == ()


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()])
@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_each_batch_of_a_message_has_its_own_dictionary(
    kind: pa.DataType, compression: str | None
) -> None:
    words: list[list[str | None]] = [[], ["a", "b"], ["a", "b", LONG], ["c"], []]
    rows: list[list[int | None]] = [[], [1, None], [2, 0], [0], [None]]
    texts = pa.chunked_array([dictionary(*part, kind) for part in zip(words, rows, strict=True)])
    whole = pa.table(
        {"at": pa.chunked_array([pa.nulls(len(part), pa.int64()) for part in rows]), "name": texts}
    )
    expected = ["b", None, LONG, "a", "c", None]
    for deltas in (False, True):
        options = pa.ipc.IpcWriteOptions(compression=compression, emit_dictionary_deltas=deltas)
        value = message(whole, options)
        decoded = decode(ARROW, FIELDS, records([value, GOOD, value]))
        assert decoded.frame.get_column("name").to_list() == [*expected, "a", "b", *expected]


def big_endian(value: bytes) -> bytes:
    """The message with the schema saying that its numbers are big-endian; they are not."""
    (size,) = struct.unpack_from("<i", value, 4)
    metadata = value[8 : 8 + size]
    (top,) = struct.unpack_from("<I", metadata)
    (header,) = struct.unpack_from("<H", metadata, _slot(metadata, top, 2))
    (schema,) = struct.unpack_from("<I", metadata, top + header)
    schema += top + header
    changed = bytearray(metadata) + struct.pack("<hxxxxxx", 1)
    struct.pack_into("<H", changed, _slot(metadata, schema, 0), size - schema)
    return struct.pack("<ii", -1, len(changed)) + changed + value[8 + size :]


def _slot(metadata: bytes, table: int, field: int) -> int:
    """Where the offset of a field stands in the table of a flatbuffer."""
    (back,) = struct.unpack_from("<i", metadata, table)
    return int(table - back) + 4 + 2 * field


def test_a_big_endian_stream_is_read_or_unreadable() -> None:
    swapped = big_endian(message(pa.table({"at": [1 << 56], "size": [2 << 56]})))
    decoded = decode(ARROW, FIELDS, records([swapped]))
    assert decoded.frame.select("at", "size").rows() == [(1, 2)]
    views = pa.table({"at": [1], "name": pa.array(["a"], pa.string_view())})
    (bad,) = decode(ARROW, FIELDS, records([big_endian(message(views))])).unreadable
    assert bad.detail == "no Arrow IPC stream or file: Swapping endianness of string_view"


PLAIN = (
    *(pa.array([1, None], kind) for kind in (pa.int8(), pa.uint64(), pa.float16(), pa.float64())),
    *(pa.array([1, None], kind) for kind in (pa.date32(), pa.time64("us"), pa.duration("ns"))),
    *(pa.array([1, None], pa.timestamp(unit)) for unit in ("s", "ms", "us", "ns")),
    *(pa.array([1, None], kind) for kind in (pa.decimal128(9, 2), pa.decimal256(50, 0))),
    *(pa.array(["a", None], kind) for kind in (pa.string(), pa.large_string(), pa.string_view())),
    *(pa.array([b"a", None], kind) for kind in (pa.binary(), pa.binary_view(), pa.binary(1))),
    pa.array([True, None]),
    pa.nulls(2),
)
NESTED = (
    *(pa.array([["a"], None], kind(pa.string())) for kind in (pa.list_, pa.large_list)),
    pa.array([["a"], None], pa.list_view(pa.string_view())),
    pa.array([{"a": 1}, None]),
    pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())),
    pa.array([b"0" * 16, None], pa.uuid()),
    pa.UnionArray.from_sparse(pa.array([0, 0], pa.int8()), [pa.array([1, 2])]),
)
DICTIONARIES = tuple(
    pa.DictionaryArray.from_arrays(pa.array([0, None], pa.int8()), values)
    for values in (*PLAIN, *NESTED)
)
RUNS = tuple(
    pa.RunEndEncodedArray.from_arrays(pa.array([1, 2], pa.int32()), values)
    for values in (*PLAIN, *NESTED)
)


@pytest.mark.parametrize("kind", FieldType)
def test_a_column_of_any_type_is_read_or_bad_and_raises_nothing(kind: FieldType) -> None:
    fields = (Field("at", FieldType.TIMESTAMP_MS), Field("x", kind))
    stream = Stream(StreamName("s"), "t", Format.ARROW, fields, "at")
    for values in (*PLAIN, *NESTED, *DICTIONARIES, *RUNS):
        value = message(pa.table({"at": [1, 2], "x": values}))
        decoded = decode(stream, fields, records([value]))
        assert decoded.rows == 2 or decoded.unreadable, values.type
        assert decoded.frame.get_column("x").dtype == dtype_of(kind.value_type)


def test_fields_that_no_task_reads_may_be_of_any_type() -> None:
    table = pa.table({"at": [1], "name": [[{"a": 1}]], "size": pa.array([1], pa.decimal128(5))})
    decoded = decode(ARROW, FIELDS[:1], records([message(table)]))
    assert decoded.frame.rows() == [(1,)]
    assert decoded.invalid.is_empty()


def test_stream_without_rows_has_none_and_is_not_bad() -> None:
    empty = message(pa.table({"at": pa.array([], pa.int64())}))
    decoded = decode(ARROW, FIELDS, records([empty, message(pa.table({"at": [1]})), empty]))
    assert decoded.frame.get_column("at").to_list() == [1]
    assert decoded.message_of(0) == 1
    assert decoded.unreadable == ()


GOOD = message(pa.table({"at": [1, 2], "name": ["a", "b"]}))
TWICE = message(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["at", "at"]))


@pytest.mark.parametrize(
    "value", [None, b"", b"nonsense", GOOD[:40], GOOD[: len(GOOD) // 2], TWICE, b"\0" * 100]
)
def test_unreadable_message_is_one_bad_row(value: bytes | None) -> None:
    decoded = decode(ARROW, FIELDS, records([GOOD, value, GOOD]))
    assert [(bad.message, bad.line, bad.reason) for bad in decoded.unreadable] == [
        (1, 0, Reason.UNREADABLE)
    ]
    assert decoded.messages is not None
    assert decoded.messages.to_list() == [0, 0, 2, 2]


@pytest.mark.parametrize("write", [pa.ipc.new_stream, pa.ipc.new_file])
@pytest.mark.parametrize("rows", [(0, 0), (0, 2), (2, 0), (1, 1), (2, 2)])
def test_several_streams_or_files_in_one_message_are_unreadable(
    write: Callable[..., Any], rows: tuple[int, int]
) -> None:
    first, second = (written(write, *[pa.table({"at": [1]})] * count) for count in rows)
    decoded = decode(ARROW, FIELDS, records([first + second]))
    (bad,) = decoded.unreadable
    assert (bad.reason, bad.detail) == (
        Reason.UNREADABLE,
        f"no Arrow IPC stream or file: {SEVERAL}",
    )


@pytest.mark.parametrize("write", [pa.ipc.new_stream, pa.ipc.new_file])
@pytest.mark.parametrize("batches", [0, 1, 3])
def test_a_stream_may_be_padded_with_zeros_and_a_file_may_not(
    write: Callable[..., Any], batches: int
) -> None:
    value = written(write, *[pa.table({"at": [1]})] * batches)
    decoded = decode(ARROW, FIELDS, records([value]))
    assert (decoded.frame.height, len(decoded.unreadable)) == (batches, 0)
    if write is pa.ipc.new_stream:
        assert decode(ARROW, FIELDS, records([value + bytes(40)])).frame.height == batches


def test_a_stream_without_its_end_is_read() -> None:
    value = written(pa.ipc.new_stream, pa.table({"at": [1]})).removesuffix(END_OF_STREAM + bytes(4))
    assert decode(ARROW, FIELDS, records([value])).frame.height == 1


def test_message_over_the_limit_is_too_large() -> None:
    value = GOOD + b"\0" * MESSAGE_BYTES_MAX
    assert decode(ARROW, FIELDS, records([value])).unreadable[0].reason is Reason.TOO_LARGE


def test_damaged_streams_never_raise() -> None:
    chance = random.Random(7)
    table = pa.table(
        {
            "at": pa.array([1, 2, None], pa.int64()),
            "name": pa.array(["a", "b", "a"]).dictionary_encode(),
            "size": pa.array([1, 2, 3], pa.uint64()),
            "load": pa.array([1.0, 2.0, 3.0], pa.float32()),
            "ok": [True, None, False],
        }
    )
    views = dictionary(["a", LONG], [0, 1, None])
    wholes = (message(table), message(table.set_column(1, "name", views)))
    for _ in range(2_000):
        damaged = bytearray(chance.choice(wholes))
        for _ in range(chance.choice((1, 1, 2, 8))):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        decoded = decode(ARROW, FIELDS, records([bytes(damaged)]))
        assert decoded.rows + len(decoded.unreadable) >= 0
        assert decoded.frame.height == decoded.rows


@pytest.mark.parametrize("codec", [None, "zstd", "lz4"])
def test_file_is_read_as_a_stream_is(codec: str | None) -> None:
    table = pa.table({"at": [1, 2, 3], "name": pa.array(["a", None, "a"]).dictionary_encode()})
    buffer = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=codec)
    with pa.ipc.new_file(buffer, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=2)
    decoded = decode(ARROW, FIELDS, records([buffer.getvalue(), message(table)]))
    assert decoded.frame.select("at", "name").rows() == [(1, "a"), (2, None), (3, "a")] * 2
    assert decoded.unreadable == ()


def test_file_of_polars_is_read() -> None:
    buffer = io.BytesIO()
    pl.DataFrame({"at": [1, 2], "name": ["a", "b"]}).write_ipc(buffer, compression="zstd")
    decoded = decode(ARROW, FIELDS, records([buffer.getvalue()]))
    assert decoded.frame.select("at", "name").rows() == [(1, "a"), (2, "b")]


@pytest.mark.parametrize("damage", range(12))
def test_damaged_file_is_read_or_unreadable(damage: int) -> None:
    buffer = io.BytesIO()
    table = pa.table({"at": [1, 2], "name": ["a", "b"]})
    with pa.ipc.new_file(buffer, table.schema) as writer:
        writer.write_table(table)
    chance, value = random.Random(damage), bytearray(buffer.getvalue())
    for _ in range(3):
        value[chance.randrange(6, len(value))] = chance.randrange(256)
    decoded = decode(ARROW, FIELDS, records([bytes(value[: len(value) - damage % 3]), b"ARROW1"]))
    assert decoded.rows + len(decoded.unreadable) in {2, 3}
