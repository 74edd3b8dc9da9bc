"""A topic filled with rows before anything is measured, and what every window of it must hold.

Two processes produce, each the partitions that are its own, so that rows of a partition are in
order of event time but for a stated disorder. Event times end now and go back as far as the rows
need: a row may not be in the future of its own Kafka timestamp.
"""

from __future__ import annotations

import math
import multiprocessing
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ProcessPoolExecutor, wait
from dataclasses import dataclass

import msgspec
import polars as pl
from confluent_kafka import Producer

from bench.rows import KEY_HASH_SEED, key_hash
from bench.topics import Topics, produce
from mars.core.plan import Format
from mars.local.flows import Flows

PARTITIONS = 4
PRODUCERS = 2
"""As many as the machine has cores; generating a row costs as much as producing it."""

CHUNK_ROWS = 20_000
"""Rows generated and produced at a time; a whole number of NDJSON messages."""

ROWS_PER_MESSAGE = 1_000
"""Rows of an NDJSON message: 235 kB, below the megabyte that Kafka takes by default."""

DISORDER_MS = 500
"""Rows are at most this late; half the delay of the queries, so that nobody drops any."""

COMPRESSION = "lz4"
"""Of the input: what producers that care about speed use; every contestant decompresses it."""

POLL_S = 1.0
"""Between two reports of progress."""

FLUSH_S = 120.0
"""Longest wait for the broker to take what is left in a producer."""

Progress = Callable[[int], None]
"""Told how many messages are in the topic."""


class LoadPlan(msgspec.Struct, frozen=True):
    """What to produce. `rows` is rounded up to whole chunks in each partition."""

    topic: str
    format: Format
    rows: int
    rows_per_window: int
    groups: int
    window_ms: int = 60_000
    partitions: int = PARTITIONS
    seed: int = 1
    end_ms: int = 0
    """Event time behind the last row; 0: now."""

    @property
    def rows_per_partition(self) -> int:
        """Whole chunks, so that all partitions and messages are equally full."""
        return CHUNK_ROWS * math.ceil(self.rows / self.partitions / CHUNK_ROWS)

    @property
    def rows_per_message(self) -> int:
        """1 for JSON."""
        return ROWS_PER_MESSAGE if self.format is Format.NDJSON else 1

    @property
    def rate_per_partition(self) -> float:
        """Rows per second of event time."""
        return self.rows_per_window * 1000 / self.window_ms / self.partitions


class WindowFacts(msgspec.Struct, frozen=True):
    """What is in a window: rows, and the sum of their key hashes (mod 2^64)."""

    start_ms: int
    rows: int
    checksum: int


class Load(msgspec.Struct, frozen=True):
    """A topic that is full. `last_ms`: highest event time of the partition that has the lowest."""

    plan: LoadPlan
    rows: int
    messages: int
    last_ms: int
    windows: tuple[WindowFacts, ...]

    def closed_windows(self, delay_ms: float) -> tuple[WindowFacts, ...]:
        """Those that any exact engine must emit: the watermark passes their ends."""
        size = self.plan.window_ms
        return tuple(w for w in self.windows if w.start_ms + size <= self.last_ms - delay_ms)


@dataclass(frozen=True, slots=True)
class _Share:
    """What one process has produced; `windows`: start, rows, checksum."""

    messages: int
    last_ms: int
    windows: pl.DataFrame


def fill(bootstrap: str, plan: LoadPlan, progress: Progress) -> Load:
    """Make the topic, unless it is there, and fill it. Raises what a producer raises."""
    topics = Topics(bootstrap)
    if not topics.exists(plan.topic):
        topics.make(plan.topic, plan.partitions)
    rows = plan.rows_per_partition * plan.partitions
    span_ms = math.ceil(rows * plan.window_ms / plan.rows_per_window)
    end_ms = plan.end_ms or int(time.time() * 1000)
    # The first window begins with the first row, so that all windows but the last are full.
    start_ms = (end_ms - span_ms) // plan.window_ms * plan.window_ms
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(PRODUCERS, mp_context=context) as pool:
        shares = [
            pool.submit(_produce, bootstrap, plan, start_ms, list(own))
            for own in (range(first, plan.partitions, PRODUCERS) for first in range(PRODUCERS))
            if own
        ]
        _watch(shares, lambda: sum(topics.ends(plan.topic).values()), progress)
        return _load(plan, rows, [share.result() for share in shares])


def _watch(shares: list[Future[_Share]], messages: Callable[[], int], progress: Progress) -> None:
    while wait(shares, timeout=POLL_S).not_done:
        progress(messages())
    progress(messages())


