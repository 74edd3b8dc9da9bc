"""Windows made of blocks come out as those merged pane by pane: to the byte, whatever happens."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

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
from mars.engine.aggregates import merges_exactly
from mars.engine.kernel import decode, map_batch
from mars.protocol.ports import Head, LogSlice, Progress
from mars.protocol.reducer.preparation import Prepared
from mars.protocol.reducer.task_in_bucket import TaskInBucket
from mars.protocol.reducer.version import Ownership
from mars.protocol.runnable import RunnableTask
from mars.protocol.windows import open_panes
from mars.sql import compile_task

QUICK = settings(max_examples=60, deadline=None)
LANE = Lane("0")
OWNER = Ownership(Bucket(0), AssignmentEpoch(1), StoreEpoch(1))
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
EXACT = "count(*) AS n, sum(v) AS total, avg(v) AS mean, count(DISTINCT v) AS kinds, min(k) AS low"
FLOATS = "sum(f) AS total, avg(f) AS mean, max(f) AS high, stddev_samp(f) AS spread"
NEVER = 10**9

Row = dict[str, Any]


def plan_of(items: str, windowing: str, **options: object) -> Plan:
    return compile_task(
        f"SELECT k, ts, {items} FROM s GROUP BY k, ts WINDOWING {windowing}",
        task=TaskName("t"),
        version=1,
        stream_of=lambda name: STREAM if name == "s" else None,
        options=options,
    )


PLANS = (
    plan_of(EXACT, "20 s SLIDE 1 s"),
    plan_of("sum(v) AS total", "20 s SLIDE 1 s", max_keys=3),
    plan_of(EXACT, "20 s SLIDE 3 s", late="revise", lateness="30s"),
    plan_of(EXACT, "20 s SLIDE 1 s", delay="2s", late="revise", lateness="10s"),
    plan_of(EXACT, "20 s SLIDE 1 s", max_keys=2, over_max_keys="fold"),
    plan_of(FLOATS, "20 s SLIDE 1 s"),
)
ROWS = st.fixed_dictionaries(
    {
        "ts": st.integers(-5_000, 40_000),
        "k": st.sampled_from(["a", "b", None]),
        "f": st.sampled_from([0.1, 1e17, -1e17, 3.3, -0.0, None]),
        "v": st.sampled_from([None, -3, 0, 1, 2**62]),
    }
)
FEED = st.lists(ROWS, min_size=1, max_size=25)
STEPS = st.lists(
    st.one_of(FEED, st.sampled_from(["commit", "draft", "take over", "merge"])), max_size=14
)


class Owner:
    """One bucket, whose windows are made of blocks of so many panes, or of the panes."""

    def __init__(self, plan: Plan, block_panes: int, blocks_from: int) -> None:
        version = TaskVersion(1, "", {}, STREAM, "topic-id", 0, {})
        definition = TaskDefinition(plan.task, TaskState.RUNNING, (version,))
        self._plan = plan
        self._constants = block_panes, blocks_from
        self._task = RunnableTask(definition, {1: plan}, {plan.options.output_topic: 1})
        self._log: list[Entry] = []
        self._base: Entry | None = None
        self._rows = self._seq = 0
        self._newest_ms = -10_000
        self._records: dict[int, Progress] = {}
        self._head = Head(StoreEpoch(1), 1, True, {}, {}, frozenset(), Sequence64(0), 0, 0)
        self.take_over()

    @contextmanager
    def _patched(self) -> Iterator[None]:
        block_panes, blocks_from = self._constants
        with (
            patch.object(open_panes, "BLOCK_PANES", block_panes),
            patch.object(open_panes, "BLOCKS_FROM_PANES", blocks_from),
        ):
            yield

    def take_over(self) -> None:
        with self._patched():
            self.part = TaskInBucket(self._task, OWNER, self._records, snapshot_every_ms=NEVER)
            self.part.absorb(LogSlice(self._base, tuple(self._log)))
            self.part.drained(self._head)

    def feed(self, rows: Sequence[Row]) -> None:
        values = [json.dumps(row).encode() for row in rows]
        first, self._rows = self._rows, self._rows + len(rows)
        offsets = range(first, self._rows)
        records = Records(LANE, first, self._rows, values, offsets, [-1] * len(rows))
        mapped = map_batch(self._plan, 1, decode(STREAM, self._plan.fields, records))
        self._seq += 1
        entry = Entry(Sequence64(self._seq), 1, mapped.ranges, mapped.partials[0])
        self._log.append(entry)
        self._newest_ms = max(self._newest_ms, *(row["ts"] for row in rows))
        marks = {LANE: self._newest_ms}
        self._head = Head(
            StoreEpoch(1), 1, True, {LANE: self._rows}, marks, frozenset(), entry.seq, 0, 0
        )
        with self._patched():
            self.part.absorb(LogSlice(None, (entry,)))
            self.part.drained(self._head)

    def draft(self) -> object:
        with self._patched():
            return self.part.draft()

    def commit(self) -> Prepared:
        with self._patched():
            prepared = self.part.prepare()
            for record in prepared.progress:
                self._records[record.version] = record
                self.part.committed(record)
        return prepared

    def merge(self) -> object:
        """What is accounted is one entry, which the next owner reads in place of all others."""
        with self._patched():
            self.commit()
            bases = self.part.upkeep.bases()
        if bases:
            (self._base,), self._log = bases, []
        return bases

    def done(self, step: str) -> object:
        match step:
            case "draft":
                return self.draft()
            case "commit":
                return self.commit()
            case "merge":
                return self.merge()
        self.take_over()
        return None


@QUICK
@given(st.sampled_from(PLANS), st.sampled_from([2, 3]), STEPS)
def test_what_is_emitted_and_recorded_is_the_same(
    plan: Plan, block_panes: int, steps: list[str | list[Row]]
) -> None:
    owner, plain = Owner(plan, block_panes, 1), Owner(plan, block_panes, NEVER)
    for step in [*steps, "commit", "commit"]:
        if isinstance(step, str):
            assert owner.done(step) == plain.done(step)
        else:
            owner.feed(step)
            plain.feed(step)


def test_plans_that_add_up_floats_or_fold_are_merged_in_one_order_only() -> None:
    assert [merges_exactly(plan) for plan in PLANS] == [True] * 4 + [False] * 2


@pytest.mark.parametrize("block_panes", [2, 5])
def test_blocks_together_hold_no_more_states_than_panes(block_panes: int) -> None:
    owner, most = Owner(PLANS[0], block_panes, 1), 0
    for first in range(0, 60_000, 500):
        owner.feed([{"ts": first, "k": f"{first % 3}", "f": None, "v": 1}])
        owner.commit()
        (version,) = owner.part._versions.values()
        panes = version.state.panes.open
        own = {id(pane.merged) for pane in panes.values()}
        frames = [frame for block in panes._blocks.values() for frame in block._frames or ()]
        merged = {id(frame): frame.height for frame in frames if id(frame) not in own}
        most = max(most, len(merged))
        assert sum(merged.values()) <= sum(pane.groups for pane in panes.values())
    assert most >= 3
