from __future__ import annotations

import sys

import pytest

from mars.core.plan import Field, FieldType, Stream
from mars.core.types import Reason
from mars.engine.decode.formats.json_rows import CHUNK_ROWS, WHOLE_BYTES_MIN
from mars.engine.decode.formats.nesting import NESTING_MAX
from mars.engine.decode.limits import MESSAGE_BYTES_MAX
from mars.engine.decode.messages import decode
from tests.unit.codec.samples import FIELDS, JSON, NDJSON, records, row


def nested(levels: int) -> bytes:
    return b'{"at":1,"deep":' + b"[" * (levels - 1) + b"]" * (levels - 1) + b"}"


def test_missing_fields_and_nulls_are_null() -> None:
    decoded = decode(JSON, FIELDS, records([row(at=1), row(at=2, name=None, size=None)]))
    assert decoded.frame.rows() == [(1, None, None, None, None), (2, None, None, None, None)]
    assert decoded.unreadable == ()
    assert decoded.messages is None


def test_only_the_asked_fields_are_decoded() -> None:
    decoded = decode(JSON, FIELDS[:1], records([row(at=1, name=3)]))
    assert decoded.frame.columns == ["at"]
    assert decoded.invalid.is_empty()


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("size", b"5.5"),
        ("size", b"1e19"),
        ("size", b'"5"'),
        ("size", b"true"),
        ("size", b"9223372036854775808"),
        ("size", b"-9223372036854775809"),
        ("size", b"9" * 40),
        ("size", b"-" + b"9" * 70),
        ("size", b"1" * 5000),
        ("size", b"[]"),
        ("load", b'"1"'),
        ("load", b"1e400"),
        ("load", b"false"),
        ("ok", b"1"),
        ("ok", b'"true"'),
        ("name", b"1"),
        ("name", b'"\xff"'),
        ("name", b'"\xed\xa0\x80"'),
    ],
)
def test_value_of_a_wrong_type_spoils_its_field_only(field: str, text: bytes) -> None:
    bad = b'{"at":7,"%s":%s}' % (field.encode(), text)
    decoded = decode(JSON, FIELDS, records([row(at=1, name="a", size=1, load=1.0, ok=True), bad]))
    assert decoded.frame.get_column("at").to_list() == [1, 7]
    assert decoded.frame.get_column(field).to_list()[1] is None
    assert decoded.invalid.to_dict(as_series=False) == {field: [False, True]}
    assert decoded.unreadable == ()


def test_extremes_of_each_type_are_read() -> None:
    decoded = decode(
        JSON,
        FIELDS,
        records([row(at=-(2**63), size=2**63 - 1, load=1, name="\0é\U0001f600", ok=False)]),
    )
    assert decoded.frame.rows() == [(-(2**63), "\0é\U0001f600", 2**63 - 1, 1.0, False)]


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"  \n",
        b"{",
        b"nonsense",
        b"[",
        b"[{}] {}",
        b"[1]",
        b"null",
        b"1",
        b'"text"',
        b"\xef\xbb\xbf",
        b"{}\xef\xbb\xbf",
        b'{"at":NaN}',
        b'{"other":NaN}',
        b'{"at":Infinity}',
        b'{"at":01}',
        b'{"at":1,}',
        b'{"at":1}{"at":2}',
        b'{"name":"a\0b"}',
        b'{"name":"\\ud800"}',
        b"\0",
        b"\xff\xfe",
        None,
    ],
)
def test_what_is_no_object_is_unreadable(value: bytes | None) -> None:
    decoded = decode(JSON, FIELDS, records([row(at=1), value, row(at=2)]))
    assert decoded.frame.get_column("at").to_list() == [1, 2]
    (bad,) = decoded.unreadable
    assert (bad.message, bad.line, bad.reason) == (1, 0, Reason.UNREADABLE)
    assert bad.detail
    assert decoded.messages is not None
    assert decoded.messages.to_list() == [0, 2]


def test_message_over_the_limit_is_too_large() -> None:
    padded = b'{"at":1' + b" " * MESSAGE_BYTES_MAX + b"}"
    decoded = decode(JSON, FIELDS, records([padded, row(at=2)]))
    assert [bad.reason for bad in decoded.unreadable] == [Reason.TOO_LARGE]
    assert decoded.frame.get_column("at").to_list() == [2]


def test_pretty_printed_object_is_one_row() -> None:
    decoded = decode(JSON, FIELDS, records([b'{\n  "at": 1,\n\n  "size": 2\n}\n']))
    assert decoded.frame.select("at", "size").rows() == [(1, 2)]


