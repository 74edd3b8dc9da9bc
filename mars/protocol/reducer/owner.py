"""One bucket of a reducer, from claim to commit (R1-R9).

    assigned ──▶ CLAIMING ──▶ AUDITING ──▶ OWNING ◀──▶ COMMITTING
                    ▲                        │              │
                    └──────── WAITING ◀──────┴── unknown ───┘      after a pause, through R1 again
                              LOST: fenced, or the store went back: until a higher epoch comes

While a commit is under way the bucket's log is not read, so what is committed is what was folded.
A draft of it may have been written before, while the log was read (`drafting.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from mars.core.definitions import TaskDefinition, TaskState
from mars.core.errors import TaskLimit
from mars.core.types import AssignmentEpoch, Bucket, StoreEpoch, TaskName
from mars.protocol.ports import (
    Clearing,
    Head,
    Owner,
    Progress,
    ResultBatch,
    SnapshotParts,
    Transaction,
)
from mars.protocol.reducer.drafting import DraftFigures, Drafting
from mars.protocol.reducer.events import (
    AuditEmissions,
    BucketClaimed,
    BucketCommitted,
    BucketFailed,
    ClaimBucket,
    CommitTransaction,
    CompactLog,
    EmissionsAudited,
    FailTask,
    Instruction,
    LogRead,
    LogRestored,
    ReadAssignment,
    ReadLog,
    ReadSnapshots,
    ReleaseBucket,
    Report,
    RestoreLog,
    SnapshotsRead,
    TellTracker,
    TrimLog,
    WriteDraft,
)
from mars.protocol.reducer.preparation import Prepared
from mars.protocol.reducer.task_in_bucket import TaskInBucket
from mars.protocol.reducer.version import Ownership
from mars.protocol.runnable import RunnableTask
from mars.protocol.windows.input import StoreWentBack
from mars.protocol.windows.open_panes import Size
from mars.protocol.windows.turns import takes_long

RETRY_PAUSE_MS = 500
"""Pause before a bucket whose outcome is unknown goes through R1 again: lets a broker that is
being restarted come back without a storm of producers."""

OVER_BUDGET_MS = 5_000
"""How long a task may be over its budget although a bucket has merged what it can: the other
buckets close and merge at about the same time, not at the same moment."""


GATHERING_MS = 1_000
"""How long late rows of a closed window, and groups that are due by their keys, wait for others,
unless a commit takes them along sooner: so there is no transaction for each of them."""

CLOSING_SOON_MS = 1_500
"""Progress without rows waits for a window that is to close so soon, and comes with it: a bucket
that has just begun a commit closes its windows some tenths of a second after the others. A mapper
may let rows rest for 500 ms, so the watermark may be further by that."""


@dataclass(frozen=True, slots=True)
class OwnerLimits:
    """How a bucket commits.

    `progress_interval_ms`: M is committed without rows once it is this old, and no later than when
    it is twice as old; where rows are committed, that of other tasks comes along once it is half as
    old, so that windows of about this length need no commits between. `large_task_rows`: a
    task with more due rows gets a transaction of its own, after the others. `log_bytes_max`: the
    budget of a task's log; over half of it, entries are merged (R9). `buckets`: B. Panes that have
    been open for `snapshot_every_ms` are saved in Kafka, and again each time it has passed. Where
    it is `tracked`, progress records say which entries they account for, and the tracker is told.
    Windows are drafted where they have at least `draft_rows_min` rows together; 0: never.
    """

    progress_interval_ms: int
    large_task_rows: int
    log_bytes_max: int
    buckets: int
    snapshot_every_ms: int
    tracked: bool = False
    draft_rows_min: int = 0


class OwnerState(StrEnum):
    """Where a bucket stands."""

    CLAIMING = "claiming"
    AUDITING = "auditing"
    OWNING = "owning"
    COMMITTING = "committing"
    WAITING = "waiting"
    LOST = "lost"
    WENT_BACK = "store_went_back"


class BucketOwner:
    """The machine of one bucket."""

    def __init__(self, bucket: Bucket, limits: OwnerLimits) -> None:
        self.bucket = bucket
        self.state = OwnerState.LOST
        self.owner: Owner | None = None
        self.assisted = False
        """The assignment names assistants of this bucket."""
        self._limits = limits
        self._term = 0
        self._epoch = AssignmentEpoch(0)
        self._store_epoch = StoreEpoch(0)
        self._now_ms = 0
        self._retry_at_ms = 0
        self._progress_at_ms = 0
        self._held_until_ms = 0
        """Until then progress waits for a window that is to close."""
        self._position = 0
        self._tasks: Mapping[TaskName, RunnableTask] = {}
        self._parts: dict[TaskName, TaskInBucket] = {}
        self._records: dict[TaskName, dict[int, Progress]] = {}
        self._sick: set[TaskName] = set()
        self._any_deleted = True
        """Some record may be of a task or version that was deleted since."""
        self._pending: dict[TaskName, Head] = {}
        self._compacting: set[TaskName] = set()
        self._over_since_ms: dict[TaskName, int] = {}
        self._waiting_since_ms: dict[TaskName, int] = {}
        self._slow_since_ms: dict[TaskName, int] = {}
        """Tasks that are due and take long, and since when."""
        self._slow_is_next = False
        self._drafting = Drafting(limits.draft_rows_min, limits.large_task_rows, limits.buckets)
        self._withheld: tuple[Report, ...] = ()
        """What to tell people once the commit that is under way is durable."""

    # ----------------------------------------------------------------------------- assignment

    def assigned(self, owner: Owner, store_epoch: StoreEpoch) -> list[Instruction]:
        """The assignment says that this reducer owns the bucket (R1)."""
        known = self.owner is not None and owner.epoch <= self.owner.epoch
        if known and store_epoch == self._store_epoch and self.state is not OwnerState.WAITING:
            return []
        if self.state is OwnerState.WAITING and known and self._now_ms < self._retry_at_ms:
            return []
        self.owner, self._epoch, self._store_epoch = owner, owner.epoch, store_epoch
        return self._claim()

    def _claim(self) -> list[Instruction]:
        self._start_over(OwnerState.CLAIMING)
        claim = ClaimBucket(self.bucket, self._term, self._epoch, self._store_epoch)
        return [ReleaseBucket(self.bucket), claim]

    def _start_over(self, state: OwnerState) -> None:
        self._term += 1
        self.state = state
        self._parts, self._records, self._pending = {}, {}, {}
        self._compacting, self._over_since_ms, self._waiting_since_ms = set(), {}, {}
        self._slow_since_ms, self._slow_is_next = {}, False
        self._drafting.forget()

    def unassigned(self) -> list[Instruction]:
        """The assignment gives the bucket to somebody else, or to nobody."""
        if self.owner is None:
            return []
        self.owner = None
        self._start_over(OwnerState.LOST)
        return [ReleaseBucket(self.bucket)]

    # --------------------------------------------------------------------------------- outcomes

    def claimed(self, event: BucketClaimed) -> list[Instruction]:
        """R3: now the progress is known; R4: audit the last emissions."""
        if event.term != self._term:
            return []
        self._position = event.claimed.next
        told: list[Instruction] = [
            Report("restored", f"bucket {self.bucket}: {what}", self.bucket)
            for what in event.claimed.restored
        ]
        for record in event.claimed.records:
            if isinstance(record, Progress):
                self._records.setdefault(record.task, {})[record.version] = record
        emissions = tuple(
            record.emission
            for versions in self._records.values()
            for record in versions.values()
            if record.emission is not None and not record.deleted
        )
        if not emissions:
            return told + self._own()
        self.state = OwnerState.AUDITING
        return [*told, AuditEmissions(self.bucket, self._term, emissions)]

    def audited(self, event: EmissionsAudited) -> list[Instruction]:
        """A mismatch is reported; the record stays the truth."""
        if event.term != self._term:
            return []
        reports: list[Instruction] = [
            Report("audit_mismatch", f"bucket {self.bucket}: {difference}", self.bucket)
            for difference in event.differences
        ]
        return reports + self._own()

    def _own(self) -> list[Instruction]:
        self.state = OwnerState.OWNING
        self._progress_at_ms = self._now_ms
        return self.tasks_changed(self._tasks)

    def failed(self, event: BucketFailed) -> list[Instruction]:
        """R8: start over; fenced: until a higher assignment epoch comes."""
        if event.term != self._term:
            return []
        self._retry_at_ms = self._now_ms + RETRY_PAUSE_MS
        self._start_over(OwnerState.LOST if event.fenced else OwnerState.WAITING)
        kind = "bucket_fenced" if event.fenced else "bucket_interrupted"
        troubles = [] if event.culprit is None else self._fail(event.culprit, event.detail)
        return [
            ReleaseBucket(self.bucket),
            Report(kind, f"bucket {self.bucket}: {event.detail}", self.bucket),
            *troubles,
        ]

    def _went_back(self, task: TaskName, problem: StoreWentBack) -> list[Instruction]:
        self._start_over(OwnerState.WENT_BACK)
        return [
            ReleaseBucket(self.bucket),
            Report("store_went_back", f"task {task}, bucket {self.bucket}: {problem}"),
        ]

    # ------------------------------------------------------------------------------------ tasks

    def tasks_changed(self, tasks: Mapping[TaskName, RunnableTask]) -> list[Instruction]:
        """Take the newest definitions."""
        self._tasks = tasks
        self._any_deleted = True
        running = {name for name, task in tasks.items() if not (task.deleted or task.failed)}
        # One that has failed, and runs again, is tried again: its failure may be forgotten.
        self._sick &= running
        if self.state not in (OwnerState.OWNING, OwnerState.COMMITTING):
            return []
        reads: list[Instruction] = []
        for name, task in tasks.items():
            if name not in running or name in self._sick:
                self._parts.pop(name, None)
            elif name in self._parts and self._parts[name].same_life(task):
                self._parts[name].update(task)
            elif task.begun():
                self._pending.pop(name, None)
                part = self._parts[name] = self._part(task)
                if part.restoring.wanted:
                    reads.append(
                        ReadSnapshots(self.bucket, self._term, name, part.restoring.wanted)
                    )
        for name in [name for name in self._parts if name not in tasks]:
            del self._parts[name]
        return reads

    def _part(self, task: RunnableTask) -> TaskInBucket:
        owner = Ownership(self.bucket, self._epoch, self._store_epoch, self._limits.tracked)
        records = {
            version: record
            for version, record in self._records.get(task.name, {}).items()
            if not (record.deleted or _is_dropped(task.definition, version))
        }
        return TaskInBucket(task, owner, records, self._limits.snapshot_every_ms)

    # ------------------------------------------------------------------------------- restoring

    def snapshots_read(self, event: SnapshotsRead) -> list[Instruction]:
        """The panes of a lost store are known again; the next look at the head puts them there."""
        request = event.request
        part = self._parts.get(request.task)
        if request.term != self._term or part is None or part.restoring.wanted != request.records:
            return []
        trouble = self._guarded(request.task, partial(part.restored, event.found, event.lost))
        return trouble or [
            Report(
                "snapshot_lost",
                f"bucket {self.bucket}: {detail} {_INCOMPLETE}",
                self.bucket,
                request.task,
            )
            for detail in event.lost.values()
        ]

    def log_restored(self, event: LogRestored) -> list[Instruction]:
        """Now the log can be read."""
        request = event.request
        part = self._parts.get(request.task)
        if (
            request.term == self._term
            and part is not None
            and part.restoring.found == request.bases
        ):
            part.restoring.put_back()
        return []

    # -------------------------------------------------------------------------------- reading

    def clearings(self) -> Iterator[Clearing]:
        """What is to be said with the next look: whether assistants may merge what lies above it.

        So a bucket always reads up to a SEQ that no merged entry crosses. Logs are closed, too,
        once at the beginning, whoever owned the bucket before: until all is read again that was
        accounted, an assistant cannot know which offsets the records name.
        """
        if self.state is not OwnerState.OWNING:
            return
        for name, part in self._parts.items():
            opens = self.assisted and part.position.caught_up
            if opens or not part.closed_to_assistants:
                yield Clearing(name, self.bucket, self._store_epoch, self._epoch, opens)

    def cleared(self, said: Clearing) -> None:
        """The store has heard it."""
        part = self._parts.get(said.task)
        if part is not None:
            part.closed_to_assistants = not said.opens

    def heads_read(self, heads: Mapping[TaskName, Head | None]) -> list[Instruction]:
        """R5: what the log may hold more than has been absorbed."""
        if self.state is not OwnerState.OWNING:
            return []
        reads: list[Instruction] = []
        for name, part in self._parts.items():
            head = heads.get(name)
            if head is None or head.epoch != self._store_epoch or not part.knows(head.version):
                continue
            trouble = self._guarded(name, partial(part.position.look, head))
            if trouble:
                return trouble
            if part.restoring.wanted:
                continue
            if bases := part.restoring.found:
                reads.append(
                    RestoreLog(self.bucket, self._term, name, head.epoch, head.born, bases)
                )
            elif part.position.is_behind(head):
                self._pending[name] = head
                reads.append(
                    ReadLog(self.bucket, self._term, name, part.position.last_seq, head.seq)
                )
            else:
                trouble = self._guarded(name, partial(part.drained, head))
                if trouble:
                    return trouble
        return reads

    def left(self, heads: Mapping[TaskName, Head | None]) -> set[TaskName]:
        """The tasks that have more to read, which has to wait for the commit that is under way."""
        if self.state is not OwnerState.COMMITTING:
            return set()
        return {
            name
            for name, part in self._parts.items()
            if (head := heads.get(name)) is not None and part.position.is_behind(head)
        }

    def log_read(self, event: LogRead) -> list[Instruction]:
        """Fold what was read, then go forward to the head it was read for."""
        request = event.request
        part = self._parts.get(request.task)
        if request.term != self._term or part is None or self.state is not OwnerState.OWNING:
            return []
        head = self._pending.pop(request.task, None)
        if head is None or head.seq != request.upto or part.position.last_seq != request.after:
            return []
        if not _still_there(part, head, event.after):
            return []

        def take() -> None:
            part.absorb(event.slice)
            part.drained(head)

        return self._guarded(request.task, take)

    def _guarded(self, task: TaskName, work: Callable[[], None]) -> list[Instruction]:
        """Run one task's work: its failure must not touch the other tasks of the bucket (I7)."""
        try:
            work()
        except StoreWentBack as problem:
            return self._went_back(task, problem)
        except TaskLimit as problem:
            return self._fail(task, str(problem))
        except Exception as problem:  # noqa: BLE001 -- whatever it is, only this task stops
            return self._fail(task, f"unexpected {type(problem).__name__}: {problem}")
        return []

    def _fail(self, task: TaskName, detail: str) -> list[Instruction]:
        self._sick.add(task)
        self._parts.pop(task, None)
        return [FailTask(task, detail)]

    # ------------------------------------------------------------------------------- committing

    def ticked(self, now_ms: int, *, in_turn: bool = True) -> list[Instruction]:
        """Retry, or commit what is due; what takes long only where it is the bucket's turn."""
        self._now_ms = now_ms
        if self.state is OwnerState.WAITING and now_ms >= self._retry_at_ms:
            return [ReadAssignment()]
        if self.state is not OwnerState.OWNING:
            return []
        due = {name: size for name in self._parts if (size := self._due(name)) is not None}
        return (
            self._commit_due(due, in_turn=in_turn)
            or self._commit_progress(due)
            or self._fail_overfull()
            or self._draft_soon()
        )

    def _commit_due(self, due: Mapping[TaskName, Size], *, in_turn: bool) -> list[Instruction]:
        first = self._drafting.first(self._now_ms, due, self._parts)
        if first is not None and not first:
            return []
        chosen = list(first or self._next_of(due, in_turn=in_turn))
        if not chosen:
            return []
        for name in chosen:
            self._over_since_ms.pop(name, None)
        to_merge = self._crowded() | self._long_open()
        chosen += [name for name in self._parts if name in to_merge and name not in due]
        self._compacting = to_merge.intersection(chosen)
        if 2 * self._progress_age_ms() >= self._limits.progress_interval_ms:
            self._progress_at_ms = self._now_ms
            chosen += [name for name in self._stale() if name not in {*due, *chosen}]
        return self._commit(chosen)

    def _next_of(self, due: Mapping[TaskName, Size], *, in_turn: bool) -> list[TaskName]:
        """All tasks that are closed quickly, or one of the others: that which has waited longest.

        The two take turns.
        """
        slow = [name for name, size in due.items() if self._is_slow(size)]
        self._slow_since_ms = {name: self._slow_since_ms.get(name, self._now_ms) for name in slow}
        quick = [name for name in due if name not in self._slow_since_ms]
        if quick and not (in_turn and self._slow_is_next):
            self._slow_is_next = bool(slow)
            return quick
        if not (slow and in_turn):
            return []
        self._slow_is_next = False
        next_one = min(slow, key=lambda name: (self._slow_since_ms[name], due[name].rows))
        del self._slow_since_ms[next_one]
        return [next_one]

    def _is_slow(self, size: Size) -> bool:
        return size.rows > self._limits.large_task_rows or takes_long(size)

    def _due(self, name: TaskName) -> Size | None:
        """What a task has to close now; what gathers, once the first of it has waited."""
        part = self._parts[name]
        if not part.waiting:
            self._waiting_since_ms.pop(name, None)
            return part.due()
        since_ms = self._waiting_since_ms.setdefault(name, self._now_ms)
        return part.due(waited=self._now_ms - since_ms >= GATHERING_MS)

    def _draft_soon(self) -> list[Instruction]:
        """Write the rows of windows that are about to close, so that little is left to do then."""
        drafting, parts = self._drafting, self._parts
        if drafting.under_way:
            return [] if drafting.stands(self._now_ms, parts) else self._write_draft([])
        results: list[ResultBatch] = []
        troubles: list[Instruction] = []
        names = drafting.wanted(self._now_ms, parts)
        for name in names:
            troubles += self._guarded(name, partial(_add_draft, parts[name], results))
        if troubles or not names:
            return troubles
        drafting.begin(self._now_ms, names, results)
        return self._write_draft(results) if results else []

    def _write_draft(self, results: Sequence[ResultBatch]) -> list[Instruction]:
        """Without rows: take the draft back at once, so that the next producer will be ready."""
        if not results:
            self._drafting.end(self._now_ms, results)
        return [WriteDraft(self.bucket, self._term, tuple(results), self._position)]

    def _commit_progress(self, due: Collection[TaskName]) -> list[Instruction]:
        """M, and logs to be merged, of tasks of which nothing is due."""
        crowded = self._crowded()
        old = self._progress_is_due()
        gone = self._deleted_records()
        long = self._long_open()
        if not (crowded or old or gone or long):
            return []
        self._compacting = chosen = crowded | long
        if old:
            self._progress_at_ms = self._now_ms
            chosen = chosen.union(self._stale())
        names = [name for name in self._parts if name in chosen and name not in due]
        return self._commit(names, gone) if names or gone else []

    def _stale(self) -> Iterator[TaskName]:
        return (name for name, part in self._parts.items() if part.stale())

    def _progress_age_ms(self) -> int:
        return self._now_ms - self._progress_at_ms

    def _progress_is_due(self) -> bool:
        now_ms, interval_ms = self._now_ms, self._limits.progress_interval_ms
        if self._progress_age_ms() < interval_ms or now_ms < self._held_until_ms:
            return False
        latest_ms = self._progress_at_ms + 2 * interval_ms
        parts = self._parts.values()
        if now_ms < latest_ms and any(part.closes_within(CLOSING_SOON_MS) for part in parts):
            self._held_until_ms = min(now_ms + CLOSING_SOON_MS, latest_ms)
            return False
        return True

    def _long_open(self) -> set[TaskName]:
        """Tasks whose panes are to be saved; the log is merged with it, as they are at hand."""
        return {name for name, part in self._parts.items() if part.snapshot_due(self._now_ms)}

    def _crowded(self) -> set[TaskName]:
        """Tasks whose log is over half its budget and can be merged (R9)."""
        budget = self._limits.log_bytes_max
        return {
            name
            for name, part in self._parts.items()
            if part.position.head is not None
            and part.position.head.log_bytes > budget // 2
            and part.upkeep.is_compactable(budget)
        }

    def _fail_overfull(self) -> list[Instruction]:
        """R9: a task whose merged states do not fit into its budget will not go on by itself."""
        limits, failed = self._limits, []
        for name, part in list(self._parts.items()):
            if part.position.head is None or not part.upkeep.is_overfull(
                limits.log_bytes_max, limits.buckets
            ):
                self._over_since_ms.pop(name, None)
                continue
            since_ms = self._over_since_ms.setdefault(name, self._now_ms)
            if self._now_ms - since_ms >= OVER_BUDGET_MS:
                failed += self._fail(
                    name, _needs_more(part.position.head.log_bytes, limits.log_bytes_max)
                )
        return failed

    def _deleted_records(self) -> tuple[Progress, ...]:
        """Last records of tasks that were deleted since.

        A deleted task's definition stays, so one that is not there is not deleted: ZooKeeper has
        lost it, and the leader will bring it back.
        """
        if not self._any_deleted:
            return ()
        gone = []
        for name, versions in self._records.items():
            task = self._tasks.get(name)
            if task is None:
                continue
            for version, record in versions.items():
                if _is_dropped(task.definition, version) and not record.deleted:
                    gone.append(self._deleted(record))
        self._any_deleted = bool(gone)
        return tuple(gone)

    def _snapshots_gone(self, deleted: Iterable[Progress]) -> Iterator[SnapshotParts]:
        for record in deleted:
            snapshot = self._records[record.task][record.version].snapshot
            if snapshot is not None:
                yield SnapshotParts(record.task, record.version, (), snapshot.parts)

    def _deleted(self, record: Progress) -> Progress:
        return Progress(
            task=record.task,
            version=record.version,
            bucket=record.bucket,
            assignment_epoch=self._epoch,
            store_epoch=self._store_epoch,
            emit=record.emit + 1,
            closed_ms=record.closed_ms,
            forgotten_ms=record.forgotten_ms,
            merged=record.merged,
            needed=record.needed,
            ledger=record.ledger,
            deleted=True,
        )

    def _commit(self, names: list[TaskName], gone: tuple[Progress, ...] = ()) -> list[Instruction]:
        prepared: list[Prepared] = []
        troubles: list[Instruction] = []
        for name in names:
            part = self._parts[name]
            troubles += self._guarded(name, partial(_prepare, part, prepared))
        progress = tuple(record for piece in prepared for record in piece.progress) + gone
        if self.state is not OwnerState.OWNING or not progress:
            return troubles
        transaction = Transaction(
            bucket=self.bucket,
            results=tuple(batch for piece in prepared for batch in piece.results),
            dead=tuple(record for piece in prepared for record in piece.dead),
            progress=progress,
            snapshots=(
                *(parts for piece in prepared for parts in piece.snapshots),
                *self._snapshots_gone(gone),
            ),
        )
        self._withheld = tuple(
            Report("withheld", piece.withheld, self.bucket, piece.progress[0].task)
            for piece in prepared
            if piece.withheld
        )
        self._drafting.end(self._now_ms, transaction.results)
        self.state = OwnerState.COMMITTING
        commit = CommitTransaction(self.bucket, self._term, transaction, self._position)
        return [*troubles, commit]

    def committed(self, event: BucketCommitted) -> list[Instruction]:
        """R9: the outcome is known, so what nobody needs any more may go."""
        if event.term != self._term:
            return []
        self.state = OwnerState.OWNING
        self._position = event.committed.next
        touched: list[TaskName] = []
        for record in event.committed.progress:
            self._records.setdefault(record.task, {})[record.version] = record
            part = self._parts.get(record.task)
            if part is not None and not record.deleted:
                part.committed(record)
                touched.append(record.task)
        names = dict.fromkeys(touched)
        told = [given for name in names for given in self._tell_tracker(name)]
        trims = [trim for name in names for trim in self._clean_up(name)]
        self._compacting = set()
        # Whatever is due by now waits until the logs have been read: else a bucket in which a
        # commit takes longer than it is until the next one would never read again.
        return [*trims, *told, *self._withheld]

    def _clean_up(self, name: TaskName) -> list[Instruction]:
        """Trim and merge a task's log; merging may find that it is over a limit."""
        instructions: list[Instruction] = []
        trouble = self._guarded(name, lambda: instructions.extend(self._trim(name)))
        return trouble or instructions

    def _trim(self, name: TaskName) -> list[Instruction]:
        part = self._parts[name]
        gone, born = part.upkeep.trim(), part.position.born
        instructions: list[Instruction] = []
        if gone:
            instructions.append(TrimLog(self.bucket, name, self._store_epoch, born, gone))
        bases = part.upkeep.bases() if name in self._compacting else ()
        current = part.task.definition.current.version
        base, *older = bases or (part.upkeep.empty_base(current),)
        if base is not None:
            instructions.append(
                CompactLog(self.bucket, name, self._store_epoch, born, base, tuple(older))
            )
        return instructions

    def _tell_tracker(self, name: TaskName) -> list[Instruction]:
        entries = self._parts[name].take_accounted()
        return [TellTracker(self.bucket, name, self._store_epoch, entries)] if entries else []

    # ------------------------------------------------------------------------------ for people

    def unread(self, heads: Mapping[TaskName, Head | None]) -> dict[TaskName, int]:
        """How many batches of each task are there and not absorbed."""
        return {
            name: head.seq - part.position.last_seq
            for name, part in self._parts.items()
            if (head := heads.get(name)) is not None and head.seq > part.position.last_seq > 0
        }

    @property
    def drafts(self) -> DraftFigures:
        """What became of its drafts."""
        return self._drafting.figures

    @property
    def status(self) -> str:
        """One word for what the bucket is doing."""
        if self.state is OwnerState.OWNING and not all(
            p.position.caught_up for p in self._parts.values()
        ):
            return "catching_up"
        return self.state.value


