"""Every kind of bad input, in every format, and where each is to be accounted.

A kind is a message (or, in formats of lines, a line) that is sent between good rows.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tests.support.rows import FIELDS

BAD_FIELDS = {**FIELDS, "rate": "float64", "spare": "int64"}
"""No task reads `spare`."""

HOUR_MS = 3_600_000

MEGABYTES_10 = 10_000_000
MEGABYTES_17 = 17_500_000
"""Above the 16 MiB that are decoded, below the 20 MB that the test's topics take."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of input.

    `make` gets a good row and gives what is sent in its place. `reason` is the one in `mars.dead`,
    None where the row is good after all; then `counted` changes the row into what is counted.
    `field` is the only field that is wrong: tasks that do not read it count the row. `alone`: it
    is a whole message in formats of lines too.
    """

    name: str
    make: Callable[[dict[str, Any]], bytes | None]
    reason: str | None
    field: str = ""
    alone: bool = False
    counted: Callable[[dict[str, Any]], dict[str, Any]] = dict

    @property
    def place(self) -> str:
        """Where the ledger counts it."""
        if self.reason is None:
            return "counted"
        return "future" if self.reason == "future" else "bad"


# ------------------------------------------------------------------------------------- JSON


def as_json(row: Mapping[str, Any]) -> bytes:
    """A row as it is meant to be."""
    return json.dumps(row, separators=(",", ":")).encode()


def _with(**values: Any) -> Callable[[dict[str, Any]], bytes]:
    return lambda row: as_json({**row, **values})


def _without(name: str) -> Callable[[dict[str, Any]], bytes]:
    return lambda row: as_json({key: value for key, value in row.items() if key != name})


def _token(name: str, token: bytes) -> Callable[[dict[str, Any]], bytes]:
    """The row with a raw token as the value of a field."""
    return lambda row: as_json({**row, name: "@"}).replace(b'"@"', token)


def _in_sip(token: bytes) -> Callable[[dict[str, Any]], bytes]:
    return lambda row: as_json(row).replace(b'"sip":"', b'"sip":"' + token)


def _nested(levels: int, name: str) -> Callable[[dict[str, Any]], bytes]:
    return _token(name, b"[" * levels + b"]" * levels)


def _padded(size: int) -> Callable[[dict[str, Any]], bytes]:
    return lambda row: as_json({**row, "padding": "x" * size})


def _in_brackets(row: dict[str, Any]) -> bytes:
    return b"[" + as_json(row) + b"]"


def _behind_a_mark(row: dict[str, Any]) -> bytes:
    return b"\xef\xbb\xbf" + as_json(row)


def _seven(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "bytes": 7}


def _scaled(row: dict[str, Any], factor: float, more_ms: float = 0) -> bytes:
    return as_json({**row, "timestamp": row["timestamp"] * factor + more_ms})


def _sip(row: dict[str, Any], before: str) -> dict[str, Any]:
    return {**row, "sip": before + row["sip"]}


def _least(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "bytes": -(2**63)}


JSON_LINES = (
    Kind("broken", lambda row: as_json(row)[:-5], "unreadable"),
    Kind("two_objects", lambda row: as_json(row) * 2, "unreadable"),
    Kind("scalar", lambda _: b"42", "unreadable"),
    Kind("null", lambda _: b"null", "unreadable"),
    Kind("nul_byte", _in_sip(b"\0"), "unreadable"),
    Kind("only_nul", lambda _: b"\0", "unreadable"),
    Kind("lone_surrogate", _in_sip(b"\\ud800"), "unreadable"),
    Kind("nan", _token("rate", b"NaN"), "unreadable"),
    Kind("infinity", _token("rate", b"-Infinity"), "unreadable"),
    Kind("deep", _nested(10_000, "else"), "unreadable"),
    Kind("deep_where_a_text_belongs", _nested(10_000, "sip"), "unreadable"),
    Kind("deep_and_open", lambda _: b"[" * 10_000, "unreadable"),
    Kind("rubbish_of_10_mb", lambda _: b"x" * MEGABYTES_10, "unreadable"),
    Kind("over_16_mib", _padded(MEGABYTES_17), "too_large"),
    Kind("invalid_utf8", _in_sip(b"\xff\xfe"), "wrong_type", "sip"),
    Kind("number_for_text", _with(sip=5), "wrong_type", "sip"),
    Kind("text_for_number", _with(bytes="12"), "wrong_type", "bytes"),
    Kind("fraction_for_integer", _with(bytes=1.5), "wrong_type", "bytes"),
    Kind("bool_for_integer", _with(bytes=True), "wrong_type", "bytes"),
    Kind("object_for_integer", _with(bytes={"a": 1}), "wrong_type", "bytes"),
    Kind("over_64_bits", _with(bytes=2**63), "wrong_type", "bytes"),
    Kind("over_128_bits", _with(bytes=-(2**200)), "wrong_type", "bytes"),
    Kind("over_float64", _token("rate", b"1e999"), "wrong_type", "rate"),
    Kind("text_for_event_time", _with(timestamp="now"), "wrong_type", "timestamp"),
    Kind("no_event_time", _without("timestamp"), "no_event_time"),
    Kind("null_event_time", _with(timestamp=None), "no_event_time"),
    Kind("year_0", _with(timestamp=-62_167_219_200_000), "no_event_time"),
    Kind("year_10000", _with(timestamp=253_402_300_800_000), "no_event_time"),
    Kind("microseconds", lambda row: _scaled(row, 1000), "no_event_time"),
    Kind("year_9999", _with(timestamp=253_402_300_799_999), "future"),
    Kind("an_hour_ahead", lambda row: _scaled(row, 1, HOUR_MS), "future"),
    # What looks odd and is good.
    Kind("wrong_type_in_a_field_nobody_reads", _with(spare="x"), None),
    Kind("escaped_nul", _in_sip(b"\\u0000"), None, counted=lambda row: _sip(row, "\0")),
    Kind(
        "duplicate_keys",
        lambda row: as_json(row)[:-1] + b',"bytes":7}',
        None,
        counted=_seven,
    ),
    Kind("valid_of_10_mb", _padded(MEGABYTES_10), None),
    Kind("smallest_integer", _with(bytes=-(2**63)), None, counted=_least),
    Kind("integer_with_a_point", _token("bytes", b"7.0"), None, counted=_seven),
    Kind("integer_with_an_exponent", _token("bytes", b"0.7e1"), None, counted=_seven),
    Kind("event_time_with_a_point", lambda row: _scaled(row, 1.0, 0.25), None),
)

JSON = (
    *JSON_LINES,
    Kind("array", _in_brackets, None),
    Kind("byte_order_mark", _behind_a_mark, None),
    Kind("empty", lambda _: b"", "unreadable", alone=True),
    Kind("blanks", lambda _: b" \n\t", "unreadable", alone=True),
    Kind("tombstone", lambda _: None, "unreadable", alone=True),
)

NDJSON = (
    *(kind for kind in JSON_LINES if kind.name != "over_16_mib"),
    *(kind for kind in JSON if kind.alone and kind.name != "blanks"),
    Kind("array", _in_brackets, "unreadable"),
    Kind("byte_order_mark", _behind_a_mark, "unreadable"),
    Kind("only_line_feeds", lambda _: b"\n\n\n", "unreadable", alone=True),
    Kind("message_over_16_mib", _padded(MEGABYTES_17), "too_large", alone=True),
)


# -------------------------------------------------------------------------------------- CSV


def as_csv(row: Mapping[str, Any]) -> bytes:
    """The cells of a row in declared order; NULL is empty."""
    return ",".join("" if row[name] is None else str(row[name]) for name in BAD_FIELDS).encode()


def _cell(name: str, cell: bytes) -> Callable[[dict[str, Any]], bytes]:
    return lambda row: as_csv({**row, name: "@"}).replace(b"@", cell)


CSV = (
    Kind("too_few_cells", lambda row: as_csv(row).rpartition(b",")[0], "unreadable"),
    Kind("one_cell", lambda _: b"what is this", "unreadable"),
    Kind("blank_line", lambda _: b"", "unreadable"),
    Kind("open_quote", _cell("sip", b'"a'), "unreadable"),
    Kind("quote_inside", _cell("sip", b'a"b'), "unreadable"),
    Kind("nul_byte", _cell("sip", b"\0"), "unreadable"),
    Kind("carriage_return_inside", _cell("sip", b"a\rb"), "unreadable"),
    Kind("rubbish_of_10_mb", lambda _: b"x" * MEGABYTES_10, "unreadable"),
    Kind("commas_of_10_mb", lambda _: b"," * MEGABYTES_10, "no_event_time"),
    Kind("message_over_16_mib", lambda _: b"," * MEGABYTES_17, "too_large", alone=True),
    Kind("empty", lambda _: b"", "unreadable", alone=True),
    Kind("tombstone", lambda _: None, "unreadable", alone=True),
    Kind("invalid_utf8", _cell("sip", b"\xff"), "wrong_type", "sip"),
    Kind("text_for_number", _cell("bytes", b"twelve"), "wrong_type", "bytes"),
    Kind("fraction_for_integer", _cell("bytes", b"1.5"), "wrong_type", "bytes"),
    Kind("over_64_bits", _cell("bytes", b"9223372036854775808"), "wrong_type", "bytes"),
    Kind("over_128_bits", _cell("bytes", b"9" * 60), "wrong_type", "bytes"),
    Kind("nan", _cell("rate", b"NaN"), "wrong_type", "rate"),
    Kind("infinity", _cell("rate", b"-inf"), "wrong_type", "rate"),
    Kind("text_for_event_time", _cell("timestamp", b"now"), "wrong_type", "timestamp"),
    Kind("empty_event_time", _cell("timestamp", b""), "no_event_time"),
    Kind("year_0", _cell("timestamp", b"-62167219200000"), "no_event_time"),
    Kind("year_9999", _cell("timestamp", b"253402300799999"), "future"),
    Kind("wrong_type_in_a_field_nobody_reads", _cell("spare", b"x"), None),
    Kind("too_many_cells", lambda row: as_csv(row) + b",1", None),
    Kind("integer_with_a_point", _cell("bytes", b"7.0"), None, counted=_seven),
    Kind("quoted_cell", lambda row: as_csv({**row, "sip": f'"{row["sip"]}"'}), None),
)


# ------------------------------------------------------------------------------------- Arrow


def as_arrow(*rows: Mapping[str, Any]) -> bytes:
    """Rows as an IPC stream."""
    types = {"string": pa.string(), "float64": pa.float64()}
    schema = pa.schema([(name, types.get(kind, pa.int64())) for name, kind in BAD_FIELDS.items()])
    return _stream(pa.Table.from_pylist([dict(row) for row in rows], schema=schema))


def _stream(table: pa.Table) -> bytes:
    buffer = io.BytesIO()
    with pa.ipc.new_stream(buffer, table.schema) as writer:
        writer.write_table(table)
    return buffer.getvalue()


def _column(name: str, values: list[Any] | pa.Array) -> Callable[[dict[str, Any]], bytes]:
    def make(row: dict[str, Any]) -> bytes:
        columns = {key: pa.array([value]) for key, value in row.items()}
        return _stream(pa.table({**columns, name: values}))

    return make


def _as_type(name: str, kind: pa.DataType) -> Callable[[dict[str, Any]], bytes]:
    """The row with a field in a column of another type."""

    def make(row: dict[str, Any]) -> bytes:
        columns = {key: pa.array([value]) for key, value in row.items()}
        return _stream(pa.table({**columns, name: pa.array([row[name]], kind)}))

    return make


def _category_of_views(row: dict[str, Any]) -> bytes:
    """A text as polars writes a Categorical."""
    columns = {key: pa.array([value]) for key, value in row.items()}
    words = pa.array([row["sip"]], pa.string_view())
    texts = pa.DictionaryArray.from_arrays(pa.array([0], pa.uint32()), words)
    return _stream(pa.table({**columns, "sip": texts}))


def _twice(row: dict[str, Any]) -> bytes:
    names = [*row, "sip"]
    return _stream(pa.table([pa.array([row[name]]) for name in names], names=names))


def _file(row: dict[str, Any]) -> bytes:
    """The row in the format for files."""
    table, buffer = pa.Table.from_pylist([row]), io.BytesIO()
    with pa.ipc.new_file(buffer, table.schema) as writer:
        writer.write_table(table)
    return buffer.getvalue()


def _flipped(row: dict[str, Any]) -> bytes:
    """A stream whose first length is nonsense."""
    good = as_arrow(row)
    return good[:4] + bytes(byte ^ 0xFF for byte in good[4:8]) + good[8:]


ARROW = (
    Kind("broken", lambda row: as_arrow(row)[:-150], "unreadable"),
    Kind("only_the_begin", lambda row: as_arrow(row)[:100], "unreadable"),
    Kind("flipped_length", _flipped, "unreadable"),
    Kind("json", as_json, "unreadable"),
    Kind("nul_byte", lambda _: b"\0", "unreadable"),
    Kind("rubbish_of_10_mb", lambda _: b"x" * MEGABYTES_10, "unreadable"),
    Kind("over_16_mib", lambda row: as_arrow(row) + b"\0" * MEGABYTES_17, "too_large"),
    Kind("column_twice", _twice, "unreadable"),
    Kind("empty", lambda _: b"", "unreadable"),
    Kind("tombstone", lambda _: None, "unreadable"),
    Kind("number_for_text", _column("sip", [5]), "wrong_type", "sip"),
    Kind("text_for_number", _column("bytes", ["12"]), "wrong_type", "bytes"),
    Kind("list_for_number", _column("bytes", [[1, 2]]), "wrong_type", "bytes"),
    Kind("fraction_for_integer", _column("bytes", [Decimal("5.5")]), "wrong_type", "bytes"),
    Kind("over_63_bits", _column("bytes", pa.array([2**63], pa.uint64())), "wrong_type", "bytes"),
    Kind("bytes_for_text", _column("sip", [b"a"]), "wrong_type", "sip"),
    Kind(
        "runs_of_texts",
        _as_type("sip", pa.run_end_encoded(pa.int32(), pa.string())),
        "wrong_type",
        "sip",
    ),
    Kind("null_event_time", lambda row: as_arrow({**row, "timestamp": None}), "no_event_time"),
    Kind("year_9999", _column("timestamp", [253_402_300_799_999]), "future"),
    Kind("wrong_type_in_a_field_nobody_reads", _column("spare", ["x"]), None),
    Kind("decimal_for_integer", _column("bytes", [Decimal(7)]), None, counted=_seven),
    Kind("file", _file, None),
    Kind("views_of_texts", _as_type("sip", pa.string_view()), None),
    Kind("category_of_views", _category_of_views, None),
)

KINDS: dict[str, tuple[Kind, ...]] = {"json": JSON, "ndjson": NDJSON, "csv": CSV, "arrow": ARROW}
