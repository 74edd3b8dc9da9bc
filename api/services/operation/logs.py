"""The partial logs of a task, read as the reducers read them but changing nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import BoundedSemaphore

from mars.core.definitions import TaskDefinition
from mars.core.errors import Conflict, SnapshotLost, Unavailable
from mars.core.plan import Plan
from mars.core.types import Bucket, Entry, Lane, RowCounts, Sequence64, TaskName
from mars.engine.codec.entry import CorruptEntry
from mars.engine.codec.snapshot import decode_snapshot
from mars.inspect.evidence import LoggedRows
from mars.protocol.ports import Head, LogSlice, Progress, SavedPanes, ShownLog
from mars.protocol.reducer.snapshots import reaches
from mars.protocol.windows.folding import Folding
from mars.protocol.windows.input import StoreWentBack

TOGETHER_BYTES_MAX = 4 * 1024 * 1024
"""Logs of a task up to this size are read in one round trip: it keeps the server busy for some
milliseconds. Larger ones are read bucket by bucket, so that one at a time is held."""

READERS_MAX = 2
"""Requests that read logs at once: each may hold the log of a bucket and all states of a task."""


Portion = Mapping[Bucket, LogSlice]
"""The logs of some buckets, read together."""


class LogReader:
    """Reads whole logs; callers beyond `READERS_MAX` wait."""

    def __init__(self, log: ShownLog) -> None:
        self._log = log
        self._turn = BoundedSemaphore(READERS_MAX)

    @contextmanager
    def portions(
        self, definition: TaskDefinition, head: Head, buckets: int
    ) -> Iterator[Iterator[Portion]]:
        """The logs of all buckets up to the head, as many at once as is fit; empty ones, too."""
        with self._turn:
            yield self._portions(definition.name, head, buckets)

    def _portions(self, task: TaskName, head: Head, buckets: int) -> Iterator[Portion]:
        numbers = [Bucket(number) for number in range(buckets)]
        if not head.log_bytes:
            yield dict.fromkeys(numbers, LogSlice(None, (), run_id=head.run_id))
            return
        if head.log_bytes <= TOGETHER_BYTES_MAX:
            found = self._log.read_together(task, numbers, head.seq)
            yield dict(zip(numbers, found, strict=True))
            return
        for bucket in numbers:
            yield {bucket: self._log.read(task, bucket, Sequence64(0), head.seq)}


def holds_something(piece: LogSlice) -> bool:
    """Whether a log is not empty."""
    return piece.base is not None or bool(piece.entries)


def bases_of(piece: LogSlice) -> tuple[Entry, ...]:
    """The merged entries with which the log begins, one of a version."""
    return () if piece.base is None else (*piece.older, piece.base)


def merged_through(
    definition: TaskDefinition, version: int, record: Progress | None
) -> Mapping[Lane, int]:
    """M of a bucket of a version; before its first commit, where the version starts."""
    if record is not None:
        return record.merged
    starts = next((each.starts for each in definition.versions if each.version == version), None)
    return starts or {}


class LoggedRowsDraft:
    """Rows of one version in one bucket's log, before it is known what is accounted."""

    def __init__(self, version: int, bucket: Bucket) -> None:
        self.version = version
        self.bucket = bucket
        self._panes: dict[int, int] = {}
        self._counts: list[tuple[Mapping[Lane, int], RowCounts]] = []

    def add(self, entry: Entry) -> None:
        """Take one entry, without its states."""
        for pane in entry.partial.panes:
            self._panes[pane.start_ms] = self._panes.get(pane.start_ms, 0) + pane.rows
        firsts = {part.lane: part.first for part in entry.ranges}
        self._counts.append((firsts, entry.partial.counts))

    def against(self, merged: Mapping[Lane, int]) -> LoggedRows:
        """The rows, with those counted as pending that lie at or above the merged offsets."""
        pending = RowCounts()
        for firsts, counts in self._counts:
            if all(first >= merged.get(lane, 0) for lane, first in firsts.items()):
                pending += counts
        return LoggedRows(self.version, self.bucket, self._panes, pending)


def drafts_of(bucket: Bucket, piece: LogSlice) -> list[LoggedRowsDraft]:
    """What a bucket's log holds of each version of a task."""
    drafts: dict[int, LoggedRowsDraft] = {}
    contained: dict[tuple[int, Lane], int] = {}
    for base in bases_of(piece):
        drafts.setdefault(base.version, LoggedRowsDraft(base.version, bucket)).add(base)
        contained |= {(base.version, part.lane): part.next for part in base.ranges}
    for entry in piece.entries:
        saved = [part.next <= contained.get((entry.version, part.lane), 0) for part in entry.ranges]
        if not all(saved):
            drafts.setdefault(entry.version, LoggedRowsDraft(entry.version, bucket)).add(entry)
    return list(drafts.values())


def folded(
    definition: TaskDefinition,
    plan: Plan,
    bucket: Bucket,
    piece: LogSlice,
    record: Progress | None,
    saved: SavedPanes,
) -> Folding:
    """The open panes of one version in one bucket. Raises Unavailable while the store recovers, and
    Conflict where what was saved is not there any more: a newer record names what is.

    `record` must have been read after the log: a log that is read later has lost what the record
    does not yet call closed.
    """
    starts = merged_through(definition, plan.version, record)
    folding = Folding(plan, bucket, starts, record)
    try:
        for base in _beginning(plan.version, piece, record, saved):
            folding.absorb_base(base)
        for entry in piece.entries:
            if entry.version == plan.version:
                folding.absorb(entry)
        folding.settle()
    except StoreWentBack as error:
        raise being_rebuilt() from error
    return folding


def begins_saved(record: Progress) -> bool:
    """Whether an owner begins with what the record has saved, unless the log has it merged."""
    return record.anchored and record.snapshot is not None


def _beginning(
    version: int, piece: LogSlice, record: Progress | None, saved: SavedPanes
) -> Sequence[Entry]:
    """What the log of a version begins with, as `Restoring.beginning` has it for owners."""
    newest_first = () if piece.base is None else (piece.base, *piece.older)
    bases = [base for base in newest_first if base.version == version]
    if record is None or record.snapshot is None or not record.anchored:
        return bases
    if bases and reaches(bases[0], record.snapshot.merged):
        return bases
    try:
        return [decode_snapshot(saved.saved(record))]
    except (SnapshotLost, CorruptEntry) as problem:
        raise Conflict(f"{problem} Ask again: what is open may have been saved anew") from problem


def check_rebuilt(head: Head, record: Progress) -> None:
    """Raise Unavailable while a new store has not been filled up to what an older one held."""
    behind = any(head.offsets.get(lane, 0) < offset for lane, offset in record.merged.items())
    if (behind or record.snapshot is not None) and head.epoch > record.store_epoch:
        raise being_rebuilt()


def being_rebuilt() -> Unavailable:
    """The store was lost; what is in it is true, but not yet all."""
    return Unavailable(
        "redis", "the store was lost and is being rebuilt from Kafka; ask again soon"
    )
