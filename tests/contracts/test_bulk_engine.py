"""What the engine promises, on its twin and on real Spark with a real Kafka."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from mars.adapters.memory.bulk import MemoryBulkEngine
from mars.adapters.spark.engine import SparkEngine
from mars.adapters.spark.files import list_history
from mars.core.definitions import FileHistory, HistoryFile, resume_helps
from mars.core.errors import JobCancelled, JobFailed, Unavailable
from mars.core.plan import Field, FieldType, Origin
from mars.core.types import Range, Reason, RowCounts, file_lane
from mars.engine.aggregates import DISTINCT_VALUES_MAX
from tests.contracts.bulk_engines import (
    CANCEL_WITHIN_S,
    ROOTS,
    Bulk,
    raised,
    spark_settings,
)
from tests.contracts.bulk_jobs import (
    SQL,
    counts_of,
    expected,
    flow,
    flows,
    groups_of,
    lane,
    map_job,
    pane_rows,
    query_job,
    stream_of,
    whole,
)
from tests.contracts.kafka_servers import KafkaCluster, MemoryCluster
from tests.contracts.waiting import eventually
from tests.support.spark import SparkShelf

pytestmark = pytest.mark.timeout(600)


# -------------------------------------------------------------------------------------- mapping


def test_all_ranges_become_one_batch_with_one_partial_per_bucket(bulk: Bulk) -> None:
    topic, topic_id = bulk.filled(5_000)
    job = map_job(topic, topic_id, *whole([2_500, 2_500]))
    mapped = bulk.engine.map(job)
    assert groups_of(job, mapped) == expected(range(5_000))
    assert counts_of(mapped) == RowCounts(counted=5_000)
    assert sum(pane_rows(mapped).values()) == 5_000
    assert mapped.ranges == whole([2_500, 2_500])
    assert mapped.marks_ms.keys() == {lane(0), lane(1)}
    buckets = [one.bucket for one in mapped.partials]
    assert buckets == sorted(set(buckets))


def test_fields_of_records_are_those_of_a_mapper(bulk: Bulk) -> None:
    """Keys as names, Kafka's times as event times; the messages have neither."""
    topic = bulk.cluster.topic(1)
    begin_ms = time.time_ns() // 1_000_000 // 10_000 * 10_000  # Kafka deletes what is old by it
    for number in range(40):
        key, at = f"n{number % 7}".encode(), begin_ms + number * 7919 % 50_000
        row = json.dumps({"size": number % 101}).encode()
        bulk.cluster.append(topic, 0, [row], key=key, timestamp_ms=at)
    job = map_job(topic, bulk.topic_id(topic), Range(lane(0), 0, 40))
    fields = (Field("name", FieldType.STRING, Origin.KEY), job.version.stream.fields[2])
    time_field = Field("at", FieldType.TIMESTAMP_MS, Origin.TIMESTAMP)
    stream = replace(job.version.stream, fields=(*fields, time_field))
    job = replace(job, version=replace(job.version, stream=stream))
    found = groups_of(job, bulk.engine.map(job))
    wanted = expected(range(40))
    assert found == {(begin_ms + start, name): sums for (start, name), sums in wanted.items()}


def test_rows_outside_of_the_ranges_are_left_out(bulk: Bulk) -> None:
    topic, topic_id = bulk.filled(3_000, partitions=1)
    job = map_job(topic, topic_id, Range(lane(0), 700, 2_300))
    mapped = bulk.engine.map(job)
    assert groups_of(job, mapped) == expected(range(700, 2_300))
    assert mapped.ranges == job.ranges
    firsts = [
        first for one in mapped.partials for pane in one.panes for first in pane.first.values()
    ]
    assert min(firsts) >= 700


def test_the_same_job_gives_the_same_bytes(bulk: Bulk) -> None:
    topic, topic_id = bulk.filled(4_000)
    first = bulk.engine.map(map_job(topic, topic_id, *whole([2_000, 2_000])))
    again = bulk.engine.map(map_job(topic, topic_id, *whole([2_000, 2_000])))
    assert first == again