def test_last_of_two_members_of_one_name_counts() -> None:
    decoded = decode(JSON, FIELDS, records([b'{"at":1,"at":2}']))
    assert decoded.frame.get_column("at").to_list() == [2]


def test_nesting_is_accepted_up_to_the_limit_and_no_further() -> None:
    values = [nested(NESTING_MAX), nested(NESTING_MAX + 1), nested(10_000), row(at=2)]
    decoded = decode(JSON, FIELDS, records(values))
    assert decoded.frame.get_column("at").to_list() == [1, 2]
    assert [bad.message for bad in decoded.unreadable] == [1, 2]
    assert "nested" in decoded.unreadable[0].detail


def test_nesting_has_the_same_fate_whatever_the_stack_of_the_caller() -> None:
    values = [nested(depth) for depth in range(NESTING_MAX - 2, 1_000, 50)]

    def fates_at(frames: int) -> list[int]:
        if frames:
            return fates_at(frames - 1)
        return [bad.message for bad in decode(JSON, FIELDS, records(values)).unreadable]

    deep = sys.getrecursionlimit() - NESTING_MAX - 250
    assert fates_at(0) == fates_at(deep)


def test_brackets_within_texts_do_not_nest() -> None:
    value = b'{"at":1,"name":"' + b"[" * 5_000 + b'"}'
    decoded = decode(JSON, FIELDS, records([value]))
    assert decoded.unreadable == ()


def test_bad_rows_are_found_in_every_place_of_a_batch() -> None:
    count = 2 * CHUNK_ROWS + 7
    broken = {0, 1, CHUNK_ROWS - 1, CHUNK_ROWS, CHUNK_ROWS + 1, count - 1}
    values = [b"{" if at in broken else row(at=at) for at in range(count)]
    decoded = decode(JSON, FIELDS, records(values))
    assert {bad.message for bad in decoded.unreadable} == broken
    assert decoded.frame.get_column("at").to_list() == [
        at for at in range(count) if at not in broken
    ]
    assert decoded.messages is not None
    assert decoded.messages.to_list() == decoded.frame.get_column("at").to_list()


def test_many_fields_are_decoded_beyond_those_with_readers_of_their_own() -> None:
    fields = tuple(Field(f"x {at}", FieldType.INT64) for at in range(20))
    value = row(**{f"x {at}": at for at in range(20)})
    decoded = decode(JSON, fields, records([value]))
    assert decoded.frame.rows() == [tuple(range(20))]


def test_each_line_of_ndjson_is_a_row() -> None:
    values = [row(at=1) + b"\n" + row(at=2) + b"\r\n" + row(at=3) + b"\n\n", row(at=4)]
    decoded = decode(NDJSON, FIELDS, records(values))
    assert decoded.frame.get_column("at").to_list() == [1, 2, 3, 4]
    assert decoded.messages is not None
    assert decoded.messages.to_list() == [0, 0, 0, 1]


def test_bad_line_spoils_only_itself() -> None:
    values = [b"\n".join([row(at=1), b"oops", b"", b" \r", row(at=2, size="x"), row(at=3)])]
    decoded = decode(NDJSON, FIELDS, records(values))
    assert decoded.frame.get_column("at").to_list() == [1, 2, 3]
    assert [(bad.message, bad.line) for bad in decoded.unreadable] == [(0, 1)]
    assert decoded.invalid.to_dict(as_series=False) == {"size": [False, True, False]}
    assert [decoded.line_of(at) for at in range(3)] == [0, 2, 3]
    assert decoded.payload(0, 2) == row(at=2, size="x")


def test_object_over_several_lines_is_no_row_of_ndjson() -> None:
    decoded = decode(NDJSON, FIELDS, records([b'{"at":\n1}', row(at=2)]))
    assert decoded.frame.get_column("at").to_list() == [2]
    assert [(bad.message, bad.line) for bad in decoded.unreadable] == [(0, 0), (0, 1)]


