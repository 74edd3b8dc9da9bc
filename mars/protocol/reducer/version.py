"""One version of a task in one bucket: how far it has come, what it has to close, and when.

What a commit of it says is made in `preparation.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mars.core.definitions import TaskVersion
from mars.core.plan import Plan
from mars.core.types import AssignmentEpoch, Bucket, Lane, StoreEpoch, Topic
from mars.core.windows import Window
from mars.protocol.ports import Frontier, Ledger, Progress
from mars.protocol.reducer.drafting import Draft, early_ms
from mars.protocol.reducer.emission import Numbered, emitted
from mars.protocol.reducer.position import LogPosition, reaches
from mars.protocol.reducer.snapshots import Snapshots, is_of_lost_store
from mars.protocol.runnable import RunnableTask
from mars.protocol.windows.folding import Folding
from mars.protocol.windows.open_panes import Size
from mars.protocol.windows.state import Level, WindowState


@dataclass(frozen=True, slots=True)
class Ownership:
    """In whose name a bucket commits."""

    bucket: Bucket
    epoch: AssignmentEpoch
    store_epoch: StoreEpoch
    tracked: bool = False


class VersionInBucket:
    """The state of one version, made anew by each owner from the last `record`.

    `position` is where the task's log was read to.
    """

    def __init__(
        self,
        task: RunnableTask,
        version: TaskVersion,
        owner: Ownership,
        position: LogPosition,
        record: Progress | None,
        snapshot_every_ms: int,
    ) -> None:
        self.record = record
        self.folding = Folding(
            task.plans[version.version], owner.bucket, version.starts or {}, record
        )
        self.draft: Draft | None = None
        self.owner = owner
        self.position = position
        self.snapshots = Snapshots(snapshot_every_ms)
        self._level_at = -1
        self._level: Level | None = None
        """The level, and the number of changes at which it was found out."""
        self._is_unfollowed = False
        """Its last record said something that the one before did not say."""
        self.task, self.version = task, version
        self._ends: Mapping[Lane, int] | None = None
        """The offsets at which the next version begins, None for the newest."""

    def update(self, task: RunnableTask, version: TaskVersion, after: TaskVersion | None) -> None:
        """Take a newer definition; `after` is the version that follows, if it has begun."""
        self.task, self.version = task, version
        self._ends = None if after is None else after.starts or {}
        self.draft = None
        self.state.update(version, after)

    @property
    def plan(self) -> Plan:
        """What it computes."""
        return self.folding.plan

    @property
    def state(self) -> WindowState:
        """Its windows."""
        return self.folding.state

    @property
    def is_known(self) -> bool:
        """True if a record of it can say something: something new, or the last again."""
        return self.folding.settled or self.record is not None

    def snapshot_lost(self) -> None:
        """The snapshot that the record names is not there any more. Raises TaskLimit for a task
        that cannot go on without.
        """
        if self.record is not None and self.record.snapshot is not None:
            self.folding.snapshot_lost(self.record.snapshot)
        self.snapshots.lost()

    @property
    def is_caught_up(self) -> bool:
        """True if all that the last record accounts for has been read again."""
        return reaches(self.position.through, self.folding.input.merged)

    @property
    def is_finished(self) -> bool:
        """True for an older version whose last record says that all its rows are accounted and
        emitted, where nothing is left to be revised, shown or named.
        """
        last = self.record
        if self._ends is None or last is None or last.ledger.open:
            return False
        if self.state.owes or not self.state.shows_all or self.folding.input.dead:
            return False
        accounted = self.is_accounted(self.folding.input.merged)
        return accounted and self.ledger(self.state.frontier).open == 0

    def is_accounted(self, merged: Mapping[Lane, int]) -> bool:
        """True for an older version none of whose rows lies at or above these offsets."""
        ends = self._ends
        return ends is not None and all(merged.get(lane, 0) >= end for lane, end in ends.items())

    # ------------------------------------------------------------------------------- closing

    def level(self) -> Level | None:
        """How far the input has come; None as long as nothing may be closed."""
        head = self.position.head
        if head is None or not head.active or not self.position.caught_up:
            return None
        if self._level_at != self.position.changes:
            self._level_at, self._level = self.position.changes, self.state.level(head)
        return self._level

    def due(self) -> list[Window]:
        """The windows that the next commit can close."""
        return self.state.due(self.state.reach(self.level()))

    @property
    def has_waiting(self) -> bool:
        """True if late rows wait for a revision, or groups to be closed ahead of the others."""
        return self.state.has_waiting

    def size(self, due: Sequence[Window]) -> Size:
        """What a commit takes that closes these windows, and all that waits."""
        return self.state.panes.size(due) + self.state.size_waiting()

    def closes_within(self, span_ms: int) -> bool:
        """True if a window is due, or will be once the watermark has gone on by so much."""
        level = self.level()
        return level is not None and bool(self.state.soon(level, span_ms))

    # ------------------------------------------------------------------------------ drafting

    def soon(self) -> list[Window] | None:
        """The windows that are about to close; None as long as nothing may be closed."""
        level = self.level()
        return None if level is None else self.state.soon(level, early_ms(self.plan))

    def make_draft(self) -> None:
        """Keep what the windows that are about to close would emit, had all their rows come."""
        windows = self.soon()
        if windows is None:
            return
        commit, closed = self.numbered(self.merged()), self.state.close(windows)
        contents = self.state.panes.contents(windows)
        self.draft = Draft(commit.emit, contents, emitted(self.plan, commit, closed))

    def next_emit(self) -> int:
        """The number of the next commit."""
        return 1 if self.record is None else self.record.emit + 1

    def numbered(self, merged: Mapping[Lane, int]) -> Numbered:
        """The next commit, with M as it will be; rows above the version's end are not its own."""
        bucket, topic = self.owner.bucket, Topic(self.plan.options.output_topic)
        partition = bucket % self.task.output_partitions[topic]
        ends = merged if self._ends is None else self._ends
        through = {lane: min(offset, ends.get(lane, 0)) for lane, offset in merged.items()}
        return Numbered(bucket, partition, self.next_emit(), through)

    # ---------------------------------------------------------------------------- committing

    @property
    def is_stale(self) -> bool:
        """True if a progress record without rows would say something new.

        One more follows a record that did: whether that one hangs in Kafka is seen before the next
        commit (decision 24).
        """
        return bool(
            self._is_unfollowed
            or self.folding.input.merged != self.merged()
            or self.folding.input.dead
            or self.state.owes
            or self.state.behind(self.state.reach(self.level()))
            or is_of_lost_store(self.record, self.owner.store_epoch)
        )

    def snapshot_due(self, now_ms: int) -> bool:
        """True if panes reach back so far that they should be saved."""
        state, older = self.state, None if self.record is None else self.record.snapshot
        return self.snapshots.is_due(
            now_ms, older, self.merged, lambda merged: state.commits.needed(merged, state.frontier)
        )

    def merged(self) -> dict[Lane, int]:
        """M of a commit made now: merged-through, but never below where the version starts."""
        starts, accounted = self.version.starts or {}, self.folding.input.merged
        return {
            lane: max(offset, accounted.get(lane, 0), starts.get(lane, 0))
            for lane, offset in self.position.through.items()
        }

    def read_again(self, merged: Mapping[Lane, int]) -> dict[Lane, int]:
        """What of `merged` was read in this life: rows beyond it are still to be read again."""
        starts, through = self.version.starts or {}, self.position.through
        return {
            lane: max(min(offset, through.get(lane, offset)), starts.get(lane, 0))
            for lane, offset in merged.items()
        }

    def needed(self) -> dict[Lane, int]:
        """Below these offsets nothing in the log is needed.

        Unlike L it does not go up with snapshots: what is in one is in the log, too.
        """
        read = self.read_again(self.folding.input.merged)
        return self.state.commits.needed(read, self.state.frontier)

    def ledger(self, frontier: Frontier, ahead_rows: int = 0) -> Ledger:
        """Where rows went once everything up to C is emitted, and so many rows ahead.

        Before all is read again panes lack rows, which then seem to have been emitted.
        """
        if not self.position.caught_up:
            return self.folding.input.ledger
        return self.folding.ledger(self.state.commits.closed_in(frontier), ahead_rows)

    def committed(self, record: Progress) -> bool:
        """A record of this version is durable. True if something was closed for good."""
        self.draft = None
        self._is_unfollowed = _told(record) != _told(self.record)
        self.record = record
        self.snapshots.committed()
        self.state.commits.recorded(record)
        return self.folding.committed(record.frontier, record.ledger)


def _told(record: Progress | None) -> tuple[object, ...]:
    """What a record says of rows, and what it names that lies elsewhere in Kafka."""
    if record is None:
        return ()
    return record.merged, record.ledger, record.emission, record.snapshot, record.references
