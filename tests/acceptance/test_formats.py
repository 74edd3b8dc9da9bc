"""Every format and every shape of query on the running service, against DuckDB.

All tasks run at the same time: one for each format on a topic of its own, and a dozen queries
beside each other on one topic. All get the same rows, whose times span less than the delay, so
that none is late in whatever order the mappers read.
"""

from __future__ import annotations

import io
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from tests.support.cluster import MarsCluster, wait_for
from tests.support.rows import FIELDS, Result, assert_exactly_once, expected, flow_rows

pytestmark = pytest.mark.acceptance

PARTITIONS = 4
ROWS = 4_000
SPAN_S = 4
OPTIONS = {"delay": "10s", "idle_after": "1s"}
MESSAGE_ROWS = 50
"""Rows of a message in the formats that have more than one."""

WINDOW_MS = 1_000
PAPER = (
    "SELECT sip, type, timestamp, count(*), sum(bytes) AS bytes, sum(id) AS ids, "
    "sum(hash) AS hashes FROM {stream} GROUP BY sip, type, timestamp WINDOWING 1 s"
)

Row = dict[str, Any]


def as_json(rows: Sequence[Row]) -> Iterator[bytes]:
    return (json.dumps(row).encode() for row in rows)


def as_ndjson(rows: Sequence[Row]) -> Iterator[bytes]:
    return (b"\n".join(as_json(part)) + b"\n" for part in _parts(rows))


def as_csv(rows: Sequence[Row]) -> Iterator[bytes]:
    for part in _parts(rows):
        yield "\n".join(_line([row[name] for name in FIELDS]) for row in part).encode()


def as_csv_with_marks(rows: Sequence[Row]) -> Iterator[bytes]:
    """Other marks than usual, and a cell that is not declared."""
    for part in _parts(rows):
        lines = ([*(row[name] for name in FIELDS), "a 'note'; quoted"] for row in part)
        yield "\n".join(_line(line, ";", "'") for line in lines).encode()


def as_csv_with_header(rows: Sequence[Row]) -> Iterator[bytes]:
    """The columns in another order than declared, with one that is not declared."""
    names = ["note", *reversed(FIELDS)]
    for part in _parts(rows):
        lines = [_line([row.get(name, 'a "note", quoted') for name in names]) for row in part]
        yield "\r\n".join([",".join(names), *lines]).encode()


FIELDS_OF_RECORDS = {
    **FIELDS,
    "sip": {"type": "string", "from": "$key"},
    "timestamp": {"type": "timestamp_ms", "from": "$timestamp"},
}


def as_rest_of_records(rows: Sequence[Row]) -> Iterator[bytes]:
    """What is neither the key of the record nor its time."""
    own = [name for name, kind in FIELDS_OF_RECORDS.items() if isinstance(kind, str)]
    return as_json([{name: row[name] for name in own} for row in rows])


def as_arrow(rows: Sequence[Row]) -> Iterator[bytes]:
    """The event time as Arrow's own timestamps, the type as a dictionary."""
    for part in _parts(rows):
        table = pa.Table.from_pylist(list(part))
        stamps = table.column("timestamp").cast(pa.timestamp("ms"))
        table = table.set_column(0, "timestamp", stamps)
        kinds = table.column("type").dictionary_encode()
        table = table.set_column(table.column_names.index("type"), "type", kinds)
        buffer = io.BytesIO()
        with pa.ipc.new_stream(buffer, table.schema) as writer:
            writer.write_table(table)
        yield buffer.getvalue()


