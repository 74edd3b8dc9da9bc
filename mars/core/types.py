"""The values that travel between the rooms. All are immutable.

Times are epoch milliseconds (`_ms`), offsets are Kafka offsets. In a `Range` and in `Records`,
`first` is inclusive and `next` exclusive: `first` is always the previous `next`, so ranges tile
a lane even where Kafka has gaps (aborted transactions, compaction).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NewType, TypeAlias

import msgspec

StreamName = NewType("StreamName", str)
TaskName = NewType("TaskName", str)
Topic = NewType("Topic", str)

Lane = NewType("Lane", str)
"""A sequence of offsets read in order: `3` is partition 3 live, `3@b1` a backfill of it."""

Bucket = NewType("Bucket", int)
"""Hash of a task's key modulo B: the unit of ownership, of the log and of the transaction."""

MemberId = NewType("MemberId", str)
StoreEpoch = NewType("StoreEpoch", int)
"""Which life of Redis (E in the protocol)."""
AssignmentEpoch = NewType("AssignmentEpoch", int)
"""Which owner of a bucket (A)."""
LeaderEpoch = NewType("LeaderEpoch", int)
"""Which leader (G)."""
Sequence64 = NewType("Sequence64", int)
"""A value of a task's SEQ counter: the order of its log."""


def live_lane(partition: int) -> Lane:
    """The lane in which mappers read a partition as it grows."""
    return Lane(str(partition))


def backfill_lane(partition: int, backfill: str) -> Lane:
    """The lane in which a backfill reads a partition up to its fence."""
    return Lane(f"{partition}@{backfill}")


def file_lane(backfill: str) -> Lane:
    """The lane in which a backfill reads its files, one after the other."""
    return Lane(f"f@{backfill}")


def lane_backfill(lane: Lane) -> str | None:
    """The backfill that a lane belongs to, or None for a live lane."""
    return lane.partition("@")[2] or None


def lane_group(lane: Lane) -> str:
    """The same of lanes that go on together: those of a backfill do, in fixed chunks."""
    return lane_backfill(lane) or lane


def lane_partition(lane: Lane) -> int | None:
    """The partition a lane reads, or None for a file lane (`f@b2`)."""
    head = lane.partition("@")[0]
    return int(head) if head.isdigit() else None


