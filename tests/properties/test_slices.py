"""Messages cut into batches and into parts of few rows against the same messages at once."""

from __future__ import annotations

import io
from collections.abc import Sequence
from itertools import pairwise
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mars.core.plan import Aggregate, AggregateFunction, Plan, Stream, ValueType
from mars.core.types import UNDECODABLE, Mapped, Records
from mars.engine.combining import combine
from mars.engine.decode import parts
from mars.engine.decode.decoded import Decoded
from mars.engine.decode.messages import decode
from mars.engine.decode.parts import decode_slices
from mars.engine.kernel import map_batch
from tests.properties import test_codec
from tests.properties.test_kernel import counts_of, groups_of
from tests.unit.codec.samples import (
    ARROW,
    COUNT,
    CSV,
    CSV_HEADER,
    FIELDS,
    JSON,
    NAME,
    NDJSON,
    SIZE,
    plan_of,
    records,
    row,
)

SLICES = settings(max_examples=30, deadline=None)
SUM = Aggregate("a1", AggregateFunction.SUM, SIZE, None, ValueType.INT64)
MARK = b"\xef\xbb\xbf"

OBJECTS = st.sampled_from(
    [
        row(at=1, name="a"),
        row(at=61_000, name='[",]\\'),
        row(at=2, name="b\\\\", size=1.5),
        row(at="x"),
        row(name="c"),
        row(at=3, tags=[1, [2, {"x": ","}]]),
        b"1",
        b"[1,2]",
        b'"a,b"',
    ]
)
LINES = st.one_of(OBJECTS, st.sampled_from([b"", b" ", b"{", MARK + row(at=4), row(at=5) + b"\r"]))
CELLS = st.sampled_from(
    [
        b"1,a,2,3,true",
        b"x,a,2,3,true",
        b'2,"a,b",2,3,true,more',
        b"1,a",
        b"",
        b"\r",
        b"3,a,,,\r",
        MARK + b"4,a,2,3,true",
        b'5,"a,2,3,true',
        b"6,\xff,2,3,true",
    ]
)


def joined(rows: st.SearchStrategy[bytes], between: bytes) -> st.SearchStrategy[bytes]:
    return st.lists(rows, max_size=12).map(between.join)


def with_mark(messages: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    return st.builds(bytes.__add__, st.sampled_from([b"", MARK]), messages)


ODD = st.sampled_from([None, UNDECODABLE, b"", b"\n\n\n", b"[1,2,3", b"at,at\n1\n2\n3\n4\n5"])
ARRAYS = st.lists(OBJECTS, max_size=12).map(lambda rows: b" [" + b" , ".join(rows) + b"]\n")
HEADED = joined(CELLS, b"\n").map(lambda lines: b"at,name,size,load,ok\n" + lines)


def arrow_message(times: Sequence[int | None], names: Sequence[str], *, packed: bool) -> bytes:
    """An Arrow stream of rows; packed: with the names in a dictionary."""
    column = pa.array((list(names) * len(times))[: len(times)], pa.string())
    table = pa.table(
        {
            "at": pa.array(times, pa.int64()),
            "name": column.dictionary_encode() if packed else column,
            "size": pa.array([at if at is None else float(at) + 0.5 for at in times]),
        }
    )
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=3)
    return sink.getvalue()


ARROWS = st.builds(
    arrow_message,
    st.lists(st.one_of(st.none(), st.integers(0, 200_000)), max_size=12),
    st.lists(st.sampled_from(["a", "b", "ä"]), min_size=1, max_size=3),
    packed=st.booleans(),
)

FORMATS: dict[str, tuple[Stream, st.SearchStrategy[bytes]]] = {
    "json": (JSON, with_mark(st.one_of(OBJECTS, ARRAYS, test_codec.ROWS, test_codec.ARRAYS))),
    "ndjson": (NDJSON, with_mark(joined(st.one_of(LINES, test_codec.LINES), b"\n"))),
    "csv": (CSV, with_mark(joined(st.one_of(CELLS, test_codec.CSV_LINES), b"\n"))),
    "csv with a header": (CSV_HEADER, with_mark(HEADED)),
    "arrow": (ARROW, ARROWS),
}


