"""Plans that are mapped together give what each gives alone, to the byte, and fail as it does."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from bench.kernel import START_MS
from bench.many_plans import plan_of as flows_plan
from mars.core.plan import (
    Aggregate,
    AggregateFunction,
    Call,
    Column,
    Expression,
    Function,
    Literal,
    Plan,
    Stream,
    ValueType,
)
from mars.core.types import Lane, Mapped, Records, TaskName
from mars.core.windows import Sliding
from mars.engine import kernel
from mars.engine.codec.states import decode_states
from mars.engine.decode.decoded import Decoded
from mars.engine.decode.lanes import side_by_side
from mars.engine.decode.messages import decode
from mars.engine.evaluate import shared
from mars.engine.kernel import map_batch, map_many
from mars.local.flows import Flows
from mars.local.flows import stream as flows
from tests.unit.codec.samples import (
    ARROW,
    CSV,
    FIELDS,
    JSON,
    LOAD,
    NAME,
    NDJSON,
    OK,
    SIZE,
    plan_of,
    records,
)

MANY = settings(max_examples=150, deadline=None)

A = AggregateFunction
V = ValueType

SMALL = Call(Function.LESS, (SIZE, Literal(3, V.INT64)), V.BOOL)
HALF = Call(Function.DIVIDE, (SIZE, Literal(2, V.INT64)), V.FLOAT64)
SHOUTED = Call(Function.UPPER, (NAME,), V.STRING)
ROUNDED = Call(Function.CAST, (LOAD,), V.INT64)


def zero_or(constant: float) -> Expression:
    """The load, or a zero of this sign, as a text; `==` takes the expressions for the same."""
    value = Call(Function.COALESCE, (LOAD, Literal(constant, V.FLOAT64)), V.FLOAT64)
    return Call(Function.CAST, (value,), V.STRING)


NOWHERE = Column("no such field", V.INT64)
"""A plan that reads it breaks, though its task compiled."""

Argument = tuple[AggregateFunction, Expression | None, ValueType]

ARGUMENTS: Sequence[Argument] = (
    (A.COUNT_ALL, None, V.INT64),
    (A.SUM, SIZE, V.INTEGER),
    (A.AVG, HALF, V.FLOAT64),
    (A.MAX, SHOUTED, V.STRING),
    (A.MIN, ROUNDED, V.INT64),
    (A.STDDEV_SAMP, LOAD, V.FLOAT64),
    (A.COUNT_DISTINCT, SIZE, V.INT64),
    (A.MAX, zero_or(-0.0), V.STRING),
    (A.MAX, zero_or(0.0), V.STRING),
    (A.MAX, NOWHERE, V.INT64),
)
FILTERS: Sequence[Expression | None] = (None, SMALL, OK, Call(Function.NOT, (SMALL,), V.BOOL))
KEYS: Sequence[Expression] = (NAME, SIZE, LOAD, OK, HALF, SHOUTED, ROUNDED, Literal("x", V.STRING))

ROWS = st.fixed_dictionaries(
    {
        "at": st.one_of(st.integers(-200, 400), st.sampled_from([None, "x", 10**17])),
        "name": st.sampled_from(["a", "b", "é", "longer than the limit", None]),
        "size": st.one_of(st.none(), st.integers(-3, 5), st.just("bad")),
        "load": st.one_of(st.none(), st.sampled_from([-0.0, 0.0, 1.5, 1e300, "bad"])),
        "ok": st.sampled_from([True, False, None]),
    }
)


def as_json(rows: Sequence[Mapping[str, object]]) -> list[bytes]:
    return [json.dumps(row).encode() for row in rows]


def as_lines(rows: Sequence[Mapping[str, object]]) -> list[bytes]:
    return [b"\n".join(as_json(rows[at : at + 3])) for at in range(0, len(rows), 3)]


def as_cells(rows: Sequence[Mapping[str, object]]) -> list[bytes]:
    cells = [[row[one.name] for one in FIELDS] for row in rows]
    return [",".join("" if one is None else str(one) for one in row).encode() for row in cells]


def as_arrow(rows: Sequence[Mapping[str, object]]) -> list[bytes]:
    good = [row for row in rows if "bad" not in row.values() and row["at"] != "x"]
    buffer = io.BytesIO()
    dtypes = {"at": pl.Int64, "name": pl.String, "size": pl.Int64, "load": pl.Float64}
    table = pl.DataFrame(good, schema={**dtypes, "ok": pl.Boolean}).to_arrow()
    with pa.ipc.new_stream(buffer, table.schema) as writer:
        writer.write_table(table)
    return [buffer.getvalue()]


FORMATS: Sequence[tuple[Stream, Callable[[Sequence[Mapping[str, object]]], list[bytes]]]] = (
    (JSON, as_json),
    (NDJSON, as_lines),
    (CSV, as_cells),
    (ARROW, as_arrow),
)


@pytest.fixture(autouse=True, scope="module")
def _low_limits() -> Iterator[None]:
    """A few rows exceed them, and plans that have little in common forget what was computed."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("long_keys", "usable"):
            patch.setattr(f"mars.engine.decode.{module}.KEY_BYTES_MAX", 8)
        patch.setattr("mars.engine.aggregates.distinct.DISTINCT_VALUES_MAX", 2)
        patch.setattr(shared, "COMPUTED_MAX", 4)
        yield


