"""How fast the kernel is: `python -m bench.kernel [--quick]`.

One core. For each format and batch size: rows a second of decode, of map_batch, and of both; then
the merge of partials and the finish of a window with 185,000 groups. The best of several runs is
printed, because everything else on the machine only ever makes a run slower.
"""

from __future__ import annotations

import os

os.environ.setdefault("POLARS_MAX_THREADS", "1")  # before polars is imported

import argparse
import gc
import io
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec
import polars as pl

from mars.core.plan import (
    Aggregate,
    AggregateFunction,
    Column,
    Format,
    Key,
    Options,
    Output,
    Plan,
    Stream,
    ValueType,
)
from mars.core.types import Lane, Records, TaskName
from mars.core.windows import Sliding
from mars.engine.aggregates import merge
from mars.engine.codec.states import decode_states
from mars.engine.finishing import finish
from mars.engine.kernel import decode, map_batch
from mars.local.flows import Flows, stream

GROUPS = 185_000
START_MS = 1_700_000_000_000 // 60_000 * 60_000
RATE_PER_S = 100_000.0
BUCKETS = 8


def mars_query(source: Stream) -> Plan:
    """SELECT sip, type, timestamp, count(*) ... GROUP BY sip, type, timestamp WINDOWING 60 s."""
    sip, kind = Column("sip", ValueType.STRING), Column("type", ValueType.STRING)
    count = Aggregate("a0", AggregateFunction.COUNT_ALL, None, None, ValueType.INT64)
    used = {"timestamp", "sip", "type"}
    return Plan(
        task=TaskName("by_sip"),
        version=1,
        stream=source,
        window=Sliding(60_000, 60_000),
        keys=(Key("k0", sip), Key("k1", kind)),
        aggregates=(count,),
        outputs=(
            Output("sip", Column("k0", ValueType.STRING)),
            Output("type", Column("k1", ValueType.STRING)),
            Output("timestamp", Column("window_start", ValueType.TIMESTAMP)),
            Output("count", Column("a0", ValueType.INT64)),
        ),
        options=Options("mars.results.by_sip"),
        fields=tuple(one for one in source.fields if one.name in used),
    )


def wider_query(source: Stream) -> Plan:
    """The same with sum(bytes), avg(rtt), max(ttl) and stddev_samp(loss)."""
    plan = mars_query(source)
    used = {"timestamp", "sip", "type", "bytes", "rtt", "ttl", "loss"}
    extra = (
        ("bytes", AggregateFunction.SUM, ValueType.INT64, ValueType.INTEGER),
        ("rtt", AggregateFunction.AVG, ValueType.INT64, ValueType.FLOAT64),
        ("ttl", AggregateFunction.MAX, ValueType.INT64, ValueType.INT64),
        ("loss", AggregateFunction.STDDEV_SAMP, ValueType.FLOAT64, ValueType.FLOAT64),
    )
    aggregates = [
        Aggregate(f"a{at}", function, Column(name, kind), None, result)
        for at, (name, function, kind, result) in enumerate(extra, start=1)
    ]
    return replace(
        plan,
        aggregates=(*plan.aggregates, *aggregates),
        fields=tuple(one for one in source.fields if one.name in used),
    )


def records_of(values: Sequence[bytes]) -> Records:
    """The values as a mapper gets them."""
    return Records(Lane("0"), 0, len(values), values, range(len(values)), [START_MS] * len(values))


def best_s(run: Callable[[], object], seconds: float) -> float:
    """The least CPU time of as many runs as fit into `seconds`, three at least."""
    times: list[float] = []
    while len(times) < 3 or sum(times) < seconds:
        gc.collect()
        begin = time.process_time()
        run()
        times.append(time.process_time() - begin)
    return min(times)


