from __future__ import annotations

from dataclasses import replace
from unittest.mock import Mock

import pytest
from pyarrow import csv as arrow_csv

from mars.core.plan import Format, Stream
from mars.core.types import Reason, StreamName
from mars.engine.decode.formats import csv_rows
from mars.engine.decode.limits import MESSAGE_BYTES_MAX
from mars.engine.decode.messages import decode
from tests.unit.codec.samples import CSV, CSV_HEADER, FIELDS, records


def test_rows_are_in_the_declared_order() -> None:
    decoded = decode(
        CSV, FIELDS, records([b"1,a,2,3.5,true\n2,b,-4,1e3,false\n", b"3,c,+5,7,true"])
    )
    assert decoded.frame.rows() == [
        (1, "a", 2, 3.5, True),
        (2, "b", -4, 1000.0, False),
        (3, "c", 5, 7.0, True),
    ]
    assert decoded.messages is not None
    assert decoded.messages.to_list() == [0, 0, 1]


def test_only_asked_columns_are_looked_at() -> None:
    decoded = decode(CSV, FIELDS[:2], records([b"1,a,not a number,x,y"]))
    assert decoded.frame.rows() == [(1, "a")]
    assert decoded.invalid.is_empty()


def test_empty_cell_is_null_and_for_a_text_the_empty_text() -> None:
    decoded = decode(CSV, FIELDS, records([b'1,,,,\n2,"",,,']))
    assert decoded.frame.rows() == [(1, "", None, None, None), (2, "", None, None, None)]
    assert decoded.invalid.is_empty()


def test_quoted_cells_hold_commas_and_quotes() -> None:
    decoded = decode(CSV, FIELDS, records([b'1,"a,""b""",2,,\r\n"2",c,"3",,']))
    assert decoded.frame.rows() == [(1, 'a,"b"', 2, None, None), (2, "c", 3, None, None)]


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"2,b",
        b"2,\xff,,",
        b"\xff",
        b'2,"b,",,',
        b'2,"b,",,,,"',
        b'2,"b,,,',
        b'2,b"c,,,',
        b'2,"b"c,,,',
        b"2,b\0,,,",
        b"2,b\rc,,,",
    ],
)
def test_broken_line_spoils_only_itself(line: bytes) -> None:
    text = b"1,a,,,\n" + line + b"\n3,c,,,\n"
    decoded = decode(CSV, FIELDS, records([text, b'4,"d",,,']))
    assert decoded.frame.get_column("at").to_list() == [1, 3, 4]
    (bad,) = decoded.unreadable
    assert (bad.message, bad.line, bad.reason) == (0, 1, Reason.UNREADABLE)
    assert bad.detail
    assert decoded.payload(bad.message, bad.line) == line
    assert [decoded.line_of(at) for at in range(3)] == [0, 2, 0]


@pytest.mark.parametrize(
    ("field", "cell"),
    [
        ("at", b"x"),
        ("at", b"1.0x"),
        ("at", b" 1"),
        ("size", b"99999999999999999999"),
        ("size", b"0x10"),
        ("load", b"nan"),
        ("load", b"inf"),
        ("load", b"1e999"),
        ("ok", b"TRUE"),
        ("ok", b"1"),
        ("name", b"\xff"),
    ],
)
def test_cell_of_a_wrong_type_spoils_its_field_only(field: str, cell: bytes) -> None:
    names = [one.name for one in FIELDS]
    cells = [cell if name == field else b"" for name in names]
    decoded = decode(CSV, FIELDS, records([b"1,a,1,1,true", b",".join(cells)]))
    assert decoded.invalid.to_dict(as_series=False) == {field: [False, True]}
    assert decoded.frame.get_column(field).to_list()[1] is None
    assert decoded.unreadable == ()


def test_header_names_the_columns_of_its_message() -> None:
    values = [b"size,at\n5,1\n6,2", b"at,extra,name\r\n3,x,c\r\n", b'"at","size"\n4,"7"']
    decoded = decode(CSV_HEADER, FIELDS, records(values))
    assert decoded.frame.select("at", "name", "size").rows() == [
        (1, None, 5),
        (2, None, 6),
        (3, "c", None),
        (4, None, 7),
    ]
    assert decoded.messages is not None
    assert decoded.messages.to_list() == [0, 0, 1, 2]
    assert decoded.line_of(1) == 2
    assert decoded.payload(0, decoded.line_of(1)) == b"6,2"


def test_message_with_a_header_only_has_no_rows() -> None:
    decoded = decode(CSV_HEADER, FIELDS, records([b"at,name\n", b"at\n1", b"at"]))
    assert decoded.frame.get_column("at").to_list() == [1]
    assert decoded.unreadable == ()
    assert decoded.message_of(0) == 1