Part = TypeVar("Part")


def some(draw: st.DrawFn, of: Sequence[Part]) -> st.SearchStrategy[Part]:
    return st.sampled_from(draw(st.lists(st.sampled_from(of), min_size=1, max_size=4)))


@st.composite
def plan_sets(draw: st.DrawFn, stream: Stream) -> list[Plan]:
    """Plans of one stream that have all, some or nothing in common."""
    keys, filters, arguments = some(draw, KEYS), some(draw, FILTERS), some(draw, ARGUMENTS)
    return [draw(plans(stream, keys, filters, arguments, at)) for at in range(draw(COUNTS))]


COUNTS = st.integers(1, 6)


@st.composite
def plans(
    draw: st.DrawFn,
    stream: Stream,
    keys: st.SearchStrategy[Expression],
    filters: st.SearchStrategy[Expression | None],
    arguments: st.SearchStrategy[Argument],
    number: int,
) -> Plan:
    chosen = draw(st.lists(arguments, min_size=1, max_size=3))
    plan = plan_of(
        *draw(st.lists(keys, max_size=2)),
        aggregates=[
            Aggregate(f"a{slot}", function, argument, draw(filters), result)
            for slot, (function, argument, result) in enumerate(chosen)
        ],
        stream=stream,
        window=Sliding(60, draw(st.sampled_from([20, 60]))),
        fields=draw(st.sampled_from([("at", "name", "size", "load", "ok"), ("at", "size", "ok")])),
        filter_=draw(filters),
        task=f"task{number}",
    )
    limit_ms = draw(st.sampled_from([50, 100, 10_000]))
    return replace(plan, options=replace(plan.options, future_limit_ms=limit_ms))


@st.composite
def batches(draw: st.DrawFn) -> tuple[Stream, Records]:
    """A batch of one format with good, bad and future rows."""
    stream, written = draw(st.sampled_from(FORMATS))
    values = [*written(draw(st.lists(ROWS, max_size=25))), b"{"]
    stamps = draw(st.lists(st.integers(-1, 200), min_size=len(values), max_size=len(values)))
    return stream, records(values, 100, timestamps_ms=stamps)


def outcome(answer: Mapped | Exception) -> object:
    return answer if isinstance(answer, Mapped) else (type(answer), str(answer))


def alone(plan: Plan, batch: Records) -> Mapped | Exception:
    try:
        return map_batch(plan, 3, decode(plan.stream, plan.stream.fields, batch))
    except Exception as problem:  # noqa: BLE001 -- it is compared
        return problem


@MANY
@given(batches().flatmap(lambda one: st.tuples(st.just(one[1]), plan_sets(one[0]))))
def test_plans_together_give_what_each_gives_alone(given_: tuple[Records, list[Plan]]) -> None:
    batch, together = given_
    stream = together[0].stream
    answers = map_many(together, 3, decode(stream, stream.fields, batch))
    assert {task: outcome(answer) for task, answer in answers.items()} == {
        plan.task: outcome(alone(plan, batch)) for plan in together
    }


