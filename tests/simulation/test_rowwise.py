"""What a run takes for the kernel gives the kernel's bytes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mars.core.definitions import TaskVersion
from mars.core.plan import Plan
from mars.core.types import Mapped, Records, TaskName, live_lane
from mars.engine import finishing, kernel
from mars.engine.aggregates import OTHERS, PANE, limited_window, states
from mars.engine.codec.states import decode_states, encode_states
from mars.engine.decode import messages
from mars.engine.decode.lanes import side_by_side
from mars.process.compiling import compile_version
from mars.protocol.windows import panes
from tests.simulation import rowwise
from tests.simulation.rows import (
    CUMULATING,
    FILTERED,
    LANDMARK,
    SLIDING,
    STREAM,
    STRICT,
    TUMBLING,
    Query,
    Row,
    revised,
)

MANY = settings(max_examples=40, deadline=None)

QUERIES = (
    TUMBLING,
    FILTERED,
    SLIDING,
    CUMULATING,
    LANDMARK,
    STRICT,
    replace(SLIDING, max_keys=2),
    replace(FILTERED, max_keys=1),
    revised(SLIDING, 9_000),
    revised(CUMULATING, 9_000),
    replace(TUMBLING, buckets="one"),
    replace(TUMBLING, watermark="key"),
    replace(TUMBLING, watermark="bucket"),
)
"""Those of runs; the last two are none that can be done row by row."""


def plan_of(query: Query) -> Plan:
    version = TaskVersion(1, query.sql, query.options, STREAM, "id", 0, None)
    return compile_version(TaskName("flat"), version, "default")


PLANS = {query: plan_of(query) for query in QUERIES}

ROWS = st.builds(
    Row,
    st.integers(100_000, 130_000),
    st.sampled_from(["", "k0", "k1", "k2", "k3", "k4"]),
    st.integers(1, 2**31),
)
BATCHES = st.lists(st.tuples(ROWS, st.integers(1, 3)), max_size=8)


def records_of(rows: Sequence[tuple[Row, int]]) -> Records:
    """Messages with gaps between them."""
    values = [row.encode() for row, _step in rows]
    offsets = list(accumulate((step for _row, step in rows), initial=3))
    return Records(live_lane(1), 3, offsets[-1] + 1, values, offsets[:-1], [1_000_000] * len(rows))


@MANY
@given(st.sampled_from(QUERIES), BATCHES, st.integers(1, 5), st.integers(0, 30), st.integers(0, 30))
def test_batch_is_mapped_to_the_same_bytes(
    query: Query, rows: list[tuple[Row, int]], buckets: int, first: int, end: int
) -> None:
    plan, records = PLANS[query], records_of(rows)
    raw = rowwise.decode(plan.stream, plan.fields, records).from_offset(first).until(end)
    decoded = messages.decode(plan.stream, plan.fields, records).from_offset(first).until(end)
    assert raw.records == decoded.records
    mapped = rowwise.map_many([plan], buckets, raw)[plan.task]
    assert mapped == kernel.map_batch(plan, buckets, decoded)


@MANY
@given(st.sampled_from(QUERIES), st.lists(BATCHES, min_size=2, max_size=4), st.integers(1, 5))
def test_batch_of_several_lanes_is_mapped_to_the_same_bytes(
    query: Query, batches: list[list[tuple[Row, int]]], buckets: int
) -> None:
    plan = PLANS[query]
    pieces = [replace(records_of(rows), lane=live_lane(at)) for at, rows in enumerate(batches)]
    records = side_by_side(pieces)
    mapped = rowwise.map_many([plan], buckets, rowwise.decode(STREAM, plan.fields, records))
    decoded = messages.decode(plan.stream, plan.fields, records)
    assert mapped[plan.task] == kernel.map_batch(plan, buckets, decoded)


def mapped_of(plan: Plan, batches: Sequence[Sequence[tuple[Row, int]]]) -> list[Mapped]:
    given = [messages.decode(plan.stream, plan.fields, records_of(rows)) for rows in batches]
    return [kernel.map_batch(plan, 2, each) for each in given]


@MANY
@given(st.sampled_from(QUERIES), st.lists(BATCHES, min_size=1, max_size=4))
def test_states_are_merged_to_the_same_bytes(
    query: Query, batches: list[list[tuple[Row, int]]]
) -> None:
    plan = PLANS[query]
    partials = [part for mapped in mapped_of(plan, batches) for part in mapped.partials]
    for part in partials:
        alone = rowwise.states_by_pane(part)
        assert {start: each.rows() for start, each in alone.items()} == {
            start: each.rows() for start, each in panes.states_by_pane(part).items()
        }
    frames = [decode_states(part.states) for part in partials if part.states]
    merged, wanted = rowwise.merge(plan, frames), states.merge(plan, frames)
    assert merged.schema == wanted.schema
    assert encode_states(merged) == encode_states(wanted)


@MANY
@given(
    st.sampled_from([query for query in QUERIES if query is not STRICT]),
    st.lists(BATCHES, min_size=1, max_size=4),
    st.booleans(),
)
def test_windows_are_finished_to_the_same_bytes(
    query: Query, batches: list[list[tuple[Row, int]]], folded: bool
) -> None:
    plan = PLANS[query]
    frames = [
        decode_states(part.states)
        for mapped in mapped_of(plan, batches)
        for part in mapped.partials
        if part.states
    ]
    if folded and plan.folds:
        frames = [each.with_columns(pl.col("k0").eq("k0").alias(OTHERS)) for each in frames]
    for start in sorted({pane for each in frames for pane in each.get_column(PANE)}):
        parts = [states.merge(plan, [each.filter(pl.col(PANE) == start)]) for each in frames]
        window = plan.window.window_of_start(start)
        merged = rowwise.limited_window(plan, window, parts)
        wanted = limited_window(plan, window, parts)
        assert merged.rows() == wanted.rows()
        assert rowwise.finish(plan, merged, window) == finishing.finish(plan, wanted, window)


def test_rows_are_counted_one_by_one_for_the_usual_queries() -> None:
    assert [rowwise.is_known(PLANS[query]) for query in QUERIES] == [True] * 11 + [False] * 2


@pytest.mark.parametrize("folds", [False, True])
@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 9, 40, 200])
def test_states_are_encoded_as_polars_encodes_them(count: int, folds: bool) -> None:
    chance = random.Random(count)
    rows = tuple(
        (
            chance.randrange(10**6),
            f"k{chance.randrange(200)}" if at % 30 else "longer than fits inline",
            folds and chance.random() < 0.5,
            chance.randrange(1, 9),
            chance.randrange(-(2**70), 2**70),
        )
        for at in range(1, count + 1)
    )
    assert rowwise._encoded(folds, rows) == encode_states(rowwise._frame(folds, rows))
