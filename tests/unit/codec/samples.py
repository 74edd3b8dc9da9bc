"""Streams, plans and batches for the tests of the kernel and its parts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from mars.core.plan import (
    Aggregate,
    AggregateFunction,
    Column,
    Expression,
    Field,
    FieldType,
    Format,
    Key,
    Options,
    Output,
    Plan,
    Stream,
    ValueType,
)
from mars.core.types import Lane, Records, StreamName, TaskName
from mars.core.windows import Sliding

FIELDS = (
    Field("at", FieldType.TIMESTAMP_MS),
    Field("name", FieldType.STRING),
    Field("size", FieldType.INT64),
    Field("load", FieldType.FLOAT64),
    Field("ok", FieldType.BOOL),
)

JSON = Stream(StreamName("s"), "topic", Format.JSON, FIELDS, "at")
NDJSON = replace(JSON, format=Format.NDJSON)
CSV = replace(JSON, format=Format.CSV)
CSV_HEADER = replace(JSON, format=Format.CSV, csv_header=True)
ARROW = replace(JSON, format=Format.ARROW)

NAME = Column("name", ValueType.STRING)
SIZE = Column("size", ValueType.INT64)
LOAD = Column("load", ValueType.FLOAT64)
OK = Column("ok", ValueType.BOOL)

COUNT = Aggregate("a0", AggregateFunction.COUNT_ALL, None, None, ValueType.INT64)

MINUTE = Sliding(60_000, 60_000)


def records(
    values: Sequence[bytes | None],
    first: int = 0,
    *,
    lane: str = "0",
    timestamps_ms: Sequence[int] | None = None,
) -> Records:
    """A batch without gaps; the records carry no time stamps unless they are given."""
    next_ = first + len(values)
    stamps = timestamps_ms if timestamps_ms is not None else [-1] * len(values)
    return Records(Lane(lane), first, next_, values, range(first, next_), stamps)


def row(**fields: object) -> bytes:
    """One JSON object."""
    return json.dumps(fields).encode()


def plan_of(
    *keys: Expression,
    aggregates: Sequence[Aggregate] = (COUNT,),
    stream: Stream = JSON,
    window: Sliding = MINUTE,
    fields: Sequence[str] | None = None,
    filter_: Expression | None = None,
    task: str = "task",
) -> Plan:
    """A plan that selects its keys (`key0` ...) and aggregates (`agg0` ...)."""
    slots = tuple(Key(f"k{at}", key) for at, key in enumerate(keys))
    outputs = [Output(f"key{at}", Column(f"k{at}", key.type)) for at, key in enumerate(keys)] + [
        Output(f"agg{at}", Column(one.slot, one.type)) for at, one in enumerate(aggregates)
    ]
    wanted = [one for one in stream.fields if fields is None or one.name in fields]
    return Plan(
        task=TaskName(task),
        version=1,
        stream=stream,
        window=window,
        keys=slots,
        aggregates=tuple(aggregates),
        outputs=tuple(outputs),
        options=Options("mars.results.task"),
        filter=filter_,
        fields=tuple(wanted),
    )
