"""One bucket of a reducer, from claim to commit (R1-R9).

    assigned ──▶ CLAIMING ──▶ AUDITING ──▶ OWNING ◀──▶ COMMITTING
                    ▲                        │              │
                    └──────── WAITING ◀──────┴── unknown ───┘      after a pause, through R1 again
                              LOST: fenced, or the store went back: until a higher epoch comes

While a commit is under way the bucket's log is not read, so that exactly what was folded is
committed. A draft of it may have been written before, while the log was read (`drafting.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum

from mars.core.types import AssignmentEpoch, Bucket, StoreEpoch, TaskName
from mars.protocol.ports import Clearing, Head, Owner, Progress, ResultBatch, Transaction
from mars.protocol.reducer.commit_plan import CommitPlan, NextCommit, OwnerLimits
from mars.protocol.reducer.drafting import Drafting
from mars.protocol.reducer.events import (
    AuditEmissions,
    BucketClaimed,
    BucketCommitted,
    BucketFailed,
    ClaimBucket,
    CommitTransaction,
    EmissionsAudited,
    FailTask,
    Instruction,
    LogRead,
    LogRestored,
    ReadAssignment,
    ReleaseBucket,
    Report,
    SnapshotsRead,
    WriteDraft,
)
from mars.protocol.reducer.preparation import Prepared
from mars.protocol.reducer.term import Failing, TaskWentBack, Term
from mars.protocol.reducer.version import Ownership
from mars.protocol.runnable import RunnableTask

RETRY_PAUSE_MS = 500
"""Pause before a bucket whose outcome is unknown goes through R1 again: lets a broker that is
being restarted come back without a storm of producers."""


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
    """The machine of one bucket: one term after the other."""

    def __init__(self, bucket: Bucket, limits: OwnerLimits) -> None:
        self.bucket = bucket
        self.state = OwnerState.LOST
        self.owner: Owner | None = None
        self.assisted = False
        """The assignment names assistants of this bucket."""
        self._limits = limits
        self._epoch = AssignmentEpoch(0)
        self._store_epoch = StoreEpoch(0)
        self._now_ms = 0
        self._retry_at_ms = 0
        self._position = 0
        self._tasks: Mapping[TaskName, RunnableTask] = {}
        self._failing = Failing()
        self.drafting = Drafting(limits.draft_rows_min, limits.large_task_rows, limits.buckets)
        self._committing = NextCommit()
        """What the commit that is under way is of."""
        self._withheld: tuple[Report, ...] = ()
        """What to tell people once it is durable."""
        self.term = self._new_term(0)
        self._plan = self._new_plan()

    # ----------------------------------------------------------------------------- assignment

    def assigned(self, owner: Owner, store_epoch: StoreEpoch) -> list[Instruction]:
        """The assignment says that this reducer owns the bucket (R1)."""
        known = self.owner is not None and owner.epoch <= self.owner.epoch
        if known and store_epoch == self._store_epoch and self.state is not OwnerState.WAITING:
            return []
        if self.state is OwnerState.WAITING and known and self._now_ms < self._retry_at_ms:
            return []
        self.owner, self._epoch, self._store_epoch = owner, owner.epoch, store_epoch
        self._start_over(OwnerState.CLAIMING)
        claim = ClaimBucket(self.bucket, self.term.number, self._epoch, self._store_epoch)
        return [ReleaseBucket(self.bucket), claim]

    def unassigned(self) -> list[Instruction]:
        """The assignment gives the bucket to somebody else, or to nobody."""
        if self.owner is None:
            return []
        self.owner = None
        self._start_over(OwnerState.LOST)
        return [ReleaseBucket(self.bucket)]

    def _start_over(self, state: OwnerState) -> None:
        self.state = state
        self.term = self._new_term(self.term.number + 1)
        self._failing.settled()
        self.drafting.forget()

    def _new_term(self, number: int) -> Term:
        owner = Ownership(self.bucket, self._epoch, self._store_epoch, self._limits.tracked)
        return Term(number, owner, self._limits.snapshot_every_ms, self._failing)

    def _new_plan(self) -> CommitPlan:
        return CommitPlan(self._limits, self.term.parts, self.drafting, self._now_ms)

    # --------------------------------------------------------------------------------- outcomes

    def claimed(self, event: BucketClaimed) -> list[Instruction]:
        """R3: now the progress is known; R4: audit the last emissions."""
        if event.term != self.term.number:
            return []
        self._position = event.claimed.next
        told: list[Instruction] = [
            Report("restored", f"bucket {self.bucket}: {what}", self.bucket)
            for what in event.claimed.restored
        ]
        for record in event.claimed.records:
            if isinstance(record, Progress):
                self.term.know(record)
        emissions = tuple(
            record.emission
            for versions in self.term.records.values()
            for record in versions.values()
            if record.emission is not None and not record.deleted
        )
        if not emissions:
            return told + self._own()
        self.state = OwnerState.AUDITING
        return [*told, AuditEmissions(self.bucket, self.term.number, emissions)]

    def audited(self, event: EmissionsAudited) -> list[Instruction]:
        """A mismatch is reported; the record stays the truth."""
        if event.term != self.term.number:
            return []
        reports: list[Instruction] = [
            Report("audit_mismatch", f"bucket {self.bucket}: {difference}", self.bucket)
            for difference in event.differences
        ]
        return reports + self._own()

    def _own(self) -> list[Instruction]:
        self.state = OwnerState.OWNING
        self._plan = self._new_plan()
        return self.tasks_changed(self._tasks)

    def failed(self, event: BucketFailed) -> list[Instruction]:
        """R8: start over; fenced: until a higher assignment epoch comes."""
        if event.term != self.term.number:
            return []
        troubles = self._failing.refused(event.culprit, event.detail, self._tasks)
        self._retry_at_ms = self._now_ms + RETRY_PAUSE_MS
        self._start_over(OwnerState.LOST if event.fenced else OwnerState.WAITING)
        kind = "bucket_fenced" if event.fenced else "bucket_interrupted"
        return [
            ReleaseBucket(self.bucket),
            Report(kind, f"bucket {self.bucket}: {event.detail}", self.bucket),
            *troubles,
        ]

    def _in_term(self, work: Callable[[], list[Instruction]]) -> list[Instruction]:
        """Do what may find that the store went back: then the bucket waits for a new epoch."""
        try:
            return work()
        except TaskWentBack as problem:
            self._start_over(OwnerState.WENT_BACK)
            detail = f"task {problem.task}, bucket {self.bucket}: {problem}"
            return [ReleaseBucket(self.bucket), Report("store_went_back", detail)]

    # -------------------------------------------------------------------------- tasks and logs

    def tasks_changed(self, tasks: Mapping[TaskName, RunnableTask]) -> list[Instruction]:
        """Take the newest definitions.

        While a commit is under way they wait for its outcome. A task that failed and was resumed
        meanwhile would be begun anew from the records before it, and then be told of a record that
        it has not prepared.
        """
        self._tasks = tasks
        self._failing.update(tasks)
        unseen = self._failing.unseen()
        if self.state is not OwnerState.OWNING:
            return unseen
        return [*unseen, *self.term.update(tasks)]

    def snapshots_read(self, event: SnapshotsRead) -> list[Instruction]:
        """The panes of a lost store are known again."""
        if event.request.term != self.term.number:
            return []
        return self._in_term(lambda: self.term.snapshots_read(event))

    def log_restored(self, event: LogRestored) -> list[Instruction]:
        """They are in the store: now the log can be read."""
        if event.request.term == self.term.number:
            self.term.log_restored(event)
        return []

    def clearings(self) -> Iterator[Clearing]:
        """What is to be said to assistants with the next look."""
        if self.state is OwnerState.OWNING:
            yield from self.term.clearings(assisted=self.assisted)

    def heads_read(self, heads: Mapping[TaskName, Head | None]) -> list[Instruction]:
        """R5: what the logs may hold more than has been absorbed."""
        if self.state is not OwnerState.OWNING:
            return []
        return self._in_term(lambda: self.term.heads_read(heads))

    def left(self, heads: Mapping[TaskName, Head | None]) -> set[TaskName]:
        """The tasks that have more to read, which has to wait for the commit that is under way."""
        return self.term.left(heads) if self.state is OwnerState.COMMITTING else set()

    def log_read(self, event: LogRead) -> list[Instruction]:
        """Fold what was read."""
        if event.request.term != self.term.number or self.state is not OwnerState.OWNING:
            return []
        return self._in_term(lambda: self.term.log_read(event))

    # ------------------------------------------------------------------------------- committing

    def ticked(self, now_ms: int, *, in_turn: bool = True) -> list[Instruction]:
        """Retry, or commit what is due; what takes long only where it is the bucket's turn."""
        self._now_ms = now_ms
        if self.state is OwnerState.WAITING and now_ms >= self._retry_at_ms:
            return [ReadAssignment()]
        if self.state is not OwnerState.OWNING:
            return []
        return self._in_term(lambda: self._commit_next(in_turn=in_turn))

    def _commit_next(self, *, in_turn: bool) -> list[Instruction]:
        plan = self._plan
        due = plan.due(self._now_ms)
        return (
            self._commit(plan.windows(due, in_turn=in_turn))
            or self._commit(plan.progress(due, self.term.deleted_records(self._tasks)))
            or [self.term.fail(name, detail) for name, detail in plan.overfull()]
            or self._draft_soon()
        )

    def _commit(self, choice: NextCommit) -> list[Instruction]:
        if not choice:
            return []
        parts = self.term.parts
        done = [self.term.attempt(name, parts[name].prepare) for name in choice.tasks]
        troubles: list[Instruction] = [one for one in done if isinstance(one, FailTask)]
        pieces = [one for one in done if isinstance(one, Prepared)]
        whole = Prepared.of_all(pieces)
        progress = (*whole.progress, *choice.gone)
        if not progress:
            return troubles
        transaction = Transaction(
            bucket=self.bucket,
            results=whole.results,
            dead=whole.dead,
            progress=progress,
            snapshots=(*whole.snapshots, *self.term.snapshots_gone(choice.gone)),
            sources=tuple(
                parts[piece.progress[0].task].task.source for piece in pieces if piece.results
            ),
        )
        self._withheld = tuple(
            Report("withheld", piece.withheld, self.bucket, piece.progress[0].task)
            for piece in pieces
            if piece.withheld
        )
        self._failing.given(parts[name].task for name in choice.tasks if name in parts)
        self.drafting.end(self._now_ms, transaction.results)
        self.state, self._committing = OwnerState.COMMITTING, choice
        commit = CommitTransaction(self.bucket, self.term.number, transaction, self._position)
        return [*troubles, commit]

    def committed(self, event: BucketCommitted) -> list[Instruction]:
        """R9: the outcome is known, so what nobody needs any more may go."""
        if event.term != self.term.number:
            return []
        self.state = OwnerState.OWNING
        self._position = event.committed.next
        self._failing.settled()
        names, merging = self.term.committed(event.committed), self._committing.merging
        told = [one for name in names for one in self.term.tell_tracker(name)]
        trims = [one for name in names for one in self.term.clean_up(name, merging=name in merging)]
        self._committing = NextCommit()
        came = self.term.tasks is not self._tasks
        changes = self.term.update(self._tasks) if came else []
        # Whatever is due by now waits until the logs have been read: else a bucket in which a
        # commit takes longer than it is until the next one would never read again.
        return [*trims, *told, *self._withheld, *changes]

    # --------------------------------------------------------------------------------- drafting

    def _draft_soon(self) -> list[Instruction]:
        """Write the rows of windows that are about to close, so that little is left to do then."""
        drafting, parts = self.drafting, self.term.parts
        if drafting.under_way:
            return [] if drafting.stands(self._now_ms, parts) else self._write_draft([])
        names = drafting.wanted(self._now_ms, parts)
        done = [self.term.attempt(name, parts[name].draft) for name in names]
        troubles: list[Instruction] = [one for one in done if isinstance(one, FailTask)]
        if troubles or not names:
            return troubles
        results = [batch for one in done if not isinstance(one, FailTask) for batch in one]
        self._failing.given(parts[name].task for name in names)
        drafting.begin(self._now_ms, names, results)
        return self._write_draft(results) if results else []

    def _write_draft(self, results: Sequence[ResultBatch]) -> list[Instruction]:
        """Without rows: take the draft back at once, so that the next producer will be ready."""
        if not results:
            self.drafting.end(self._now_ms, results)
        return [WriteDraft(self.bucket, self.term.number, tuple(results), self._position)]

    # ------------------------------------------------------------------------------ for people

    @property
    def status(self) -> str:
        """One word for what the bucket is doing."""
        if self.state is OwnerState.OWNING and not self.term.is_caught_up:
            return "catching_up"
        return self.state.value
