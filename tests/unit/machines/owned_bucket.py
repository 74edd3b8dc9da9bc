"""One bucket's machine and hands: tests tell it by hand what came of what it asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from mars.core.types import AssignmentEpoch, Entry, MemberId, StoreEpoch, TaskName
from mars.protocol.ports import Claim, Claimed, Committed, Head, Owner, Progress
from mars.protocol.reducer.commit_plan import OwnerLimits
from mars.protocol.reducer.events import (
    BucketClaimed,
    BucketCommitted,
    BucketFailed,
    ClaimBucket,
    CommitTransaction,
    FailTask,
    Instruction,
    LogRead,
    ReadLog,
)
from mars.protocol.reducer.owner import BucketOwner, OwnerState
from mars.protocol.runnable import RunnableTask
from tests.unit.machines.reducing_rows import (
    A1,
    BUCKET,
    E1,
    NAME,
    P0,
    make_entry,
    make_head,
    make_plan,
    make_slice,
    make_task,
)

BUCKETS = 2
LIMITS = OwnerLimits(
    progress_interval_ms=10_000,
    large_task_rows=3,
    log_bytes_max=1_000,
    buckets=BUCKETS,
    snapshot_every_ms=900_000,
)
OTHER = TaskName("other")
Asked = TypeVar("Asked")


def owner(epoch: int = 1) -> Owner:
    return Owner(MemberId("reducer-1"), AssignmentEpoch(epoch))


def only(instructions: Sequence[Instruction], kind: type[Asked]) -> Asked:
    """The one instruction of a kind."""
    (found,) = [each for each in instructions if isinstance(each, kind)]
    return found


class Bucket:
    """A bucket's machine, and its outcomes as they come."""

    def __init__(self, *tasks: RunnableTask, limits: OwnerLimits = LIMITS) -> None:
        self.machine = BucketOwner(BUCKET, limits)
        self.term = 0
        self.position = 0
        self.tasks = {task.name: task for task in tasks or (make_task(),)}
        self.machine.tasks_changed(self.tasks)
        self.machine.ticked(0)

    def change(self, *tasks: RunnableTask) -> None:
        self.tasks = {**self.tasks, **{task.name: task for task in tasks}}
        self.machine.tasks_changed(self.tasks)

    def assign(self, epoch: int = 1, store_epoch: int = 1) -> ClaimBucket:
        claim = only(self.machine.assigned(owner(epoch), StoreEpoch(store_epoch)), ClaimBucket)
        self.term = claim.term
        return claim

    def claim(self, *records: Progress) -> list[Instruction]:
        """The claim is durable, with these records before it."""
        own = Claim(BUCKET, A1, E1, "nonce", MemberId("reducer-1"))
        self.position = len(records) + 1
        claimed = Claimed((*records, own), self.position)
        return self.machine.claimed(BucketClaimed(BUCKET, self.term, claimed))

    def own(self, *records: Progress) -> None:
        self.assign()
        self.claim(*records)
        assert self.machine.state is OwnerState.OWNING

    def read(self, head: Head, *entries: Entry, name: TaskName = NAME) -> list[Instruction]:
        """Look at one head, read what it asks for."""
        asked = self.machine.heads_read({name: head})
        reads = [each for each in asked if isinstance(each, ReadLog)]
        given: list[Instruction] = [each for each in asked if not isinstance(each, ReadLog)]
        for read in reads:
            given += self.machine.log_read(LogRead(read, make_slice(*entries), head))
        return given

    def look(self, log_bytes: int) -> list[Instruction]:
        """Look at the head after two entries; nothing new is in the log."""
        return self.machine.heads_read({NAME: make_head(2, {P0: 2}, mark_s=2, log_bytes=log_bytes)})

    def commit(self, commit: CommitTransaction) -> list[Instruction]:
        """The transaction is durable."""
        progress = commit.transaction.progress
        self.position += len(progress)
        committed = Committed(progress, self.position)
        return self.machine.committed(BucketCommitted(BUCKET, commit.term, committed))

    def fail(self, *, fenced: bool = False, culprit: TaskName | None = None) -> list[Instruction]:
        return self.machine.failed(BucketFailed(BUCKET, self.term, fenced, "why", culprit))

    def due(self, name: TaskName = NAME, version: int = 1, now_ms: int = 0) -> CommitTransaction:
        """The commit of a window of a task, which is asked for and not done yet."""
        entry = make_entry(1, 0, [(1, "x")], plan=make_plan(name, version))
        head = make_head(1, {P0: 1}, mark_s=10, version=version)
        assert self.read(head, entry, name=name) == []
        return only(self.machine.ticked(now_ms), CommitTransaction)

    def refuse(self, name: TaskName = NAME) -> list[FailTask]:
        """The sink refuses rows that it was given of a task."""
        return [one for one in self.fail(culprit=name) if isinstance(one, FailTask)]


def names(commit: CommitTransaction) -> list[str]:
    """The tasks whose progress a transaction holds."""
    return [record.task for record in commit.transaction.progress]