def test_jobs_run_at_the_same_time(bulk: Bulk) -> None:
    topic, topic_id = bulk.filled(2_000, partitions=1)
    cuts = [(0, 500), (500, 1_200), (1_200, 2_000)]
    jobs = [map_job(topic, topic_id, Range(lane(0), *cut)) for cut in cuts]
    with ThreadPoolExecutor(1 if isinstance(bulk.engine, MemoryBulkEngine) else 3) as pool:
        results = list(pool.map(bulk.engine.map, jobs))
    for job, cut, mapped in zip(jobs, cuts, results, strict=True):
        assert groups_of(job, mapped) == expected(range(*cut))


def test_nothing_to_read_gives_an_empty_batch(bulk: Bulk) -> None:
    topic, topic_id = bulk.filled(10)
    mapped = bulk.engine.map(map_job(topic, topic_id))
    assert (mapped.ranges, mapped.partials) == ((), ())


def test_aborted_rows_and_markers_are_covered_and_not_counted(bulk: Bulk) -> None:
    topic = bulk.cluster.topic(1)
    bulk.cluster.append(topic, 0, flows(100))
    aborted = bulk.cluster.writer()
    aborted.write(topic, 0, flows(50, first=1_000))
    aborted.abort()
    bulk.cluster.settled_end(topic, 0)
    committed = bulk.cluster.writer()
    committed.write(topic, 0, flows(10, first=100))
    committed.commit()
    end = bulk.cluster.settled_end(topic, 0)
    job = map_job(topic, bulk.topic_id(topic), Range(lane(0), 0, end))
    mapped = bulk.engine.map(job)
    assert groups_of(job, mapped) == expected(range(110))
    assert mapped.ranges == job.ranges


def test_bad_rows_are_counted_and_named(bulk: Bulk) -> None:
    topic = bulk.cluster.topic(1)
    bulk.cluster.append(topic, 0, [*flows(10), b"{", None, b"[5]"])
    mapped = bulk.engine.map(map_job(topic, bulk.topic_id(topic), Range(lane(0), 0, 13)))
    assert counts_of(mapped) == RowCounts(counted=10, bad=3)
    named = [row for one in mapped.partials for row in one.rejections.rows]
    assert [(row.lane, row.offset) for row in named] == [(lane(0), at) for at in (10, 11, 12)]


def test_rows_that_retention_took_are_referenced_and_the_rest_is_counted(bulk: Bulk) -> None:
    topic, topic_id = bulk.filled(3_000, partitions=1)
    bulk.cluster.truncate(topic, 0, 1_234)
    job = map_job(topic, topic_id, Range(lane(0), 200, 3_000))
    mapped = bulk.engine.map(job)
    assert groups_of(job, mapped) == expected(range(1_234, 3_000))
    assert mapped.ranges == job.ranges
    gone = [part for one in mapped.partials for part in one.rejections.ranges]
    assert {part.reason for part in gone} == {Reason.GONE}
    assert (gone[0].first, gone[-1].next, sum(part.rows for part in gone)) == (200, 1_234, 1_034)


def test_a_range_that_is_gone_altogether_is_accounted_without_rows(bulk: Bulk) -> None:
    topic, topic_id = bulk.filled(500, partitions=1)
    bulk.cluster.truncate(topic, 0, 400)
    mapped = bulk.engine.map(map_job(topic, topic_id, Range(lane(0), 0, 300)))
    assert mapped.ranges == (Range(lane(0), 0, 300),)
    assert counts_of(mapped) == RowCounts()
    gone = [part for one in mapped.partials for part in one.rejections.ranges]
    assert {(part.first, part.next, part.reason) for part in gone} == {(0, 300, Reason.GONE)}
    assert sum(part.rows for part in gone) == 300


def test_a_topic_that_does_not_exist_is_waited_for(bulk: Bulk) -> None:
    with pytest.raises(Unavailable, match="no topic"):
        bulk.engine.map(map_job("nowhere", "id", Range(lane(0), 0, 5)))


