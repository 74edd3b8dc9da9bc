"""Results and references, read back for people."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from mars.core.definitions import FileHistory
from mars.core.plan import Plan
from mars.core.types import Bucket, Lane, Mapped, Range, TaskName, Topic
from mars.core.windows import Shape, Window, moment
from mars.core.windows.counting import WindowNumber

_ENDS = re.compile(rb'\{ ?"window_start": ?-?\d{1,18}, ?"window_end": ?(-?\d{1,18})[,} ]')
"""How the value of a result row begins."""

_COUNTED = re.compile(
    rb'\{ ?"window_start": ?-?\d{1,18}, ?"window_end": ?-?\d{1,18}, ?'
    rb'"partition": ?(\d{1,9}), ?"window_number": ?(\d{1,18}), ?"window_first_offset":'
)
"""The same where windows count rows; the times are those of the group."""


def window_of_row(key: bytes, value: bytes) -> Window:
    """The window of a result row: its key begins with the start, its value names the end.

    The start stands for the end where somebody else wrote the value. Raises ValueError for a key of
    somebody else's.
    """
    start_ms = int(key[1:].partition(b",")[0].rstrip(b"]"))
    named = _ENDS.match(value)
    return Window(int(named[1]) if named else start_ms, start_ms)


def number_in_row(value: bytes) -> WindowNumber | None:
    """What names the window of a result row if that counts rows, without decoding the rest."""
    named = _COUNTED.match(value)
    return None if named is None else WindowNumber(int(named[2]), int(named[1]))


@dataclass(frozen=True, slots=True)
class CommittedRow:
    """One committed result row as it lies in an output topic; `key` and `value` are JSON.

    `version` and all behind it are what its headers say. `ranges` hold the source rows that its
    window counts in its bucket, `rows` of them; a release that did not write them gives none. Of
    each group the row of the highest `revision` is what holds; one that is `deleted` is no result.
    """

    partition: int
    offset: int
    key: bytes
    value: bytes
    version: int
    revision: int
    complete: bool
    bucket: Bucket = Bucket(0)
    emit: int = 0
    ranges: tuple[Range, ...] = ()
    rows: int = 0
    deleted: bool = False

    @property
    def window(self) -> Window:
        """Its window, without decoding the rest."""
        return window_of_row(self.key, self.value)

    @property
    def numbered(self) -> WindowNumber | None:
        """What names its window if that counts rows, without decoding the rest."""
        return number_in_row(self.value)


@dataclass(frozen=True, slots=True)
class WantedWindow:
    """What a person names a window by: its start, and its end where several begin together.

    Without an end it is one window of each version of a task; they may be of different lengths.
    """

    start_ms: int
    end_ms: int | None = None

    def __str__(self) -> str:
        """What is true of it, behind `a window that`."""
        begin = f"starts at {self.start_ms} ({moment(self.start_ms)})"
        if self.end_ms is None:
            return begin
        return f"{begin} and ends at {self.end_ms} ({moment(self.end_ms)})"

    def is_of(self, window: Window) -> bool:
        """Whether a window is meant."""
        return window.start_ms == self.start_ms and self.end_ms in (None, window.end_ms)

    def shows(self, row: CommittedRow) -> bool:
        """Whether a row is one of it."""
        return self.is_of(row.window)

    def is_behind(self, rows: Sequence[CommittedRow]) -> bool:
        """Whether a bucket of which these are the newest rows emits the window after some."""
        return any(row.revision == 0 and self._follows(row.window) for row in rows)

    def _follows(self, window: Window) -> bool:
        if self.end_ms is None:
            return window.start_ms < self.start_ms
        return window.end_ms < self.end_ms

    def among(self, shape: Shape) -> Window:
        """The window of a shape that is meant."""
        if self.end_ms is None:
            return shape.window_of_start(self.start_ms)
        return Window(self.end_ms, self.start_ms)


@dataclass(frozen=True, slots=True)
class WantedSessions(WantedWindow):
    """Sessions are named by their start, too, and all that begin then are meant: of several groups,
    with ends of their own. None of them ends before `soonest_ms`.
    """

    soonest_ms: int = 0

    def is_behind(self, rows: Sequence[CommittedRow]) -> bool:
        """See `WantedWindow`: a commit emits in no order what ends after the C before it. So one
        that has a row that ends before is no later, and is here from its first row on if an earlier
        one of the bucket is.
        """
        firsts: dict[tuple[int, Bucket], int] = {}
        for row in rows:
            place = row.version, row.bucket
            firsts[place] = min(row.emit, firsts.get(place, row.emit))
        return any(
            row.window.end_ms < self.soonest_ms and row.emit > firsts[row.version, row.bucket]
            for row in rows
        )


@dataclass(frozen=True, slots=True)
class WantedNumber:
    """What a person names a window by that counts rows: of a version, its number in its partition.

    Each version counts from 0. `window` holds the window's places.
    """

    version: int
    name: WindowNumber
    window: Window

    def __str__(self) -> str:
        """What is true of it, behind `a window that`."""
        return f"has number {self.name.number} in partition {self.name.partition}"

    @property
    def start_ms(self) -> int:
        """See `WantedWindow`; a place."""
        return self.window.start_ms

    def among(self, _shape: Shape) -> Window:
        """See `WantedWindow`; of its version."""
        return self.window

    def is_of(self, window: Window) -> bool:
        """See `WantedWindow`; of windows of its version."""
        return window == self.window

    def shows(self, row: CommittedRow) -> bool:
        """See `WantedWindow`."""
        return row.version == self.version and row.numbered == self.name

    def is_behind(self, rows: Sequence[CommittedRow]) -> bool:
        """See `WantedWindow`: numbers of a partition come in order."""
        numbers = (
            row.numbered for row in rows if row.version == self.version and row.revision == 0
        )
        return any(
            other is not None
            and other.partition == self.name.partition
            and other.number < self.name.number
            for other in numbers
        )


@dataclass(frozen=True, slots=True)
class WantedKeyNumber(WantedNumber):
    """The same where the rows of each key are counted: by the number of its first row."""

    def is_behind(self, rows: Sequence[CommittedRow]) -> bool:
        """See `WantedWindow`: numbers come in no order."""
        return False


@dataclass(frozen=True, slots=True, weakref_slot=True)
class RecentRows:
    """The newest rows of a task, per partition in offset order.

    Of a window that ends after `cut_at_ms` all rows are there; of others some may be missing, the
    first ones above all, so that only later revisions of theirs are there. None: no row is missing.
    Windows that count rows have no such time: all rows of one are there if each partition of `cut`,
    whose first rows are not here, has a row of a window before it.
    """

    rows: tuple[CommittedRow, ...] = ()
    cut_at_ms: int | None = None
    cut: frozenset[int] = frozenset()

    def whole(self, window_end_ms: int) -> bool:
        """Whether all rows of a window that ends then are there."""
        return self.cut_at_ms is None or window_end_ms > self.cut_at_ms

    def first_whole_numbers(self) -> Mapping[tuple[int, int], int]:
        """From which number on all rows of a window are there, by version and source partition.

        A version and partition that is not named has no window of which that is certain.
        """
        lowest: dict[tuple[int, int], dict[int, int]] = {}
        for row in self.rows:
            name = row.numbered
            if name is not None:
                own = lowest.setdefault((row.version, name.partition), {})
                own[row.partition] = min(name.number, own.get(row.partition, name.number))
        return {
            place: max((own[one] + 1 for one in self.cut), default=0)
            for place, own in lowest.items()
            if self.cut <= own.keys()
        }


@dataclass(frozen=True, slots=True)
class ResultGap:
    """Offsets `[first, next)` of a partition that Kafka had deleted before they were read."""

    partition: int
    first: int
    next: int


class ResultFollower(Protocol):
    """Result rows of one task as they are committed, from some offsets on."""

    @property
    def starts(self) -> Mapping[int, int]:
        """The offset per partition at which it began; a partition that is added comes to them."""

    def poll(self, timeout_s: float) -> list[CommittedRow | ResultGap]:
        """What was committed since the last call; waits up to `timeout_s` for something.

        A gap stands where its rows would. Of partitions that are added all rows come.
        """

    def close(self) -> None:
        """Free everything."""


class ResultTail(Protocol):
    """The output topics, read from their ends; committed rows only."""

    def recent(
        self,
        topic: Topic,
        task: TaskName,
        rows_max: int,
        wanted: WantedWindow | WantedNumber | None,
    ) -> RecentRows:
        """The newest rows of a task (of one window).

        Of each partition as many as hold `rows_max` rows of revision 0; of a window `rows_max`.
        Nothing if there is no such topic. A window is looked for among the newest rows only: the
        adapter states among how many. Where nothing has come since the same question was asked
        before, the answer may be the same object.
        """

    def follow(
        self,
        topic: Topic,
        task: TaskName,
        after: Mapping[int, int] | None = None,
        *,
        whole: bool = False,
    ) -> ResultFollower:
        """Rows that are committed from now on; in the partitions of `after`, those from there on.

        `whole`: these were all partitions, so others were added since, and all their rows come.
        """


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One reference in `mars.dead`: `rows` rows in `[first, next)` that were not counted.

    The window and the bucket are set for late rows, `partition` for all that came from Kafka. A row
    that is named by itself has a `detail` for people and the first bytes of its message. `lane` is
    None for a live one, which the partition names already. Older releases did not write
    `window_end_ms` and `bucket`.

    One of no rows names a result that was withheld: its window, where the window's rows lie, and
    in `detail` why.
    """

    task: TaskName
    topic: Topic
    partition: int | None
    first: int
    next: int
    reason: str
    rows: int
    window_start_ms: int | None = None
    version: int = 0
    lane: Lane | None = None
    detail: str = ""
    payload: bytes = b""
    window_end_ms: int | None = None
    bucket: Bucket | None = None


