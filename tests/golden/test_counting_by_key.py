"""Windows that count the rows of each key, from SQL to result rows, against lives in DuckDB."""

from __future__ import annotations

import json
import random
from typing import Any

import duckdb
import polars as pl
import pytest

from mars.core.plan import Plan
from mars.core.types import TaskName
from mars.core.windows import CountingByKey, Window
from mars.core.windows.counting import BEFORE_ALL_MS
from mars.engine.aggregates import key_windows
from mars.engine.finishing import finish
from mars.sql import compile_task
from tests.golden.test_counting import PARTITIONS, ROWS, STREAM, Row, states_of

QUERY = (
    "SELECT sip, count(*) AS n, sum(bytes) AS total, max(bytes) - min(bytes) AS span "
    "FROM S WHERE bytes > 10 GROUP BY sip WINDOWING {} ROWS SLIDE {} ROWS PER KEY EXPIRE {} ms"
)
ORACLE = """
WITH seen AS (
    SELECT *, max("at") OVER (PARTITION BY part ORDER BY off) AS seen FROM source
), passing AS (
    SELECT *, row_number() OVER (PARTITION BY part ORDER BY off) - 1 AS place,
        seen - lag(seen) OVER (PARTITION BY part, sip ORDER BY off) > {expire} AS anew
    FROM seen WHERE {passing}
), lives AS (
    SELECT *, count_if(coalesce(anew, false)) OVER (PARTITION BY part, sip ORDER BY off) AS life
    FROM passing
), numbered AS (
    SELECT *, row_number() OVER (PARTITION BY part, sip, life ORDER BY off) - 1 AS number
    FROM lives
), ends AS (
    SELECT part, max(seen) AS seen FROM seen GROUP BY part
), counted AS (
    SELECT part, sip, life, max(number) + 1 AS rows,
        life < max(life) OVER (PARTITION BY part, sip)
        OR max(ends.seen) - max(numbered.seen) > {expire} AS over
    FROM numbered JOIN ends USING (part) GROUP BY part, sip, life
), windows AS (
    SELECT part AS of_part, sip AS of_sip, life AS of_life, rows, over,
        unnest(range((rows - 1) // {slide} + 1)) AS j
    FROM counted
)
SELECT min("at"), max("at"), part, min(place), min(off), max(off), sip, count(*), sum(bytes),
    max(bytes) - min(bytes), count(*) = {size}
FROM windows JOIN numbered
    ON part = of_part AND life = of_life AND sip IS NOT DISTINCT FROM of_sip
WHERE number >= j * {slide} AND number < j * {slide} + {size}
    AND (over OR j * {slide} + {size} <= rows)
GROUP BY part, sip, life, j
"""


def compiled(size: int, slide: int, expire_ms: int) -> Plan:
    return compile_task(
        QUERY.format(size, slide, expire_ms),
        task=TaskName("golden"),
        version=1,
        stream_of=lambda name: STREAM if name == "S" else None,
        options={},
    )


def made(chance: random.Random) -> list[list[dict[str, Any] | None]]:
    """The rows of each partition, time going on with some out of order; None: one that is bad."""
    partitions = []
    for _ in range(PARTITIONS):
        at, rows = 0, list[dict[str, Any] | None]()
        for _ in range(ROWS):
            at += chance.choice((0, 100, 1_000, 4_000))
            row = {
                "at": at - chance.choice((0, 0, 700, 9_000)),
                "sip": chance.choice(("a", "a", "b", "c", None)),
                "bytes": chance.randrange(100),
            }
            rows.append(None if chance.random() < 0.05 else row)
        partitions.append(rows)
    return partitions


@pytest.mark.parametrize(
    ("size", "slide", "expire_ms"),
    [(5, 5, 8_000), (6, 4, 12_000), (4, 1, 20_000), (1, 1, 5_000), (9, 3, 10**7)],
)
def test_windows_of_rows_of_a_key_are_those_of_duckdb(
    size: int, slide: int, expire_ms: int
) -> None:
    chance = random.Random(size)
    plan, source = compiled(size, slide, expire_ms), made(chance)
    assert isinstance(plan.window, CountingByKey)
    lines = [
        (partition, 2 * offset, row["at"], row["sip"], row["bytes"])
        for partition, rows in enumerate(source)
        for offset, row in enumerate(rows)
        if row is not None
    ]
    columns = ("part", "off", "at", "sip", "bytes")
    with duckdb.connect(config={"threads": 1}) as duck:
        duck.register("source", pl.DataFrame(lines, schema=columns, orient="row").to_arrow())
        shape = {"size": size, "slide": slide, "expire": expire_ms}
        told = ORACLE.format(**shape, passing="bytes > 10")
        wanted = sorted(duck.sql(told).fetchall(), key=repr)

    seen = {
        partition: max(at for part, _offset, at, *_rest in lines if part == partition)
        - BEFORE_ALL_MS
        for partition in range(PARTITIONS)
    }
    parts = (states_of(plan, number, rows, chance) for number, rows in enumerate(source))
    found = key_windows(plan, pl.concat([state for part in parts for state in part]), seen)
    rows: list[Row] = [
        (*json.loads(value).values(), full)
        for states, full in ((found.full, True), (found.unfilled, False))
        for value in finish(plan, states, Window(0, 0)).values
    ]
    assert sorted(rows, key=repr) == wanted
    assert {row[-1] for row in rows} == (
        {True} if size == 1 or expire_ms == 10**7 else {True, False}
    )