def _parts(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    return (rows[first : first + MESSAGE_ROWS] for first in range(0, len(rows), MESSAGE_ROWS))


def _line(cells: Sequence[Any], delimiter: str = ",", quote: str = '"') -> str:
    return delimiter.join(_cell(cell, delimiter, quote) for cell in cells)


def _cell(cell: Any, delimiter: str, quote: str) -> str:
    if cell is None:
        return ""
    text = str(cell)
    return (
        quote + text.replace(quote, quote * 2) + quote if set(text) & {delimiter, quote} else text
    )


FORMATS: dict[str, tuple[Mapping[str, object], Callable[[Sequence[Row]], Iterator[bytes]]]] = {
    "json": ({"format": "json"}, as_json),
    "ndjson": ({"format": "ndjson"}, as_ndjson),
    "csv": ({"format": "csv"}, as_csv),
    "csv_marks": ({"format": "csv", "csv_delimiter": ";", "csv_quote": "'"}, as_csv_with_marks),
    "csv_header": ({"format": "csv", "csv_header": True}, as_csv_with_header),
    "arrow": ({"format": "arrow"}, as_arrow),
    "record": ({"format": "json", "fields": FIELDS_OF_RECORDS}, as_rest_of_records),
}


@dataclass(frozen=True, slots=True)
class Shape:
    """A query for Mars, and one for DuckDB with the same columns and `window_start`.

    DuckDB reads `seconds`: the rows with a column `slot`, the second they are of.
    """

    mars: str
    duckdb: str


SHAPES = {
    "where": Shape(
        "SELECT type, count(*) AS n, sum(bytes) AS bytes FROM shapes "
        "WHERE bytes > 700 AND sip LIKE '10.0.1.%' GROUP BY type WINDOWING 1 s",
        "SELECT slot * 1000 AS window_start, type, count(*) AS n, sum(bytes) AS bytes FROM seconds "
        "WHERE bytes > 700 AND sip LIKE '10.0.1.%' GROUP BY ALL",
    ),
    "having": Shape(
        "SELECT sip, count(*) AS n FROM shapes GROUP BY sip HAVING count(*) > 9 WINDOWING 1 s",
        "SELECT slot * 1000 AS window_start, sip, count(*) AS n FROM seconds "
        "GROUP BY ALL HAVING count(*) > 9",
    ),
    "filter": Shape(
        "SELECT sip, count(*) FILTER (WHERE type = 'dns') AS dns, "
        "sum(bytes) FILTER (WHERE bytes > 1000) AS large FROM shapes GROUP BY sip WINDOWING 1 s",
        "SELECT slot * 1000 AS window_start, sip, count(*) FILTER (WHERE type = 'dns') AS dns, "
        "sum(bytes) FILTER (WHERE bytes > 1000) AS large FROM seconds GROUP BY ALL",
    ),
    "over_aggregates": Shape(
        "SELECT type, sum(bytes) / count(*) AS mean, max(bytes) - min(bytes) AS spread, "
        "avg(bytes) * 2 AS doubled FROM shapes GROUP BY type WINDOWING 1 s",
        "SELECT slot * 1000 AS window_start, type, sum(bytes) / count(*) AS mean, "
        "max(bytes) - min(bytes) AS spread, avg(bytes) * 2 AS doubled FROM seconds GROUP BY ALL",
    ),
    "distinct": Shape(
        "SELECT count(DISTINCT sip) AS sips, count(*) AS n FROM shapes WINDOWING 1 s",
        "SELECT slot * 1000 AS window_start, count(DISTINCT sip) AS sips, count(*) AS n "
        "FROM seconds GROUP BY ALL",
    ),
    "distinct_by_key": Shape(
        "SELECT type, count(DISTINCT sip) AS sips FROM shapes GROUP BY type WINDOWING 1 s",
        "SELECT slot * 1000 AS window_start, type, count(DISTINCT sip) AS sips FROM seconds "
        "GROUP BY ALL",
    ),
    "top": Shape(
        "SELECT sip, sum(bytes) AS bytes FROM shapes GROUP BY sip "
        "ORDER BY bytes DESC, sip LIMIT 3 WINDOWING 1 s",
        "SELECT slot * 1000 AS window_start, sip, sum(bytes) AS bytes FROM seconds "
        "GROUP BY slot, sip "
        "QUALIFY row_number() OVER (PARTITION BY slot ORDER BY sum(bytes) DESC NULLS LAST, sip) "
        "<= 3",
    ),
    "slide": Shape(
        "SELECT type, count(*) AS n, sum(id) AS ids FROM shapes GROUP BY type "
        "WINDOWING 3 s SLIDE 1 s",
        "SELECT (slot - back) * 1000 AS window_start, type, count(*) AS n, sum(id) AS ids "
        "FROM seconds, range(3) AS windows(back) GROUP BY ALL",
    ),
    "tumble": Shape(
        "SELECT window_start, type, count(*) AS n FROM shapes "
        "GROUP BY type, TUMBLE(timestamp, INTERVAL '2' SECOND)",
        "SELECT slot // 2 * 2000 AS window_start, type, count(*) AS n FROM seconds GROUP BY ALL",
    ),
    "hop": Shape(
        "SELECT type, min(bytes) AS least FROM shapes "
        "GROUP BY HOP(timestamp, INTERVAL '1' SECOND, INTERVAL '2' SECOND), type",
        "SELECT (slot - back) * 1000 AS window_start, type, min(bytes) AS least "
        "FROM seconds, range(2) AS windows(back) GROUP BY ALL",
    ),
    "moments": Shape(
        "SELECT type, stddev_samp(bytes) AS deviation, var_pop(bytes) AS variance FROM shapes "
        "GROUP BY type WINDOWING 1 s",
        "SELECT slot * 1000 AS window_start, type, stddev_samp(bytes) AS deviation, "
        "var_pop(bytes) AS variance FROM seconds GROUP BY ALL",
    ),
    "expression_as_key": Shape(
        "SELECT CASE WHEN bytes > 1000 THEN 'large' WHEN bytes IS NULL THEN NULL ELSE 'small' END "
        "AS size, count(*) AS n FROM shapes GROUP BY size WINDOWING 1 s",
        "SELECT slot * 1000 AS window_start, CASE WHEN bytes > 1000 THEN 'large' "
        "WHEN bytes IS NULL THEN NULL ELSE 'small' END AS size, count(*) AS n FROM seconds "
        "GROUP BY ALL",
    ),
}


@pytest.fixture(scope="module")
def rows(shared_mars: MarsCluster) -> list[Row]:
    """The rows that all tasks were given at the same time."""
    for name, (declaration, _encode) in FORMATS.items():
        _declare(shared_mars, f"format_{name}", declaration)
        query = PAPER.format(stream=f"format_{name}")
        shared_mars.client.create_task(f"format_{name}", query, options=OPTIONS)
    _declare(shared_mars, "shapes", {"format": "json"})
    for name, shape in SHAPES.items():
        shared_mars.client.create_task(f"shape_{name}", shape.mars, options=OPTIONS)
    begin_ms = time.time_ns() // 1_000_000 - SPAN_S * 1000
    made = flow_rows(0, ROWS, begin_ms, rows_per_s=ROWS // SPAN_S)
    for row in made:
        row["bytes"] = None if row["id"] % 50 == 0 else row["bytes"]
    for name, (_declaration, encode) in FORMATS.items():
        values = list(encode(made))
        if name == "record":
            _feed_records(shared_mars, "format_record", made, values)
        else:
            _feed(shared_mars, f"format_{name}", values)
    _feed(shared_mars, "shapes", list(as_json(made)))
    return made


def _declare(mars: MarsCluster, name: str, declaration: Mapping[str, object]) -> None:
    mars.topic(name, PARTITIONS)
    common = {"topic": name, "fields": FIELDS, "event_time": "timestamp"}
    mars.client.put_stream(name, {**common, **declaration})


def _feed(mars: MarsCluster, topic: str, values: Sequence[bytes]) -> None:
    mars.produce(topic, [(at % PARTITIONS, value) for at, value in enumerate(values)])


def _feed_records(
    mars: MarsCluster, topic: str, rows: Sequence[Row], values: Sequence[bytes]
) -> None:
    mars.produce_records(
        topic,
        [
            (at % PARTITIONS, value, row["sip"].encode(), row["timestamp"])
            for at, (row, value) in enumerate(zip(rows, values, strict=True))
        ],
    )


@pytest.fixture(scope="module")
def seconds(rows: list[Row]) -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB with the rows as the table `seconds`."""
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.register("arrived", pa.Table.from_pylist(rows))
        connection.execute(
            "CREATE TABLE seconds AS SELECT *, timestamp // 1000 AS slot FROM arrived"
        )
        yield connection


@pytest.mark.parametrize("name", FORMATS)
def test_results_of_each_format_equal_those_of_duckdb(
    shared_mars: MarsCluster, rows: list[Row], name: str
) -> None:
    wanted = expected(rows, WINDOW_MS)

    results = shared_mars.read_until(f"mars.results.format_{name}", len(wanted))

    assert_exactly_once(results, wanted)
    _assert_all_counted(shared_mars, f"format_{name}")


@pytest.mark.parametrize("name", SHAPES)
def test_results_of_each_shape_equal_those_of_duckdb(
    shared_mars: MarsCluster, seconds: duckdb.DuckDBPyConnection, name: str
) -> None:
    cursor = seconds.execute(SHAPES[name].duckdb)
    columns = [column[0] for column in cursor.description]
    wanted = _ordered(cursor.fetchall())

    results = shared_mars.read_until(f"mars.results.shape_{name}", len(wanted))

    found = _ordered([[value[column] for column in columns] for _key, value, _headers in results])
    assert len(found) == len(wanted)
    for line, other in zip(found, wanted, strict=True):
        assert all(map(_same, line, other)), f"{line} instead of {other}"
    assert _windows_are_as_long_as_declared(results, SHAPES[name].mars)


def _same(value: object, other: object) -> bool:
    if isinstance(value, float) and isinstance(other, float):
        return math.isclose(value, other, rel_tol=1e-9)
    return value == other


def _ordered(lines: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """By the first two columns, which tell all rows apart."""
    return sorted(map(list, lines), key=lambda line: (line[0], str(line[1])))


SIZES_MS = {"3 s SLIDE": 3_000, "'2' SECOND": 2_000}


def _windows_are_as_long_as_declared(results: Sequence[Result], sql: str) -> bool:
    size_ms = next((size for text, size in SIZES_MS.items() if text in sql), WINDOW_MS)
    return all(value["window_end"] - value["window_start"] == size_ms for _k, value, _h in results)


def _assert_all_counted(mars: MarsCluster, task: str) -> None:
    wait_for(f"all rows of {task} emitted", lambda: mars.client.ledger(task).emitted == ROWS)
    ledger = mars.client.ledger(task)
    assert (ledger.read, ledger.counted, ledger.bad, ledger.late) == (ROWS, ROWS, 0, 0)


def test_filtered_rows_are_counted_as_such(
    shared_mars: MarsCluster, seconds: duckdb.DuckDBPyConnection
) -> None:
    found = seconds.execute(
        "SELECT count(*) FROM seconds WHERE bytes > 700 AND sip LIKE '10.0.1.%'"
    ).fetchone()
    assert found is not None
    client = shared_mars.client

    wait_for("all rows", lambda: client.ledger("shape_where").read == ROWS)

    ledger = client.ledger("shape_where")
    assert (ledger.counted, ledger.filtered) == (found[0], ROWS - found[0])


def test_rows_of_the_same_window_and_bucket_come_in_the_order_of_their_keys(
    shared_mars: MarsCluster, rows: list[Row]
) -> None:
    wanted = len(expected(rows, WINDOW_MS))
    found: dict[tuple[int, str], list[list[Any]]] = {}

    for key, value, headers in shared_mars.read_until("mars.results.format_json", wanted):
        of = (value["window_start"], headers["mars-bucket"])
        found.setdefault(of, []).append(json.loads(key))

    assert len(found) > SPAN_S
    assert all(keys == sorted(keys) for keys in found.values())
