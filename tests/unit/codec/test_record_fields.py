"""Fields that are taken from the records: their key, Kafka's time, partition and offset."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pytest

from mars.core.plan import (
    RECORD_TIME_FIELD,
    Column,
    Field,
    FieldType,
    Format,
    Origin,
    Stream,
    ValueType,
)
from mars.core.types import Lane, Reason, Records, RowCounts, StreamName
from mars.engine.decode.messages import decode
from mars.engine.decode.usable import usable_rows
from mars.engine.kernel import map_batch
from tests.unit.codec.samples import plan_of

SIZE = Field("size", FieldType.INT64)
NAME = Field("name", FieldType.STRING)
KEY = Field("key", FieldType.STRING, Origin.KEY)
PARTITION = Field("partition", FieldType.INT64, Origin.PARTITION)
OFFSET = Field("offset", FieldType.INT64, Origin.OFFSET)
DECLARED = (KEY, SIZE, PARTITION, NAME, OFFSET, RECORD_TIME_FIELD)
STREAM = Stream(StreamName("s"), "topic", Format.JSON, DECLARED, RECORD_TIME_FIELD.name)


def batch(
    values: Sequence[bytes | None], keys: Sequence[bytes | None] | None, stamps: Sequence[int]
) -> Records:
    """Records of partition 3 with a gap before the last one."""
    offsets = [*range(10, 9 + len(values)), 20]
    return Records(Lane("3@b1"), 10, 30, values, offsets, stamps, keys)


def as_lines(rows: Sequence[tuple[int, str]], format_: Format) -> bytes:
    """Rows of (size, name) as one message."""
    match format_:
        case Format.CSV:
            return "\n".join(f"{size},{name}" for size, name in rows).encode()
        case Format.ARROW:
            table = pa.table({"size": [row[0] for row in rows], "name": [row[1] for row in rows]})
            buffer = io.BytesIO()
            with pa.ipc.new_stream(buffer, table.schema) as writer:
                writer.write_table(table)
            return buffer.getvalue()
        case _:
            objects = [{"size": size, "name": name} for size, name in rows]
            if format_ is Format.JSON:
                return json.dumps(objects).encode()
            return "\n".join(map(json.dumps, objects)).encode()


@pytest.mark.parametrize("format_", Format)
def test_all_rows_of_a_message_have_what_its_record_has(format_: Format) -> None:
    messages = [as_lines(rows, format_) for rows in ([(1, "a"), (2, "b")], [(3, "c")])]
    stream = replace(STREAM, format=format_)
    decoded = decode(stream, DECLARED, batch(messages, [b"k", None], [1_000, 2_000]))
    assert decoded.frame.columns == [one.name for one in DECLARED]
    assert decoded.frame.rows() == [
        ("k", 1, 3, "a", 10, 1_000),
        ("k", 2, 3, "b", 10, 1_000),
        (None, 3, 3, "c", 20, 2_000),
    ]
    assert decoded.fields == DECLARED
    assert decoded.invalid.is_empty()


def test_columns_of_csv_are_those_that_messages_hold() -> None:
    stream = replace(STREAM, format=Format.CSV)
    decoded = decode(stream, (NAME, OFFSET), batch([b"1,a", b"2,b"], None, [-1, -1]))
    assert decoded.frame.rows() == [("a", 10), ("b", 20)]


def test_messages_that_are_no_rows_have_no_fields_of_records_either() -> None:
    """Also where a task reads nothing of the message itself."""
    read = (KEY, OFFSET, RECORD_TIME_FIELD)
    values = [b'{"size":"odd"}', b"{oops", b"[]", b'{"size":2}']
    decoded = decode(STREAM, read, batch(values, [b"a", b"b", b"c", b"d"], [1, 2, 3, 4]))
    assert decoded.frame.rows() == [("a", 10, 1), ("d", 20, 4)]
    assert [bad.message for bad in decoded.unreadable] == [1]
    plan = plan_of(stream=STREAM, fields=[one.name for one in read])
    assert usable_rows(plan, decoded).bad == 1


def test_a_key_that_is_not_utf_8_spoils_its_rows_for_tasks_that_read_it() -> None:
    rows = batch([b'{"size":1}'] * 3, [b"a", b"\xff", "ä".encode()], [1, 2, 3])
    reads_key = plan_of(stream=STREAM, fields=["key", RECORD_TIME_FIELD.name])
    decoded = decode(STREAM, reads_key.fields, rows)
    assert decoded.frame.get_column("key").to_list() == ["a", None, "ä"]
    (bad,) = usable_rows(reads_key, decoded).rejections.rows
    assert (bad.offset, bad.reason, bad.detail) == (
        11,
        Reason.WRONG_TYPE,
        "`key` is not a valid string",
    )
    other = plan_of(stream=STREAM, fields=["offset", RECORD_TIME_FIELD.name])
    assert usable_rows(other, decoded).bad == 0


def test_a_record_without_a_time_is_bad_where_that_is_the_event_time() -> None:
    plan = plan_of(stream=STREAM, fields=["size", RECORD_TIME_FIELD.name])
    decoded = decode(STREAM, plan.fields, batch([b'{"size":1}'] * 2, None, [-1, 5_000]))
    usable = usable_rows(plan, decoded)
    assert (usable.bad, usable.future, usable.mark_ms) == (1, 0, 5_000)
    (bad,) = usable.rejections.rows
    assert (bad.reason, bad.detail) == (Reason.NO_EVENT_TIME, "`$timestamp` is missing or NULL")


def test_records_that_were_read_without_their_keys_are_refused_and_not_taken_for_keyless() -> None:
    rows = batch([b"{}", b"{}"], None, [1, 2])
    with pytest.raises(ValueError, match="without their keys"):
        decode(STREAM, (KEY, RECORD_TIME_FIELD), rows)
    assert decode(STREAM, (OFFSET, RECORD_TIME_FIELD), rows).rows == 2


def test_a_part_of_the_batch_has_its_own_keys() -> None:
    rows = batch([b'{"size":1}'] * 3, [b"a", b"b", b"c"], [1, 2, 3])
    decoded = decode(STREAM, DECLARED, rows)
    part = decoded.from_offset(11).until(15)
    assert part.records.keys == [b"b"]
    assert part.frame.get_column("key").to_list() == ["b"]
    alone = Records(Lane("3@b1"), 11, 15, [b'{"size":1}'], [11], [2], [b"b"])
    assert decode(STREAM, DECLARED, alone).frame.equals(part.frame)


def test_a_task_may_group_by_the_key_of_the_record() -> None:
    rows = batch([b"{}"] * 4, [b"a", b"b", b"a", None], [1_000, 2_000, 61_000, 3_000])
    key = Column("key", ValueType.STRING)
    plan = plan_of(key, stream=STREAM, fields=["key", RECORD_TIME_FIELD.name])
    mapped = map_batch(plan, 4, decode(STREAM, plan.fields, rows))
    counts = sum((one.counts for one in mapped.partials), RowCounts())
    assert counts == RowCounts(counted=4)
    assert mapped.marks_ms == {Lane("3@b1"): 61_000}
