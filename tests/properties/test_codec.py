"""Decoding of arbitrary bytes: never an exception, every row accounted, the same for every task."""

from __future__ import annotations

import io
import json
from itertools import combinations
from unittest import mock

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from mars.core.plan import Field, Stream
from mars.core.types import Records
from mars.engine.decode.decoded import Decoded
from mars.engine.decode.formats import csv_rows
from mars.engine.decode.messages import decode
from tests.unit.codec.samples import ARROW, CSV, CSV_HEADER, FIELDS, JSON, NDJSON, records

QUICK = settings(max_examples=80)

NAMES = [one.name for one in FIELDS]

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=6),
)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3), max_leaves=4)
OBJECTS = st.dictionaries(st.sampled_from([*NAMES, "other"]), VALUES).map(
    lambda members: json.dumps(members, ensure_ascii=False).encode("utf-8", "surrogatepass")
)


@st.composite
def damaged(draw: st.DrawFn, whole: st.SearchStrategy[bytes]) -> bytes:
    """A text with some bytes replaced, put in or taken out."""
    text = bytearray(draw(whole))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(text)))
        piece = draw(st.sampled_from([b"", b"\xff", b"\0", b"\n", b'"', b"\\", b"{", b"]", b","]))
        text[at : at + draw(st.integers(0, 2))] = piece
    return bytes(text)


MARK = b"\xef\xbb\xbf"
ROWS = st.one_of(OBJECTS, damaged(OBJECTS), st.binary(max_size=12))
ARRAYS = st.lists(ROWS, max_size=4).map(lambda rows: b"[" + b",".join(rows) + b"]")