def kernel_line(name: str, plan: Plan, values: Sequence[bytes], rows: int, seconds: float) -> None:
    """Measure one format, batch size and query."""
    records = records_of(values)
    decoded = decode(plan.stream, plan.fields, records)
    decoding = best_s(lambda: decode(plan.stream, plan.fields, records), seconds)
    mapping = best_s(lambda: map_batch(plan, BUCKETS, decoded), seconds)
    both = best_s(
        lambda: map_batch(plan, BUCKETS, decode(plan.stream, plan.fields, records)), seconds
    )
    size = sum(len(one.states) for one in map_batch(plan, BUCKETS, decoded).partials)
    print(
        f"{name:34}{rows / decoding / 1e6:8.2f}{rows / mapping / 1e6:8.2f}{rows / both / 1e6:8.2f}"
        f"{size / rows:10.1f}"
    )


def other_formats(rows: Sequence[bytes], fields: Sequence[str]) -> tuple[bytes, bytes]:
    """The same rows as a CSV and an Arrow message."""
    frame = pl.DataFrame(msgspec.json.decode(b"[" + b",".join(rows) + b"]")).select(fields)
    arrow = io.BytesIO()
    frame.write_ipc_stream(arrow, compat_level=pl.CompatLevel.oldest())
    return frame.write_csv(include_header=False).encode(), arrow.getvalue()


def kernel_table(seconds: float) -> None:
    """All formats and batch sizes."""
    source, flows = stream(), Flows(groups=GROUPS)
    print(f"{'M rows/s, one core':34}{'decode':>8}{'map':>8}{'both':>8}{'B/row out':>10}")
    rows = flows.messages(200_000, START_MS, RATE_PER_S)
    for size in (10_000, 50_000, 200_000):
        kernel_line(f"json, {size} a batch", mars_query(source), rows[:size], size, seconds)
    broken = [b"{" if at % 100 == 50 else row for at, row in enumerate(rows[:50_000])]
    kernel_line("json, 50000, 1 % bad", mars_query(source), broken, 50_000, seconds)
    kernel_line("json, 50000, 5 aggregates", wider_query(source), rows[:50_000], 50_000, seconds)
    packed = [b"\n".join(rows[at : at + 1_000]) for at in range(0, 200_000, 1_000)]
    ndjson = replace(source, format=Format.NDJSON)
    for count in (50, 200):
        name = f"ndjson of 1000, {count}000 a batch"
        kernel_line(name, mars_query(ndjson), packed[:count], count * 1_000, seconds)
    names = [one.name for one in source.fields]
    pairs = [other_formats(rows[at : at + 1_000], names) for at in range(0, 50_000, 1_000)]
    csv = mars_query(replace(source, format=Format.CSV))
    kernel_line("csv of 1000, 50000 a batch", csv, [one for one, _ in pairs], 50_000, seconds)
    arrow = mars_query(replace(source, format=Format.ARROW))
    kernel_line("arrow of 1000, 50000 a batch", arrow, [one for _, one in pairs], 50_000, seconds)


def window_table(seconds: float) -> None:
    """Merging and finishing a window."""
    source, flows = stream(), Flows(groups=GROUPS)
    plan = mars_query(source)
    frames: list[pl.DataFrame] = []
    for batch in range(20):
        rows = flows.messages(100_000, START_MS + batch * 1_000, RATE_PER_S)
        mapped = map_batch(plan, 1, decode(source, plan.fields, records_of(rows)))
        frames += [decode_states(partial.states) for partial in mapped.partials]
    states = sum(frame.height for frame in frames)
    merged = merge(plan, frames)
    window = plan.window.window_of_start(START_MS)
    merging = best_s(lambda: merge(plan, frames), seconds)
    finishing = best_s(lambda: finish(plan, merged, window), seconds)
    print(
        f"merge of {states} states in {len(frames)} partials: {states / merging / 1e6:.2f} M/s\n"
        f"finish of {merged.height} groups: {finishing * 1e3:.0f} ms"
    )


def main() -> None:
    """Print everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer runs of each")
    seconds = 0.5 if parser.parse_args().quick else 3.0
    kernel_table(seconds)
    window_table(seconds)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory {peak:.0f} MB, the generated rows included")


if __name__ == "__main__":
    main()