class Range(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Offsets `[first, next)` of one lane; as it is in the headers of entries, which have many."""

    lane: Lane
    first: int
    next: int


class Undecodable(bytes):
    """Stands for a message of a batch that Kafka's client cannot unpack; it has no bytes."""


UNDECODABLE = Undecodable()


@dataclass(frozen=True, slots=True)
class Lanes:
    """Whose messages some records are: of `ranges[i]` those before number `ends[i]`, and so on."""

    ranges: tuple[Range, ...]
    ends: tuple[int, ...]

    def of(self, message: int) -> Lane:
        """The lane of the message with this number."""
        return self.ranges[bisect_right(self.ends, message)].lane


@dataclass(frozen=True, slots=True)
class Records:
    """Messages of one lane in offset order, covering `[first, next)` completely.

    `values[i]` (None: a tombstone; UNDECODABLE: nobody can say) was read at `offsets[i]` and
    carries the Kafka timestamp `timestamps_ms[i]` (-1: none). The three have the same length, which
    is less than `next - first` where the topic has gaps. So have `keys`; None where nobody has
    asked for them.

    With `several`, messages of other lanes follow in the same way; `lane`, `first` and `next` are
    the first lane's.
    """

    lane: Lane
    first: int
    next: int
    values: Sequence[bytes | None]
    offsets: Sequence[int]
    timestamps_ms: Sequence[int]
    keys: Sequence[bytes | None] | None = None
    several: Lanes | None = None

    @property
    def ranges(self) -> tuple[Range, ...]:
        """What they cover, by lane."""
        own = Range(self.lane, self.first, self.next)
        return (own,) if self.several is None else self.several.ranges

    def lane_of(self, message: int) -> Lane:
        """The lane of the message with this number."""
        return self.lane if self.several is None else self.several.of(message)

    def some(self, begin: int, end: int, first: int, next_: int) -> Records:
        """The messages number `begin` up to `end`, covering `[first, next_)`."""
        return Records(
            self.lane,
            first,
            next_,
            self.values[begin:end],
            self.offsets[begin:end],
            self.timestamps_ms[begin:end],
            None if self.keys is None else self.keys[begin:end],
        )


class Reason(StrEnum):
    """Why a row was not counted although it was read and passed no filter."""

    UNREADABLE = "unreadable"
    WRONG_TYPE = "wrong_type"
    NO_EVENT_TIME = "no_event_time"
    TOO_LARGE = "too_large"
    UNDECODABLE = "undecodable"
    """It lies in a batch of messages that Kafka's client cannot unpack."""
    FUTURE = "future"
    LATE = "late"
    GONE = "gone"
    """Kafka no longer had the rows when they were to be read."""


@dataclass(frozen=True, slots=True)
class RejectedRow:
    """One row that was not counted, with its first bytes.

    `reason` is a `Reason`, or a word of a newer release, which is passed on.
    `offset` is that of its message, which other rows may share. `payload` begins with the row's
    line where the format has lines (ndjson, csv), else with the message.
    """

    lane: Lane
    offset: int
    reason: str
    detail: str
    payload: bytes


@dataclass(frozen=True, slots=True)
class RejectedRange:
    """`rows` further rows between two offsets that were not counted for the same `reason`."""

    lane: Lane
    first: int
    next: int
    reason: str
    rows: int


@dataclass(frozen=True, slots=True)
class Rejections:
    """All rows of a batch that were not counted: at most 100 named, the rest as ranges."""

    rows: tuple[RejectedRow, ...] = ()
    ranges: tuple[RejectedRange, ...] = ()


@dataclass(frozen=True, slots=True)
class RowCounts:
    """How many rows of a batch (or of a bucket) had which fate.

    `counted` rows are in the panes; read = counted + filtered + bad + future.
    """

    counted: int = 0
    filtered: int = 0
    bad: int = 0
    future: int = 0

    @property
    def read(self) -> int:
        """All rows."""
        return self.counted + self.filtered + self.bad + self.future

    def __add__(self, other: RowCounts) -> RowCounts:
        return RowCounts(
            self.counted + other.counted,
            self.filtered + other.filtered,
            self.bad + other.bad,
            self.future + other.future,
        )


Numbers: TypeAlias = Mapping[Lane, Mapping[int, int]]
"""Of each lane, how many rows that count lie below some offsets: lane -> offset -> rows. They are
counted from where the task's version begins in the lane."""


class PaneRows(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """`rows` input rows of one partial fall into the pane that starts at `start_ms`.

    `first` says, per lane, the lowest offset that may hold one of them. As it is in the headers of
    entries.
    """

    start_ms: int
    rows: int
    first: Mapping[Lane, int]


@dataclass(frozen=True, slots=True)
class Partial:
    """What one batch adds to one bucket of a task.

    `states` is what `codec.states` makes of a frame with one row per (pane, key): the columns
    `pane` (int64, ms), `k*` and the state columns of the aggregates; empty bytes where no row was
    counted. `numbers`: how many rows lie below the first offsets of the panes, for windows that
    count rows.
    """

    bucket: Bucket
    counts: RowCounts
    panes: tuple[PaneRows, ...]
    states: bytes
    rejections: Rejections = field(default=Rejections())
    numbers: Numbers = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Mark:
    """The highest event time that was seen, and when rows last came, by the store's clock.

    `taken_ms` is None where that is not known: an older release took them.
    """

    time_ms: int
    taken_ms: int | None


NOT_KNOWN = -1
"""How many rows lie below an offset behind rows that are gone: the store may know."""


@dataclass(frozen=True, slots=True)
class RowNumbers:
    """How many rows that count lie below the first offset of a range, and below its next; or
    NOT_KNOWN.
    """

    first: int
    next: int


@dataclass(frozen=True, slots=True)
class Mapped:
    """A batch as one task sees it: its partials by bucket, and the marks it leaves.

    `marks_ms` holds, per lane of the ranges, the highest usable event time, of filtered rows too;
    a lane that had none is not named. `numbered` names the lanes of ranges whose rows have numbers.
    """

    ranges: tuple[Range, ...]
    marks_ms: Mapping[Lane, int]
    partials: tuple[Partial, ...]
    numbered: Mapping[Lane, RowNumbers] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a partial log, as it was appended under `seq`.

    One in which assistants have merged others stands for those of the SEQs `merged`, of which its
    own is the last.
    """

    seq: Sequence64
    version: int
    ranges: tuple[Range, ...]
    partial: Partial
    merged: tuple[Sequence64, ...] = ()

    @property
    def seqs(self) -> tuple[Sequence64, ...]:
        """The SEQs of all that it stands for, in order."""
        return self.merged or (self.seq,)
