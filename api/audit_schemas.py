"""The JSON for those who check: verifications, rows not counted, incidents, ledgers of windows."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from api.schemas import Answer


class DifferentRow(Answer):
    """One group that does not agree; a row that is not there is null."""

    kind: str = Field(description="missing, extra, different or doubled")
    version: int
    bucket: int
    key: Any
    emitted: Any
    recounted: Any


class Verification(Answer):
    """A finished window, computed again from the source rows that its results name."""

    task: str
    window_start: int
    window_end: int
    versions: list[int]
    complete: bool = Field(description="what its rows say in mars-complete")
    equal: bool
    rows: int = Field(description="result rows")
    source_rows: int = Field(description="rows read again, of other windows too")
    differences: list[DifferentRow]
    more: int = Field(description="differences that are not listed")
    summary: str


class DeadRow(Answer):
    """One row that was not counted, or (rows > 1, or no sample) several in a range of offsets."""

    partition: int | None
    lane: str | None = Field(description="of a backfill; null: the partition, live")
    topic: str
    offset: int
    next: int = Field(description="behind the last offset")
    rows: int
    reason: str
    version: int
    window_start: int | None = Field(description="of late rows: the newest window that was closed")
    detail: str
    sample: str | None = Field(
        description="the first bytes of the row, as text, for an operator whose key reads the topic"
    )


class DeadRows(Answer):
    """Rows that were not counted, by partition of mars.dead and there the oldest first.

    With order=newest those of the last 200 entries, newest first.
    """

    rows: list[DeadRow]
    next: str | None = Field(description="give it as `after` for more; null: that was all")


class IncidentView(Answer):
    """Something that happened; null where it concerns all."""

    id: str
    time: int
    kind: str = Field(
        description="rewound, incomplete, fenced, failed, audit_mismatch, restored, withheld "
        "or partial_lost"
    )
    task: str | None
    bucket: int | None
    lane: str | None
    first: int | None
    next: int | None
    what: str
    means: str
    do: str


class Incidents(Answer):
    """Incidents, newest first."""

    incidents: list[IncidentView]


class WindowLedger(Answer):
    """What became of the rows of one window: counted = emitted + open."""

    window_start: int
    window_end: int
    counted: int
    emitted: int = Field(
        description="by the headers of its results: not those of a bucket of which HAVING or "
        "LIMIT left no row"
    )
    open: int
    late: int | None = Field(description="as mars.dead names them; null: too many to look through")
