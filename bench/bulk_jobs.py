"""The contestants of `mars bench bulk`; each runs in a process of its own, which then ends.

All count rows by sip, type and minute. The first part of the rows warms a contestant up; the rest
is timed. What each has counted is summed by window, to be compared.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench.bulk_results import Counted, JobSpec, SourceKind
from bench.mars_side import query
from mars.adapters.kafka.admin import KafkaTopicAdmin
from mars.adapters.spark.engine import SparkEngine
from mars.adapters.spark.files import list_history
from mars.adapters.spark.session import LOG_SETTINGS as QUIET
from mars.core.definitions import Backfill, FileHistory, LaneSpan, TaskVersion
from mars.core.locations import FileRoots
from mars.core.settings import BulkSettings, KafkaSettings, Settings
from mars.core.types import Lane, Mapped, TaskName, Topic, backfill_lane, file_lane
from mars.engine.codec.states import decode_states
from mars.local import jars
from mars.local.flows import stream
from mars.protocol.ports import MapJob

WINDOW_S = 60
WINDOW_MS = WINDOW_S * 1000

WARM_SHARE = 0.2
"""Of the rows: Java has compiled what is hot, Python processes have loaded their libraries."""

BUCKETS = 8
"""As `mars up` makes them."""

CORES_OF_SHUFFLE = 2
"""Partitions of plain Spark's shuffles, per core: its default of 200 is for clusters."""

DRIVER_MEMORY_MB = 3_072
"""Heap of plain Spark: it does in Java what Mars does beside it. More made no difference."""

Timed = Callable[[str], None]
"""Told `begin` and `end` of the part that is timed."""


def run_job(spec: JobSpec, timed: Timed) -> Counted:
    """Run one contestant."""
    match spec.contestant:
        case "mars":
            return _mars(spec, timed)
        case "spark sql":
            return _spark_sql(spec, timed)
        case _:
            return _duckdb(spec, timed)


# ---------------------------------------------------------------------------------------- Mars


def _mars(spec: JobSpec, timed: Timed) -> Counted:
    """Map jobs one after the other and some at once, as the bulk process runs them."""
    settings = Settings(
        kafka=KafkaSettings(spec.bootstrap),
        bulk=BulkSettings(
            driver_memory_mb=spec.driver_memory_mb,
            chunk_rows=spec.chunk_rows,
            files=(spec.folder,) if spec.folder else (),
        ),
    )
    engine = SparkEngine(settings)
    try:
        warm, rest, task = _histories(spec, settings)
        results = [engine.map(task(warm, number)) for number in range(warm.chunks)]
        timed("begin")
        with ThreadPoolExecutor(settings.bulk.chunks_ahead) as pool:
            jobs = [task(rest, number) for number in range(rest.chunks)]
            results_timed = list(pool.map(engine.map, jobs))
        timed("end")
    finally:
        engine.close()
    return _summed([*results, *results_timed], results_timed)


