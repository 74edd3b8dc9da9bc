"""What the reducing machines are told, and what they ask for.

Every instruction about a bucket carries the bucket's `term`, a number that grows each time the
machine starts over with it; its outcome is an event with the same term, so that an outcome that
comes after the machine has started over is known to be stale.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mars.core.definitions import TaskRun
from mars.core.types import AssignmentEpoch, Bucket, Entry, Sequence64, StoreEpoch, TaskName
from mars.protocol.ports import (
    Assignment,
    Claimed,
    Clearing,
    Committed,
    Emission,
    Head,
    LogSlice,
    Progress,
    ResultBatch,
    Transaction,
)
from mars.protocol.runnable import RunnableTask

# ------------------------------------------------------------------------------- instructions


@dataclass(frozen=True, slots=True)
class ReadAssignment:
    """Sync with ZooKeeper and read the assignment (R1)."""


@dataclass(frozen=True, slots=True)
class ClaimBucket:
    """Fence older owners, claim, learn the progress (R2, R3)."""

    bucket: Bucket
    term: int
    epoch: AssignmentEpoch
    store_epoch: StoreEpoch


@dataclass(frozen=True, slots=True)
class AuditEmissions:
    """Compare the last emissions with the output topics (R4)."""

    bucket: Bucket
    term: int
    emissions: tuple[Emission, ...]


@dataclass(frozen=True, slots=True)
class ReadLog:
    """Read the entries `after < seq <= upto` of a task's bucket."""

    bucket: Bucket
    term: int
    task: TaskName
    after: Sequence64
    upto: Sequence64
    run: TaskRun
    """The run of the task for which it is read."""


@dataclass(frozen=True, slots=True)
class ReadSnapshots:
    """Read the snapshots that these records of a task name: the store has lost their panes."""

    bucket: Bucket
    term: int
    task: TaskName
    records: tuple[Progress, ...]


@dataclass(frozen=True, slots=True)
class RestoreLog:
    """Put saved panes into the store, before the log is read; asked for until it is done."""

    bucket: Bucket
    term: int
    task: TaskName
    store_epoch: StoreEpoch
    born: str
    bases: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class CommitTransaction:
    """Write and commit (R7); `next` is the known end of the progress partition."""

    bucket: Bucket
    term: int
    transaction: Transaction
    next: int


@dataclass(frozen=True, slots=True)
class WriteDraft:
    """Write what the next commit is likely to emit; without results: take it back.

    Only a failure is told. `next` as in `CommitTransaction`.
    """

    bucket: Bucket
    term: int
    results: tuple[ResultBatch, ...]
    next: int


@dataclass(frozen=True, slots=True)
class TrimLog:
    """Delete entries that nobody needs any more from the life that was `born` then (R9)."""

    bucket: Bucket
    task: TaskName
    store_epoch: StoreEpoch
    born: str
    seqs: tuple[Sequence64, ...]


@dataclass(frozen=True, slots=True)
class CompactLog:
    """Put `base`, and those of `older` versions, in place of the entries merged into them (R9); a
    base without rows replaces one that nobody needs any more.
    """

    bucket: Bucket
    task: TaskName
    store_epoch: StoreEpoch
    born: str
    base: Entry
    older: tuple[Entry, ...] = ()


@dataclass(frozen=True, slots=True)
class TellTracker:
    """These entries, (version, SEQ), are accounted by a commit of the bucket."""

    bucket: Bucket
    task: TaskName
    store_epoch: StoreEpoch
    entries: tuple[tuple[int, Sequence64], ...]


@dataclass(frozen=True, slots=True)
class ReleaseBucket:
    """Throw the bucket's producer away, after any commit that is under way."""

    bucket: Bucket


@dataclass(frozen=True, slots=True)
class FailTask:
    """Mark a task as failed in the registry; `detail` says why and what to do.

    `run` is the one that it failed in: a task that was resumed or made anew since is left alone.
    """

    task: TaskName
    run: TaskRun
    detail: str


@dataclass(frozen=True, slots=True)
class Report:
    """Something a person should know; `kind` is a stable word for it."""

    kind: str
    detail: str
    bucket: Bucket | None = None
    task: TaskName | None = None


Instruction = (
    ReadAssignment
    | ClaimBucket
    | AuditEmissions
    | ReadLog
    | ReadSnapshots
    | RestoreLog
    | CommitTransaction
    | WriteDraft
    | TrimLog
    | CompactLog
    | TellTracker
    | ReleaseBucket
    | FailTask
    | Report
)

# ------------------------------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class AssignmentRead:
    """The assignment as it is now (None: no leader has made one yet)."""

    assignment: Assignment | None


@dataclass(frozen=True, slots=True)
class TasksChanged:
    """All tasks, deleted ones included."""

    tasks: Mapping[TaskName, RunnableTask]


@dataclass(frozen=True, slots=True)
class BucketClaimed:
    """The claim is durable."""

    bucket: Bucket
    term: int
    claimed: Claimed


@dataclass(frozen=True, slots=True)
class EmissionsAudited:
    """The audit is done; `differences` says what does not agree."""

    bucket: Bucket
    term: int
    differences: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BucketCommitted:
    """The transaction is durable."""

    bucket: Bucket
    term: int
    committed: Committed


@dataclass(frozen=True, slots=True)
class BucketFailed:
    """An instruction about the bucket failed, or its outcome is unknown (R8).

    `fenced`: a newer owner was seen; only a higher assignment epoch brings the bucket back.
    `culprit`: the task whose output topic refused its rows; the bucket can go on without it.
    """

    bucket: Bucket
    term: int
    fenced: bool
    detail: str
    culprit: TaskName | None = None


@dataclass(frozen=True, slots=True)
class HeadsRead:
    """One look at every task's head; None where the store does not know the task.

    `clearings` are those that were said with it, at the same moment.
    """

    heads: Mapping[TaskName, Head | None]
    clearings: tuple[Clearing, ...] = ()


@dataclass(frozen=True, slots=True)
class LogRead:
    """The answer to a `ReadLog`.

    `after` is the task's head, read after the slice: it tells whether the log was still there while
    it was read, because a store that has just been lost answers with no entries at all.
    """

    request: ReadLog
    slice: LogSlice
    after: Head | None


@dataclass(frozen=True, slots=True)
class SnapshotsRead:
    """The answer to a `ReadSnapshots`: what was found, newest version first, and what was not.

    `lost` has, by version, why its snapshot cannot be had any more.
    """

    request: ReadSnapshots
    found: tuple[Entry, ...]
    lost: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class LogRestored:
    """A `RestoreLog` is done."""

    request: RestoreLog


@dataclass(frozen=True, slots=True)
class Ticked:
    """It is the turn of a bucket to commit what is due.

    `now_ms` is the process's own monotonic clock, in milliseconds: for pauses, never for windows.
    What takes long is closed only where it is `in_turn`: others of the process had theirs before.
    """

    now_ms: int
    bucket: Bucket
    in_turn: bool = True


Event = (
    AssignmentRead
    | TasksChanged
    | BucketClaimed
    | EmissionsAudited
    | BucketCommitted
    | BucketFailed
    | HeadsRead
    | LogRead
    | SnapshotsRead
    | LogRestored
    | Ticked
)
