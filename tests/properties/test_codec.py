"""Decoding of arbitrary bytes: never an exception, every row accounted, the same for every task."""

from __future__ import annotations

import json
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from mars.codec.decoded import Decoded
from mars.codec.messages import decode
from mars.plan import Field, Stream
from mars.types import Records
from tests.unit.codec.samples import CSV, CSV_HEADER, FIELDS, JSON, NDJSON, records

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


ROWS = st.one_of(OBJECTS, damaged(OBJECTS), st.binary(max_size=12))
MESSAGES = st.lists(st.one_of(st.none(), ROWS), max_size=12)
PACKED = st.lists(st.one_of(st.none(), st.lists(ROWS, max_size=4).map(b"\n".join)), max_size=5)

CELLS = st.one_of(
    st.sampled_from([b"", b"1", b"-5", b"1.5", b"true", b"x", b'"a,b"', b'"', b"\xff", b"\0"]),
    st.binary(max_size=4),
)
CSV_LINES = st.one_of(
    st.lists(CELLS, min_size=len(FIELDS), max_size=len(FIELDS)).map(b",".join),
    st.lists(CELLS, max_size=7).map(b",".join),
)
CSV_MESSAGES = st.lists(
    st.one_of(st.none(), st.lists(CSV_LINES, max_size=5).map(b"\n".join)), max_size=5
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
def test_each_json_message_is_one_row(messages: list[bytes | None]) -> None:
    decoded = decode(JSON, FIELDS, records(messages))
    assert decoded.rows + len(decoded.unreadable) == len(messages)
    found = [decoded.message_of(at) for at in range(decoded.rows)]
    found += [bad.message for bad in decoded.unreadable]
    assert sorted(found) == list(range(len(messages)))


@QUICK
@given(PACKED)
def test_each_line_of_ndjson_is_one_row(messages: list[bytes | None]) -> None:
    decoded = decode(NDJSON, FIELDS, records(messages))
    for at, message in enumerate(messages):
        lines = (message or b"").rstrip(b" \t\r\n").split(b"\n")
        found = [
            decoded.line_of(row) for row in range(decoded.rows) if decoded.message_of(row) == at
        ]
        found += [bad.line for bad in decoded.unreadable if bad.message == at]
        assert sorted(found) == list(range(len(lines)))


@QUICK
@given(PACKED)
def test_line_is_read_as_a_message_of_its_own_would_be(messages: list[bytes | None]) -> None:
    decoded = decode(NDJSON, FIELDS, records(messages))
    for row in range(decoded.rows):
        message, line = decoded.message_of(row), decoded.line_of(row)
        text = (messages[message] or b"").split(b"\n")[line]
        alone = decode(JSON, FIELDS, records([text]))
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
