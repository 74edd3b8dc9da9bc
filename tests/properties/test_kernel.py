"""The whole kernel against a row-by-row one in plain Python, and cut at random."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mars.core.plan import (
    Aggregate,
    AggregateFunction,
    Call,
    Expression,
    Format,
    Function,
    Literal,
    Plan,
    ValueType,
)
from mars.core.types import Mapped, Records, RowCounts, Sequence64
from mars.core.windows import Sliding
from mars.engine.aggregates import merge, merge_panes
from mars.engine.codec.entry import decode_entry, encode_entry
from mars.engine.codec.states import decode_states
from mars.engine.finishing import finish
from mars.engine.kernel import decode, map_batch
from tests.unit.codec.samples import COUNT, JSON, NAME, SIZE, plan_of, records

QUICK = settings(max_examples=60)

A = AggregateFunction
V = ValueType

HUGE = Call(Function.MULTIPLY, (SIZE, Literal(1e308, V.FLOAT64)), V.FLOAT64)
"""A key that is infinite for most sizes, and finite for some."""
SHOUTED = Call(Function.UPPER, (NAME,), V.STRING)
"""A key that may be longer than the text that it is made of."""
KEY_BYTES_MAX = 4
FILTER = Call(Function.LESS, (SIZE, Literal(3, V.INT64)), V.BOOL)
SUM = Aggregate("a1", A.SUM, SIZE, None, V.INTEGER)
FUTURE_MS = 100


@dataclass(frozen=True)
class Sent:
    """A message and the time stamp of its record."""

    value: bytes
    stamp: int


TIMES = st.one_of(st.integers(-200, 400), st.sampled_from([None, "x", 10**17]))
SIZES = st.one_of(st.none(), st.integers(-3, 5), st.just(2**63 - 1), st.just("bad"))
OBJECTS = st.fixed_dictionaries(
    {
        "at": TIMES,
        "name": st.sampled_from(["a", "b", "éé", "\u0390", "longer", None]),
        "size": SIZES,
    }
)
MESSAGES = st.builds(
    Sent,
    st.one_of(
        OBJECTS.map(lambda one: json.dumps(one).encode()), st.sampled_from([b"", b"{", b"[5]"])
    ),
    st.one_of(st.just(-1), st.integers(0, 200)),
)


KEYS: list[tuple[Expression, ...]] = [
    *((), (NAME,), (NAME, SIZE), (SIZE,), (HUGE,)),
    *((NAME, HUGE), (SHOUTED,), (NAME, SHOUTED), (NAME, NAME)),
]


@pytest.fixture(autouse=True, scope="module")
def short_keys() -> Iterator[None]:
    """Keys are too long so soon that short ones are, too."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("long_keys", "usable"):
            patch.setattr(f"mars.engine.decode.{module}.KEY_BYTES_MAX", KEY_BYTES_MAX)
        yield


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    slide = draw(st.sampled_from([10, 30, 60]))
    shape = Sliding(draw(st.sampled_from([60, 90])), slide)
    plan = plan_of(
        *draw(st.sampled_from(KEYS)),
        aggregates=[COUNT, SUM],
        window=shape,
        fields=["at", "name", "size"],
        filter_=draw(st.sampled_from([None, FILTER])),
    )
    return replace(plan, options=replace(plan.options, future_limit_ms=FUTURE_MS))


def batch_of(sent: Sequence[Sent], first: int = 0) -> Records:
    return records([one.value for one in sent], first, timestamps_ms=[one.stamp for one in sent])


# --------------------------------------------------------------------- the kernel, row by row


@dataclass
class Expected:
    """What is to come out: groups by (window start, key), counts, the mark."""

    groups: dict[tuple[object, ...], tuple[int, int | None]]
    counts: RowCounts
    mark: int | None


def expected_of(plan: Plan, sent: Iterable[Sent]) -> Expected:
    out = Expected({}, RowCounts(), None)
    for one in sent:
        fate, row = fate_of(plan, one)
        out.counts += RowCounts(**{fate: 1})
        if fate in {"filtered", "counted"}:
            at = row["at"]
            out.mark = at if out.mark is None else max(at, out.mark)
        if fate == "counted":
            count_row(plan, row, out)
    return out


def fate_of(plan: Plan, one: Sent) -> tuple[str, dict[str, int]]:
    try:
        row = msgspec.json.decode(one.value, type=dict)
    except msgspec.DecodeError:
        return "bad", {}
    if not isinstance(row["at"], int) or row["at"] > 10**16 or row["size"] == "bad":
        return "bad", {}
    if key_bytes(plan, row) > KEY_BYTES_MAX:
        return "bad", {}
    if one.stamp >= 0 and row["at"] - one.stamp > FUTURE_MS:
        return "future", {}
    if plan.filter is not None and not (row["size"] is not None and row["size"] < 3):
        return "filtered", row
    return "counted", row


