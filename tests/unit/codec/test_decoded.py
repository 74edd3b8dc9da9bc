from __future__ import annotations

import pytest

from mars.core.types import Lane, Records
from mars.engine.decode.decoded import PAYLOAD_BYTES_MAX, Decoded
from mars.engine.decode.formats import texts
from mars.engine.decode.messages import decode
from tests.unit.codec.samples import FIELDS, JSON, NDJSON, records, row


def same(left: Decoded, right: Decoded) -> bool:
    return (
        left.frame.equals(right.frame)
        and left.invalid.equals(right.invalid)
        and left.unreadable == right.unreadable
        and (left.records.first, left.records.next) == (right.records.first, right.records.next)
        and [left.message_of(at) for at in range(left.rows)]
        == [right.message_of(at) for at in range(right.rows)]
        and left.timestamps_ms.equals(right.timestamps_ms)
    )


def gapped() -> Records:
    """Offsets 10 to 19, of which only some hold a message."""
    values = [row(at=1), b"?", row(at=2, size="x"), row(at=3), None]
    return Records(Lane("3"), 10, 20, values, [11, 12, 15, 16, 18], [1, 2, 3, 4, 5])


@pytest.mark.parametrize("offset", range(9, 22))
def test_rows_from_an_offset_on_are_those_of_the_later_messages(offset: int) -> None:
    whole = gapped()
    first = min(max(offset, 10), 20)
    kept = [at for at, found in enumerate(whole.offsets) if found >= first]
    part = Records(
        whole.lane,
        max(offset, 10),
        max(offset, 20),
        [whole.values[at] for at in kept],
        [whole.offsets[at] for at in kept],
        [whole.timestamps_ms[at] for at in kept],
    )
    sliced = decode(JSON, FIELDS, whole).from_offset(offset)
    assert sliced.frame.equals(decode(JSON, FIELDS, part).frame)
    assert sliced.unreadable == decode(JSON, FIELDS, part).unreadable
    assert sliced.timestamps_ms.to_list() == list(part.timestamps_ms)
    assert (sliced.records.first, sliced.records.next) == (part.first, part.next)


@pytest.mark.parametrize("offset", range(10, 22))
def test_rows_until_an_offset_are_those_of_the_earlier_messages(offset: int) -> None:
    whole = gapped()
    kept = [at for at, found in enumerate(whole.offsets) if found < offset]
    part = Records(
        whole.lane,
        10,
        min(offset, 20),
        [whole.values[at] for at in kept],
        [whole.offsets[at] for at in kept],
        [whole.timestamps_ms[at] for at in kept],
    )
    sliced = decode(JSON, FIELDS, whole).until(offset)
    assert sliced.frame.equals(decode(JSON, FIELDS, part).frame)
    assert sliced.unreadable == decode(JSON, FIELDS, part).unreadable
    assert (sliced.records.first, sliced.records.next) == (part.first, part.next)


def test_both_cuts_together_give_the_middle() -> None:
    values = [b"\n".join([row(at=at), b"?", row(at=at + 1, size="x")]) for at in range(0, 20, 2)]
    whole = decode(NDJSON, FIELDS, records(values, 100))
    middle = whole.from_offset(103).until(107)
    assert same(middle, decode(NDJSON, FIELDS, records(values[3:7], 103)))
    assert middle.payload(middle.message_of(1), middle.line_of(1)) == row(at=7, size="x")


def test_cut_outside_the_range_changes_nothing() -> None:
    whole = decode(JSON, FIELDS, gapped())
    assert whole.from_offset(5) is whole
    assert whole.until(25) is whole


def test_payload_is_the_begin_of_the_row() -> None:
    long = row(at=1, name="x" * 1_000)
    decoded = decode(JSON, FIELDS, records([long, None]))
    assert decoded.payload(0, 0) == long[:PAYLOAD_BYTES_MAX]
    assert decoded.payload(1, 0) == b""


def test_blank_lines_are_passed_over_where_a_row_of_lines_is_shown() -> None:
    message = b"\xef\xbb\xbf\n \r\na\n\nb"
    decoded = decode(NDJSON, FIELDS, records([message, b" \n\n"]))
    assert [decoded.payload(0, line) for line in range(3)] == [b"a", b"b", message]
    assert decoded.payload(1, 0) == b" "


def test_array_is_parsed_once_for_all_its_rows_that_are_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decoded = decode(JSON, FIELDS, records([b"[1,2,3]", b"[4,5]", b"["]))
    parsed: list[bytes] = []
    real = texts.elements

    def counted(message: bytes) -> list[bytes]:
        parsed.append(message)
        return real(message)

    monkeypatch.setattr(texts, "elements", counted)
    shown = [decoded.payload(bad.message, bad.line) for bad in decoded.unreadable]
    assert shown == [b"1", b"2", b"3", b"4", b"5", b"["]
    assert parsed == [b"[1,2,3]", b"[4,5]", b"["]
