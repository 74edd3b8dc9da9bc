"""What tests of queries share: a stream, and a short way to a plan."""

from __future__ import annotations

import re

from mars.core.plan import Call, Column, Expression, Field, FieldType, Format, Literal, Plan, Stream
from mars.core.types import StreamName, TaskName
from mars.process.zones import zone_named
from mars.sql import compile_task

FLOWS = Stream(
    name=StreamName("S"),
    topic="flows",
    format=Format.JSON,
    fields=(
        Field("timestamp", FieldType.TIMESTAMP_MS),
        Field("sip", FieldType.STRING),
        Field("dip", FieldType.STRING),
        Field("type", FieldType.STRING),
        Field("sport", FieldType.INT64),
        Field("bytes", FieldType.INT64),
        Field("loss", FieldType.FLOAT64),
        Field("ok", FieldType.BOOL),
        Field("seen", FieldType.TIMESTAMP_ISO),
    ),
    event_time="timestamp",
)

INSTEAD = re.compile(
    r"; (add|choose|close|declare|did you mean|for|join|leave|name|register|simplify|there are|use|"
    r"write)\b|\bat most\b|\btakes\b|\b(has|lasts) from\b|\bbelongs\b|\bcome last\b"
)
"""How a complaint says, behind what is wrong, what is right: what to do, or where a limit lies."""


def flows(name: str) -> Stream | None:
    """The stream of that name."""
    return FLOWS if name == "S" else None


def compiled(sql: str, **options: object) -> Plan:
    """The plan of a query over `S`."""
    return compile_task(
        sql,
        task=TaskName("t"),
        version=1,
        stream_of=flows,
        options=options,
        zone_of=zone_named,
    )


def shown(expression: Expression) -> str:
    """An expression in short: `ADD(sport, 1)`."""
    match expression:
        case Column(name):
            return name
        case Literal(value):
            return repr(value)
        case Call(function, arguments):
            return f"{function.name}({', '.join(map(shown, arguments))})"