def count_row(plan: Plan, row: dict[str, Any], out: Expected) -> None:
    key = tuple(key_of(key.expression, row) for key in plan.keys)
    for window in plan.window.windows_of([plan.window.panes(row["at"])]):
        place = (window.start_ms, *key)
        rows, total = out.groups.get(place, (0, None))
        if row["size"] is not None:
            total = (total or 0) + row["size"]
        out.groups[place] = (rows + 1, total)


def key_bytes(plan: Plan, row: dict[str, Any]) -> int:
    keys = (key_of(key.expression, row) for key in plan.keys)
    return sum(len(key.encode()) for key in keys if isinstance(key, str))


def key_of(expression: Expression, row: dict[str, Any]) -> object:
    if expression == SHOUTED:
        name = row["name"]
        return name.upper() if isinstance(name, str) else None
    if expression != HUGE:
        return row[expression.name]  # type: ignore[union-attr]
    size = row["size"]
    return size * 1e308 if size is not None and abs(size) < 2 else None


# ------------------------------------------------------------------------------------ checks


def groups_of(plan: Plan, results: Sequence[Mapped]) -> dict[tuple[int, ...], tuple[int, int]]:
    """Everything that the results of some batches finish to."""
    frames = [
        decode_states(one.states) for result in results for one in result.partials if one.states
    ]
    states = merge(plan, frames)
    found: dict[tuple[int, ...], tuple[int, int]] = {}
    for window in plan.window.windows_of(states.get_column("pane").to_list()):
        finished = finish(plan, merge_panes(plan, states, window), window)
        for key, value in zip(finished.keys, finished.values, strict=True):
            members = json.loads(value)
            assert tuple(json.loads(key)) not in found
            found[tuple(json.loads(key))] = (members["agg0"], members["agg1"])
    return found


def counts_of(results: Sequence[Mapped]) -> RowCounts:
    return sum((one.counts for result in results for one in result.partials), RowCounts())


@QUICK
@given(plans(), st.lists(MESSAGES, max_size=30), st.integers(1, 8))
def test_kernel_equals_counting_row_by_row(plan: Plan, sent: list[Sent], buckets: int) -> None:
    result = map_batch(plan, buckets, decode(JSON, plan.fields, batch_of(sent)))
    expected = expected_of(plan, sent)
    assert groups_of(plan, [result]) == expected.groups
    assert counts_of([result]) == expected.counts
    assert next(iter(result.marks_ms.values()), None) == expected.mark
    assert sum(len(one.rejections.rows) for one in result.partials) == (
        expected.counts.bad + expected.counts.future
    )


@QUICK
@given(
    plans(),
    st.lists(MESSAGES, max_size=30),
    st.lists(st.integers(0, 30), max_size=3),
    st.permutations(range(4)),
)
def test_result_does_not_depend_on_how_the_rows_are_cut_into_batches(
    plan: Plan, sent: list[Sent], cuts: list[int], order: list[int]
) -> None:
    bounds = [0, *sorted(min(cut, len(sent)) for cut in cuts), len(sent)]
    parts = [sent[first:next_] for first, next_ in pairwise(bounds)]
    results = [
        map_batch(plan, 1 + at, decode(JSON, plan.fields, batch_of(part)))
        for at, part in enumerate(parts)
    ]
    shuffled = [results[at] for at in order if at < len(results)]
    expected = expected_of(plan, sent)
    assert groups_of(plan, shuffled) == expected.groups
    assert counts_of(results) == expected.counts


@QUICK
@given(plans(), st.lists(MESSAGES, min_size=1, max_size=20))
def test_same_rows_packed_into_ndjson_count_the_same(plan: Plan, sent: list[Sent]) -> None:
    lines = [replace(one, stamp=-1) for one in sent if one.value]
    message = Sent(b"\n".join(one.value for one in lines), -1)
    stream = replace(JSON, format=Format.NDJSON)
    packed = replace(plan, stream=stream)
    result = map_batch(packed, 4, decode(stream, plan.fields, batch_of([message])))
    if lines:
        expected = expected_of(plan, lines)
        assert groups_of(plan, [result]) == expected.groups
        assert counts_of([result]) == expected.counts


@QUICK
@given(plans(), st.lists(MESSAGES, max_size=20))
def test_what_a_task_maps_does_not_depend_on_the_fields_of_others(
    plan: Plan, sent: list[Sent]
) -> None:
    own = map_batch(plan, 4, decode(JSON, plan.fields, batch_of(sent)))
    assert map_batch(plan, 4, decode(JSON, JSON.fields, batch_of(sent))) == own
    narrow = plan_of(NAME, fields=["at", "name"])
    alone = map_batch(narrow, 4, decode(JSON, narrow.fields, batch_of(sent)))
    assert map_batch(narrow, 4, decode(JSON, JSON.fields, batch_of(sent))) == alone


@QUICK
@given(plans(), st.lists(MESSAGES, max_size=20))
def test_partials_survive_the_log(plan: Plan, sent: list[Sent]) -> None:
    result = map_batch(plan, 4, decode(JSON, plan.fields, batch_of(sent)))
    for one in result.partials:
        header, body = encode_entry(plan.version, result.ranges, one)
        assert decode_entry(Sequence64(1), header, body).partial == one