def batch_of(*sizes: int) -> Records:
    return records([json.dumps({"at": 1, "size": size, "ok": True}).encode() for size in sizes])


def test_error_of_one_plan_is_the_answer_to_that_plan_only() -> None:
    distinct = Aggregate("a0", A.COUNT_DISTINCT, SIZE, None, V.INT64)
    broken = Aggregate("a0", A.MAX, NOWHERE, None, V.INT64)
    plans = [
        plan_of(aggregates=[distinct], task="over"),
        plan_of(task="well"),
        plan_of(aggregates=[broken], task="broken"),
        plan_of(filter_=NOWHERE, task="filter"),
        plan_of(NOWHERE, task="key"),
        plan_of(OK, task="fine"),
    ]
    answers = map_many(plans, 3, decode(JSON, FIELDS, batch_of(1, 2, 3)))
    assert {task: type(answer).__name__ for task, answer in answers.items()} == {
        "over": "TaskLimit",
        "well": "Mapped",
        "broken": "ColumnNotFoundError",
        "filter": "ColumnNotFoundError",
        "key": "ColumnNotFoundError",
        "fine": "Mapped",
    }


FLOWS = Flows(groups=300).messages(600, START_MS + 59_800, 1_000)
"""Rows of two panes."""


def flows_decoded() -> Decoded:
    """A batch of two lanes."""
    lanes = (FLOWS[:250], FLOWS[250:])
    pieces = [
        replace(records(values, 0, timestamps_ms=[-1] * len(values)), lane=Lane(str(lane)))
        for lane, values in enumerate(lanes)
    ]
    return decode(flows(), flows().fields, side_by_side(pieces))


def states_of(mapped: Mapped | Exception) -> list[pl.DataFrame]:
    assert isinstance(mapped, Mapped)
    return [decode_states(partial.states) for partial in mapped.partials]


def test_four_hundred_tasks_together_give_what_each_gives_alone() -> None:
    """All keys, filters and aggregates of `mars bench tasks`."""
    decoded, plans = flows_decoded(), [flows_plan(number) for number in range(400)]
    together = map_many(plans, 8, decoded)
    assert together == {plan.task: map_batch(plan, 8, decoded) for plan in plans}


def test_few_rows_give_what_they_give_among_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows are grouped in runs, many by polars; sums of floats may differ in the last digit."""
    decoded, plans = flows_decoded(), [flows_plan(number) for number in range(400)]
    few = map_many(plans, 8, decoded)
    monkeypatch.setattr(shared, "FEW_ROWS", 0)
    for task, many in map_many(plans, 8, decoded).items():
        assert replaced(few[task]) == replaced(many)
        for found, expected in zip(states_of(few[task]), states_of(many), strict=True):
            assert_frame_equal(found, expected, rel_tol=1e-14, abs_tol=0)


def replaced(mapped: Mapped | Exception) -> Mapped:
    """All but the states."""
    assert isinstance(mapped, Mapped)
    return replace(mapped, partials=tuple(replace(one, states=b"") for one in mapped.partials))


def test_what_plans_have_in_common_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[object] = []
    real = shared.to_column

    def told(one: shared.Wanted) -> pl.Expr:
        computed.append(one)
        return real(one)

    monkeypatch.setattr(shared, "to_column", told)
    plans = [
        plan_of(HALF, aggregates=[Aggregate("a0", A.SUM, ROUNDED, where, V.INT64)], filter_=OK)
        for where in (None, SMALL, None, SMALL)
    ]
    plans = [replace(plan, task=TaskName(f"t{at}")) for at, plan in enumerate(plans)]
    kernel.map_many(plans, 3, decode(JSON, FIELDS, batch_of(1, 2, 3)))
    assert len(computed) == len(set(computed)) == 5  # WHERE, pane, key, argument, the same filtered


def test_zeros_of_both_signs_share_no_column() -> None:
    pair = [
        plan_of(aggregates=[Aggregate("a0", A.MAX, zero_or(zero), None, V.STRING)], task=name)
        for name, zero in (("plus", 0.0), ("minus", -0.0))
    ]
    decoded = decode(JSON, FIELDS, batch_of(1))
    assert map_many(pair, 3, decoded) == {plan.task: map_batch(plan, 3, decoded) for plan in pair}