def _load(plan: LoadPlan, rows: int, shares: list[_Share]) -> Load:
    windows = (
        pl.concat([share.windows for share in shares])
        .group_by("start")
        .agg(pl.col("rows").sum(), pl.col("checksum").sum())
        .sort("start")
    )
    return Load(
        plan=plan,
        rows=rows,
        messages=sum(share.messages for share in shares),
        last_ms=min(share.last_ms for share in shares),
        windows=tuple(WindowFacts(*row) for row in windows.iter_rows()),
    )


# ------------------------------------------------------------------- in a process of its own


class _Row(msgspec.Struct, gc=False):
    """What the oracle reads of a row."""

    timestamp: int
    sip: str
    type: str


_decoder = msgspec.json.Decoder(_Row)


def _produce(bootstrap: str, plan: LoadPlan, start_ms: int, partitions: list[int]) -> _Share:
    """Fill some partitions, a chunk of each in turn."""
    producer = _producer(bootstrap)
    flows = [_flows(plan, partition) for partition in partitions]
    windows, messages, last = [], 0, dict.fromkeys(partitions, 0)
    for done in range(0, plan.rows_per_partition, CHUNK_ROWS):
        at_ms = start_ms + round(done * 1000 / plan.rate_per_partition)
        for partition, source in zip(partitions, flows, strict=True):
            rows = source.messages(CHUNK_ROWS, at_ms, plan.rate_per_partition)
            seen = _account(rows, plan.window_ms)
            windows.append(seen.windows)
            last[partition] = max(last[partition], seen.last_ms)
            messages += _send(producer, plan, partition, rows)
    if producer.flush(FLUSH_S):
        raise TimeoutError(f"Kafka at {bootstrap} did not take all rows within {FLUSH_S:.0f} s")
    return _Share(messages, min(last.values()), _summed(windows))


def _flows(plan: LoadPlan, partition: int) -> Flows:
    """The same groups in all partitions, in different rows."""
    flows = Flows(plan.seed, groups=plan.groups, disorder_ms=DISORDER_MS)
    flows.messages(1 + partition * 1_001, 0, plan.rate_per_partition)
    return flows


def _producer(bootstrap: str) -> Producer:
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": COMPRESSION,
            # Large batches: fewer requests here and in every contestant's reads.
            "batch.size": 1_000_000,
            "batch.num.messages": CHUNK_ROWS,
            "linger.ms": 50,
            "queue.buffering.max.messages": 200_000,
            "queue.buffering.max.kbytes": 256 * 1024,
            "acks": "all",
        }
    )


def _send(producer: Producer, plan: LoadPlan, partition: int, rows: list[bytes]) -> int:
    size = plan.rows_per_message
    messages = rows if size == 1 else _joined(rows, size)
    for message in messages:
        produce(producer, plan.topic, message, partition)
    producer.poll(0)
    return len(messages)


def _joined(rows: list[bytes], size: int) -> list[bytes]:
    return [b"\n".join(rows[at : at + size]) for at in range(0, len(rows), size)]


@dataclass(frozen=True, slots=True)
class _Seen:
    last_ms: int
    windows: pl.DataFrame


def _account(rows: list[bytes], window_ms: int) -> _Seen:
    """Read the rows back, as a contestant does, so that the oracle does not trust who made them."""
    decoded = _decoder.decode_lines(b"\n".join(rows))
    frame = pl.DataFrame(
        {
            "time": [row.timestamp for row in decoded],
            "sip": [row.sip for row in decoded],
            "type": [row.type for row in decoded],
        }
    )
    windows = frame.select(
        (pl.col("time") // window_ms * window_ms).alias("start"),
        pl.lit(1, pl.Int64).alias("rows"),
        key_hash(pl.col("sip"), pl.col("type")).alias("checksum"),
    )
    return _Seen(int(frame["time"].max() or 0), _summed([windows]))  # type: ignore[arg-type]


def _summed(windows: list[pl.DataFrame]) -> pl.DataFrame:
    return pl.concat(windows).group_by("start").agg(pl.col("rows").sum(), pl.col("checksum").sum())


def described(load: Load) -> Mapping[str, str]:
    """For a table: what the topic holds."""
    plan = load.plan
    return {
        "rows": f"{load.rows:,}",
        "messages": f"{load.messages:,} ({plan.format.value}, {COMPRESSION})",
        "partitions": str(plan.partitions),
        "windows": f"{len(load.windows)} of {plan.window_ms // 1000} s, "
        f"{plan.rows_per_window:,} rows each",
        "key hash seed": str(KEY_HASH_SEED),
    }
