"""The records of `mars.dead`: references to what is in no result, as JSON.

    one row      task version topic partition offset reason detail payload (base64)
    a range      task version topic partition first next reason rows
    late rows    the same, with window_start and window_end (epoch ms) of the newest window that was
                 closed, and the bucket; older releases wrote no end, and no bucket
    a result     the same, of no rows, with detail and key: it is withheld, its rows are counted.
                 Of a window that counts rows the key alone says which it is

A lane that is not a partition's live one is named in `lane`. Unknown members are ignored when
read, so that an older release can show what a newer one wrote.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from mars.core.plan import Plan
from mars.core.types import (
    Bucket,
    Lane,
    Range,
    Reason,
    RejectedRange,
    RejectedRow,
    Rejections,
    lane_partition,
    live_lane,
)
from mars.core.windows import Window

PAYLOAD_BYTES_MAX = 512
"""How much of a message is kept: enough to see what kind of thing it is."""


class DeadRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """One row, with the first bytes of its message."""

    task: str
    version: int
    topic: str
    partition: int | None
    offset: int
    reason: str
    detail: str
    payload: bytes
    lane: str | None = None


class DeadRange(msgspec.Struct, frozen=True, omit_defaults=True):
    """`rows` rows in `[first, next)`; the window (epoch ms) is set for late ones.

    A withheld result has a `key` too, the begin of the key that it would have had in Kafka.
    """

    task: str
    version: int
    topic: str
    partition: int | None
    first: int
    next: int
    reason: str
    rows: int
    window_start: int | None = None
    lane: str | None = None
    detail: str = ""
    key: str | None = None
    window_end: int | None = None
    bucket: int | None = None


class _Shape(msgspec.Struct, frozen=True):
    offset: int | None = None


def dead_rejections(plan: Plan, rejections: Rejections) -> list[bytes]:
    """The records for what one batch could not count: its named rows, then its ranges.

    Rows that are gone are counted in one bucket and named by each: any of them may be the only one
    that goes on before the store is lost, and then nobody looks for them again.
    """
    rows: list[DeadRow | DeadRange] = [_row(plan, row) for row in rejections.rows]
    named = [one for one in rejections.ranges if one.rows or one.reason is Reason.GONE]
    ranges = [_range(plan, rejected) for rejected in named]
    return [msgspec.json.encode(record) for record in rows + ranges]


def dead_late(
    plan: Plan, ranges: Sequence[Range], window: Window, rows: int, bucket: Bucket
) -> list[bytes]:
    """The records for `rows` late rows of one batch in a bucket, one for each of its ranges.

    Which of several ranges holds them is not known: the first record counts them all, so that the
    sum over the records is right.
    """
    records = []
    for part in ranges:
        rejected = RejectedRange(part.lane, part.first, part.next, Reason.LATE, rows)
        record = replace(_range(plan, rejected, window), bucket=bucket)
        records.append(msgspec.json.encode(record))
        rows = 0
    return records


def dead_result(
    plan: Plan, ranges: Sequence[Range], window: Window, key: str, detail: str
) -> list[bytes]:
    """The records for a result that is withheld, one for each range that its window counts.

    They are of no rows: those of the group are counted and, by the ledger, emitted.
    """
    records = []
    for part in ranges:
        none = RejectedRange(part.lane, part.first, part.next, Reason.TOO_LARGE, 0)
        record = _range(plan, none, None if plan.counts_rows else window)
        records.append(msgspec.json.encode(replace(record, detail=detail, key=key)))
    return records


def decode_dead(raw: bytes) -> DeadRow | DeadRange:
    """What the functions above wrote. Raises msgspec.MsgspecError."""
    shape = msgspec.json.decode(raw, type=_Shape)
    if shape.offset is None:
        return msgspec.json.decode(raw, type=DeadRange)
    return msgspec.json.decode(raw, type=DeadRow)


def _row(plan: Plan, row: RejectedRow) -> DeadRow:
    return DeadRow(
        task=plan.task,
        version=plan.version,
        topic=plan.stream.topic,
        partition=lane_partition(row.lane),
        offset=row.offset,
        reason=str(row.reason),
        detail=row.detail.encode(errors="replace").decode(),
        payload=row.payload[:PAYLOAD_BYTES_MAX],
        lane=_lane_name(row.lane),
    )


def _range(plan: Plan, rejected: RejectedRange, window: Window | None = None) -> DeadRange:
    return DeadRange(
        task=plan.task,
        version=plan.version,
        topic=plan.stream.topic,
        partition=lane_partition(rejected.lane),
        first=rejected.first,
        next=rejected.next,
        reason=str(rejected.reason),
        rows=rejected.rows,
        window_start=None if window is None else window.start_ms,
        window_end=None if window is None else window.end_ms,
        lane=_lane_name(rejected.lane),
    )


def _lane_name(lane: Lane) -> str | None:
    """None for a live lane, which the partition names already."""
    partition = lane_partition(lane)
    return None if partition is not None and lane == live_lane(partition) else lane
