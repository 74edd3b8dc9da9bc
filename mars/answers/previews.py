"""Queries tried before they are registered."""

from __future__ import annotations

from mars.answers.base import Answer, Row
from mars.answers.plans import Output


class PreviewCounts(Answer, frozen=True):
    """Where the rows of a preview went."""

    read: int
    counted: int
    filtered: int
    bad: int
    future: int


class PreviewWindow(Answer, frozen=True):
    """One window as far as the rows of a preview fill it."""

    window_start: int
    window_end: int
    groups: int
    rows: list[Row]


class PreviewRejected(Answer, frozen=True):
    """A row that would not be counted."""

    partition: int
    offset: int
    reason: str
    detail: str
    sample: str


class LateShare(Answer, frozen=True):
    """What part of the rows, 0 to 1, would be late with a delay."""

    delay_ms: int
    share: float


class Predictions(Answer, frozen=True):
    """What a task would cost, and how its delay should be; None: unknown."""

    rows_per_second: float | None
    groups_per_window: int | None
    groups_at_least: bool
    redis_bytes: int | None
    redis_bytes_merged: int | None
    redis_bytes_max: int
    late: list[LateShare]
    late_by_key: list[LateShare]
    disorder_max_ms: int | None
    suggested_delay_ms: int | None
    sentences: list[str]


class Preview(Answer, frozen=True):
    """What a query gives over some rows; `source` is last_seconds, newest or rows."""

    source: str
    messages: int
    bytes: int
    truncated: bool
    counts: PreviewCounts
    windows: list[PreviewWindow]
    more_windows: bool
    rejected: list[PreviewRejected]
    predictions: Predictions
    notes: list[str]
    output: Output
