"""Queries compiled, for people."""

from __future__ import annotations

from typing import Annotated

from mars.client.answers.base import Answer, Object, one_of, says

Warnings = Annotated[
    list[str],
    says("what to know before its results are read; nothing is refused because of it"),
]
"""Sentences about a query that can be registered."""


class Column(Answer, frozen=True):
    """A column."""

    name: str
    type: str


class ComputedColumn(Answer, frozen=True):
    """A column and how it is computed."""

    name: str
    type: str
    expression: str


class Window(Answer, frozen=True):
    """The shape of the windows."""

    kind: Annotated[
        str, one_of("tumbling", "sliding", "cumulating", "landmark", "counting", "session")
    ]
    size_ms: Annotated[
        int | None,
        says(
            "null: windows since a landmark grow for ever; 0 where windows count rows: see size "
            "and slide; of sessions how long they are at most"
        ),
    ]
    slide_ms: Annotated[int, says("how far apart windows end; of sessions the gap between two")]
    step_ms: Annotated[
        int | None,
        says("of cumulating and landmark ones: they begin together, and end step by step"),
    ] = None
    size: Annotated[str, says("as people say it: 1 month, of which size_ms is the longest")] = ""
    slide: Annotated[str, says("the same of slide_ms, which is the shortest")] = ""
    offset_ms: Annotated[int, says("how much later windows begin than without an offset")] = 0
    zone: Annotated[
        str | None, says("whose clock and calendar they go by; null: they are of one length")
    ] = None
    zone_database: Annotated[
        str | None, says("the version of the IANA database that the zone was taken from, for ever")
    ] = None
    landmark_ms: Annotated[
        int | None, says("of landmark ones: when all of them begin, for ever")
    ] = None


class Order(Answer, frozen=True):
    """One ORDER BY item."""

    expression: str
    descending: bool


class Plan(Answer, frozen=True):
    """A task compiled, for people; keys and aggregates are shown as expressions."""

    stream: str
    topic: str
    window: Window
    fields: Annotated[list[Column], says("what is decoded of each row")]
    filter: str | None
    keys: list[ComputedColumn]
    aggregates: list[str]
    having: str | None
    order_by: list[Order]
    limit: int | None
    outputs: list[ComputedColumn]
    options: Annotated[Object, says("as they take effect; durations in ms")]


class Output(Answer, frozen=True):
    """What result rows look like: the members of the value, and what the key is made of."""

    topic: str
    key: list[str]
    columns: list[Column]


class Validation(Answer, frozen=True):
    """A query that can be registered."""

    plan: Plan
    output: Output
    warnings: Warnings = []