def seen(found: Sequence[Decoded]) -> list[list[object]]:
    """Values of the rows, what is invalid in them, and bad rows, each with offset and bytes."""
    values: list[object] = []
    bad: list[object] = []
    for one in found:
        offsets = one.records.offsets
        for at, row_ in enumerate(one.frame.rows()):
            message = one.message_of(at)
            invalid = {name for name in one.invalid.columns if one.invalid[name][at]}
            payload = one.payload(message, one.line_of(at))
            values.append((offsets[message], repr(row_), invalid, payload))
        bad += [
            (offsets[each.message], each.reason, each.detail, one.payload(each.message, each.line))
            for each in one.unreadable
        ]
    return [values, bad]


@pytest.mark.parametrize("name", FORMATS)
@SLICES
@given(data=st.data())
def test_any_cut_into_batches_and_parts_holds_the_same(name: str, data: st.DataObject) -> None:
    stream, message = FORMATS[name]
    messages = data.draw(st.lists(st.one_of(message, ODD), max_size=4))
    plan = plan_of(NAME, aggregates=(COUNT, SUM), stream=stream, fields=["at", "name", "size"])
    whole = decode(stream, FIELDS, records(messages, 10))
    rows_max = data.draw(st.integers(1, 6), "rows of a part")
    batches = cut_at(messages, data.draw(st.sets(st.integers(1, 3)), "batches begin at"))
    with mock.patch.object(parts, "ROWS_MAX", rows_max):
        slices = [one for batch in batches for one in decode_slices(stream, FIELDS, batch)]
    assert seen(slices) == seen([whole])
    assert_same_batch(mapped_in_slices(plan, slices), map_batch(plan, 3, whole), plan)


def cut_at(messages: Sequence[bytes | None], begins: set[int]) -> list[Records]:
    """The messages in batches, of which some more begin at these."""
    bounds = [0, *sorted(at for at in begins if at < len(messages)), len(messages)]
    return [records(messages[at:end], 10 + at) for at, end in pairwise(bounds)]


def mapped_in_slices(plan: Plan, slices: Sequence[Decoded]) -> Mapped:
    return combine(plan, [map_batch(plan, 3, one) for one in slices])


def assert_same_batch(found: Mapped, expected: Mapped, plan: Plan) -> None:
    assert groups_of(plan, [found]) == groups_of(plan, [expected])
    assert counts_of([found]) == counts_of([expected])
    assert (found.ranges, found.marks_ms) == (expected.ranges, expected.marks_ms)
    rejections = [[one.rejections for one in each.partials] for each in (found, expected)]
    assert rejections[0] == rejections[1]


@pytest.mark.parametrize("rows_max", [1, 7, 99, 100, 101, 250])
def test_first_hundred_bad_rows_of_all_slices_are_named_and_the_rest_are_ranges(
    rows_max: int,
) -> None:
    lines = [[b"1", row(at="x"), row(name="c"), row(at=1)][at % 4] for at in range(400)]
    batch = records([row(at=1), b"\n".join(lines), b"2", b"\n".join(lines[:9])], 10)
    plan = plan_of(NAME, aggregates=(COUNT, SUM), stream=NDJSON, fields=["at", "name", "size"])
    with mock.patch.object(parts, "ROWS_MAX", rows_max):
        slices = list(decode_slices(NDJSON, FIELDS, batch))
    assert len(slices) > 1
    expected = map_batch(plan, 3, decode(NDJSON, FIELDS, batch))
    assert_same_batch(mapped_in_slices(plan, slices), expected, plan)
    (named,) = [one.rejections for one in expected.partials if one.rejections.rows]
    assert (len(named.rows), len(named.ranges)) == (100, 3)
