"""Expressions that read very much text: slices of the rows add what all of them add."""

from __future__ import annotations

import json
from collections.abc import Iterator

import polars.selectors as cs
import pytest

from mars.core.errors import TaskLimit
from mars.core.plan import Field, FieldType, Format, Plan, Stream
from mars.core.types import Lane, Mapped, Records, StreamName, TaskName
from mars.engine.codec import states
from mars.engine.codec.states import decode_states
from mars.engine.evaluate import shared
from mars.engine.kernel import decode, map_batch
from mars.sql import compile_task

STREAM = Stream(
    StreamName("S"),
    "t",
    Format.JSON,
    (
        Field("ts", FieldType.TIMESTAMP_MS),
        Field("k", FieldType.STRING),
        Field("u", FieldType.STRING),
    ),
    "ts",
)
ROWS = 60
QUERIES = (
    "SELECT k, min(concat(u, k, u)) AS low, count(*) AS n FROM S GROUP BY k WINDOWING 10 s",
    "SELECT upper(u) AS big, count(DISTINCT concat(u, u)) AS d FROM S GROUP BY big WINDOWING 10 s",
    "SELECT k, count(*) AS n FROM S WHERE length(concat(u, u, u)) > 9 GROUP BY k WINDOWING 10 s",
    "SELECT max(length(concat(u, u))) AS longest, any_value(lower(u)) AS some FROM S WINDOWING 5 s",
)


def plan_of(sql: str) -> Plan:
    return compile_task(
        sql, task=TaskName("x"), version=1, stream_of=lambda _name: STREAM, options={}
    )


def mapped(sql: str) -> Mapped:
    """Rows of three panes, some without a text."""
    plan = plan_of(sql)
    rows: Iterator[dict[str, object]] = (
        {"ts": 1_000 * at // 2, "k": f"k{at % 3}"} | ({} if at % 7 == 0 else {"u": "ab" * (at % 5)})
        for at in range(ROWS)
    )
    values = [json.dumps(row).encode() for row in rows]
    records = Records(Lane("0"), 0, ROWS, values, range(ROWS), [-1] * ROWS)
    return map_batch(plan, 4, decode(STREAM, plan.fields, records))


def said(result: Mapped) -> list[object]:
    """What it says; the values of a set are in no order."""
    return [
        result.ranges,
        result.marks_ms,
        *(
            (
                one.bucket,
                one.counts,
                one.panes,
                decode_states(one.states).with_columns(cs.list().list.sort()).rows(),
            )
            for one in result.partials
        ),
    ]


@pytest.mark.parametrize("sql", QUERIES)
@pytest.mark.parametrize("at_once", [1, 40, 500])
def test_slices_of_rows_add_what_all_of_them_add(
    sql: str, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = said(mapped(sql))
    monkeypatch.setattr(shared, "TEXT_BYTES_AT_ONCE", at_once)
    assert said(mapped(sql)) == whole


def test_what_slices_add_up_to_is_bounded_while_they_are_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shared, "TEXT_BYTES_AT_ONCE", 40)
    monkeypatch.setattr(states, "BATCH_STATES_BYTES_MAX", 300)
    with pytest.raises(TaskLimit, match="have states of"):
        mapped("SELECT u, min(concat(u, u)) AS low FROM S GROUP BY u WINDOWING 1 s")


def test_fields_alone_are_not_read_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "TEXT_BYTES_AT_ONCE", 1)
    monkeypatch.setattr("mars.engine.kernel._joined", None)
    assert mapped("SELECT u, min(k) AS low FROM S GROUP BY u WINDOWING 10 s").partials
