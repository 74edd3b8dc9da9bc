"""One task in one bucket of a reducer: its log as read so far, and what it has to commit.

Two versions of a task share one log, one set of offsets and one set of marks; each has panes and a
progress record of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise, product

from mars.core.definitions import TaskVersion
from mars.core.plan import Plan
from mars.core.types import (
    AssignmentEpoch,
    Bucket,
    Entry,
    Lane,
    Partial,
    Range,
    RowCounts,
    Sequence64,
    StoreEpoch,
    Topic,
)
from mars.core.windows import Window, moment
from mars.engine.codec.dead import dead_result
from mars.engine.codec.result_headers import result_headers
from mars.protocol.ports import Head, Ledger, LogSlice, Progress, ResultBatch, SnapshotParts
from mars.protocol.ports.seen import Seen, SeenWindow
from mars.protocol.reducer.drafting import Draft, early_ms, emission_of
from mars.protocol.reducer.log_index import LogIndex
from mars.protocol.reducer.snapshots import Snapshots, needed_with
from mars.protocol.runnable import RunnableTask
from mars.protocol.watermark import level_of
from mars.protocol.windows.folding import (
    Ahead,
    ClosedWindow,
    Folding,
    StoreWentBack,
    WholeSpan,
    WithheldResult,
    takes_long,
)
from mars.protocol.windows.open_panes import Size
from mars.protocol.windows.revising import Revising, numbers_of, owed_of
from mars.protocol.windows.scoped_folding import folding_class


@dataclass(frozen=True, slots=True)
class Ownership:
    """In whose name a bucket commits."""

    bucket: Bucket
    epoch: AssignmentEpoch
    store_epoch: StoreEpoch
    tracked: bool = False


@dataclass(frozen=True, slots=True)
class Prepared:
    """What one task adds to a transaction of its bucket."""

    results: tuple[ResultBatch, ...]
    dead: tuple[bytes, ...]
    progress: tuple[Progress, ...]
    snapshots: tuple[SnapshotParts, ...] = ()
    withheld: str = ""
    """What to tell people of results that are not in it; empty where all are."""


class TaskInBucket:
    """Reads a task's log in one bucket in SEQ order and prepares its commits.

    `through` are the merged-through offsets: everything below them was in what has been absorbed.
    After a loss of the store the panes that the records' snapshots hold must be in the log before
    it is read: `saved` are the records whose snapshots are still to be read.
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
        self.last_seq = Sequence64(0)
        self.through: dict[Lane, int] = {}
        self.head: Head | None = None
        self.records: dict[int, Progress] = dict(records)
        self._begun: tuple[tuple[TaskVersion, Plan], ...] = ()
        self._ends: dict[int, Mapping[Lane, int]] = {}
        """The offsets at which older versions end, by version: those at which the next begins."""
        self._foldings: dict[int, Folding] = {}
        self._caught_up = False
        self._log = LogIndex()
        self._seeing = _seeing(owner, records) if owner.tracked else None
        self._accounted: list[tuple[int, Sequence64]] = []
        self.closed_to_assistants = False
        """The store knows that nobody may merge what comes next in the log."""
        self._run_id: str | None = None
        self._born: str | None = None
        self._unread = any(record.snapshot is not None for record in records.values())
        self._unfollowed: set[int] = set()
        """Versions whose last record was committed with rows."""
        self._drafts: dict[int, Draft] = {}
        self._looked_at: Head | None = None
        """The head by which `closes_soon` was asked last."""
        self._at_rest: Head | None = None
        """The head by which nothing was due or waiting, if nothing has changed since."""
        self._saving = Snapshots(records, owner.store_epoch, snapshot_every_ms)
        self.update(task)

    def update(self, task: RunnableTask) -> None:
        """Take a newer definition: begin new versions, forget dropped ones."""
        self.task = task
        self._at_rest = None
        self._begun = task.begun()
        self._ends = {
            older.version: newer.starts or {} for older, newer in pairwise(task.definition.begun)
        }
        for version, plan in self._begun:
            folding = self._foldings.get(version.version)
            if folding is None:
                folding = self._begin(version, plan)
                self._foldings[version.version] = folding
            folding.bounds = WholeSpan(version.complete_from_ms, version.complete_until_ms)
        self._drafts = {}
        kept = {version.version for version, _ in self._begun}
        self._foldings = {key: value for key, value in self._foldings.items() if key in kept}
        self._catch_up()

    def same_life(self, task: RunnableTask) -> bool:
        """False for a task that was made anew under the name of a deleted one."""
        return task.definition.first_version == self.task.definition.first_version

    def knows(self, version: int) -> bool:
        """True if this version, current in the store, is one whose entries can be absorbed.

        A newer one's entries would be passed over while its definition has not come yet; an older
        one's belong to a deleted task of the same name.
        """
        return version in self._foldings

    def _begin(self, version: TaskVersion, plan: Plan) -> Folding:
        record = self.records.get(version.version)
        begin = folding_class(plan)
        if record is None:
            return begin(plan, self.owner.bucket, merged=version.starts or {})
        return begin(
            plan,
            self.owner.bucket,
            merged=record.merged,
            closed_ms=record.closed_ms,
            forgotten_ms=record.forgotten_ms,
            revising=Revising(plan, numbers_of(plan, record), owed_of(plan, record)),
            ledger=record.ledger,
            incomplete_before_ms=record.incomplete_before_ms,
            gaps=record.gaps,
            ahead_ms=record.ahead_ms,
        )

    # -------------------------------------------------------------------------------- restoring

    @property
    def saved(self) -> tuple[Progress, ...]:
        """The records whose snapshots are to be read first: the store they speak of is lost."""
        return self._saving.wanted

    def restored(self, found: Sequence[Entry], lost: Iterable[int]) -> None:
        """The snapshots are read; those of the versions `lost` are not there any more.

        What lies in them cannot be read again from anywhere else: it is below L. Raises TaskLimit
        for a task that cannot go on without.
        """
        for version in lost:
            snapshot = self.records[version].snapshot
            folding = self._foldings.get(version)
            if snapshot is not None and folding is not None:
                folding.snapshot_lost(snapshot.until_ms)
        self._saving.read(found, lost)

    @property
    def to_restore(self) -> tuple[Entry, ...]:
        """What is to be put into the store before the log is read, the newest version first."""
        return self._saving.found

    def put_back(self) -> None:
        """The store has it."""
        self._saving.put_back()

    # -------------------------------------------------------------------------------- reading

    def behind(self, head: Head) -> bool:
        """True if the log holds what has not been read: entries, or at least its base."""
        return head.seq > self.last_seq or self._unread

    def absorb(self, piece: LogSlice) -> None:
        """Take what was read of the log. Raises StoreWentBack if it contradicts earlier reads, or
        lacks entries: before any of it counts."""
        self._check_life(piece.run_id)
        if piece.vanished:
            raise StoreWentBack(f"its log lacks {piece.vanished} of the entries that are noted")
        self._unread = False
        self._at_rest = None
        if piece.base is not None:
            self._absorb_bases((piece.base, *piece.older))
        for entry in piece.entries:
            self._absorb_entry(entry)

    def _absorb_bases(self, bases: Sequence[Entry]) -> None:
        self._log.has_bases(bases)
        self.last_seq = bases[0].seq
        for base in bases:
            folding = self._foldings.get(base.version)
            if folding is not None:
                folding.absorb_base(base)

    def _absorb_entry(self, entry: Entry) -> None:
        self._log.follows(entry)
        self.last_seq = entry.seq
        if self._seeing is not None:
            new = [seq for seq in entry.seqs if self._seeing.take(seq)]
            self._accounted += [(entry.version, seq) for seq in new]
        folding = self._foldings.get(entry.version)
        if folding is not None and folding.contains(entry):
            self._log.keep_contained(entry)
        else:
            self._log.keep(entry)
        if folding is not None:
            folding.absorb(entry)

    def drained(self, head: Head) -> None:
        """Everything up to `head.seq` is absorbed: go forward to the head's offsets."""
        self._check_life(head.run_id)
        if self._born not in {None, head.born}:
            raise StoreWentBack("the store was emptied, and the task begun anew in the same epoch")
        self._born = head.born
        if head.seq < self.last_seq:
            raise StoreWentBack(f"the store's SEQ is {head.seq}, was {self.last_seq}")
        for lane, offset in self.through.items():
            if head.offsets.get(lane, -1) < offset:
                raise StoreWentBack(
                    f"lane {lane}: the store's offset is {head.offsets.get(lane)}, was {offset}"
                )
        self.through = dict(head.offsets)
        self.last_seq = Sequence64(max(self.last_seq, head.seq))
        if self._seeing is not None:
            self._seeing.drained(self.last_seq)
        self.head = head
        for folding in self._foldings.values():
            folding.reached(head.marks_ms)
        self._catch_up()
        if self.caught_up:
            for folding in self._foldings.values():
                folding.settle()

    def _check_life(self, run_id: str) -> None:
        """A server that was started again may be ahead of what it held, with other entries."""
        if self._run_id not in {None, run_id}:
            raise StoreWentBack(f"the store was started anew: its run id is {run_id}")
        self._run_id = run_id

    @property
    def caught_up(self) -> bool:
        """R6: everything that the last commit accounts for has been read again."""
        return self._caught_up

    def _catch_up(self) -> None:
        """Called whenever one of the two goes on: what is read, or what is accounted."""
        self._caught_up = self.head is not None and all(
            self.through.get(lane, 0) >= offset
            for folding in self._foldings.values()
            for lane, offset in folding.merged.items()
        )

    # ------------------------------------------------------------------------------- closing

    def _watermark(self, plan: Plan, folding: Folding) -> int | None:
        head = self.head
        if head is None or not head.active or not self.caught_up:
            return None
        return folding.level(head, level_of(head, plan))

    def _open(self) -> Iterator[tuple[TaskVersion, Plan, Folding]]:
        """The versions that may still have something to commit."""
        for version, plan in self._begun:
            folding = self._foldings[version.version]
            if not self._finished(version, folding):
                yield version, plan, folding

    def _finished(self, version: TaskVersion, folding: Folding) -> bool:
        """True for an older version whose last record says that all its rows are accounted and
        emitted, where nothing is left to be revised or named.
        """
        last = self.records.get(version.version)
        newest = version.version not in self._ends
        if newest or last is None or last.ledger.open or folding.revising.pending or folding.dead:
            return False
        accounted = self._is_accounted(version, folding.merged)
        return accounted and self._ledger(folding, folding.closed_ms).open == 0

    def _is_accounted(self, version: TaskVersion, merged: Mapping[Lane, int]) -> bool:
        """True for an older version none of whose rows lies at or above these offsets."""
        ends = self._ends.get(version.version)
        return ends is not None and all(merged.get(lane, 0) >= end for lane, end in ends.items())

    @property
    def waiting(self) -> bool:
        """True if there is what may wait a moment for more: late rows of closed windows that no
        revision shows yet, or groups to be closed ahead of the others.
        """
        if not self.caught_up or self._rests:
            return False
        return any(
            folding.revising.pending or folding.has_ahead()
            for _version, _plan, folding in self._open()
        )

    def due(self, *, waited: bool = False) -> Size | None:
        """What there is to close now, at most; None if no window is due.

        What is `waiting` comes with any commit; it is due where it has `waited`.
        """
        if not self.caught_up or self._rests:
            return None
        due = [
            (folding, folding.due(folding.reach(self._watermark(plan, folding))))
            for _version, plan, folding in self._open()
        ]
        if not any(windows for _folding, windows in due):
            waiting = self.waiting
            if not waiting:
                self._at_rest = self.head
            if not (waiting and waited):
                return None
        return sum(
            (
                folding.size(windows) + folding.size_to_revise() + folding.size_ahead()
                for folding, windows in due
            ),
            Size(),
        )

    @property
    def _rests(self) -> bool:
        """True if nothing is due, and nothing waits, as was found before."""
        return self._at_rest is not None and self._at_rest is self.head

    def closes_within(self, span_ms: int) -> bool:
        """True if a window is due, or will be once the watermark has gone on by so much."""
        levels = (
            (folding, self._watermark(plan, folding)) for _version, plan, folding in self._open()
        )
        return any(folding.due(level + span_ms) for folding, level in levels if level is not None)

    # ------------------------------------------------------------------------------ drafting

    def closes_soon(self) -> bool:
        """True if a window is about to close; asked again by the same head, False.

        So it costs next to nothing where a reducer has hundreds of tasks.
        """
        if self.head is self._looked_at:
            return False
        self._looked_at = self.head
        return any(windows for _version, _plan, _folding, windows in self._soon())

    def _soon(self) -> Iterator[tuple[TaskVersion, Plan, Folding, list[Window]]]:
        """The windows that are about to close, by version."""
        for version, plan, folding in self._open():
            level = self._watermark(plan, folding)
            if level is not None:
                soon = folding.reach(level + early_ms(plan))
                yield version, plan, folding, folding.due(soon)

    def draft_rows(self, buckets: int) -> int | None:
        """An upper bound of the rows that a draft would have; None where there is to be none.

        Others' rows in the same partition of an output topic would wait for the draft: it has to be
        the bucket's alone. What takes long comes in its turn, and is not drafted: 0.
        """
        soon = list(self._soon())
        alone = all(
            self.task.output_partitions[Topic(plan.options.output_topic)] >= buckets
            for _version, plan, _folding, _windows in soon
        )
        steady = all(folding.is_steady for _version, _plan, folding in self._open())
        if not (alone and steady):
            return None
        size = sum((folding.size(windows) for _version, _plan, folding, windows in soon), Size())
        return 0 if takes_long(size) else size.rows

    def draft(self) -> tuple[ResultBatch, ...]:
        """What the windows that are about to close would emit, had all their rows come.

        It is kept: `prepare` takes it where no further row came.
        """
        self._drafts = {}
        for version, plan, folding, windows in self._soon():
            emit = self._next_emit(version)
            merged = self._merged(version, folding)
            closed = folding.close(windows)
            batches = self._batches(plan, emit, merged, closed)
            contents = folding.contents(windows)
            self._drafts[version.version] = Draft(
                emit,
                contents,
                batches,
                emission_of(batches, emit),
                self._withheld(plan, merged, closed),
            )
        return tuple(batch for draft in self._drafts.values() for batch in draft.batches)

    def draft_stands(self) -> bool:
        """True if it has a draft, and no row has come since for its windows."""
        return bool(self._drafts) and all(
            draft.stands(self._foldings[version]) for version, draft in self._drafts.items()
        )

    def _drafted(
        self, version: TaskVersion, folding: Folding, due: Sequence[Window]
    ) -> Draft | None:
        """The draft of a version, if it is what these windows have to emit now."""
        draft = self._drafts.get(version.version)
        fits = draft is not None and draft.fits(folding, due, self._next_emit(version))
        return draft if fits else None

    def _next_emit(self, version: TaskVersion) -> int:
        last = self.records.get(version.version)
        return last.emit + 1 if last else 1

    def stale(self) -> bool:
        """True if a progress record without rows would say something new.

        So does one that follows a record with rows: whether that one hangs in Kafka is seen before
        the next commit (decision 24).
        """
        return self.caught_up and any(
            version.version in self._unfollowed
            or folding.merged != self._merged(version, folding)
            or folding.dead
            or folding.revising.pending
            or folding.behind(folding.reach(self._watermark(plan, folding)))
            or self._saving.is_of_lost_store(self.records.get(version.version))
            for version, plan, folding in self._open()
        )

    def snapshot_due(self, now_ms: int) -> bool:
        """True if panes reach back so far that they should be saved.

        `now_ms` is the process's own clock; it must be asked regularly.
        """
        if not self.caught_up:
            return False
        due = []
        for version, _plan, folding in self._open():
            merged = partial(self._merged, version, folding)
            kept = partial(folding.needed, forgotten_ms=folding.forgotten_ms)
            due.append(self._saving.is_due(version.version, now_ms, merged, kept))
        return any(due)

    def _merged(self, version: TaskVersion, folding: Folding) -> dict[Lane, int]:
        """M of a commit made now: merged-through, but never below where the version starts."""
        starts = version.starts or {}
        return {
            lane: max(offset, folding.merged.get(lane, 0), starts.get(lane, 0))
            for lane, offset in self.through.items()
        }

    # ---------------------------------------------------------------------------- committing

    def prepare(self) -> Prepared:
        """Everything that this task can commit now: due windows, revisions, references, progress.

        Before it is caught up it can commit progress only (R6): what was read again may be merged
        then, else a log that is filled anew could be full before it says what it said before.
        Revisions are owed then.
        """
        results: list[ResultBatch] = []
        dead: list[bytes] = []
        progress: list[Progress] = []
        snapshots: list[SnapshotParts] = []
        withheld: list[WithheldResult] = []
        for version, plan, folding in self._open():
            if not folding.settled:
                progress += self._again(version)
                continue
            level = folding.reach(self._watermark(plan, folding))
            revisable = folding.revisable() if self.caught_up else []
            revised = folding.revise(revisable)
            owed = tuple(folding.revising.pending[len(revisable) :])
            closed_ms = folding.closed_by(level)
            ahead = folding.close_ahead(closed_ms) if self.caught_up else Ahead(folding.ahead_ms)
            record, parts = self._record(version, folding, level, owed, ahead)
            record = _with_revisions(record, folding, revised)
            due = folding.due(level)
            draft = None if revised else self._drafted(version, folding, due)
            if draft is None:
                closed = [*revised, *folding.close(due), *ahead.windows]
                batches = self._batches(plan, record.emit, record.merged, closed)
                emission = emission_of(batches, record.emit)
                held = self._withheld(plan, record.merged, closed)
            else:
                batches, emission, held = draft.batches, draft.emission, draft.withheld
            results += batches
            dead += [*folding.dead, *(letter for one in held for letter in one.dead)]
            withheld += held
            progress.append(replace(record, emission=emission or record.emission))
            snapshots += [] if parts is None else [parts]
        return Prepared(
            tuple(results), tuple(dead), tuple(progress), tuple(snapshots), _told(withheld)
        )

    def _again(self, version: TaskVersion) -> Iterator[Progress]:
        """The last record, which a version repeats that may say nothing new yet, so that its log
        can be merged.
        """
        last = self.records.get(version.version)
        if last is None:
            return
        same_life = last.store_epoch == self.owner.store_epoch
        yield replace(
            last,
            emit=last.emit + 1,
            assignment_epoch=self.owner.epoch,
            store_epoch=self.owner.store_epoch,
            seen=(last.seen if same_life else Seen(0, 0)) if self.owner.tracked else None,
        )

    def _record(
        self,
        version: TaskVersion,
        folding: Folding,
        level: int | None,
        owed: tuple[Window, ...],
        ahead: Ahead,
    ) -> tuple[Progress, SnapshotParts | None]:
        """The record, and what is new of its snapshot."""
        last = self.records.get(version.version)
        closed_ms = folding.closed_by(level)
        merged = self._merged(version, folding)
        none_to_come = self.caught_up and self._is_accounted(version, merged)
        forgotten_ms = folding.forgotten_by(level, owed, none_to_come=none_to_come)
        kept = folding.needed(self._read(version, merged), forgotten_ms)
        snapshot, parts = self._saving.snapshot(folding, last, merged, forgotten_ms, kept)
        record = Progress(
            task=self.task.name,
            version=version.version,
            bucket=self.owner.bucket,
            assignment_epoch=self.owner.epoch,
            store_epoch=self.owner.store_epoch,
            emit=self._next_emit(version),
            closed_ms=closed_ms,
            merged=merged,
            needed=_forward(needed_with(snapshot, kept), last),
            ledger=self._ledger(folding, closed_ms, ahead.rows),
            watermark_ms=last.watermark_ms if level is None and last is not None else level,
            incomplete_before_ms=folding.incomplete_before_ms,
            gaps=dict(folding.gaps),
            snapshot=snapshot,
            emission=last.emission if last else None,
            references=last.references if last else None,
            forgotten_ms=forgotten_ms,
            owed=tuple(window.start_ms for window in owed),
            seen=self._seeing.seen() if self._seeing is not None else None,
            ahead_ms=ahead.upto_ms,
            newest_ms=self._newest_ms(last),
        )
        return record, parts

    def _newest_ms(self, last: Progress | None) -> int | None:
        """The highest mark there was, in this life of the store or before: the marks of rows that a
        snapshot holds, or that were filtered, are lost with the store.
        """
        known = [] if last is None or last.newest_ms is None else [last.newest_ms]
        marks_ms = self.head.marks_ms.values() if self.head is not None else ()
        return max([*known, *marks_ms], default=None)

    def _ledger(self, folding: Folding, closed_ms: int | None, ahead_rows: int = 0) -> Ledger:
        """Before all is read again panes lack rows, which then seem to have been emitted."""
        return folding.ledger(closed_ms, ahead_rows) if self.caught_up else folding.counted

    def _read(self, version: TaskVersion, merged: Mapping[Lane, int]) -> dict[Lane, int]:
        """What of `merged` was read in this life: rows beyond it are still to be read again."""
        starts = version.starts or {}
        return {
            lane: max(min(offset, self.through.get(lane, offset)), starts.get(lane, 0))
            for lane, offset in merged.items()
        }

    def _batches(
        self, plan: Plan, emit: int, merged: Mapping[Lane, int], closed: Sequence[ClosedWindow]
    ) -> list[ResultBatch]:
        """One batch a window: what its rows were counted from stands in their headers."""
        topic = Topic(plan.options.output_topic)
        partition = self.owner.bucket % self.task.output_partitions[topic]
        through = self._counted_through(plan.version, merged)
        batches = []
        for window, folded in product(closed, (False, True)):
            part = window.finished.part(others=folded)
            if not part.keys:
                continue
            headers = result_headers(
                plan.task,
                plan.version,
                self.owner.bucket,
                emit,
                complete=window.complete,
                ranges=_ranges(window, through),
                rows=window.rows,
                revision=window.revision,
                folded=folded,
                deleted=window.deleted,
            )
            batches.append(
                ResultBatch(
                    plan.task, plan.version, topic, partition, part.keys, part.values, headers
                )
            )
        return batches

    def _withheld(
        self, plan: Plan, merged: Mapping[Lane, int], closed: Sequence[ClosedWindow]
    ) -> tuple[WithheldResult, ...]:
        """The results of these windows that are not sent; their rows count as emitted."""
        through = self._counted_through(plan.version, merged)
        return tuple(
            WithheldResult(
                each.window,
                one.detail,
                tuple(
                    dead_result(
                        plan, _ranges(each, through), each.window, one.shown_key, one.detail
                    )
                ),
            )
            for each in closed
            for one in each.finished.withheld
        )

    def _counted_through(self, version: int, merged: Mapping[Lane, int]) -> dict[Lane, int]:
        """M, as far as it is of this version: every row below it is counted or named."""
        ends = self._ends.get(version, merged)
        return {lane: min(offset, ends.get(lane, 0)) for lane, offset in merged.items()}

    def committed(self, record: Progress) -> None:
        """A progress record of this task is durable."""
        self._at_rest = None
        self._drafts.pop(record.version, None)
        if _named(record) == _named(self.records.get(record.version)):
            self._unfollowed.discard(record.version)
        else:
            self._unfollowed.add(record.version)
        self.records[record.version] = record
        self._saving.committed(record)
        folding = self._foldings.get(record.version)
        if folding is None:
            return
        folding.revising.committed(record)
        closed_ms, forgotten_ms = record.closed_ms, record.forgotten_ms
        if folding.committed(
            record.merged, closed_ms, record.ledger, forgotten_ms, record.ahead_ms
        ):
            self._log.loosened()
        self._catch_up()

    def take_accounted(self) -> tuple[tuple[int, Sequence64], ...]:
        """The entries, (version, SEQ), that the last commit was the first to account for."""
        if not all(folding.settled for folding in self._foldings.values()):
            return ()
        accounted, self._accounted = tuple(self._accounted), []
        return accounted

    # ------------------------------------------------------------------------------- trimming

    def _needed(self) -> dict[Lane, int]:
        """Below these offsets nothing in the log is needed by any version.

        Unlike L it does not go up with snapshots: what is in one is in the log, too.
        """
        needed = dict(self.through)
        for version, _plan, folding in self._open():
            low = folding.needed(self._read(version, folding.merged), folding.forgotten_ms)
            needed = {lane: min(offset, low.get(lane, 0)) for lane, offset in needed.items()}
        return needed

    def trim(self) -> tuple[Sequence64, ...]:
        """The entries that nobody needs any more, or that the base contains; forgets them."""
        return self._log.trim(self._needed())

    def empty_base(self) -> Entry | None:
        """A base without rows, to replace one that nobody needs any more; None if it is needed.

        The store takes it only from an owner that has seen the base that is there, so a former
        owner cannot take away what a newer one has merged.
        """
        base = self._log.take_base_below(self._needed())
        if base is None:
            return None
        seq, ranges = base
        nothing = Partial(self.owner.bucket, RowCounts(), (), b"")
        return Entry(seq, self.task.definition.current.version, ranges, nothing)

    def compactable(self, budget: int) -> bool:
        """True if there are entries that one entry of each version could stand for.

        The base may stand for them already: saved panes hold what is read again for other buckets.
        Over the budget any entry is worth it, and so is a base that holds what is closed by now.
        """
        if not all(one.settled or number in self.records for number, one in self._foldings.items()):
            return False
        over = self.head is not None and self.head.log_bytes > budget
        return self._log.is_worth_merging or (over and not self._log.is_merged)

    def overfull(self, budget: int, buckets: int) -> bool:
        """True if the task's log is over its budget although this bucket's part of it is merged.

        Other buckets may not have merged theirs: only one that holds more than its share can tell.
        If the merged logs of all buckets are over the budget, there is such a bucket.
        """
        over = self.head is not None and self.head.log_bytes > budget
        return over and self._log.exceeds(budget / buckets)

    def bases(self) -> tuple[Entry, ...]:
        """Entries in place of all absorbed ones, right after a commit; none if they are no use.

        There is one of each version that is not emitted to the end, the newest first, and one more
        where rows wait for others.
        """
        last = self._log.last
        if last is None or self._log.is_merged:
            return ()
        open_ones = reversed([folding for _version, _plan, folding in self._open()])
        bases = tuple(one for each in open_ones for one in each.bases(last, self.through))
        self._log.merged(last, bases)
        return bases

    # ---------------------------------------------------------------------------- for people

    def ledgers(self) -> Mapping[int, Ledger]:
        """The committed ledger of each version."""
        return {version: record.ledger for version, record in self.records.items()}


