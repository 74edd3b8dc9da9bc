"""What queries over history give where windows count rows, or are sessions: against DuckDB."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest

from mars.adapters.spark.files import list_history
from mars.core.errors import JobFailed
from mars.core.types import Range, file_lane, live_lane
from mars.protocol.ports import QueryAnswer
from tests.contracts.bulk_engines import ROOTS, Bulk
from tests.contracts.bulk_jobs import flow, flows, query_job, stream_of
from tests.golden.test_counting_by_key import ORACLE as LIVES

pytestmark = pytest.mark.timeout(600)

PARTITIONS, ROWS = 2, 5_000
"""Several tasks, or parts, of each partition."""

COUNTING = (
    "SELECT name, count(*) AS n, sum(size) AS total FROM s WHERE size > 20 GROUP BY name "
    "WINDOWING {size} ROWS SLIDE {slide} ROWS"
)
COUNTED = """
WITH numbered AS (
    SELECT *, row_number() OVER (PARTITION BY part ORDER BY off) - 1 AS number
    FROM source WHERE size > 20 AND "at" >= {from_ms} AND "at" < {until_ms}
), windows AS (
    SELECT part, unnest(range((max(number) // {slide}) + 1)) AS j FROM numbered GROUP BY part
)
SELECT min("at"), max("at"), part, j, min(off), max(off), name, count(*), sum(size)
FROM windows JOIN numbered USING (part)
WHERE number >= j * {slide} AND number < j * {slide} + {size}
GROUP BY part, j, name ORDER BY part, j, name
"""

BY_KEY = (
    "SELECT name, count(*) AS n, sum(size) AS total, max(size) - min(size) AS span FROM s "
    "WHERE size > 20 GROUP BY name WINDOWING {size} ROWS SLIDE {slide} ROWS PER KEY "
    "EXPIRE {expire} ms"
)

SESSIONS = (
    "SELECT name, count(*) AS n, sum(size) AS total FROM s WHERE size > 90 GROUP BY name "
    "HAVING count(*) > 1 WINDOWING SESSION {gap} ms MAX {most} ms"
)
ISLANDS = """
WITH passing AS (
    SELECT *, "at" // {most} AS cell FROM source
    WHERE size > 90 AND "at" >= {from_ms} AND "at" < {until_ms}
), marked AS (
    SELECT *, CASE WHEN "at" - lag("at") OVER (PARTITION BY name, cell ORDER BY "at", part, off)
        < {gap} THEN 0 ELSE 1 END AS begins
    FROM passing
), numbered AS (
    SELECT *, sum(begins) OVER (PARTITION BY name, cell ORDER BY "at", part, off
        ROWS UNBOUNDED PRECEDING) AS session
    FROM marked
)
SELECT min("at") AS first, least(max("at") + {gap}, (cell + 1) * {most}) AS last, name, count(*),
    sum(size)
FROM numbered GROUP BY name, cell, session HAVING count(*) > 1 ORDER BY last, first, name
"""
SPAN = {"from_ms": 5_000, "until_ms": 45_000}


def asked(bulk: Bulk, sql: str, **members: Any) -> QueryAnswer:
    """The answer to a query over all rows, of which each partition has every other one."""
    topic, _id = bulk.filled(ROWS, PARTITIONS)
    ranges = [Range(live_lane(number), 0, ROWS // PARTITIONS) for number in range(PARTITIONS)]
    return bulk.engine.query(query_job(topic, *ranges, sql=sql, rows_max=50_000, **members))


def oracle(sql: str, **values: int) -> list[tuple[object, ...]]:
    rows: list[Any] = [flow(number) for number in range(ROWS)]
    lines = [
        (number % PARTITIONS, number // PARTITIONS, row["at"], row["name"], row["size"])
        for number, row in enumerate(rows)
    ]
    columns = ("part", "off", "at", "name", "size")
    with duckdb.connect(config={"threads": 1}) as duck:
        duck.register("source", pl.DataFrame(lines, schema=columns, orient="row").to_arrow())
        return duck.sql(sql.format(**values, **SPAN)).fetchall()


def rows_of(answer: QueryAnswer) -> list[tuple[object, ...]]:
    return [tuple(json.loads(row).values()) for row in answer.rows]


@pytest.mark.parametrize(("size", "slide"), [(700, 700), (900, 250)])
def test_rows_of_a_partition_are_counted_from_the_begin_of_the_range_on(
    bulk: Bulk, size: int, slide: int
) -> None:
    """Windows that are not full are there, too."""
    answer = asked(bulk, COUNTING.format(size=size, slide=slide), **SPAN)
    wanted = oracle(COUNTED, size=size, slide=slide)

    assert rows_of(answer) == wanted
    assert [json.loads(key) for key in answer.keys] == [
        [start, name, part, number] for start, _end, part, number, _first, _last, name, *_ in wanted
    ]
    whole = oracle(COUNTED, size=1_000_000, slide=1_000_000)
    assert answer.counted == {
        live_lane(part): sum(int(str(row[7])) for row in whole if row[2] == part)
        for part in range(PARTITIONS)
    }


Line = tuple[int, int, int, str, int]
"""Partition, offset, time, name, size."""


def message(line: Line | None) -> bytes:
    if line is None:
        return b"{"
    _part, _off, at, name, size = line
    return json.dumps({"at": at, "name": name, "size": size}).encode()


def keyed(chance: random.Random, part: int) -> list[Line | None]:
    """Rows of one partition in no strict order of time, some of which are bad; some keys fall
    silent.
    """
    rows, at = list[Line | None](), 0
    for off in range(ROWS // PARTITIONS):
        at += chance.choice((0, 10, 20, 50))
        name = chance.choice("aabcde" if off // 300 % 2 else "aaxyz")
        time = at - chance.choice((0, 0, 15, 400))
        row = (part, off, max(0, time), name, chance.randrange(100))
        rows.append(None if chance.random() < 0.05 else row)
    return rows


@pytest.mark.parametrize(
    ("size", "slide", "expire"), [(40, 40, 500), (60, 20, 4_000), (1, 1, 100), (70, 70, 900)]
)
@pytest.mark.parametrize("span", [SPAN, {}], ids=["cut", "whole"])
def test_rows_of_each_key_are_counted_as_a_task_counts_them(
    bulk: Bulk, size: int, slide: int, expire: int, span: dict[str, Any]
) -> None:
    """There are windows that are full, and what silent keys have left: by all usable rows, filtered
    ones too. What waits is not there.
    """
    chance, topic = random.Random(size), bulk.cluster.topic(PARTITIONS)
    sent = [keyed(chance, part) for part in range(PARTITIONS)]
    for part, rows in enumerate(sent):
        bulk.cluster.append(topic, part, list(map(message, rows)))
    shape = {"size": size, "slide": slide, "expire": expire}
    ranges = [Range(live_lane(part), 0, len(rows)) for part, rows in enumerate(sent)]
    job = query_job(topic, *ranges, sql=BY_KEY.format(**shape), rows_max=50_000, **span)
    answer = bulk.engine.query(job)

    lines = [row for rows in sent for row in rows if row is not None]
    first, after = span.get("from_ms", 0), span.get("until_ms", 10**9)
    passing = f'bytes > 20 AND "at" >= {first} AND "at" < {after}'
    with duckdb.connect(config={"threads": 1}) as duck:
        columns = ("part", "off", "at", "sip", "bytes")
        duck.register("source", pl.DataFrame(lines, schema=columns, orient="row").to_arrow())
        wanted = duck.sql(LIVES.format(**shape, passing=passing)).fetchall()
    wanted.sort(key=lambda row: (row[1], row[0], row[6], row[2], row[3]))

    assert rows_of(answer) == [row[:-1] for row in wanted]
    assert len({row[-1] for row in wanted}) == (1 if size == 1 else 2)
    unfilled = {(row[2], row[3]) for row in wanted if not row[-1]}
    assert {tuple(json.loads(key)[2:]) for key in answer.unfilled} == unfilled
    for part in range(PARTITIONS):
        own = [row for row in lines if row[0] == part and row[4] > 20]
        counted = sum(first <= at < after for _part, _off, at, _name, _size in own)
        assert answer.counted[live_lane(part)] == counted


@pytest.mark.parametrize(("gap", "most"), [(500, 60_000), (500, 7_000)])
def test_sessions_are_the_islands_of_the_range(bulk: Bulk, gap: int, most: int) -> None:
    answer = asked(bulk, SESSIONS.format(gap=gap, most=most), **SPAN)
    wanted = oracle(ISLANDS, gap=gap, most=most)

    assert rows_of(answer) == wanted
    assert len(wanted) > 10
    assert [json.loads(key) for key in answer.keys] == [[row[0], row[2]] for row in wanted]
    assert answer.counted == {}


def test_sessions_are_made_of_the_rows_of_files_too(bulk: Bulk, tmp_path: Path) -> None:
    lines = flows(ROWS)
    for number, part in enumerate((lines[: ROWS // 3], lines[ROWS // 3 :])):
        (tmp_path / f"{number}.ndjson").write_bytes(b"\n".join(part) + b"\n")
    files = list_history(str(tmp_path), "ndjson", stream_of("t"), ROOTS)
    whole = Range(file_lane("q"), 0, files.files[-1].next)
    sql = SESSIONS.format(gap=500, most=7_000)

    answer = bulk.engine.query(query_job("t", whole, sql=sql, files=files, **SPAN))

    assert rows_of(answer) == oracle(ISLANDS, gap=500, most=7_000)


def test_sessions_over_the_limit_of_rows_are_told(bulk: Bulk) -> None:
    topic, _id = bulk.filled(500)
    ranges = (Range(live_lane(0), 0, 250), Range(live_lane(1), 0, 250))
    sql = "SELECT name, count(*) FROM s GROUP BY name WINDOWING SESSION 100 ms"
    with pytest.raises(JobFailed, match="more than 34 result rows"):
        bulk.engine.query(query_job(topic, *ranges, sql=sql, rows_max=34))