def _histories(
    spec: JobSpec, settings: Settings
) -> tuple[Backfill, Backfill, Callable[[Backfill, int], MapJob]]:
    """The warming and the timed part, and a function that makes the job of a chunk."""
    declared = stream(topic=spec.topic, format_=spec.format)
    files: FileHistory | None = None
    topic_id, rows_per_offset = "", 1
    if spec.source is SourceKind.PARQUET:
        files = list_history(spec.folder, "parquet", declared, FileRoots.of(settings.bulk.files))
        ends: Mapping[Lane, int] = {file_lane("b1"): files.files[-1].next}
    else:
        admin = KafkaTopicAdmin(settings)
        found = admin.describe(Topic(spec.topic))
        topic_id = "" if found is None else found.topic_id
        offsets = admin.ends(Topic(spec.topic))
        ends = {backfill_lane(partition, "b1"): end for partition, end in offsets.items()}
        rows_per_offset = spec.rows // sum(ends.values())
    version = TaskVersion(1, query(WINDOW_S), {}, declared, topic_id, 0, {})

    def job(part: Backfill, number: int) -> MapJob:
        name = f"{part.id}-{number}"
        return MapJob(name, TaskName("bench"), version, BUCKETS, part.chunk(number), files)

    cut = {lane: int(end * WARM_SHARE) for lane, end in ends.items()}
    warm = {lane: LaneSpan(0, cut[lane]) for lane in ends}
    rest = {lane: LaneSpan(cut[lane], end) for lane, end in ends.items()}
    chunk = max(1, spec.chunk_rows // rows_per_offset)
    return _part("warm", warm, chunk), _part("timed", rest, chunk), job


def _part(name: str, lanes: Mapping[Lane, LaneSpan], chunk: int) -> Backfill:
    offsets = sum(span.end - span.first for span in lanes.values())
    return Backfill(name, lanes, math.ceil(offsets / chunk), 0)


def _summed(results: Sequence[Mapped], timed: Sequence[Mapped]) -> Counted:
    windows: Counter[int] = Counter()
    for one in results:
        for partial in one.partials:
            windows.update({pane.start_ms: pane.rows for pane in partial.panes})
    sent = [partial for one in timed for partial in one.partials]
    rows = sum(partial.counts.read for partial in sent)
    states = sum(decode_states(partial.states).height for partial in sent)
    size = sum(len(partial.states) for partial in sent)
    return Counted(dict(windows), rows, len(sent), states, size)


# ----------------------------------------------------------------------------------- plain Spark


def _spark_sql(spec: JobSpec, timed: Timed) -> Counted:
    """The same query as anybody would write it, twice: over the first rows, over the others."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 -- in this contestant's process only

    connector = ",".join(str(path) for path in sorted(jars.ensure("spark").glob("*.jar")))
    session = (
        SparkSession.builder.master("local[*]")
        .config("spark.driver.memory", f"{DRIVER_MEMORY_MB}m")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.jars", connector)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={QUIET.as_uri()}")
        .config("spark.sql.shuffle.partitions", CORES_OF_SHUFFLE * spec.cores)
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    try:
        windows: Counter[int] = Counter()
        first, rest = _frames(session, spec)
        windows.update(_counted(first))
        timed("begin")
        found = _counted(rest)
        timed("end")
        windows.update(found)
        return Counted(dict(windows), sum(found.values()))
    finally:
        session.stop()


def _frames(session: Any, spec: JobSpec) -> tuple[Any, Any]:
    """The warming and the timed part as data frames with the columns timestamp, sip, type."""
    if spec.source is SourceKind.PARQUET:
        paths = sorted(str(path) for path in Path(spec.folder).glob("*.parquet"))
        cut = max(1, int(len(paths) * WARM_SHARE))
        return session.read.parquet(*paths[:cut]), session.read.parquet(*paths[cut:])
    settings = Settings(kafka=KafkaSettings(spec.bootstrap))
    ends = KafkaTopicAdmin(settings).ends(Topic(spec.topic))
    cut_at = {partition: int(end * WARM_SHARE) for partition, end in ends.items()}
    start = dict.fromkeys(ends, 0)
    return _topic(session, spec, start, cut_at), _topic(session, spec, cut_at, ends)


def _topic(session: Any, spec: JobSpec, first: Mapping[int, int], after: Mapping[int, int]) -> Any:
    from pyspark.sql import functions as f  # noqa: PLC0415

    def offsets(places: Mapping[int, int]) -> str:
        return json.dumps({spec.topic: {str(key): value for key, value in places.items()}})

    messages = (
        session.read.format("kafka")
        .option("kafka.bootstrap.servers", spec.bootstrap)
        .option("subscribe", spec.topic)
        .option("startingOffsets", offsets(first))
        .option("endingOffsets", offsets(after))
        .load()
        .select(f.col("value").cast("string").alias("value"))
    )
    if spec.source is SourceKind.NDJSON:
        messages = messages.select(f.explode(f.split("value", "\n")).alias("value"))
    schema = "timestamp LONG, sip STRING, type STRING"
    return messages.select(f.from_json("value", schema).alias("row")).select("row.*")


def _counted(rows: Any) -> dict[int, int]:
    """Group and count, then sum by window, so that all groups are made and few are collected."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    time = (f.col("timestamp") / 1000).cast("timestamp").alias("time")
    groups = (
        rows.select(time, "sip", "type")
        .groupBy(f.window("time", f"{WINDOW_S} seconds"), "sip", "type")
        .count()
    )
    by_window = groups.groupBy(f.unix_millis("window.start").alias("start")).agg(f.sum("count"))
    return {row[0]: row[1] for row in by_window.collect()}


# --------------------------------------------------------------------------------------- DuckDB


def _duckdb(spec: JobSpec, timed: Timed) -> Counted:
    """The same over Parquet files, with as many threads as there are cores."""
    import duckdb  # noqa: PLC0415 -- in this contestant's process only

    paths = sorted(str(path) for path in Path(spec.folder).glob("*.parquet"))
    cut = max(1, int(len(paths) * WARM_SHARE))
    windows: Counter[int] = Counter()
    windows.update(_duckdb_counted(duckdb, paths[:cut]))
    timed("begin")
    found = _duckdb_counted(duckdb, paths[cut:])
    timed("end")
    windows.update(found)
    return Counted(dict(windows), sum(found.values()))


def _duckdb_counted(duckdb: Any, paths: Sequence[str]) -> dict[int, int]:
    rows = duckdb.sql(
        "SELECT start, sum(n)::BIGINT FROM (SELECT timestamp // $width * $width AS start, sip, "
        "type, count(*) AS n FROM read_parquet($paths) GROUP BY ALL) GROUP BY start",
        params={"width": WINDOW_MS, "paths": list(paths)},
    ).fetchall()
    return dict(rows)