@dataclass(frozen=True, slots=True)
class DeadPage:
    """Some references, and where to read on per partition of `mars.dead`; None: that was all."""

    letters: tuple[DeadLetter, ...]
    next: Mapping[int, int] | None


class DeadLetters(Protocol):
    """The references in `mars.dead`: the newest, or all of them page by page."""

    def recent(self, task: TaskName, limit: int) -> list[DeadLetter]:
        """The newest references of a task, newest first; the adapter states how far it looks."""

    def page(
        self, task: TaskName, reason: str | None, after: Mapping[int, int], limit: int
    ) -> DeadPage:
        """References of a task (for one reason), by partition and there the oldest first.

        `after` is the `next` of the page before, or empty. A page may be short, even empty, with
        more to come: a call looks through so many records as the adapter states.
        """


class SourceRows(Protocol):
    """The rows of tasks, read again to check a result."""

    def read(
        self,
        plan: Plan,
        buckets: int,
        part: Range,
        files: FileHistory | None = None,
        number: int | None = None,
    ) -> Iterator[Mapped | Range]:
        """What a range of a lane adds to a task, in batches that tile it.

        `files` is what a lane of files reads; `number` says how many rows of a task that counts
        them lie before the range. A Range in place of a batch stands for rows that are
        no longer there. Besides Unavailable it raises JobFailed for rows that cannot be had any
        more, and TaskLimit.
        """
