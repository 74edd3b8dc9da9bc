"""Streams and tasks as they are stored: a release reads what it and those before have written."""

from __future__ import annotations

from dataclasses import replace

from mars.core.definitions import (
    TaskDefinition,
    TaskState,
    TaskVersion,
    decode_definition,
    decode_stream,
    encode_definition,
    encode_stream,
)
from mars.core.plan import RECORD_TIME_FIELD, Field, FieldType, Format, Origin, RecordTime, Stream
from mars.core.types import StreamName, TaskName

PLAIN = Stream(StreamName("s"), "t", Format.CSV, (Field("at", FieldType.TIMESTAMP_MS),), "at")
RICH = replace(
    PLAIN,
    fields=(*PLAIN.fields, Field("key", FieldType.STRING, Origin.KEY), RECORD_TIME_FIELD),
    event_time=RECORD_TIME_FIELD.name,
    csv_delimiter="\t",
    csv_quote="'",
    record_time=RecordTime.IGNORE,
)
OF_BEFORE = (
    b'{"name":"s","topic":"t","format":"csv","fields":[{"name":"at","type":"timestamp_ms"}],'
    b'"event_time":"at","csv_header":false}'
)


def test_a_stream_is_read_as_it_was_written() -> None:
    for stream in (PLAIN, RICH):
        assert decode_stream(encode_stream(stream)) == stream


def test_a_stream_of_a_release_before_reads_as_it_did() -> None:
    assert decode_stream(OF_BEFORE) == PLAIN


def test_a_version_carries_all_that_judges_its_rows() -> None:
    version = TaskVersion(1, "SELECT", {}, RICH, "id", 0, {})
    task = TaskDefinition(TaskName("t"), TaskState.RUNNING, (version,))
    assert decode_definition(encode_definition(task)).current.stream == RICH


def test_a_task_of_a_release_before_is_in_its_first_run() -> None:
    task = TaskDefinition(TaskName("t"), TaskState.PAUSED, (), first_version=3)
    raw = encode_definition(task).replace(b',"resumes":0', b"")
    assert b"resumes" not in raw
    assert decode_definition(raw).run == (3, 0)
    assert decode_definition(encode_definition(task.resumed())).run == (3, 1)
