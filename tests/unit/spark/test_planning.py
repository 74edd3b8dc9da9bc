"""How a job is cut into tasks, and what its plan becomes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mars.adapters.spark.planning import divide, plan_of_map, plan_of_query
from mars.core.definitions import FileHistory, HistoryFile
from mars.core.errors import JobFailed
from mars.core.plan import Field, FieldType, Format, Origin
from mars.core.types import Lane, Range
from mars.core.windows import Zone
from mars.engine.combining import join_ranges
from tests.contracts.bulk_jobs import map_job, query_job

RANGES = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5_000)), max_size=6).map(
    lambda spans: [Range(Lane(str(at)), first, first + n) for at, (first, n) in enumerate(spans)]
)


def test_what_is_taken_from_records_is_not_in_files() -> None:
    """The API refuses it; a job that comes all the same fails and counts no places of bytes."""
    job = map_job("topic", "id", Range(Lane("f@b1"), 0, 1))
    place = Field("size", FieldType.INT64, Origin.OFFSET)
    stream = job.version.stream
    fields = (*stream.fields[:2], place)
    version = replace(job.version, stream=replace(stream, fields=fields))
    files = FileHistory("ndjson", (HistoryFile("/a", 0, 1),))
    assert plan_of_map(replace(job, version=version)).fields[-1] == place
    with pytest.raises(JobFailed, match=r"field size is \$offset of a record"):
        plan_of_map(replace(job, version=version, files=files))


@given(RANGES, st.integers(1, 700))
def test_tasks_tile_the_ranges_and_keep_to_their_size(ranges: list[Range], size: int) -> None:
    tasks = divide(ranges, size)
    assert all(sum(part.next - part.first for part in task) <= size for task in tasks)
    assert all(task for task in tasks)
    pieces = join_ranges(part for task in tasks for part in task)
    assert pieces == join_ranges(part for part in ranges if part.first < part.next)


def test_short_ranges_share_a_task_and_long_ones_are_cut_evenly() -> None:
    def span(lane: str, first: int, after: int) -> Range:
        return Range(Lane(lane), first, after)

    short = [span(str(at), 0, 10) for at in range(4)]
    assert divide(short, 25) == [tuple(short[:2]), tuple(short[2:])]
    assert divide([span("0", 5, 35)], 20) == [(span("0", 5, 20),), (span("0", 20, 35),)]


FILES = FileHistory("csv", (HistoryFile("/x.csv", 0, 9),), csv_header=True, until_ms=50)


def test_files_change_how_rows_are_read_and_which_are_taken() -> None:
    plan = plan_of_map(map_job("t", "", files=FILES))
    assert (plan.stream.format, plan.stream.csv_header) == (Format.CSV, True)
    assert plan.filter is not None
    parquet = plan_of_map(map_job("t", "", files=replace(FILES, format="parquet", until_ms=None)))
    assert (parquet.stream.format, parquet.stream.csv_header) == (Format.ARROW, False)
    assert parquet.filter is None


def test_a_format_of_files_that_is_unknown_fails_the_job() -> None:
    with pytest.raises(JobFailed, match="'orc'"):
        plan_of_map(map_job("t", "", files=replace(FILES, format="orc")))


def test_bounds_of_a_query_are_added_to_its_own_filter() -> None:
    sql = "SELECT at, count(*) FROM s WHERE size > 3 GROUP BY at WINDOWING 1 s"
    alone = plan_of_query(query_job("t", sql=sql))
    bounded = plan_of_query(query_job("t", sql=sql, from_ms=5, until_ms=9))
    assert alone.filter != bounded.filter
    assert repr(alone.filter) in repr(bounded.filter)


def test_jobs_carry_the_zone_of_their_windows_and_ask_no_database() -> None:
    made_up = Zone("Made/Up", "1", 3_600_000, ((7_200_000, 0),))
    sql = "SELECT count(*) AS n FROM s WINDOWING 1 d TIMEZONE 'Made/Up'"
    query = replace(query_job("t", sql=sql), zone=made_up)
    assert plan_of_query(query).window.zone == made_up
    job = map_job("t", "")
    version = replace(job.version, sql=sql, zone=made_up)
    assert plan_of_map(replace(job, version=version)).window.zone == made_up
    with pytest.raises(JobFailed, match="no time zone 'Made/Up'"):
        plan_of_query(replace(query, zone=None))