def _seeing(owner: Ownership, records: Mapping[int, Progress]) -> SeenWindow:
    """Goes on from what was committed in this life of the store.

    The newest version has a part in every commit: its record says what was seen last, or that an
    owner without a tracker came in between.
    """
    alive = [record for record in records.values() if record.store_epoch == owner.store_epoch]
    if not alive:
        return SeenWindow(Seen(0, 0))
    return SeenWindow(max(alive, key=lambda record: record.version).seen)


def _named(record: Progress | None) -> tuple[object, ...]:
    """What a record names that lies elsewhere in Kafka."""
    if record is None:
        return None, None, None
    return record.emission, record.snapshot, record.references


def _told(withheld: Sequence[WithheldResult]) -> str:
    """How many results are withheld, and one of them; empty where none is."""
    if not withheld:
        return ""
    first = withheld[0]
    count = f"{len(withheld)} results are" if len(withheld) > 1 else "1 result is"
    return (
        f"{count} withheld, for example of the window from {moment(first.window.start_ms)}: "
        f"{first.detail}"
    )


def _with_revisions(
    record: Progress, folding: Folding, revised: Sequence[ClosedWindow]
) -> Progress:
    """The record, with the numbers of the revisions that go with it."""
    windows = sorted({one.window for one in revised})
    numbers = folding.revising.numbers_with(windows, record.forgotten_ms)
    return replace(
        record, revisions={window.start_ms: number for window, number in numbers.items()}
    )


def _forward(needed: Mapping[Lane, int], last: Progress | None) -> dict[Lane, int]:
    """L, not below that of the last record.

    Rows are read again in other batches than before; one that begins further back makes a pane
    seem to need rows that it never had.
    """
    older = last.needed if last is not None else {}
    return {lane: max(offset, older.get(lane, 0)) for lane, offset in needed.items()}


def _ranges(window: ClosedWindow, through: Mapping[Lane, int]) -> list[Range]:
    """The offsets of which every row of the window was counted; later ones come too late."""
    return [
        Range(lane, first, through.get(lane, first))
        for lane, first in sorted(window.firsts.items())
    ]
