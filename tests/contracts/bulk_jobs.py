"""Jobs for the engine's suites, and what comes out of them in a form that is easily compared."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterable, Sequence

from mars.adapters.spark.planning import plan_of_map
from mars.core.definitions import FileHistory, TaskVersion
from mars.core.plan import Field, FieldType, Format, Stream
from mars.core.types import Lane, Mapped, Range, RowCounts, StreamName, TaskName, backfill_lane
from mars.engine.aggregates import merge, merge_panes
from mars.engine.codec.states import decode_states
from mars.engine.finishing import finish
from mars.protocol.ports import MapJob, QueryJob

FIELDS = (
    Field("at", FieldType.TIMESTAMP_MS),
    Field("name", FieldType.STRING),
    Field("size", FieldType.INT64),
)
SQL = "SELECT name, at, count(*), sum(size) AS total FROM s GROUP BY name, at WINDOWING 10 s"
BUCKETS = 4

Groups = dict[tuple[int, str], tuple[int, int]]
"""(window start, name) -> count, sum."""

_numbers = itertools.count()


def stream_of(topic: str, format_: Format = Format.JSON) -> Stream:
    return Stream(StreamName("s"), topic, format_, FIELDS, "at")


def flow(number: int) -> dict[str, object]:
    """A row: a name of 7, a time within 50 s, a size."""
    return {"at": number * 7919 % 50_000, "name": f"n{number % 7}", "size": number % 101}


def flows(count: int, first: int = 0) -> list[bytes]:
    return [json.dumps(flow(number)).encode() for number in range(first, first + count)]


def expected(numbers: Iterable[int]) -> Groups:
    found: Groups = {}
    for number in numbers:
        row = flow(number)
        place = (row["at"] // 10_000 * 10_000, row["name"])  # type: ignore[operator]
        count, total = found.get(place, (0, 0))  # type: ignore[arg-type]
        found[place] = (count + 1, total + row["size"])  # type: ignore[index,operator]
    return found


def map_job(
    topic: str,
    topic_id: str,
    *ranges: Range,
    sql: str = SQL,
    files: FileHistory | None = None,
    format_: Format = Format.JSON,
) -> MapJob:
    version = TaskVersion(1, sql, {}, stream_of(topic, format_), topic_id, 0, {})
    name = f"map-{next(_numbers)}"
    return MapJob(name, TaskName("task"), version, BUCKETS, tuple(ranges), files)


def query_job(
    topic: str,
    *ranges: Range,
    sql: str = SQL,
    from_ms: int | None = None,
    until_ms: int | None = None,
    rows_max: int = 1_000,
    files: FileHistory | None = None,
) -> QueryJob:
    name = f"query-{next(_numbers)}"
    return QueryJob(
        name, sql, {}, stream_of(topic), BUCKETS, tuple(ranges), from_ms, until_ms, rows_max, files
    )


def lane(partition: int) -> Lane:
    return backfill_lane(partition, "b1")


def whole(ends: Sequence[int]) -> tuple[Range, ...]:
    """All of each partition."""
    return tuple(Range(lane(number), 0, end) for number, end in enumerate(ends))


def groups_of(job: MapJob, mapped: Mapped) -> Groups:
    """Everything that a batch finishes to."""
    plan = plan_of_map(job)
    states = merge(plan, [decode_states(one.states) for one in mapped.partials if one.states])
    panes = states.get_column("pane").to_list()
    values = [
        json.loads(value)
        for window in plan.window.windows_of(panes)
        for value in finish(plan, merge_panes(plan, states, window), window).values
    ]
    return {(v["window_start"], v["name"]): (v["count"], v["total"]) for v in values}


def counts_of(mapped: Mapped) -> RowCounts:
    return sum((one.counts for one in mapped.partials), RowCounts())


def pane_rows(mapped: Mapped) -> Counter[int]:
    found: Counter[int] = Counter()
    for partial in mapped.partials:
        for pane in partial.panes:
            found[pane.start_ms] += pane.rows
    return found