def marked(messages: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    """Messages, some of them behind a byte order mark."""
    return st.builds(bytes.__add__, st.sampled_from([b"", b"", MARK]), messages)


MESSAGES = st.lists(st.one_of(st.none(), marked(st.one_of(ROWS, ARRAYS))), max_size=12)
LINES = st.one_of(
    ROWS, st.sampled_from([b"", b" \r", b'{"size":1}{"size":2}', b'{"size":[{}\n{}]}'])
)
PACKED = st.lists(
    st.one_of(st.none(), marked(st.lists(LINES, max_size=4).map(b"\n".join))), max_size=5
)
PADDING = b"".join(b'{"at":%d,"name":"%s"}\n' % (at, b"x" * 200) for at in range(100))
"""Makes a message of lines long enough to be parsed as a whole."""

CELLS = st.one_of(
    st.sampled_from([b"", b"1", b"-5", b"1.5", b"true", b"x", b'"a,b"', b'"', b"\xff", b"\0"]),
    st.binary(max_size=4),
)
CSV_LINES = st.one_of(
    st.lists(CELLS, min_size=len(FIELDS), max_size=len(FIELDS)).map(b",".join),
    st.lists(CELLS, max_size=7).map(b",".join),
)
CSV_MESSAGES = st.lists(
    st.one_of(st.none(), marked(st.lists(CSV_LINES, max_size=5).map(b"\n".join))), max_size=5
)

FIELD_SETS = st.sampled_from(
    [chosen for size in range(1, len(FIELDS)) for chosen in combinations(FIELDS, size)]
)


def seen_by(decoded: Decoded, fields: tuple[Field, ...]) -> list[object]:
    """What a task that reads `fields` sees: values of its good rows, and its bad ones."""
    rows: list[object] = [decoded.unreadable]
    for at in range(decoded.rows):
        bad = [
            one.name
            for one in fields
            if one.name in decoded.invalid.columns and decoded.invalid.get_column(one.name)[at]
        ]
        values = [repr(decoded.frame.get_column(one.name)[at]) for one in fields]
        rows.append((decoded.message_of(at), decoded.line_of(at), bad or values))
    return rows


def assert_same_for_every_task(stream: Stream, batch: Records, fields: tuple[Field, ...]) -> None:
    together, alone = decode(stream, FIELDS, batch), decode(stream, fields, batch)
    assert seen_by(together, fields) == seen_by(alone, fields)


@QUICK
@given(MESSAGES, FIELD_SETS)
def test_other_tasks_fields_change_nothing_for_json(
    messages: list[bytes | None], fields: tuple[Field, ...]
) -> None:
    assert_same_for_every_task(JSON, records(messages), fields)


@QUICK
@given(PACKED, FIELD_SETS)
def test_other_tasks_fields_change_nothing_for_ndjson(
    messages: list[bytes | None], fields: tuple[Field, ...]
) -> None:
    assert_same_for_every_task(NDJSON, records(messages), fields)


@QUICK
@given(CSV_MESSAGES, FIELD_SETS)
def test_other_tasks_fields_change_nothing_for_csv(
    messages: list[bytes | None], fields: tuple[Field, ...]
) -> None:
    assert_same_for_every_task(CSV, records(messages), fields)
    assert_same_for_every_task(CSV_HEADER, records(messages), fields)


@QUICK
@given(MESSAGES)
def test_json_message_is_one_row_or_those_of_an_array(messages: list[bytes | None]) -> None:
    decoded = decode(JSON, FIELDS, records(messages))
    found = [decoded.message_of(at) for at in range(decoded.rows)]
    found += [bad.message for bad in decoded.unreadable]
    expected = [at for at, message in enumerate(messages) for _ in range(rows_of(message))]
    assert sorted(found) == expected


def rows_of(message: bytes | None) -> int:
    """How many rows a message of JSON has, by Python's own parser."""
    try:
        value = json.loads((message or b"").removeprefix(MARK))
    except (ValueError, RecursionError):
        return 1
    return len(value) if isinstance(value, list) else 1


@QUICK
@given(PACKED)
def test_each_filled_line_of_ndjson_is_one_row(messages: list[bytes | None]) -> None:
    decoded = decode(NDJSON, FIELDS, records(messages))
    for at, message in enumerate(messages):
        found = [
            decoded.line_of(row) for row in range(decoded.rows) if decoded.message_of(row) == at
        ]
        found += [bad.line for bad in decoded.unreadable if bad.message == at]
        assert sorted(found) == list(range(len(lines_of(message)) or 1))


def lines_of(message: bytes | None) -> list[bytes]:
    """The lines of a message that are not blank."""
    return [line for line in (message or b"").removeprefix(MARK).split(b"\n") if line.strip()]


@QUICK
@given(PACKED)
def test_line_is_read_as_a_message_of_its_own_would_be(messages: list[bytes | None]) -> None:
    decoded = decode(NDJSON, FIELDS, records(messages))
    for row in range(decoded.rows):
        message, line = decoded.message_of(row), decoded.line_of(row)
        alone = decode(NDJSON, FIELDS, records([lines_of(messages[message])[line]]))
        assert repr(alone.frame.row(0)) == repr(decoded.frame.row(row))


@QUICK
@given(CSV_MESSAGES)
def test_csv_line_is_read_the_same_whatever_the_others_are(
    messages: list[bytes | None],
) -> None:
    decoded = decode(CSV, FIELDS, records(messages))
    for row in range(decoded.rows):
        message, line = decoded.message_of(row), decoded.line_of(row)
        text = (messages[message] or b"").split(b"\n")[line]
        alone = decode(CSV, FIELDS, records([text]))
        assert repr(alone.frame.row(0)) == repr(decoded.frame.row(row))


@QUICK
@given(CSV_MESSAGES, FIELD_SETS, st.sampled_from([CSV, CSV_HEADER]), st.booleans())
def test_csv_is_the_same_where_arrow_does_not_read_it(
    messages: list[bytes | None], fields: tuple[Field, ...], stream: Stream, named: bool
) -> None:
    if named and stream.csv_header:
        messages = [message and b"size,at,name\n" + message for message in messages]
    batch = records(messages)
    by_arrow = decode(stream, fields, batch)
    with mock.patch.object(csv_rows, "LAYOUTS_MAX", -1):
        by_row = decode(stream, fields, batch)
    assert repr(by_row.frame.rows()) == repr(by_arrow.frame.rows())
    assert by_row.invalid.to_dict(as_series=False) == by_arrow.invalid.to_dict(as_series=False)
    assert repr(list(by_row.unreadable)) == repr(list(by_arrow.unreadable))
    assert by_row.longer == by_arrow.longer


@QUICK
@given(MESSAGES, st.integers(0, 12))
def test_cut_of_a_decoded_batch_is_the_cut_of_its_messages(
    messages: list[bytes | None], cut: int
) -> None:
    whole = decode(JSON, FIELDS, records(messages, 100))
    for part, alone in (
        (whole.until(100 + cut), records(messages[:cut], 100)),
        (whole.from_offset(100 + cut), records(messages[cut:], 100 + min(cut, len(messages)))),
    ):
        expected = decode(JSON, FIELDS, alone)
        assert seen_by(part, FIELDS) == seen_by(expected, FIELDS)


def assert_any_cut_gives_the_same(stream: Stream, messages: list[bytes | None], cut: int) -> None:
    """The rows of a batch, and its bad rows, are those of its parts, and so are their bytes."""
    parts = [records(messages[:cut], 0), records(messages[cut:], cut)]
    seen: list[tuple[object, ...]] = []
    for batch in [records(messages), *parts]:
        decoded = decode(stream, FIELDS, batch)
        rows = [(decoded.message_of(at), decoded.line_of(at)) for at in range(decoded.rows)]
        seen += [("row", batch.first + m, n, decoded.payload(m, n)) for m, n in rows]
        seen += [("value", *map(repr, row)) for row in decoded.frame.rows()]
        seen += [
            ("bad", batch.first + bad.message, bad.line, bad.reason, bad.detail)
            for bad in decoded.unreadable
        ]
        seen += [
            ("invalid", name, batch.first + rows[at][0], rows[at][1])
            for name in decoded.invalid.columns
            for at in decoded.invalid.get_column(name).arg_true()
        ]
        if batch is parts[0] or batch is parts[1]:
            continue
        whole, seen = sorted(seen), []
    assert sorted(seen) == whole


@QUICK
@given(MESSAGES, st.integers(0, 12))
def test_any_cut_of_json_gives_the_same(messages: list[bytes | None], cut: int) -> None:
    assert_any_cut_gives_the_same(JSON, messages, min(cut, len(messages)))


@QUICK
@given(PACKED, st.integers(0, 5))
def test_any_cut_of_ndjson_gives_the_same(messages: list[bytes | None], cut: int) -> None:
    assert_any_cut_gives_the_same(NDJSON, messages, min(cut, len(messages)))


@QUICK
@given(PACKED)
def test_a_line_of_ndjson_is_judged_alike_however_long_its_message_is(
    messages: list[bytes | None],
) -> None:
    short = [message for message in messages if message and lines_of(message)]
    long = [message.rstrip() + b"\n" + PADDING for message in short]
    padding = len(lines_of(PADDING))
    one, other = (decode(NDJSON, FIELDS, records(each)) for each in (short, long))
    for at in range(len(short)):
        bad = [[b.line for b in each.unreadable if b.message == at] for each in (one, other)]
        assert bad[0] == bad[1]
    assert other.rows - one.rows == padding * len(short)


@QUICK
@given(CSV_MESSAGES, st.integers(0, 5), st.sampled_from([CSV, CSV_HEADER]))
def test_any_cut_of_csv_gives_the_same(
    messages: list[bytes | None], cut: int, stream: Stream
) -> None:
    assert_any_cut_gives_the_same(stream, messages, min(cut, len(messages)))


TABLES = st.lists(
    st.sampled_from(
        [
            pa.table({"at": [1, 2], "name": ["a", None]}),
            pa.table({"at": [1.5, None], "size": [1.0, 2.5]}),
            pa.table({"at": ["x"], "name": pa.array(["a"]).dictionary_encode()}),
            pa.table({"at": pa.array([], pa.int64())}),
        ]
    ),
    max_size=5,
)


@QUICK
@given(TABLES, st.integers(0, 5), st.booleans())
def test_any_cut_of_arrow_gives_the_same(tables: list[pa.Table], cut: int, files: bool) -> None:
    messages: list[bytes | None] = [None]
    for table in tables:
        buffer = io.BytesIO()
        with (pa.ipc.new_file if files else pa.ipc.new_stream)(buffer, table.schema) as writer:
            writer.write_table(table)
        messages.append(buffer.getvalue())
    assert_any_cut_gives_the_same(ARROW, messages, min(cut, len(messages)))
