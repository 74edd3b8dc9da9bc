"""Rows of tasks read again to check a result, on the twin and on a real Kafka."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from mars.adapters.memory.source_rows import MemorySourceRows
from mars.adapters.source_rows import RowsAgain
from mars.core.definitions import FileHistory, HistoryFile
from mars.core.errors import JobFailed
from mars.core.plan import Field, FieldType, Format, Origin, Plan, Stream
from mars.core.settings import Settings
from mars.core.types import Lane, Mapped, Range, StreamName, TaskName, Topic
from mars.protocol.ports import SourceRows
from mars.sql import compile_task, only
from tests.contracts.kafka_servers import Cluster, KafkaCluster, MemoryCluster

BUCKETS = 2
SQL = "SELECT k, count(*) FROM s GROUP BY k WINDOWING 10 s"


def plan_over(topic: Topic) -> Plan:
    fields = (Field("ts", FieldType.TIMESTAMP_MS), Field("k", FieldType.STRING))
    stream = Stream(StreamName("s"), topic, Format.JSON, fields, "ts")
    return compile_task(
        SQL, task=TaskName("t"), version=1, stream_of=lambda _name: stream, options={}
    )


def again(cluster: Cluster) -> SourceRows:
    if isinstance(cluster, MemoryCluster):
        return MemorySourceRows(cluster.broker)
    assert isinstance(cluster, KafkaCluster)
    return RowsAgain(cluster.settings)


def rows(*seconds: int) -> list[bytes | None]:
    return [json.dumps({"ts": second * 1_000, "k": f"k{second}"}).encode() for second in seconds]


def read(cluster: Cluster, plan: Plan, part: Range) -> tuple[int, list[Range], list[Range]]:
    """How many rows were counted, the ranges that were read, and those that are gone."""
    counted = 0
    ranges: list[Range] = []
    gone: list[Range] = []
    for batch in again(cluster).read(plan, BUCKETS, part):
        if isinstance(batch, Range):
            gone.append(batch)
        else:
            ranges += batch.ranges
            counted += sum(partial.counts.counted for partial in batch.partials)
    return counted, ranges, gone


def test_a_range_is_read_again_and_no_more(cluster: Cluster) -> None:
    topic = cluster.topic(2)
    cluster.append(topic, 1, rows(1, 2, 3, 4, 5))
    part = Range(Lane("1@b1"), 1, 4)
    assert read(cluster, plan_over(topic), part) == (3, [part], [])


def test_rows_have_the_keys_of_their_records_where_the_task_reads_them(cluster: Cluster) -> None:
    topic = cluster.topic()
    for key in (b"a", b"b", b"a"):
        cluster.append(topic, 0, rows(1), key=key)
    stream = plan_over(topic).stream
    key_field = Field("key", FieldType.STRING, Origin.KEY)
    stream = replace(stream, fields=(*stream.fields, key_field))
    sql = "SELECT count(*) FROM s WHERE key = 'a' WINDOWING 10 s"
    plan = compile_task(sql, task=TaskName("t"), version=1, stream_of=only(stream), options={})
    assert read(cluster, plan, Range(Lane("0"), 0, 3))[0] == 2


def test_rows_of_aborted_transactions_are_none(cluster: Cluster) -> None:
    topic = cluster.topic()
    writer = cluster.writer()
    writer.write(topic, 0, [row for row in rows(1, 2) if row is not None])
    writer.abort()
    end = cluster.settled_end(topic, 0)
    cluster.append(topic, 0, rows(3))
    part = Range(Lane("0"), 0, end + 1)
    assert read(cluster, plan_over(topic), part) == (1, [part], [])


def test_rows_that_are_gone_are_told_apart(cluster: Cluster) -> None:
    topic = cluster.topic()
    cluster.append(topic, 0, rows(1, 2, 3, 4))
    cluster.truncate(topic, 0, 2)
    counted, ranges, gone = read(cluster, plan_over(topic), Range(Lane("0"), 0, 4))
    assert (counted, ranges, gone) == (2, [Range(Lane("0"), 2, 4)], [Range(Lane("0"), 0, 2)])


def test_offsets_that_were_never_written_cannot_be_had(cluster: Cluster) -> None:
    topic = cluster.topic()
    cluster.append(topic, 0, rows(1))
    with pytest.raises(JobFailed):
        read(cluster, plan_over(topic), Range(Lane("0"), 5, 9))


def test_rows_of_files_are_read_again_up_to_their_bound(tmp_path: Path) -> None:
    text = b"\n".join(row for row in rows(1, 2, 13, 30) if row is not None) + b"\n"
    file = tmp_path / "rows.ndjson"
    file.write_bytes(text)
    history = FileHistory("ndjson", (HistoryFile(str(file), 0, len(text)),), until_ms=20_000)
    part = Range(Lane("f@b1"), 0, len(text))
    settings = replace(Settings(), bulk=replace(Settings().bulk, files=(str(tmp_path),)))
    batches = RowsAgain(settings).read(plan_over(Topic("t")), BUCKETS, part, history)
    partials = [one for batch in batches if isinstance(batch, Mapped) for one in batch.partials]
    assert sum(one.counts.counted for one in partials) == 3
    assert sum(one.counts.filtered for one in partials) == 1
