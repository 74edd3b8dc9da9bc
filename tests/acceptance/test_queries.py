"""Ad-hoc queries on the running service, against DuckDB over the same rows."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mars.client.answers import Query
from mars.core.errors import Conflict, NotFound, Rejected
from tests.conftest import missing_java, need
from tests.support.cluster import MarsCluster, wait_for
from tests.support.rows import FIELDS, KEY, Result, assert_exactly_once, expected, flow_rows

pytestmark = pytest.mark.acceptance

ROWS = 6_000
WINDOW_MS = 5_000
ANSWER_S = 280.0
"""Until an answer is there: the first one waits until Spark has started, which takes ten seconds
on a quiet machine and minutes on a crowded one."""

Row = dict[str, Any]


@pytest.fixture(scope="module")
def mars(shared_mars: MarsCluster) -> MarsCluster:
    need(missing_java())
    return shared_mars


def query_of(stream: str) -> str:
    return (
        "SELECT sip, type, timestamp, count(*), sum(bytes) AS bytes, sum(id) AS ids, "
        f"sum(hash) AS hashes FROM {stream} GROUP BY sip, type, timestamp WINDOWING 5 s"
    )


@pytest.fixture(scope="module")
def rows(mars: MarsCluster) -> list[Row]:
    """A minute of rows in the topic `asked`, and a few bad ones."""
    mars.declare("asked", stream="asked", partitions=3)
    start_ms = time.time_ns() // 1_000_000 // WINDOW_MS * WINDOW_MS - 120_000
    made = flow_rows(0, ROWS, start_ms, rows_per_s=100)
    values = [(row["id"] % 3, json.dumps(row).encode()) for row in made]
    mars.produce("asked", [*values, (0, b"{"), (1, b'{"timestamp": "soon"}')])
    return made


def ended(mars: MarsCluster, query: str) -> Query:
    """The query once it has ended."""

    def look() -> Query | None:
        found = mars.client.query(query)
        return None if found.goes_on else found

    return wait_for(f"query {query} to end", look, seconds=ANSWER_S)


def answered(mars: MarsCluster, stream: str, **members: object) -> Query:
    found = ended(mars, mars.client.create_query(query_of(stream), **members).id)
    assert found.state == "done", f"{found.error}\n{mars.logs()}"
    return found


def check(found: Sequence[Row], wanted: Mapping[tuple[Any, ...], Row]) -> None:
    results: list[Result] = [(b"", row, {}) for row in found]
    assert_exactly_once(results, wanted)


def test_query_over_a_topic_answers_what_a_batch_engine_does(
    mars: MarsCluster, rows: list[Row]
) -> None:
    done = answered(mars, "asked")
    found = mars.client.query_rows(done.id)
    check(found, expected(rows))
    order = [(row["window_start"], row["sip"], row["type"]) for row in found]
    assert order == sorted(order)
    assert done.counts is not None
    assert (done.counts.counted, done.counts.bad, done.rows) == (ROWS, 2, len(found))


def test_range_of_time_takes_the_rows_in_it_and_no_others(
    mars: MarsCluster, rows: list[Row]
) -> None:
    first = rows[ROWS // 3]["timestamp"]
    until = first + 4 * WINDOW_MS
    done = answered(mars, "asked", **{"from": first, "until": until})
    inside = [row for row in rows if first <= row["timestamp"] < until]
    check(mars.client.query_rows(done.id), expected(inside))
    assert done.counts is not None
    assert done.counts.counted == len(inside)


def test_answer_is_there_as_arrow_too(mars: MarsCluster, rows: list[Row]) -> None:
    done = answered(mars, "asked")
    table = pa.ipc.open_stream(mars.client.query_arrow(done.id)).read_all()
    assert table.num_rows == done.rows
    assert sum(table.column("bytes").to_pylist()) == sum(row["bytes"] for row in rows)


def test_output_topic_gets_each_row_once(mars: MarsCluster, rows: list[Row]) -> None:
    done = answered(mars, "asked", output_topic="answers")
    results = mars.read("answers")
    assert_exactly_once(results, expected(rows))
    assert {headers["mars-task"] for _key, _value, headers in results} == {done.id}
    assert all(
        json.loads(key) == [value["window_start"], *(value[name] for name in KEY)]
        for key, value, _headers in results
    )


@pytest.mark.parametrize("form", ["parquet", "ndjson", "csv"])
def test_query_over_files_needs_no_topic(mars: MarsCluster, tmp_path: Path, form: str) -> None:
    made = flow_rows(0, 2_000, 1_700_000_000_000, rows_per_s=100)
    stream = f"filed_{form}"
    mars.client.put_stream(
        stream, {"topic": "absent", "format": "json", "fields": FIELDS, "event_time": "timestamp"}
    )
    for number, part in enumerate((made[:700], made[700:])):
        write(tmp_path / f"{number}.{form}", form, part)
    until = made[1_500]["timestamp"]
    files = {"files": str(tmp_path), "format": form, "csv_header": form == "csv"}
    done = answered(mars, stream, files=files, until=until)
    kept = [row for row in made if row["timestamp"] < until]
    check(mars.client.query_rows(done.id), expected(kept))


def write(path: Path, form: str, part: Sequence[Row]) -> None:
    match form:
        case "parquet":
            pq.write_table(pa.Table.from_pylist(list(part)), path)
        case "ndjson":
            path.write_text("".join(json.dumps(row) + "\n" for row in part))
        case _:
            lines = [
                ",".join(FIELDS),
                *(",".join(str(row[name]) for name in FIELDS) for row in part),
            ]
            path.write_text("\n".join(lines) + "\n")


def test_query_with_too_many_rows_fails_and_names_the_limit(
    mars: MarsCluster, rows: list[Row]
) -> None:
    assert len(rows) == ROWS
    found = ended(mars, mars.client.create_query(query_of("asked"), rows_max=5).id)
    assert found.state == "failed"
    assert "5 result rows" in (found.error or "")
    with pytest.raises(Conflict, match="5 result rows"):
        mars.client.query_rows(found.id)


def test_query_that_takes_too_long_fails_and_names_its_time_out(
    mars: MarsCluster, rows: list[Row]
) -> None:
    assert len(rows) == ROWS
    found = ended(mars, mars.client.create_query(query_of("asked"), timeout=0.001).id)
    assert (found.state, found.rows) == ("failed", None)
    assert "time-out of 0.001 s" in (found.error or "")


def test_cancelled_query_stays_cancelled(mars: MarsCluster, rows: list[Row]) -> None:
    assert len(rows) == ROWS
    query = mars.client.create_query(query_of("asked"), output_topic="cancelled").id
    mars.client.cancel_query(query)
    assert mars.client.query(query).state == "cancelled"
    done = answered(mars, "asked")
    assert mars.client.query(query).state == "cancelled"
    assert [each.id for each in mars.client.queries()][:2] == [done.id, query]


@pytest.mark.timeout(600)
def test_query_survives_the_death_of_the_process_that_runs_it(
    mars: MarsCluster, rows: list[Row]
) -> None:
    asked = mars.client.create_query(query_of("asked"), output_topic="survived", timeout=600)
    query = asked.id

    def taken() -> bool:
        found = mars.client.query(query)
        return found.state == "running" or not found.goes_on

    wait_for("the query to be taken", taken, seconds=ANSWER_S, pause_s=0.005)
    mars.kill("bulk-1")
    assert ended(mars, query).state == "done", mars.logs()
    check(mars.client.query_rows(query), expected(rows))
    assert_exactly_once(mars.read("survived"), expected(rows))


def test_requests_that_make_no_sense_are_refused(mars: MarsCluster, rows: list[Row]) -> None:
    assert len(rows) == ROWS
    for members in (
        {"from": 5, "until": 5},
        {"rows_max": 0},
        {"output_topic": "mars.queries"},
        {"files": {"files": "/nowhere", "format": "parquet"}},
        {"files": {"files": "relative", "format": "csv"}},
    ):
        with pytest.raises(Rejected):
            mars.client.create_query(query_of("asked"), **members)
    with pytest.raises(NotFound):
        mars.client.query("q-none")


def test_command_line_prints_what_it_was_asked(mars: MarsCluster, rows: list[Row]) -> None:
    sql = "SELECT count(*) AS n FROM asked WINDOWING 5 s"
    done = mars.mars("query", sql, "--json")
    assert done.returncode == 0, done.stderr
    counted = [json.loads(line)["n"] for line in done.stdout.splitlines()]
    assert sum(counted) == len(rows)
