"""Sessions, from SQL to result rows, against gaps and islands of DuckDB."""

from __future__ import annotations

import json
import random

import duckdb
import polars as pl
import pytest

from mars.core.plan import Plan
from mars.core.types import Bucket, Entry, Lane, Records, Sequence64, TaskName
from mars.core.windows import Window
from mars.engine.kernel import decode, map_batch
from mars.protocol.windows.folding import Folding
from mars.sql import compile_task
from tests.golden.test_counting import STREAM

PARTITIONS, ROWS, BUCKETS = 3, 300, 4
QUERY = (
    "SELECT sip, count(*) AS n, sum(bytes) AS total, max(bytes) - min(bytes) AS span "
    "FROM S WHERE bytes > 10 GROUP BY sip HAVING count(*) > 1 WINDOWING SESSION {} ms MAX {} ms"
)
ORACLE = """
WITH passing AS (
    SELECT *, "at" // {most} AS cell FROM source WHERE bytes > 10
), marked AS (
    SELECT *, CASE WHEN "at" - lag("at") OVER (PARTITION BY sip, cell ORDER BY "at", id) < {gap}
        THEN 0 ELSE 1 END AS begins
    FROM passing
), numbered AS (
    SELECT *, sum(begins) OVER (
        PARTITION BY sip, cell ORDER BY "at", id ROWS UNBOUNDED PRECEDING) AS session
    FROM marked
)
SELECT min("at"), least(max("at") + {gap}, (cell + 1) * {most}), sip, count(*), sum(bytes),
    max(bytes) - min(bytes)
FROM numbered GROUP BY sip, cell, session HAVING count(*) > 1
"""

Row = tuple[object, ...]


def compiled(gap_ms: int, most_ms: int) -> Plan:
    return compile_task(
        QUERY.format(gap_ms, most_ms),
        task=TaskName("golden"),
        version=1,
        stream_of=lambda name: STREAM if name == "S" else None,
        options={},
    )


def made(chance: random.Random, gap_ms: int) -> list[list[dict[str, object]]]:
    """The rows of each partition: in bursts, some of them exactly a gap apart."""
    partitions = []
    for _ in range(PARTITIONS):
        at, rows = 0, list[dict[str, object]]()
        for _ in range(ROWS):
            at += chance.choice((0, 1, gap_ms // 3, gap_ms - 1, gap_ms, gap_ms + 1, 3 * gap_ms))
            sip = chance.choice(("a", "b", "c", None))
            rows.append({"at": at, "sip": sip, "bytes": chance.randrange(100)})
        chance.shuffle(rows)
        partitions.append(rows)
    return partitions


def emitted(plan: Plan, source: list[list[dict[str, object]]], chance: random.Random) -> set[Row]:
    """What buckets emit that have read all of it, in batches cut anywhere."""
    foldings = {number: Folding(plan, Bucket(number), {}) for number in range(BUCKETS)}
    for partition, rows in enumerate(source):
        lane, at = Lane(str(partition)), 0
        while at < len(rows):
            after = min(len(rows), at + chance.randint(1, 60))
            values = [json.dumps(row).encode() for row in rows[at:after]]
            records = Records(lane, at, after, values, range(at, after), [-1] * len(values))
            mapped = map_batch(plan, BUCKETS, decode(STREAM, plan.fields, records))
            for seq, part in enumerate(mapped.partials, start=1):
                entry = Entry(Sequence64(seq), plan.version, mapped.ranges, part)
                foldings[part.bucket].absorb(entry)
            at = after
    found: set[Row] = set()
    for folding in foldings.values():
        for closed in folding.state.close([Window(10**12, 0)]):
            found |= {tuple(json.loads(value).values()) for value in closed.finished.values}
    return found


@pytest.mark.parametrize(
    ("gap_ms", "most_ms"), [(1_000, 1_800_000), (1_000, 10_000), (700, 7_777), (100, 100)]
)
def test_sessions_are_the_islands_of_duckdb(gap_ms: int, most_ms: int) -> None:
    chance = random.Random(gap_ms + most_ms)
    plan, source = compiled(gap_ms, most_ms), made(chance, gap_ms)
    rows = [row for partition in source for row in partition]
    lines = [(at, row["at"], row["sip"], row["bytes"]) for at, row in enumerate(rows)]
    with duckdb.connect(config={"threads": 1}) as duck:
        frame = pl.DataFrame(lines, schema=("id", "at", "sip", "bytes"), orient="row")
        duck.register("source", frame.to_arrow())
        wanted = set(duck.sql(ORACLE.format(gap=gap_ms, most=most_ms)).fetchall())

    found = emitted(plan, source, chance)

    assert found == wanted
    assert found
