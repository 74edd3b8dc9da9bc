"""What `map_batch` makes of a batch: panes, buckets, counts, references, the mark."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import polars as pl
import pytest

from mars.core.errors import TaskLimit
from mars.core.plan import (
    Aggregate,
    AggregateFunction,
    Call,
    Column,
    Function,
    Literal,
    Plan,
    ValueType,
)
from mars.core.types import Bucket, Mapped, Partial, Range, RowCounts
from mars.core.windows import Counting, Sliding
from mars.engine.aggregates import DISTINCT_VALUES_MAX, merge, state_schema
from mars.engine.codec.canonical import bucket_of_task, buckets_of_keys
from mars.engine.codec.states import decode_states
from mars.engine.kernel import CELLS_MAX, Decoded, decode, map_batch
from tests.unit.codec.samples import (
    COUNT,
    FIELDS,
    JSON,
    LOAD,
    NAME,
    OK,
    SIZE,
    plan_of,
    records,
    row,
)

BUCKETS = 8
A = AggregateFunction
V = ValueType


def mapped(plan: Plan, *values: bytes | None, lane: str = "0", first: int = 0) -> Mapped:
    return map_batch(plan, BUCKETS, decode(JSON, plan.fields, records(values, first, lane=lane)))


def states_of(plan: Plan, result: Mapped) -> pl.DataFrame:
    return merge(plan, [decode_states(one.states) for one in result.partials if one.states])


def total(result: Mapped) -> RowCounts:
    return sum((one.counts for one in result.partials), RowCounts())


def test_rows_are_grouped_by_pane_and_key() -> None:
    # pane   -60 s         0             60 s
    #          |---------*--|--*-**--------|
    plan = plan_of(NAME)
    values = [row(at=at, name=name) for at, name in ((-1, "a"), (0, "a"), (1, "b"), (2, "a"))]
    result = mapped(plan, *values)
    assert set(states_of(plan, result).rows()) == {(-60_000, "a", 1), (0, "a", 2), (0, "b", 1)}
    assert list(result.marks_ms.values()) == [2]
    assert total(result) == RowCounts(counted=4)


def test_key_lies_in_the_bucket_of_its_hash_in_every_pane() -> None:
    plan = plan_of(NAME)
    values = [row(at=at * 60_000, name=f"n{at % 50}") for at in range(200)]
    result = mapped(plan, *values)
    assert [one.bucket for one in result.partials] == sorted(
        {one.bucket for one in result.partials}
    )
    for one in result.partials:
        keys = decode_states(one.states).select("k0")
        owners = buckets_of_keys(plan.task, keys, [V.STRING], BUCKETS)
        assert set(owners) == {one.bucket}
        assert one.counts.counted == sum(pane.rows for pane in one.panes)


def test_states_have_the_columns_of_the_schema() -> None:
    plan = plan_of(NAME, SIZE)
    for values in ([row(at=0)], [row(at=0), row(at=60_000)]):
        (one,) = mapped(plan, *values).partials
        assert decode_states(one.states).schema == state_schema(plan)


def test_panes_say_how_many_rows_and_the_first_offset_of_the_batch() -> None:
    plan = plan_of()
    result = mapped(plan, row(at=61_000), row(at=1), row(at=2), lane="4", first=90)
    (one,) = result.partials
    assert [(pane.start_ms, pane.rows, dict(pane.first)) for pane in one.panes] == [
        (0, 2, {"4": 90}),
        (60_000, 1, {"4": 90}),
    ]
    assert result.ranges == (Range(records([]).lane.__class__("4"), 90, 93),)


def test_rows_of_panes_that_lie_far_apart_are_told_like_those_of_near_ones() -> None:
    plan, far = plan_of(NAME), CELLS_MAX * 60_000
    values = [row(at=at + start, name=f"n{at}") for start in (-far, 0, far) for at in range(30)]
    found = Counter[int]()
    for one in mapped(plan, *values, row(at=1, name="n0")).partials:
        states = decode_states(one.states)
        for pane in one.panes:
            own = states.filter(pl.col("pane") == pane.start_ms)
            assert pane.rows == own.get_column("a0_n").sum()
            found[pane.start_ms] += pane.rows
        assert [pane.start_ms for pane in one.panes] == sorted(set(states.get_column("pane")))
    assert found == {-far: 30, 0: 31, far: 30}


def test_task_without_keys_lives_in_the_bucket_of_its_name_with_all_its_counts() -> None:
    plan = plan_of(fields=["at"])
    (one,) = mapped(plan, row(at=1), b"?", lane="5").partials
    assert one.bucket == bucket_of_task(plan.task, BUCKETS)
    assert one.counts == RowCounts(counted=1, bad=1)


def test_task_with_a_limit_lives_in_the_bucket_of_its_name() -> None:
    plan = replace(plan_of(NAME), limit=3)
    (one,) = mapped(plan, *[row(at=1, name=f"n{at}") for at in range(50)]).partials
    assert one.bucket == bucket_of_task(plan.task, BUCKETS)


def test_rows_without_a_key_are_accounted_in_the_bucket_of_their_lane() -> None:
    plan = plan_of(NAME, filter_=Call(Function.GREATER, (SIZE, Literal(5, V.INT64)), V.BOOL))
    result = mapped(plan, b"?", row(at=1, size=1), row(at=2), lane="11")
    (one,) = result.partials
    assert (one.bucket, one.states, one.panes) == (Bucket(3), b"", ())
    assert one.counts == RowCounts(filtered=2, bad=1)
    assert [bad.offset for bad in one.rejections.rows] == [0]
    assert list(result.marks_ms.values()) == [2]


def test_lane_bucket_keeps_its_own_groups_too() -> None:
    plan = plan_of(NAME)
    values = [row(at=1, name=f"n{at}") for at in range(100)]
    clean, soiled = mapped(plan, *values, lane="2"), mapped(plan, *values, b"?", lane="2")
    by_bucket = {one.bucket: one for one in soiled.partials}
    assert by_bucket[Bucket(2)].counts.bad == 1
    assert [one.states for one in clean.partials] == [one.states for one in soiled.partials]


def test_batch_without_rows_makes_no_partial() -> None:
    result = map_batch(plan_of(NAME), BUCKETS, decode(JSON, FIELDS, records([], 7)))
    assert (result.partials, result.marks_ms) == ((), {})
    assert result.ranges[0].first == result.ranges[0].next == 7


def test_filter_keeps_only_rows_for_which_it_is_true() -> None:
    plan = plan_of(filter_=OK)
    result = mapped(plan, row(at=1, ok=True), row(at=2, ok=False), row(at=3, ok=None))
    assert total(result) == RowCounts(counted=1, filtered=2)
    assert list(result.marks_ms.values()) == [3]


def test_null_is_a_key_of_its_own() -> None:
    plan = plan_of(NAME)
    result = mapped(plan, row(at=1), row(at=2, name=""), row(at=3))
    assert set(states_of(plan, result).rows()) == {(0, None, 2), (0, "", 1)}


def test_zeros_of_both_signs_are_one_key() -> None:
    plan = plan_of(LOAD)
    values = [b'{"at":1,"load":0.0}', b'{"at":2,"load":-0.0}']
    assert states_of(plan, mapped(plan, *values)).rows() == [(0, 0.0, 2)]
    assert states_of(plan, mapped(plan, *values)).equals(
        states_of(plan, mapped(plan, *reversed(values)))
    )


def test_constant_key_and_fields_named_like_slots_do_no_harm() -> None:
    fields = (FIELDS[0], replace(FIELDS[1], name="k0"), replace(FIELDS[2], name="pane"))
    stream = replace(JSON, fields=fields)
    plan = plan_of(
        Literal("x", V.STRING),
        Column("k0", V.STRING),
        aggregates=[Aggregate("a0", A.SUM, Column("pane", V.INT64), None, V.INTEGER)],
        stream=stream,
    )
    values = [row(at=1, k0="own", pane=5), row(at=2, k0="own", pane=6)]
    decoded = decode(stream, fields, records(values))
    result = map_batch(plan, BUCKETS, decoded)
    assert states_of(plan, result).rows() == [(0, "x", "own", 11, 2)]


def test_aggregates_with_and_without_filters_read_their_own_rows() -> None:
    small = Call(Function.LESS, (SIZE, Literal(3, V.INT64)), V.BOOL)
    plan = plan_of(
        aggregates=[
            COUNT,
            Aggregate("a1", A.COUNT_ALL, None, small, V.INT64),
            Aggregate("a2", A.SUM, SIZE, small, V.INTEGER),
            Aggregate("a3", A.SUM, SIZE, None, V.INTEGER),
        ]
    )
    values = [row(at=1, size=size) for size in (1, 2, 3, None)]
    states = states_of(plan, mapped(plan, *values))
    assert states.select("a0_n", "a1_n", "a2_sum", "a2_n", "a3_sum", "a3_n").rows() == [
        (4, 2, 3, 2, 6, 3)
    ]


def test_sliding_window_has_one_state_per_pane_and_not_per_window() -> None:
    # panes of 10 s     0    10    20    30
    # rows                 *    *     *
    plan = plan_of(window=Sliding(60_000, 10_000))
    result = mapped(plan, row(at=5_000), row(at=12_000), row(at=25_000))
    assert states_of(plan, result).get_column("pane").to_list() == [0, 10_000, 20_000]


def test_too_many_distinct_values_stop_the_task() -> None:
    plan = plan_of(aggregates=[Aggregate("a0", A.COUNT_DISTINCT, SIZE, None, V.INT64)])
    values = [json.dumps({"at": 1, "size": at}).encode() for at in range(DISTINCT_VALUES_MAX + 1)]
    with pytest.raises(TaskLimit):
        mapped(plan, *values)


def test_equal_input_gives_equal_bytes_and_other_fields_change_nothing() -> None:
    plan = plan_of(NAME, fields=["at", "name"])
    values = [row(at=at, name=f"n{at % 7}", size="bad" if at % 3 else 1) for at in range(100)]
    own = map_batch(plan, BUCKETS, decode(JSON, plan.fields, records(values)))
    assert own == map_batch(plan, BUCKETS, decode(JSON, plan.fields, records(values)))
    assert own == map_batch(plan, BUCKETS, decode(JSON, FIELDS, records(values)))


def test_parts_of_a_decoded_batch_map_like_batches_of_their_own() -> None:
    plan = plan_of(NAME)
    values: list[bytes | None] = [row(at=at * 7_000, name=f"n{at % 7}") for at in range(60)]
    values[10:12] = [b"?", row(at="x")]
    whole: Decoded = decode(JSON, FIELDS, records(values, 100))
    for cut in (100, 110, 111, 112, 130, 160):
        before, after = (
            map_batch(plan, 4, whole.until(cut)),
            map_batch(plan, 4, whole.from_offset(cut)),
        )
        assert before == map_batch(plan, 4, decode(JSON, FIELDS, records(values[: cut - 100], 100)))
        assert after == map_batch(plan, 4, decode(JSON, FIELDS, records(values[cut - 100 :], cut)))


def test_partials_are_plain_values() -> None:
    (one,) = mapped(plan_of(), row(at=1)).partials
    assert isinstance(one, Partial)
    assert all(type(pane.start_ms) is int and type(pane.rows) is int for pane in one.panes)
    assert type(one.counts.counted) is int
    assert type(one.bucket) is int


def test_rows_that_are_counted_are_not_mapped_where_nobody_says_how_many_lie_before() -> None:
    plan = replace(plan_of(NAME), window=Counting(10, 10))
    decoded = decode(JSON, plan.fields, records([b"{}"], 7))

    with pytest.raises(ValueError, match="how many lie before"):
        map_batch(plan, BUCKETS, decoded)