def test_a_topic_that_was_made_anew_fails_the_job(bulk: Bulk) -> None:
    topic, _topic_id = bulk.filled(5)
    with pytest.raises(JobFailed, match="made anew") as failed:
        bulk.engine.map(map_job(topic, "another id", Range(lane(0), 0, 2)))
    assert not resume_helps(str(failed.value))


def test_a_query_that_cannot_be_compiled_fails_the_job(bulk: Bulk) -> None:
    topic, topic_id = bulk.filled(5)
    with pytest.raises(JobFailed, match="cannot be compiled"):
        bulk.engine.map(map_job(topic, topic_id, Range(lane(0), 0, 2), sql="SELECT nonsense"))


def test_a_state_over_its_limit_fails_the_job(bulk: Bulk) -> None:
    topic = bulk.cluster.topic(1)
    count = DISTINCT_VALUES_MAX + 1
    rows = [json.dumps({"at": 1, "name": "a", "size": size}).encode() for size in range(count)]
    for first in range(0, count, 50_000):  # a producer's queue holds 100,000
        bulk.cluster.append(topic, 0, rows[first : first + 50_000])
    sql = "SELECT at, name, count(DISTINCT size) AS d FROM s GROUP BY at, name WINDOWING 10 s"
    job = map_job(topic, bulk.topic_id(topic), Range(lane(0), 0, count), sql=sql)
    with pytest.raises(JobFailed, match="DISTINCT"):
        bulk.engine.map(job)


# -------------------------------------------------------------------------------------- queries


def test_a_query_answers_in_order_of_windows_and_keys(bulk: Bulk) -> None:
    topic, _topic_id = bulk.filled(3_000)
    answer = bulk.engine.query(query_job(topic, *whole([1_500, 1_500])))
    rows = [json.loads(row) for row in answer.rows]
    places = [(row["window_start"], row["name"]) for row in rows]
    assert places == sorted(places)
    found = {at: (row["count"], row["total"]) for at, row in zip(places, rows, strict=True)}
    assert found == expected(range(3_000))
    assert answer.counts == RowCounts(counted=3_000)
    assert [json.loads(key) for key in answer.keys] == [list(place) for place in places]


def test_windows_that_begin_together_come_in_order_of_their_ends(bulk: Bulk) -> None:
    topic, _id = bulk.filled(300)
    sql = SQL.replace("WINDOWING 10 s", "WINDOWING 30 s EVERY 10 s")
    answer = bulk.engine.query(query_job(topic, *whole([150, 150]), sql=sql))
    found = [json.loads(row) for row in answer.rows]
    places = [(row["window_end"], row["name"]) for row in found]
    assert places == sorted(places)
    assert places == [
        (end, f"n{number}") for end in range(10_000, 70_000, 10_000) for number in range(7)
    ]
    for row in found:
        start, end, name = row["window_start"], row["window_end"], row["name"]
        own: list[Any] = [one for one in map(flow, range(300)) if one["name"] == name]
        sizes = [one["size"] for one in own if start <= one["at"] < end]
        assert (row["count"], row["total"]) == (len(sizes), sum(sizes))
    assert [json.loads(key) for key in answer.keys] == [
        [row["window_start"], row["name"], row["window_end"]] for row in found
    ]


def test_a_query_takes_rows_within_its_time_only(bulk: Bulk) -> None:
    topic, _topic_id = bulk.filled(2_000, partitions=1)
    job = query_job(topic, Range(lane(0), 0, 2_000), from_ms=10_000, until_ms=30_000)
    answer = bulk.engine.query(job)
    starts = {json.loads(row)["window_start"] for row in answer.rows}
    assert starts == {10_000, 20_000}
    inside = sum(10_000 <= number * 7919 % 50_000 < 30_000 for number in range(2_000))
    assert answer.counts == RowCounts(counted=inside, filtered=2_000 - inside)