_INCOMPLETE = (
    "The windows that were open then lack its rows and say so (mars-complete: 0): register the "
    "task again from an earlier start to have them whole."
)


def _is_dropped(definition: TaskDefinition, version: int) -> bool:
    """True for a version that a definition had once. One that is newer than all in it is of a
    definition that has not come yet: whoever owned the bucket before knew more.
    """
    if definition.state is TaskState.DELETED:
        return version <= definition.current.version
    kept = {one.version for one in definition.versions}
    return version < definition.current.version and version not in kept


def _needs_more(log_bytes: int, log_bytes_max: int) -> str:
    return (
        f"its open windows need {log_bytes} bytes in the store, merged as they are, and a task may "
        f"hold {log_bytes_max}: raise cluster.log_bytes_max and start all processes again, or ask "
        "for fewer groups or smaller windows"
    )


def _prepare(part: TaskInBucket, prepared: list[Prepared]) -> None:
    prepared.append(part.prepare())


def _add_draft(part: TaskInBucket, results: list[ResultBatch]) -> None:
    results += part.draft()


def _still_there(part: TaskInBucket, before: Head, after: Head | None) -> bool:
    """Whether the log was, while it was read, that of the head it was read for."""
    if after is None or (after.epoch, after.born) != (before.epoch, before.born):
        return False
    return after.seq >= before.seq and part.knows(after.version)
