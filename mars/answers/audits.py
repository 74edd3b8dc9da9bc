"""What the API answers to those who check."""

from __future__ import annotations

from typing import Any

from mars.answers.base import Answer


class DifferentRow(Answer, frozen=True):
    """One group that does not agree; a row that is not there is None."""

    kind: str
    version: int
    bucket: int
    key: Any
    emitted: Any
    recounted: Any


class Verification(Answer, frozen=True):
    """A finished window, computed again from the source rows that its results name."""

    task: str
    window_start: int
    window_end: int
    versions: list[int]
    complete: bool
    equal: bool
    rows: int
    source_rows: int
    differences: list[DifferentRow]
    more: int
    summary: str


class DeadRow(Answer, frozen=True):
    """One row that was not counted, or several in a range of offsets."""

    partition: int | None
    lane: str | None
    topic: str
    offset: int
    next: int
    rows: int
    reason: str
    version: int
    window_start: int | None
    detail: str
    sample: str | None


class DeadRows(Answer, frozen=True):
    """Rows that were not counted; `next` is None where that was all."""

    rows: list[DeadRow]
    next: str | None


class Incident(Answer, frozen=True):
    """Something that happened; None where it concerns all."""

    id: str
    time: int
    kind: str
    task: str | None
    bucket: int | None
    lane: str | None
    first: int | None
    next: int | None
    what: str
    means: str
    do: str


class Incidents(Answer, frozen=True):
    """Incidents, newest first."""

    incidents: list[Incident]


class WindowLedger(Answer, frozen=True):
    """What became of the rows of one window."""

    window_start: int
    window_end: int
    counted: int
    emitted: int
    open: int
    late: int | None