def test_a_query_keeps_the_order_that_it_asks_for(bulk: Bulk) -> None:
    topic, _topic_id = bulk.filled(700)
    sql = (
        "SELECT name, at, count(*), sum(size) AS total FROM s GROUP BY name, at "
        "ORDER BY total DESC LIMIT 2 WINDOWING 10 s"
    )
    answer = bulk.engine.query(query_job(topic, *whole([350, 350]), sql=sql))
    wanted = []
    for start in range(0, 50_000, 10_000):
        groups = [
            (total, name) for (at, name), (_, total) in expected(range(700)).items() if at == start
        ]
        wanted += [
            (start, name) for _total, name in sorted(groups, key=lambda one: (-one[0], one[1]))[:2]
        ]
    found = [json.loads(row) for row in answer.rows]
    assert [(row["window_start"], row["name"]) for row in found] == wanted


def test_a_query_with_too_many_rows_names_the_limit(bulk: Bulk) -> None:
    topic, _topic_id = bulk.filled(500)
    with pytest.raises(JobFailed, match="more than 34 result rows"):
        bulk.engine.query(query_job(topic, *whole([250, 250]), rows_max=34))
    answer = bulk.engine.query(query_job(topic, *whole([250, 250]), rows_max=35))
    assert len(answer.rows) == 35


def test_a_cancelled_job_ends(bulk: Bulk) -> None:
    topic, _topic_id = bulk.filled(1_000, partitions=1)
    writer = bulk.cluster.writer()
    writer.write(topic, 0, flows(1))  # a job that waits for its commit takes long
    beyond = 1_000 if isinstance(bulk.engine, MemoryBulkEngine) else 1_001
    job = query_job(topic, Range(lane(0), 0, beyond))
    assert isinstance(bulk.cancelled(job), JobCancelled)
    writer.abort()
    again = query_job(topic, Range(lane(0), 0, 1_000))
    assert bulk.engine.query(again).counts == RowCounts(counted=1_000)


def test_to_cancel_what_does_not_run_does_nothing(bulk: Bulk) -> None:
    bulk.engine.cancel("nothing")
    topic, _topic_id = bulk.filled(50)
    job = query_job(topic, *whole([25, 25]))
    bulk.engine.query(job)
    bulk.engine.cancel(job.id)
    assert bulk.engine.query(job).counts == RowCounts(counted=50)


# ---------------------------------------------------------------------------------------- files


