"""`python -m bench.scopes`: what the scope of a watermark is worth where some keys lag.

The real kernel and the real buckets on a simulated clock: every second a row of each key, one key
of ten 30 s behind, rows up to half a second out of order. A bucket commits what is due each second.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from mars.core.definitions import TaskDefinition, TaskState, TaskVersion
from mars.core.plan import Field, FieldType, Format, Plan, Stream
from mars.core.types import (
    AssignmentEpoch,
    Bucket,
    Entry,
    Lane,
    Records,
    Sequence64,
    StoreEpoch,
    StreamName,
    TaskName,
)
from mars.engine.kernel import decode, map_batch
from mars.protocol.ports import Head, LogSlice
from mars.protocol.reducer.task_in_bucket import TaskInBucket
from mars.protocol.reducer.version import Ownership
from mars.protocol.runnable import RunnableTask
from mars.sql import compile_task

KEYS = 1_000
SLOW_EVERY = 10
SLOW_S = 30
SECONDS = 180
PARTITIONS = 4
DISORDER_MS = 500
WINDOW_MS = 10_000
SEED = 7
START_MS = 1_700_000_000_000
NAME = TaskName("scopes")
SQL = "SELECT k, count(*) AS n FROM flows GROUP BY k WINDOWING 10 s"
STREAM = Stream(
    StreamName("flows"),
    "flows",
    Format.JSON,
    (Field("ts", FieldType.TIMESTAMP_MS), Field("k", FieldType.STRING)),
    "ts",
)
E1, A1 = StoreEpoch(1), AssignmentEpoch(1)

LAG = {"key_lag": "40s"}
CASES: Sequence[tuple[str, int, Mapping[str, object]]] = (
    ("partition, delay 1 s", 8, {"delay": "1s"}),
    ("partition, delay 31 s", 8, {"delay": "31s"}),
    ("bucket, delay 1 s, 8 buckets", 8, {"delay": "1s", "watermark": "bucket", **LAG}),
    ("bucket, delay 1 s, 1,024 buckets", 1_024, {"delay": "1s", "watermark": "bucket", **LAG}),
    ("key, delay 1 s", 8, {"delay": "1s", "watermark": "key", **LAG}),
)
"""What it is called, the number of buckets, options."""


@dataclass(slots=True)
class Seen:
    """What became of the rows, and how long after its window's end each group came."""

    read: int = 0
    late: int = 0
    waited_ms: dict[bool, list[int]] = field(default_factory=lambda: {False: [], True: []})

    def mean_s(self, *, slow: bool) -> float:
        """The mean of the slow keys, or of the others, in seconds."""
        waited = self.waited_ms[slow]
        return sum(waited) / len(waited) / 1000 if waited else float("nan")

    @property
    def all_mean_s(self) -> float:
        """The mean of all groups, in seconds."""
        waited = [each for group in self.waited_ms.values() for each in group]
        return sum(waited) / len(waited) / 1000


def is_slow(key: int) -> bool:
    """Whether a key lags."""
    return key % SLOW_EVERY == 0


def arriving(second: int, chance: random.Random) -> Iterator[list[bytes]]:
    """The messages of a second, partition by partition; a key's rows come in one partition."""
    now_ms = START_MS + second * 1000
    for partition in range(PARTITIONS):
        rows = []
        for key in range(partition, KEYS, PARTITIONS):
            time_ms = now_ms + chance.randrange(1000) - chance.randrange(DISORDER_MS)
            rows.append((time_ms - (SLOW_S * 1000 if is_slow(key) else 0), key))
        chance.shuffle(rows)
        yield [json.dumps({"ts": at, "k": str(key)}).encode() for at, key in rows]


class Simulation:
    """One task, all its buckets, and the log between mappers and reducers."""

    def __init__(self, buckets: int, options: Mapping[str, object]) -> None:
        self._plan: Plan = compile_task(
            SQL, task=NAME, version=1, stream_of=lambda _name: STREAM, options=options
        )
        self._buckets = buckets
        version = TaskVersion(1, SQL, options, STREAM, "topic", 0, {})
        definition = TaskDefinition(NAME, TaskState.RUNNING, (version,))
        task = RunnableTask(definition, {1: self._plan}, {self._plan.options.output_topic: 1})
        self._parts = [
            TaskInBucket(task, Ownership(Bucket(number), A1, E1), {}, 10**9)
            for number in range(buckets)
        ]
        self._offsets = {Lane(str(number)): 0 for number in range(PARTITIONS)}
        self._marks: dict[Lane, int] = {}
        self._seq = 0
        self.seen = Seen()

    def second(self, second: int, messages: Iterator[list[bytes]]) -> None:
        """Rows come, are mapped, and each bucket commits what is due."""
        entries: dict[Bucket, list[Entry]] = {}
        for lane, values in zip(list(self._offsets), messages, strict=True):
            self._map(lane, values, entries)
        head = Head(
            E1, 1, True, dict(self._offsets), dict(self._marks), frozenset(),
            Sequence64(self._seq), 0, 0,
        )  # fmt: skip
        for number, part in enumerate(self._parts):
            part.absorb(LogSlice(None, tuple(entries.get(Bucket(number), ()))))
            part.drained(head)
            self._commit(part, START_MS + (second + 1) * 1000)

    def _map(self, lane: Lane, values: list[bytes], entries: dict[Bucket, list[Entry]]) -> None:
        first = self._offsets[lane]
        offsets = range(first, first + len(values))
        records = Records(lane, first, offsets.stop, values, offsets, [-1] * len(values))
        mapped = map_batch(self._plan, self._buckets, decode(STREAM, self._plan.fields, records))
        self._seq += 1
        self._offsets[lane] = offsets.stop
        self._marks[lane] = max(mapped.marks_ms[lane], self._marks.get(lane, 0))
        for partial in mapped.partials:
            entry = Entry(Sequence64(self._seq), 1, mapped.ranges, partial)
            entries.setdefault(partial.bucket, []).append(entry)

    def _commit(self, part: TaskInBucket, now_ms: int) -> None:
        while part.due(waited=True) is not None:
            prepared = part.prepare()
            for batch in prepared.results:
                for raw in batch.keys:
                    start_ms, key = json.loads(raw)
                    waited = self.seen.waited_ms[is_slow(int(key))]
                    waited.append(now_ms - start_ms - WINDOW_MS)
            for record in prepared.progress:
                part.committed(record)

    def run(self) -> Seen:
        """All of it."""
        chance = random.Random(SEED)
        for second in range(SECONDS):
            self.second(second, arriving(second, chance))
        for part in self._parts:
            for record in part.prepare().progress:
                self.seen.read += record.ledger.read
                self.seen.late += record.ledger.late
        return self.seen


def table() -> str:
    """One line for each case, in Markdown."""
    lines = [
        "| watermark | rows late | close latency, mean | of fast keys | of slow keys |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for name, buckets, options in CASES:
        seen = Simulation(buckets, options).run()
        lines.append(
            f"| {name} | {seen.late / seen.read:.1%} | {seen.all_mean_s:.1f} s | "
            f"{seen.mean_s(slow=False):.1f} s | {seen.mean_s(slow=True):.1f} s |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(table() + "\n")
