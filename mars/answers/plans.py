"""Queries compiled, for people."""

from __future__ import annotations

from typing import Any

from mars.answers.base import Answer


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
    """The shape of the windows; `kind` is tumbling or sliding."""

    kind: str
    size_ms: int
    slide_ms: int


class Order(Answer, frozen=True):
    """One ORDER BY item."""

    expression: str
    descending: bool


class Plan(Answer, frozen=True):
    """A task compiled."""

    stream: str
    topic: str
    window: Window
    fields: list[Column]
    filter: str | None
    keys: list[ComputedColumn]
    aggregates: list[str]
    having: str | None
    order_by: list[Order]
    limit: int | None
    outputs: list[ComputedColumn]
    options: dict[str, Any]


class Output(Answer, frozen=True):
    """What result rows look like."""

    topic: str
    key: list[str]
    columns: list[Column]


class Validation(Answer, frozen=True):
    """A query that can be registered."""

    plan: Plan
    output: Output
    warnings: list[str] = []