def write_files(folder: Path, format_: str, rows: int) -> None:
    """Some files of unequal length."""
    lines = flows(rows)
    bounds = [0, rows // 7, rows // 2, rows]
    for number, (first, after) in enumerate(pairwise(bounds)):
        part = lines[first:after]
        frame = pl.DataFrame([json.loads(line) for line in part])
        if format_ == "parquet":
            frame.write_parquet(folder / f"{number}.parquet", row_group_size=300)
        elif format_ == "csv":
            frame.write_csv(folder / f"{number}.csv")
        else:
            (folder / f"{number}.ndjson").write_bytes(b"\n".join(part) + b"\n")


@pytest.mark.parametrize("format_", ["parquet", "ndjson", "csv"])
def test_files_are_mapped_like_a_topic_wherever_they_are_cut(
    bulk: Bulk, tmp_path: Path, format_: str
) -> None:
    write_files(tmp_path, format_, 2_000)
    stream = stream_of("no_topic_is_read")
    files = list_history(str(tmp_path), format_, stream, ROOTS, csv_header=format_ == "csv")
    end, own = files.files[-1].next, file_lane("b2")
    cuts = [0, end // 3, end // 3 + 1, end * 3 // 4, end]
    jobs = [
        map_job("no_topic_is_read", "", Range(own, first, after), files=files)
        for first, after in pairwise(cuts)
    ]
    results = [bulk.engine.map(job) for job in jobs]
    total = sum((counts_of(one) for one in results), RowCounts())
    assert total == RowCounts(counted=2_000)
    job = map_job("no_topic_is_read", "", Range(own, 0, end), files=files)
    mapped = bulk.engine.map(job)
    assert groups_of(job, mapped) == expected(range(2_000))
    assert mapped.ranges == job.ranges


def test_rows_of_files_after_the_fence_are_filtered(bulk: Bulk, tmp_path: Path) -> None:
    write_files(tmp_path, "parquet", 500)
    files = list_history(str(tmp_path), "parquet", stream_of("t"), ROOTS, until_ms=20_000)
    end = files.files[-1].next
    answer = bulk.engine.query(query_job("t", Range(file_lane("b2"), 0, end), files=files))
    before = sum(number * 7919 % 50_000 < 20_000 for number in range(500))
    assert answer.counts == RowCounts(counted=before, filtered=500 - before)


def test_a_file_that_has_changed_fails_the_job(bulk: Bulk, tmp_path: Path) -> None:
    write_files(tmp_path, "ndjson", 100)
    files = list_history(str(tmp_path), "ndjson", stream_of("t"), ROOTS)
    with (tmp_path / "0.ndjson").open("ab") as file:
        file.write(b"{}\n")
    job = map_job("t", "", Range(file_lane("b2"), 0, files.files[-1].next), files=files)
    with pytest.raises(JobFailed, match="when it was listed"):
        bulk.engine.map(job)


@pytest.mark.parametrize("path", ["/etc/passwd", "file:///etc/passwd", "{}/link", "hf://x/y"])
def test_files_outside_of_the_roots_fail_the_job_that_would_read_them(
    bulk: Bulk, tmp_path: Path, path: str
) -> None:
    """Also those of a history that was registered when the roots were others."""
    (tmp_path / "link").symlink_to("/etc/passwd")
    files = FileHistory("ndjson", (HistoryFile(path.format(tmp_path), 0, 10),))
    part = Range(file_lane("b2"), 0, 10)
    with pytest.raises(JobFailed, match=r"bulk\.files|files are read by path"):
        bulk.engine.map(map_job("t", "", part, files=files))
    with pytest.raises(JobFailed, match=r"bulk\.files|files are read by path"):
        bulk.engine.query(query_job("t", part, files=files))


# ----------------------------------------------------------------------------------- the engines


def test_the_twin_fails_as_told() -> None:
    cluster = MemoryCluster()
    engine = MemoryBulkEngine(cluster.broker)
    bulk = Bulk(cluster, engine)
    topic, topic_id = bulk.filled(10)
    job = map_job(topic, topic_id, *whole([5, 5]))
    engine.fail_next("map")
    engine.raise_next(JobFailed("told to"))
    with pytest.raises(Unavailable):
        engine.map(job)
    with pytest.raises(JobFailed, match="told to"):
        engine.map(job)
    assert counts_of(engine.map(job)) == RowCounts(counted=10)
    engine.close()
    with pytest.raises(JobCancelled):
        engine.map(job)


@pytest.mark.integration
def test_a_closed_engine_refuses_jobs(kafka_cluster: KafkaCluster) -> None:
    engine = SparkEngine(spark_settings(kafka_cluster.bootstrap))
    engine.close()
    topic = kafka_cluster.topic(1)
    with pytest.raises(JobCancelled):
        engine.query(query_job(topic, Range(lane(0), 0, 1)))


@pytest.mark.integration
def test_jobs_under_way_are_cancelled_when_the_engine_is_closed(
    kafka_cluster: KafkaCluster, spark_shelf: SparkShelf
) -> None:
    engine = spark_shelf.engine(spark_settings(kafka_cluster.bootstrap))
    bulk = Bulk(kafka_cluster, engine)
    topic, _topic_id = bulk.filled(1, partitions=1)
    writer = kafka_cluster.writer()
    writer.write(topic, 0, flows(1))
    job = query_job(topic, Range(lane(0), 0, 2))
    outcome: list[BaseException | None] = []
    thread = threading.Thread(target=lambda: outcome.append(raised(lambda: engine.query(job))))
    thread.start()
    eventually(lambda: job.id in engine.running)
    spark_shelf.close()
    thread.join(CANCEL_WITHIN_S)
    writer.abort()
    assert isinstance(outcome[0], JobCancelled)
