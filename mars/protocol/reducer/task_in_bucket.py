"""One task in one bucket of a reducer: its log as read so far, and what it has to commit.

Two versions of a task share one log, one set of offsets and one set of marks; each has windows and
a progress record of its own (`version.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from mars.core.definitions import TaskVersion
from mars.core.types import Entry, Topic
from mars.protocol.ports import Head, LogSlice, Progress, ResultBatch
from mars.protocol.reducer.log_index import LogIndex
from mars.protocol.reducer.log_upkeep import LogUpkeep
from mars.protocol.reducer.position import LogPosition
from mars.protocol.reducer.preparation import Prepared, prepare
from mars.protocol.reducer.snapshots import Restoring
from mars.protocol.reducer.version import Ownership, VersionInBucket
from mars.protocol.runnable import RunnableTask
from mars.protocol.tracker.observing import Counted, CountedEntries
from mars.protocol.windows.input import StoreWentBack
from mars.protocol.windows.open_panes import Size
from mars.protocol.windows.turns import takes_long


class TaskInBucket:
    """Reads a task's log in one bucket in SEQ order and prepares its commits.

    `position` says how far. After a loss of the store the panes that the records' snapshots hold
    must be in the log before it is read: `restoring` knows which.
    """

    def __init__(
        self,
        task: RunnableTask,
        owner: Ownership,
        records: Mapping[int, Progress],
        snapshot_every_ms: int,
    ) -> None:
        self.task = task
        self.owner = owner
        self.records: dict[int, Progress] = dict(records)
        self.position = LogPosition()
        self.restoring = Restoring(records, owner.store_epoch)
        self.log = LogIndex()
        self.closed_to_assistants = False
        """The store knows that nobody may merge what comes next in the log."""
        self._snapshot_every_ms = snapshot_every_ms
        self._versions: dict[int, VersionInBucket] = {}
        """Those that have begun, oldest first."""
        self.upkeep = LogUpkeep(owner.bucket, self.log, self.position, self._versions)
        self._counted: CountedEntries | None = None
        if owner.tracked:
            self._counted = CountedEntries(records.values(), owner.store_epoch)
        self.position.has_unread_base = any(
            record.snapshot is not None for record in records.values()
        )
        self._lost: frozenset[int] = frozenset()
        """Versions whose snapshots are not there any more."""
        self._looked_at = 0
        """The number of looks at which `closes_soon` was asked last."""
        self._rested_at = -1
        """The number of changes at which nothing was due or waiting."""
        self.update(task)

    def update(self, task: RunnableTask) -> None:
        """Take a newer definition: begin new versions, forget dropped ones."""
        self.task = task
        self.position.changes += 1
        after = {older.version: newer for older, newer in pairwise(task.definition.begun)}
        known = dict(self._versions)
        self._versions.clear()
        for version, _plan in task.begun():
            one = known.get(version.version) or self._begin(version)
            one.update(task, version, after.get(version.version))
            self._versions[version.version] = one
        self._catch_up()

    def _begin(self, version: TaskVersion) -> VersionInBucket:
        record = self.records.get(version.version)
        begun = VersionInBucket(
            self.task, version, self.owner, self.position, record, self._snapshot_every_ms
        )
        if version.version in self._lost:
            begun.snapshot_lost()
        return begun

    def same_life(self, task: RunnableTask) -> bool:
        """False for a task that was made anew under the name of a deleted one."""
        return task.definition.first_version == self.task.definition.first_version

    def knows(self, version: int) -> bool:
        """True if this version, current in the store, is one whose entries can be absorbed.

        A newer one's entries would be passed over while its definition has not come yet; an older
        one's belong to a deleted task of the same name.
        """
        return version in self._versions

    def restored(self, found: Sequence[Entry], lost: Iterable[int]) -> None:
        """The snapshots are read; those of the versions `lost` are not there any more.

        What lies in them cannot be read again from anywhere else: it is below L. Raises TaskLimit
        for a task that cannot go on without.
        """
        self._lost = frozenset(lost)
        for version in self._lost & self._versions.keys():
            self._versions[version].snapshot_lost()
        self.restoring.read(found)

    # -------------------------------------------------------------------------------- reading

    def absorb(self, piece: LogSlice) -> None:
        """Take what was read of the log. Raises StoreWentBack if it contradicts earlier reads, or
        lacks entries: before any of it counts."""
        self.position.check_life(piece.run_id)
        if piece.vanished:
            raise StoreWentBack(f"its log lacks {piece.vanished} of the entries that are noted")
        self.position.has_unread_base = False
        self.position.changes += 1
        base = piece.base
        if base is None or self.log.knows(base, self.position.last_seq):
            self._absorb_bases(())
        else:
            self._absorb_bases((base, *piece.older))
        for entry in piece.entries:
            self._absorb_entry(entry)

    def _absorb_bases(self, bases: Sequence[Entry]) -> None:
        if bases:
            self.log.has_bases(bases)
            self.position.last_seq = bases[0].seq
        for base in self.restoring.beginning(bases):
            version = self._versions.get(base.version)
            if version is not None:
                version.folding.absorb_base(base)

    def _absorb_entry(self, entry: Entry) -> None:
        self.log.follows(entry)
        self.position.last_seq = entry.seq
        if self._counted is not None:
            self._counted.read(entry)
        version = self._versions.get(entry.version)
        if version is not None and version.folding.input.passes_over(entry):
            self.log.keep_contained(entry)
        else:
            self.log.keep(entry)
        if version is not None:
            version.folding.absorb(entry)

    def drained(self, head: Head) -> None:
        """Everything up to `head.seq` is absorbed: go forward to the head's offsets."""
        if not self.position.reach(head):
            return
        if self._counted is not None:
            self._counted.drained(self.position.last_seq)
        for version in self._versions.values():
            version.folding.reached(head)
        self._catch_up()
        if self.position.caught_up:
            for version in self._versions.values():
                version.folding.settle()

    def _catch_up(self) -> None:
        """Called whenever one of the two goes on: what is read, or what is accounted."""
        self.position.caught_up = self.position.head is not None and all(
            version.is_caught_up for version in self._versions.values()
        )

    # ------------------------------------------------------------------------------- closing

    def _open(self) -> Iterator[VersionInBucket]:
        """The versions that may still have something to commit, oldest first."""
        return (version for version in self._versions.values() if not version.is_finished)

    @property
    def waiting(self) -> bool:
        """True if there is what may wait a moment for more: late rows of closed windows that no
        revision shows yet, or groups to be closed ahead of the others.
        """
        if self.rests:
            return False
        return any(version.has_waiting for version in self._open())

    def due(self, *, waited: bool = False) -> Size | None:
        """What there is to close now, at most; None if no window is due.

        What is `waiting` comes with any commit; it is due where it has `waited`.
        """
        if self.rests:
            return None
        due = [(version, version.due()) for version in self._open()]
        if not any(windows for _version, windows in due):
            waiting = self.waiting
            if not waiting:
                self._rested_at = self.position.changes
            if not (waiting and waited):
                return None
        return sum((version.size(windows) for version, windows in due), Size())

    @property
    def rests(self) -> bool:
        """True if nothing is due, and nothing waits, as was found before or cannot be known yet."""
        return not self.position.caught_up or self._rested_at == self.position.changes

    def closes_within(self, span_ms: int) -> bool:
        """True if a window is due, or will be once the watermark has gone on by so much."""
        return any(version.closes_within(span_ms) for version in self._open())

    # ------------------------------------------------------------------------------ drafting

    def closes_soon(self) -> bool:
        """True if a window is about to close; asked again without news: False.

        So it costs next to nothing where a reducer has hundreds of tasks.
        """
        if self._looked_at == self.position.looks:
            return False
        self._looked_at = self.position.looks
        return any(version.soon() for version in self._open())

    def draft_rows(self, buckets: int) -> int | None:
        """An upper bound of the rows that a draft would have; None where there is to be none.

        Others' rows in the same partition of an output topic would wait for the draft: it has to be
        the bucket's alone. What takes long comes in its turn, and is not drafted: 0.
        """
        soon = [
            (version, windows)
            for version in self._open()
            if (windows := version.soon()) is not None
        ]
        topics = (Topic(version.plan.options.output_topic) for version, _windows in soon)
        alone = all(self.task.output_partitions[topic] >= buckets for topic in topics)
        if not (alone and all(version.state.is_steady for version in self._open())):
            return None
        sizes = (version.state.panes.size(windows) for version, windows in soon)
        size = sum(sizes, Size())
        return 0 if takes_long(size) else size.rows

    def draft(self) -> tuple[ResultBatch, ...]:
        """What the windows that are about to close would emit, had all their rows come.

        It is kept: `prepare` takes it where no further row came.
        """
        for version in self._versions.values():
            version.draft = None
        for version in self._open():
            version.make_draft()
        drafts = (one.draft for one in self._versions.values() if one.draft is not None)
        return tuple(batch for draft in drafts for batch in draft.rows.batches)

    def draft_stands(self) -> bool:
        """True if it has a draft, and no row has come since for its windows."""
        drafts = [
            (version.draft, version.state.panes)
            for version in self._versions.values()
            if version.draft is not None
        ]
        return bool(drafts) and all(draft.stands(panes) for draft, panes in drafts)

    # ---------------------------------------------------------------------------- committing

    def stale(self) -> bool:
        """True if a progress record without rows would say something new."""
        return self.position.caught_up and any(version.is_stale for version in self._open())

    def snapshot_due(self, now_ms: int) -> bool:
        """True if panes reach back so far that they should be saved.

        `now_ms` is the process's own clock; it must be asked regularly.
        """
        if not self.position.caught_up:
            return False
        due = [version.snapshot_due(now_ms) for version in self._open()]
        return any(due)

    def prepare(self) -> Prepared:
        """All that this task can commit now: due windows, revisions, references, progress."""
        seen = None if self._counted is None else self._counted.seen()
        return Prepared.of_all([prepare(version, seen) for version in self._open()])

    def committed(self, record: Progress) -> None:
        """A progress record of this task is durable."""
        self.position.changes += 1
        self.records[record.version] = record
        self._lost -= {record.version}
        version = self._versions.get(record.version)
        if version is None:
            return
        if version.committed(record):
            self.log.loosened()
        self._catch_up()

    def take_accounted(self) -> tuple[Counted, ...]:
        """The entries, (version, SEQ), that the last commit was the first to account for."""
        settled = all(version.folding.settled for version in self._versions.values())
        return self._counted.take_accounted() if self._counted is not None and settled else ()
