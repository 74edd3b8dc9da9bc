"""Batches to append: small ones, whose numbers are easy to follow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mars.core.types import (
    Bucket,
    Entry,
    Lane,
    LeaderEpoch,
    Mapped,
    Mark,
    Numbers,
    PaneRows,
    Partial,
    Range,
    Reason,
    RejectedRow,
    Rejections,
    RowCounts,
    RowNumbers,
    Sequence64,
    StoreEpoch,
    TaskName,
)
from mars.protocol.ports import Applied, Begun, Head, PartialLog, TaskStart

TASK = TaskName("by_sip")
OTHER_TASK = TaskName("by_dip")
EPOCH = StoreEpoch(7)
LEADER = LeaderEpoch(5)
FORMER, NEXT = LeaderEpoch(LEADER - 1), LeaderEpoch(LEADER + 1)
LANE = Lane("0")
OTHER_LANE = Lane("1")
BUCKETS = 4


def partial(bucket: int, first: int = 0, lane: Lane = LANE, size: int = 20) -> Partial:
    """A partial with everything in it that an entry can hold."""
    return Partial(
        bucket=Bucket(bucket),
        counts=RowCounts(counted=3, filtered=2, bad=1),
        panes=(PaneRows(60_000, 3, {lane: first}),),
        states=bytes([bucket]) * size,
        rejections=Rejections(rows=(RejectedRow(lane, first, Reason.UNREADABLE, "no", b"\x00{"),)),
    )


def head_of(log: PartialLog) -> Head:
    """The head of the task, which is there."""
    head = log.head([TASK])[TASK]
    assert head is not None
    return head


def batch(
    first: int,
    after: int,
    *,
    lane: Lane = LANE,
    mark_ms: int | None = None,
    buckets: Sequence[int] = (0,),
    size: int = 20,
) -> Mapped:
    """The rows `[first, after)` of one lane, with a partial for each of `buckets`."""
    partials = tuple(partial(bucket, first, lane, size) for bucket in buckets)
    marks_ms = {} if mark_ms is None else {lane: mark_ms}
    return Mapped((Range(lane, first, after),), marks_ms, partials)


def counted(first: int, after: int, rows: int, rows_after: int, lane: Lane = LANE) -> Mapped:
    """The same of a task whose windows count rows: so many lie below its first and its next."""
    one = replace(partial(0, first, lane), numbers={lane: {first: rows}})
    ranges, numbers = (Range(lane, first, after),), RowNumbers(rows, rows_after)
    return Mapped(ranges, {}, (one,), {lane: numbers})


def gap(first: int, after: int, lane: Lane = LANE) -> Mapped:
    """Offsets that hold no rows, as a transaction leaves them."""
    return Mapped((Range(lane, first, after),), {}, ())


def both_lanes(
    first: int,
    after: int,
    other_first: int,
    other_after: int,
    *,
    lanes: tuple[Lane, Lane] = (LANE, OTHER_LANE),
    marks_ms: dict[Lane, int] | None = None,
) -> Mapped:
    """One batch of two lanes, which are taken or refused together."""
    ranges = (Range(lanes[0], first, after), Range(lanes[1], other_first, other_after))
    return Mapped(ranges, marks_ms or {}, (partial(0),))


def applied(seq: int) -> Applied:
    """The answer to a batch that the log took."""
    return Applied(Sequence64(seq))


def start(
    offsets: dict[Lane, int] | None = None,
    *,
    version: int = 1,
    active: bool = True,
    bounds: dict[int, dict[Lane, int]] | None = None,
    cuts: dict[Lane, tuple[int, ...]] | None = None,
    ends: dict[Lane, int] | None = None,
    leader: LeaderEpoch = LEADER,
    restored: Mark | None = None,
    numbers: Numbers | None = None,
) -> TaskStart:
    """How the tests' tasks begin: with two lanes at 0, unless told otherwise."""
    return TaskStart(
        version=version,
        active=active,
        offsets=offsets or {LANE: 0, OTHER_LANE: 0},
        bounds=bounds or {},
        cuts=cuts or {},
        ends=ends or {},
        leader=leader,
        restored=restored,
        numbers=numbers or {},
    )


def take_base(log: PartialLog, bucket: Bucket, epoch: StoreEpoch = EPOCH) -> bool:
    """Take the base away, which both stores can, and no caller of the port asks for."""
    return log.compact(TASK, epoch, born(log), bucket, None)  # type: ignore[arg-type]


def begin(log: PartialLog, version: int, leader: LeaderEpoch = LEADER) -> Begun | None:
    """Let a version of TASK follow the one before it, as a leader of this server's store does."""
    run_id = server_of(log)
    return log.begin_version(TASK, EPOCH, leader, run_id, version, after=version - 1)


def drop(log: PartialLog) -> None:
    """Drop TASK, whatever version it has."""
    assert log.drop(TASK, EPOCH, LEADER, 99)


def born(log: PartialLog, task: TaskName = TASK) -> str:
    """The task's life; of one that is not there, none."""
    head = log.head([task])[task]
    return "" if head is None else head.born


def entries(log: PartialLog, bucket: int = 0, after: int = 0, upto: int = 1_000) -> list[Entry]:
    """What a reader of one bucket gets besides the base."""
    slice_ = log.read(TASK, Bucket(bucket), Sequence64(after), Sequence64(upto))
    return list(slice_.entries)


def base(seq: int, bucket: int = 0, size: int = 30) -> Entry:
    """What the entries up to `seq` are merged into."""
    merged = Partial(Bucket(bucket), RowCounts(), (PaneRows(60_000, 9, {LANE: 0}),), b"m" * size)
    return Entry(Sequence64(seq), 1, (Range(LANE, 0, seq * 10),), merged)


def server_of(log: PartialLog, task: TaskName = TASK) -> str:
    """The run id of the server that has the task; of one that is not there, none."""
    head = log.head([task])[task]
    return "" if head is None else head.run_id
