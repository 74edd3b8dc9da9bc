"""Why no result is coming."""

from __future__ import annotations

from mars.answers.base import Answer


class HeldBy(Answer, frozen=True):
    """What keeps a window open."""

    partition: int | None
    bucket: int | None
    reason: str
    member: str | None
    watermark: int | None
    lag: int | None
    lane: str | None = None


class PartitionWhy(Answer, frozen=True):
    """One partition as a window sees it, or what is left of its backfill (`3@b1`)."""

    partition: int | None
    watermark: int | None
    lag: int | None
    idle: bool
    reason: str
    member: str | None
    lane: str = ""


class WindowWhy(Answer, frozen=True):
    """Why one window is still open."""

    window_start: int
    window_end: int
    version: int
    rows: int
    watermark: int | None
    expected_close: int | None
    held_by: HeldBy
    partitions: list[PartitionWhy]


class DroppedSample(Answer, frozen=True):
    """Where a row lies that was not counted."""

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
    """Why no result is coming; `summary` is a sentence for a person."""

    windows: list[WindowWhy]
    more: int
    dropped: Dropped
    summary: str
