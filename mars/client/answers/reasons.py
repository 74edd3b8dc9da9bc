"""Why no result is coming."""

from __future__ import annotations

from typing import Annotated

from mars.client.answers.base import Answer, says


class HeldBy(Answer, frozen=True, kw_only=True):
    """What keeps a window open: a lane, a bucket, or the whole task."""

    lane: Annotated[str | None, says("3 is partition 3, 3@b1 its backfill, f@b2 that of files")] = (
        None
    )
    partition: int | None
    bucket: int | None
    reason: str
    member: str | None
    watermark: int | None
    lag: int | None


class PartitionWhy(Answer, frozen=True, kw_only=True):
    """One partition as a window sees it, or what is left of its backfill."""

    lane: Annotated[str, says("3 is partition 3, 3@b1 its backfill, f@b2 that of files")] = ""
    partition: Annotated[int | None, says("null for a backfill from files")]
    watermark: int | None
    lag: int | None
    idle: bool
    reason: str
    member: str | None


class WindowWhy(Answer, frozen=True):
    """Why one window is still open."""

    window_start: Annotated[int | None, says("null for one that counts rows: no time opens it")]
    window_end: Annotated[int | None, says("null for one that counts rows: no time closes it")]
    version: int
    rows: int
    watermark: int | None
    expected_close: int | None
    held_by: HeldBy
    partitions: list[PartitionWhy]
    partition: Annotated[int | None, says("of a window that counts rows: whose rows")] = None
    window_number: Annotated[int | None, says("of such a window: its number there")] = None


class DroppedSample(Answer, frozen=True):
    """Where a row lies that was not counted; next is behind the last of several."""

    partition: int | None
    offset: int
    next: int
    rows: int
    reason: str


class Dropped(Answer, frozen=True):
    """Rows that were not counted."""

    bad: int
    future: int
    late: int
    samples: list[DroppedSample]


class Why(Answer, frozen=True):
    """Why no result is coming."""

    windows: list[WindowWhy]
    more: Annotated[int, says("open windows that are not listed")]
    dropped: Dropped
    summary: str
