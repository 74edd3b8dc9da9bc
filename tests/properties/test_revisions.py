"""However rows are split into those on time and late ones: in the end the newest revisions are the
rows that DuckDB computes over all of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
from mars.protocol.ports import Head, LogSlice, Progress
from mars.protocol.reducer.task_in_bucket import TaskInBucket
from mars.protocol.reducer.version import Ownership
from mars.protocol.runnable import RunnableTask
from mars.sql import compile_task

QUICK = settings(max_examples=25, deadline=None)
LANE = Lane("0")
OWNER = Ownership(Bucket(0), AssignmentEpoch(1), StoreEpoch(1))
END_MS = 1_000_000
"""Event time of a last row, which closes every window before it."""

STREAM = Stream(
    StreamName("s"),
    "s",
    Format.JSON,
    (
        Field("ts", FieldType.TIMESTAMP_MS),
        Field("k", FieldType.STRING),
        Field("f", FieldType.FLOAT64),
        Field("v", FieldType.INT64),
    ),
    "ts",
)
ITEMS = "count(*) AS n, sum(v) AS total, avg(v) AS mean, count(DISTINCT v) AS kinds"


@dataclass(frozen=True)
class Query:
    """A query, and the same for DuckDB over rows that stand once in each of their windows."""

    keys: tuple[str, ...]
    having: str = ""
    size_ms: int = 10_000
    slide_ms: int = 10_000

    @property
    def group_by(self) -> str:
        return ", ".join((*self.keys, "ts"))

    def plan(self) -> Plan:
        windowing = f"WINDOWING {self.size_ms // 1000} s SLIDE {self.slide_ms // 1000} s"
        keys = "".join(f"{key}, " for key in self.keys)
        return compile_task(
            f"SELECT {keys}ts, {ITEMS} FROM s GROUP BY {self.group_by} {self.having} {windowing}",
            task=TaskName("t"),
            version=1,
            stream_of=lambda name: STREAM if name == "s" else None,
            options={"late": "revise", "lateness": "30min"},
        )

    def oracle(self) -> str:
        keys = "".join(f"{key}, " for key in self.keys)
        return f"SELECT {keys}ts, {ITEMS} FROM s GROUP BY {self.group_by} {self.having}"


QUERIES = st.sampled_from(
    [
        Query(("k",)),
        Query(()),
        Query(("k", "f")),
        Query(("k",), "HAVING count(*) <> 2"),
        Query(("k",), "HAVING sum(v) < 3"),
        Query(("k",), size_ms=20_000, slide_ms=5_000),
        Query(("k",), "HAVING min(v) >= 0", size_ms=20_000, slide_ms=10_000),
    ]
)
ROWS = st.fixed_dictionaries(
    {
        "ts": st.integers(0, 60_000),
        "k": st.sampled_from(["a", "b", None]),
        "f": st.sampled_from([0.5, -0.0, 0.0, None]),
        "v": st.one_of(st.none(), st.integers(-3, 3)),
    }
)
BATCHES = st.lists(st.lists(ROWS, min_size=1, max_size=4), min_size=1, max_size=12)
Row = dict[str, Any]


@pytest.fixture(scope="module")
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute("CREATE TABLE s (ts BIGINT, k VARCHAR, f DOUBLE, v BIGINT)")
        yield connection


def in_order(row: Sequence[object]) -> str:
    """What rows are sorted by; -0.0 is equal to 0.0, and must not come elsewhere."""
    return repr([value + 0.0 if isinstance(value, float) else value for value in row])


class Owner:
    """One bucket, and who reads its output and keeps the newest revision of each group."""

    def __init__(self, plan: Plan) -> None:
        version = TaskVersion(1, "", {}, STREAM, "topic-id", 0, {})
        definition = TaskDefinition(plan.task, TaskState.RUNNING, (version,))
        self._plan = plan
        self._task = RunnableTask(definition, {1: plan}, {plan.options.output_topic: 1})
        self._log: list[Entry] = []
        self._records: dict[int, Progress] = {}
        self._newest_ms = 0
        self._head = Head(StoreEpoch(1), 1, True, {}, {}, frozenset(), Sequence64(0), 0, 0)
        self.found: dict[tuple[object, ...], tuple[int, Row | None]] = {}
        self.take_over()

    def take_over(self) -> None:
        """Somebody else goes on, by the records and the log."""
        self.part = TaskInBucket(self._task, OWNER, self._records, snapshot_every_ms=900_000)
        self.part.absorb(LogSlice(None, tuple(self._log)))
        self.part.drained(self._head)

    def feed(self, rows: Sequence[Row], *, commit: bool) -> None:
        """A batch; all that are behind the newest row by a window's end are late."""
        first = sum(part.next - part.first for entry in self._log for part in entry.ranges)
        values = [json.dumps(row).encode() for row in rows]
        offsets = range(first, first + len(rows))
        records = Records(LANE, first, offsets.stop, values, offsets, [-1] * len(rows))
        mapped = map_batch(self._plan, 1, decode(STREAM, self._plan.fields, records))
        seq = Sequence64(len(self._log) + 1)
        entry = Entry(seq, 1, mapped.ranges, mapped.partials[0])
        self._log.append(entry)
        self._newest_ms = max(self._newest_ms, *(row["ts"] for row in rows))
        marks = {LANE: self._newest_ms}
        self._head = Head(
            StoreEpoch(1), 1, True, {LANE: offsets.stop}, marks, frozenset(), seq, 0, 0
        )
        self.part.absorb(LogSlice(None, (entry,)))
        self.part.drained(self._head)
        if commit:
            self.commit()

    def commit(self) -> None:
        prepared = self.part.prepare()
        for batch in prepared.results:
            headers = dict(batch.headers)
            revision, deleted = int(headers["mars-revision"]), "mars-deleted" in headers
            for key, value in zip(batch.keys, batch.values, strict=True):
                place = tuple(json.loads(key))
                assert self.found.get(place, (-1, None))[0] < revision
                self.found[place] = (revision, None if deleted else json.loads(value))
        for record in prepared.progress:
            assert record.ledger.late == record.ledger.late_partly == 0
            self._records[record.version] = record
            self.part.committed(record)

    def newest(self) -> list[tuple[object, ...]]:
        rows = [row for _revision, row in self.found.values() if row is not None]
        return sorted((tuple(row.values())[2:] for row in rows), key=in_order)


def computed(duck: duckdb.DuckDBPyConnection, query: Query, rows: Sequence[Row]) -> object:
    """What DuckDB makes of all rows, each once in every window that it is in."""
    duck.execute("DELETE FROM s")
    for row in rows:
        newest = row["ts"] // query.slide_ms * query.slide_ms
        for start in range(newest, row["ts"] - query.size_ms, -query.slide_ms):
            values = [start, row["k"], row["f"], row["v"]]
            duck.execute("INSERT INTO s VALUES (?, ?, ?, ?)", values)
    return sorted(duck.execute(query.oracle()).fetchall(), key=in_order)


@given(query=QUERIES, batches=BATCHES, chance=st.randoms(use_true_random=False))
@QUICK
def test_the_newest_revisions_are_what_a_batch_engine_computes_over_all_rows(
    duck: duckdb.DuckDBPyConnection, query: Query, batches: list[list[Row]], chance: Any
) -> None:
    owner = Owner(query.plan())
    for batch in batches:
        owner.feed(batch, commit=chance.random() < 0.7)
        if chance.random() < 0.2:
            owner.take_over()
    owner.feed([{"ts": END_MS, "k": "a", "f": None, "v": None}], commit=True)

    assert owner.newest() == computed(duck, query, [row for batch in batches for row in batch])