LONG = [row(at=at, name="x" * 50) for at in range(WHOLE_BYTES_MIN // 50)]


def test_long_message_of_lines_is_one_row_a_line() -> None:
    text = b"\n".join(LONG)
    assert len(text) > WHOLE_BYTES_MIN
    decoded = decode(NDJSON, FIELDS, records([row(at=-1), text + b"\n", row(at=-2)]))
    expected = [-1, *range(len(LONG)), -2]
    assert decoded.frame.get_column("at").to_list() == expected
    assert decoded.messages is not None
    assert decoded.messages.to_list() == [0] + [1] * len(LONG) + [2]


@pytest.mark.parametrize(
    ("line", "bad_lines"),
    [
        (b"oops", [5]),
        (b"", []),
        (b" \r", []),
        (b'{"at":\n1}', [5, 6]),
        (b'{"at":1}{"at":2}\n', [5]),
        (b'{"at":[{}\n,{}]}{"at":2}\n', [5, 6]),
        (b'{"at":1}{"at":2}', [5]),
        (b"[]", [5]),
        (nested(NESTING_MAX + 1), [5]),
        (nested(NESTING_MAX + 1).replace(b"[", b'{"a":').replace(b"]", b"}"), [5]),
    ],
)
def test_bad_line_of_a_long_message_spoils_only_itself(line: bytes, bad_lines: list[int]) -> None:
    text = b"\n".join([*LONG[:5], line, *LONG[5:]])
    decoded = decode(NDJSON, FIELDS, records([text]))
    assert [bad.line for bad in decoded.unreadable] == bad_lines
    assert decoded.frame.get_column("at").to_list() == list(range(len(LONG)))


@pytest.mark.parametrize("value", [None, b"", b"\n\n", b" "])
def test_ndjson_message_without_lines_is_one_bad_row(value: bytes | None) -> None:
    decoded = decode(NDJSON, FIELDS, records([value, row(at=1)]))
    assert [(bad.message, bad.reason) for bad in decoded.unreadable] == [(0, Reason.UNREADABLE)]
    assert decoded.frame.get_column("at").to_list() == [1]
    assert decoded.message_of(0) == 1


def test_empty_batch_has_columns_and_no_rows() -> None:
    for stream in (JSON, NDJSON):
        decoded = decode(stream, FIELDS, records([]))
        assert decoded.rows == 0
        assert decoded.frame.columns == [one.name for one in FIELDS]


def test_message_may_be_an_array_of_objects() -> None:
    values = [
        row(at=1),
        b"[" + row(at=2) + b"," + row(at=3, size="x") + b", 5 , [" + row(at=9) + b"]]",
        b" []\n",
        b"[" + row(at=4) + b",]",
        b"\xef\xbb\xbf [" + row(at=5) + b"]",
        None,
        row(at=6),
    ]
    decoded = decode(JSON, FIELDS, records(values))
    assert decoded.frame.get_column("at").to_list() == [1, 2, 3, 5, 6]
    assert [decoded.message_of(at) for at in range(5)] == [0, 1, 1, 4, 6]
    assert decoded.invalid.to_dict(as_series=False) == {"size": [False, False, True, False, False]}
    bad = [(one.message, one.line) for one in decoded.unreadable]
    assert bad == [(1, 2), (1, 3), (3, 0), (5, 0)]
    assert decoded.payload(1, decoded.line_of(2)) == row(at=3, size="x")
    assert [decoded.payload(*one) for one in bad] == [b"5", b"[" + row(at=9) + b"]", values[3], b""]


def test_long_array_is_read_to_its_end() -> None:
    rows = [row(at=at, name='"[\\') for at in range(3 * CHUNK_ROWS)]
    decoded = decode(JSON, FIELDS, records([b"[" + b",".join(rows) + b"]", row(at=-1)]))
    assert decoded.frame.get_column("at").to_list() == [*range(3 * CHUNK_ROWS), -1]
    assert decoded.unreadable == ()


def test_array_that_is_too_deep_is_one_bad_row() -> None:
    value = b"[" + nested(NESTING_MAX) + b"," + row(at=1) + b"]"
    (bad,) = decode(JSON, FIELDS, records([value])).unreadable
    assert bad.detail == f"JSON is nested deeper than {NESTING_MAX} levels"


@pytest.mark.parametrize("stream", [JSON, NDJSON])
def test_byte_order_mark_is_no_part_of_a_message(stream: Stream) -> None:
    values = [b"\xef\xbb\xbf" + row(at=at, name="a") for at in range(3)]
    decoded = decode(stream, FIELDS, records(values))
    assert decoded.frame.get_column("at").to_list() == [0, 1, 2]
    assert decoded.unreadable == ()
    within = b"\n".join([row(at=1), b"\xef\xbb\xbf" + row(at=2)])
    assert len(decode(NDJSON, FIELDS, records([within])).unreadable) == 1


@pytest.mark.parametrize("text", [b"5.0", b"5e0", b"0.5E1", b"50e-1"])
def test_whole_number_with_a_point_or_an_exponent_is_an_integer(text: bytes) -> None:
    values = [row(at=at, size=at) for at in range(5)]
    decoded = decode(JSON, FIELDS, records([*values, b'{"at":1.5e3,"size":' + text + b"}"]))
    assert decoded.frame.select("at", "size").rows()[4:] == [(4, 4), (1500, 5)]
    assert decoded.invalid.is_empty()
