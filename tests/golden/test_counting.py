"""Windows that count rows, from SQL to result rows, against DuckDB's row_number()."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

import duckdb
import polars as pl
import pytest

from mars.core.plan import Field, FieldType, Format, Plan, Stream
from mars.core.types import Lane, Records, StreamName, TaskName
from mars.core.windows import Counting
from mars.core.windows.counting import first_place
from mars.engine.aggregates import merge_panes
from mars.engine.codec.states import decode_states
from mars.engine.finishing import finish
from mars.engine.kernel import decode, map_batch
from mars.sql import compile_task

STREAM = Stream(
    StreamName("S"),
    "flows",
    Format.JSON,
    (
        Field("at", FieldType.TIMESTAMP_MS),
        Field("sip", FieldType.STRING),
        Field("bytes", FieldType.INT64),
    ),
    "at",
)
PARTITIONS, ROWS, BUCKETS = 3, 400, 4
NAMES = ("window_start", "window_end", "partition", "window_number", "window_first_offset")
QUERY = (
    "SELECT sip, count(*) AS n, sum(bytes) AS total, max(bytes) - min(bytes) AS span "
    "FROM S WHERE bytes > 10 GROUP BY sip HAVING count(*) > 1 WINDOWING {} ROWS SLIDE {} ROWS"
)
ORACLE = """
WITH passing AS (
    SELECT *, row_number() OVER (PARTITION BY part ORDER BY off) - 1 AS number
    FROM source WHERE bytes > 10
), counted AS (
    SELECT part, max(number) + 1 AS rows FROM passing GROUP BY part
), windows AS (
    SELECT part, unnest(range(rows // {slide} + 1)) AS j FROM counted
), whole AS (
    SELECT windows.* FROM windows JOIN counted USING (part) WHERE j * {slide} + {size} <= rows
)
SELECT min("at"), max("at"), part, j, min(off), max(off), sip, count(*), sum(bytes),
    max(bytes) - min(bytes)
FROM whole JOIN passing USING (part)
WHERE number >= j * {slide} AND number < j * {slide} + {size}
GROUP BY part, j, sip HAVING count(*) > 1
"""

Row = tuple[object, ...]


def compiled(size: int, slide: int) -> Plan:
    return compile_task(
        QUERY.format(size, slide),
        task=TaskName("golden"),
        version=1,
        stream_of=lambda name: STREAM if name == "S" else None,
        options={},
    )


def made(chance: random.Random) -> list[list[dict[str, object] | None]]:
    """The rows of each partition; None: one that cannot be read."""

    def row() -> dict[str, object] | None:
        if chance.random() < 0.05:
            return None
        at, sip = chance.randrange(10**6), chance.choice(("a", "b", None))
        return {"at": at, "sip": sip, "bytes": chance.randrange(100)}

    return [[row() for _ in range(ROWS)] for _ in range(PARTITIONS)]


def states_of(
    plan: Plan, partition: int, rows: list[dict[str, object] | None], chance: random.Random
) -> Iterator[pl.DataFrame]:
    """What the kernel makes of a partition, cut anywhere; with gaps of transactions."""
    lane, at, number = Lane(str(partition)), 0, 0
    while at < len(rows):
        after = min(len(rows), at + chance.randint(1, 60))
        values = [b"?" if row is None else json.dumps(row).encode() for row in rows[at:after]]
        offsets = [2 * offset for offset in range(at, after)]
        times = [-1] * len(values)
        records = Records(lane, 2 * at, 2 * after, values, offsets, times)
        mapped = map_batch(plan, BUCKETS, decode(STREAM, plan.fields, records), number)
        yield from (decode_states(part.states) for part in mapped.partials if part.states)
        at, number = after, mapped.numbered[lane].next


def computed(
    plan: Plan, source: list[list[dict[str, object] | None]], chance: random.Random
) -> set[Row]:
    shape = plan.window
    assert isinstance(shape, Counting)
    found: set[Row] = set()
    for partition, rows in enumerate(source):
        states = pl.concat(states_of(plan, partition, rows, chance))
        passing = sum(row is not None and row["bytes"] > 10 for row in rows)  # type: ignore[operator]
        begin = first_place(partition)
        for end in range(begin + shape.size, begin + passing + 1, shape.slide):
            window = shape.window_ending(end)
            for value in finish(plan, merge_panes(plan, states, window), window).values:
                found.add(tuple(json.loads(value).values()))
    return found


@pytest.mark.parametrize(("size", "slide"), [(50, 50), (60, 24), (7, 1), (1, 1)])
def test_windows_of_rows_are_those_of_duckdb(size: int, slide: int) -> None:
    chance = random.Random(size)
    plan, source = compiled(size, slide), made(chance)
    lines = [
        (partition, 2 * offset, row["at"], row["sip"], row["bytes"])
        for partition, rows in enumerate(source)
        for offset, row in enumerate(rows)
        if row is not None
    ]
    columns = ("part", "off", "at", "sip", "bytes")
    with duckdb.connect(config={"threads": 1}) as duck:
        duck.register("source", pl.DataFrame(lines, schema=columns, orient="row").to_arrow())
        wanted = set(duck.sql(ORACLE.format(size=size, slide=slide)).fetchall())

    found = computed(plan, source, chance)
    assert found == wanted
    assert bool(found) is (size > 1)


def test_rows_and_keys_say_which_window_it_is() -> None:
    plan, chance = compiled(50, 50), random.Random(1)
    states = pl.concat(states_of(plan, 2, made(chance)[2], chance))
    window = plan.window.window_of_start(first_place(2) + 100)
    finished = finish(plan, merge_panes(plan, states, window), window)

    for key, value in zip(finished.keys, finished.values, strict=True):
        row = json.loads(value)
        assert tuple(row)[: len(NAMES)] == NAMES
        assert json.loads(key) == [row["window_start"], row["sip"], 2, 2]
