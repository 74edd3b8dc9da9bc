from __future__ import annotations

import io
import random

import pyarrow as pa
import pytest

from mars.codec.limits import MESSAGE_BYTES_MAX
from mars.codec.messages import decode
from mars.plan import Field, FieldType, Format, Stream
from mars.types import Reason, StreamName
from tests.unit.codec.samples import ARROW, FIELDS, records


def message(table: pa.Table) -> bytes:
    buffer = io.BytesIO()
    with pa.ipc.new_stream(buffer, table.schema) as writer:
        writer.write_table(table)
    return buffer.getvalue()


def column(kind: FieldType, values: pa.Array) -> tuple[list[object], list[bool]]:
    """Values and invalid marks of one field."""
    fields = (Field("at", FieldType.TIMESTAMP_MS), Field("x", kind))
    stream = Stream(StreamName("s"), "t", Format.ARROW, fields, "at")
    table = pa.table({"at": pa.array(range(len(values)), pa.int64()), "x": values})
    decoded = decode(stream, fields, records([message(table)]))
    marks = decoded.invalid.to_dict(as_series=False).get("x", [False] * len(values))
    return decoded.frame.get_column("x").to_list(), marks


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
        (FieldType.INT64, pa.array([7, 7]).dictionary_encode(), [7, 7]),
        (FieldType.BOOL, pa.array([True, None]), [True, None]),
        (FieldType.TIMESTAMP_US, pa.array([-1, 1999]), [-1, 1]),
        (FieldType.TIMESTAMP_S, pa.array([2]), [2000]),
        (FieldType.TIMESTAMP_ISO, pa.array(["1970-01-01T00:00:01Z"]), [1000]),
        (FieldType.TIMESTAMP_MS, pa.array([-1, 1], pa.timestamp("us", "UTC")), [-1, 0]),
        (FieldType.TIMESTAMP_S, pa.array([1500], pa.timestamp("ms")), [1500]),
        (FieldType.TIMESTAMP_ISO, pa.array([2], pa.timestamp("s")), [2000]),
        (FieldType.TIMESTAMP_MS, pa.array([-1_500_000], pa.timestamp("ns")), [-2]),
    ],
)
def test_types_that_hold_the_values_are_accepted(
    kind: FieldType, values: pa.Array, expected: list[object]
) -> None:
    assert column(kind, values) == (expected, [False] * len(expected))


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (FieldType.INT64, pa.array([1.0])),
        (FieldType.INT64, pa.array(["1"])),
        (FieldType.INT64, pa.array([True])),
        (FieldType.INT64, pa.array([2**63], pa.uint64())),
        (FieldType.INT64, pa.array([1], pa.timestamp("ms"))),
        (FieldType.FLOAT64, pa.array(["1"])),
        (FieldType.STRING, pa.array([b"a"], pa.binary())),
        (FieldType.STRING, pa.array([["a"]])),
        (FieldType.BOOL, pa.array([1])),
        (FieldType.TIMESTAMP_MS, pa.array([1.0])),
        (FieldType.TIMESTAMP_MS, pa.array(["1970-01-01"])),
        (FieldType.TIMESTAMP_S, pa.array([2**62])),
        (FieldType.TIMESTAMP_S, pa.array([2**62], pa.timestamp("s"))),
        (FieldType.TIMESTAMP_ISO, pa.array(["yesterday"])),
        (FieldType.TIMESTAMP_ISO, pa.array([1])),
    ],
)
def test_values_of_other_types_are_invalid(kind: FieldType, values: pa.Array) -> None:
    assert column(kind, values) == ([None], [True])


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
    whole = message(table)
    for _ in range(2_000):
        damaged = bytearray(whole)
        for _ in range(chance.choice((1, 1, 2, 8))):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        decoded = decode(ARROW, FIELDS, records([bytes(damaged)]))
        assert decoded.rows + len(decoded.unreadable) >= 0
        assert decoded.frame.height == decoded.rows