@pytest.mark.parametrize("header", [b"at,at", b'at,"name', b"at,\xff", b"at,\0", b""])
def test_message_with_a_broken_header_is_one_bad_row(header: bytes) -> None:
    decoded = decode(CSV_HEADER, FIELDS, records([header + b"\n1,2\n3,4", b"at\n5"]))
    assert [bad.message for bad in decoded.unreadable] == [0]
    assert decoded.frame.get_column("at").to_list() == [5]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, Reason.UNREADABLE),
        (b"", Reason.UNREADABLE),
        (b"\n\r\n", Reason.UNREADABLE),
        (b"1" * (MESSAGE_BYTES_MAX + 1), Reason.TOO_LARGE),
    ],
)
def test_unusable_message_is_one_bad_row(value: bytes | None, reason: Reason) -> None:
    decoded = decode(CSV, FIELDS, records([value, b"1,,,,"]))
    assert [(bad.message, bad.reason) for bad in decoded.unreadable] == [(0, reason)]
    assert decoded.frame.get_column("at").to_list() == [1]


def test_stream_of_one_field_may_have_empty_rows() -> None:
    one = Stream(StreamName("s"), "t", Format.CSV, FIELDS[:1], "at")
    decoded = decode(one, FIELDS[:1], records([b"1\n\n3\n", b"\n4"]))
    assert decoded.frame.get_column("at").to_list() == [1, None, 3, None, 4]
    assert decoded.unreadable == ()


def test_fate_of_a_line_does_not_depend_on_the_others() -> None:
    lines = [b"1,a,,,", b'2,"b",,,', b'3,"c', b"", b"4,\xff,,,", b"5", b'6,d"e,,,', b"7,f,9,,"]
    whole = decode(CSV, FIELDS, records([b"\n".join(lines)]))
    alone = [decode(CSV, FIELDS, records([line])) for line in lines]
    assert whole.frame.rows() == [found for one in alone for found in one.frame.rows()]
    assert [bad.line for bad in whole.unreadable] == [
        at for at, one in enumerate(alone) if one.unreadable
    ]


def test_empty_batch_has_columns_and_no_rows() -> None:
    decoded = decode(CSV, FIELDS, records([]))
    assert decoded.frame.columns == [one.name for one in FIELDS]
    assert decoded.rows == 0


def test_cells_beyond_the_columns_are_passed_over() -> None:
    lines = [b"1,a,,,", b"2,b,5,,,x", b'3,"c,d",,,true,"e,f",g', b"4,,,", b'5,"",7,,true,']
    decoded = decode(CSV, FIELDS, records([b"\n".join(lines)]))
    assert decoded.frame.rows() == [
        (1, "a", None, None, None),
        (2, "b", 5, None, None),
        (3, "c,d", None, None, True),
        (5, "", 7, None, True),
    ]
    assert [bad.detail for bad in decoded.unreadable] == ["4 cells instead of 5"]


def test_rows_with_cells_beyond_the_columns_are_counted() -> None:
    lines = [b"1,a,,,", b"2,b,5,,,x", b'3,"c,d",,,true,"e,f",g', b"4,,,"]
    assert decode(CSV, FIELDS, records([b"\n".join(lines)])).longer == 2
    assert decode(CSV, FIELDS, records([b"1,a,,,"])).longer == 0


OTHER_MARKS = [
    (";", "'"),
    ("\t", '"'),
    ("|", "`"),
    (" ", '"'),
    ("^", "]"),
    ("-", "\\"),
    ("\x01", "~"),
]


@pytest.mark.parametrize(("delimiter", "quote"), OTHER_MARKS)
@pytest.mark.parametrize("header", [False, True])
def test_cells_may_lie_between_other_marks(delimiter: str, quote: str, header: bool) -> None:
    """What is written with other marks reads as the same with a comma and a quotation mark."""
    lines = [
        b"1,a,2,3.5,true",
        b'2,"a,""b""",4,,',
        b"3,b",
        b'"4",c,"5",,,more,"x,y"',
        b'5,"d,,,',
        b'6,e"f,,,',
        b"7,\xff,,,",
        b"",
        b",,,,",
    ]
    names = [b"at,name,size,load,ok"] if header else []
    usual = b"\n".join([*names, *lines])
    other = usual.translate(bytes.maketrans(b',"', (delimiter + quote).encode()))
    stream = CSV_HEADER if header else CSV
    marked = replace(stream, csv_delimiter=delimiter, csv_quote=quote)
    one, two = (
        decode(of, FIELDS, records([text])) for of, text in ((stream, usual), (marked, other))
    )
    back = str.maketrans(delimiter + quote, ',"')
    names_of_two = two.frame.get_column("name").to_list()
    assert two.frame.drop("name").equals(one.frame.drop("name"))
    assert [name and name.translate(back) for name in names_of_two] == one.frame["name"].to_list()
    assert (two.unreadable, two.longer) == (one.unreadable, one.longer)
    assert two.invalid.equals(one.invalid)
    assert (one.rows, one.longer, len(one.unreadable)) == (5, 1, 4)


