"""What the API answers to those who check."""

from __future__ import annotations

from typing import Annotated, Any

from mars.client.answers.base import Answer, says


class DifferentRow(Answer, frozen=True):
    """One group that does not agree; a row that is not there is null."""

    kind: Annotated[str, says("missing, extra, different or doubled")]
    version: int
    bucket: int
    key: Any
    emitted: Any
    recounted: Any


class Verification(Answer, frozen=True):
    """A finished window, computed again from the source rows that its results name; or sessions;
    or windows that count the rows of each key, from all rows before.
    """

    task: str
    window_start: Annotated[int | None, says("null where it counts rows; of sessions the first")]
    window_end: Annotated[int | None, says("null where it counts rows; of sessions the last")]
    versions: list[int]
    complete: Annotated[bool, says("what its rows say in mars-complete")]
    equal: bool
    rows: Annotated[int, says("result rows")]
    source_rows: Annotated[int, says("rows read again, of other windows too")]
    differences: list[DifferentRow]
    more: Annotated[int, says("differences that are not listed")]
    summary: str
    partition: Annotated[int | None, says("of a window that counts rows: whose rows")] = None
    window_number: Annotated[int | None, says("of such a window: its number there")] = None


class DeadRow(Answer, frozen=True):
    """One row that was not counted, or (rows > 1, or no sample) several in a range of offsets."""

    partition: int | None
    lane: Annotated[str | None, says("of a backfill; null: the partition, live")]
    topic: str
    offset: int
    next: Annotated[int, says("behind the last offset")]
    rows: int
    reason: str
    version: int
    window_start: Annotated[int | None, says("of late rows: the newest window that was closed")]
    detail: str
    sample: Annotated[
        str | None,
        says("the first bytes of the row, as text, for an operator whose key reads the topic"),
    ]
    window_end: Annotated[int | None, says("its end; null: an older release named it")] = None


class DeadRows(Answer, frozen=True):
    """Rows that were not counted, by partition of mars.dead and there the oldest first.

    With order=newest those of the last 200 entries, newest first.
    """

    rows: list[DeadRow]
    next: Annotated[str | None, says("give it as `after` for more; null: that was all")]


class Incident(Answer, frozen=True):
    """Something that happened; null where it concerns all."""

    id: str
    time: int
    kind: Annotated[
        str,
        says(
            "rewound, incomplete, undecodable, fenced, failed, audit_mismatch, restored, "
            "withheld, restarting, source_gone or partial_lost"
        ),
    ]
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
    """What became of the rows of one window: counted = emitted + open."""

    window_start: Annotated[int | None, says("null for one that counts rows")]
    window_end: Annotated[int | None, says("null for one that counts rows")]
    counted: int
    emitted: Annotated[
        int,
        says(
            "by the headers of its results: not those of a bucket of which HAVING or "
            "LIMIT left no row"
        ),
    ]
    open: int
    late: Annotated[int | None, says("as mars.dead names them; null: too many to look through")]
    partition: Annotated[int | None, says("of a window that counts rows: whose rows")] = None
    window_number: Annotated[int | None, says("of such a window: its number there")] = None