def test_a_comma_is_no_mark_where_another_one_is_declared() -> None:
    stream = replace(CSV, csv_delimiter=";", csv_quote="'")
    decoded = decode(stream, FIELDS[:2], records([b'1;a,"b;;;']))
    assert decoded.frame.rows() == [(1, 'a,"b')]


def test_cells_beyond_the_header_are_passed_over() -> None:
    decoded = decode(CSV_HEADER, FIELDS, records([b"at,size\n1,2,3\n4,5\n6"]))
    assert decoded.frame.select("at", "size").rows() == [(1, 2), (4, 5)]
    assert [bad.line for bad in decoded.unreadable] == [3]


@pytest.mark.parametrize("stream", [CSV, CSV_HEADER])
def test_byte_order_mark_is_no_part_of_a_message(stream: Stream) -> None:
    header = b"name,at\n" if stream.csv_header else b""
    lines = b"a,1,,,\na,2,,," if not stream.csv_header else b"a,1\na,2"
    fields = FIELDS if stream.csv_header else (FIELDS[1], FIELDS[0], *FIELDS[2:])
    batch = records([b"\xef\xbb\xbf" + header + lines, header + lines])
    decoded = decode(replace(stream, fields=fields), fields, batch)
    assert decoded.frame.get_column("name").to_list() == ["a"] * 4
    assert decoded.unreadable == ()


@pytest.mark.parametrize(
    ("cell", "size"), [(b"5.0", 5), (b"1e3", 1000), (b"3.05e15", 3_050_000_000_000_000)]
)
def test_whole_number_with_a_point_or_an_exponent_is_an_integer(cell: bytes, size: int) -> None:
    decoded = decode(CSV, FIELDS, records([b"1.767225600123e12,a," + cell + b",,"]))
    assert decoded.frame.row(0)[:3] == (1_767_225_600_123, "a", size)
    assert decoded.invalid.is_empty()


def test_byte_order_mark_behind_another_is_part_of_the_text_whatever_comes_first() -> None:
    fields = (FIELDS[1], FIELDS[0], *FIELDS[2:])
    stream, twice = replace(CSV, fields=fields), b"\xef\xbb\xbf" * 2 + b"a,1,,,"
    for values in ([twice, b"b,2,,,"], [b"b,2,,,", twice]):
        names = decode(stream, fields, records(values)).frame.get_column("name").to_list()
        assert sorted(names) == ["b", "\ufeffa"]


def many_headers() -> list[bytes]:
    """Messages of one row, each with another place of `at`."""
    return [
        b",".join([*(b"x%d" % n for n in range(at)), b"at"]) + b"\n" + b"5," * at + b"7"
        for at in range(csv_rows.LAYOUTS_MAX + 1)
    ]


def wide_header() -> list[bytes]:
    """A message with more columns than Arrow is asked for."""
    names = b"".join(b",x%d" % n for n in range(csv_rows.WIDTH_MAX))
    return [b"at" + names + b"\n7" + b"," * csv_rows.WIDTH_MAX]


@pytest.mark.parametrize("messages", [many_headers(), wide_header()])
def test_many_headers_and_a_wide_one_are_not_read_by_arrow(
    messages: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Mock(side_effect=arrow_csv.read_csv)
    monkeypatch.setattr(arrow_csv, "read_csv", read)
    decoded = decode(CSV_HEADER, FIELDS, records(messages))
    assert decoded.frame.get_column("at").to_list() == [7] * len(messages)
    assert read.call_count == 0


def test_headers_that_differ_in_names_nobody_reads_are_read_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(csv_rows, "LAYOUTS_MAX", 1)
    read = Mock(side_effect=arrow_csv.read_csv)
    monkeypatch.setattr(arrow_csv, "read_csv", read)
    decoded = decode(CSV_HEADER, FIELDS, records([b"at,x%d\n7,1" % n for n in range(9)]))
    assert decoded.frame.get_column("at").to_list() == [7] * 9
    assert read.call_count == 1
