"""All buckets of one reducer: routes events to the buckets, and looks at each task once for all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import assert_never

from mars.core.types import AssignmentEpoch, Bucket, MemberId, Sequence64, TaskName
from mars.protocol.ports import Assignment, BucketStatus, Clearing, Head
from mars.protocol.reducer.commit_plan import OwnerLimits
from mars.protocol.reducer.drafting import DraftFigures
from mars.protocol.reducer.events import (
    AssignmentRead,
    BucketClaimed,
    BucketCommitted,
    BucketFailed,
    EmissionsAudited,
    Event,
    HeadsRead,
    Instruction,
    LogRead,
    LogRestored,
    SnapshotsRead,
    TasksChanged,
    Ticked,
)
from mars.protocol.reducer.owner import BucketOwner, OwnerState
from mars.protocol.runnable import RunnableTask


class ReducerMachine:
    """The machine of a reducer process.

    The loop around it does what it is told and feeds the outcomes back, and in every round reads
    the heads of `watched()` and then ticks for each of `buckets()`: what one of them has to commit
    is under way before the next is asked.
    """

    def __init__(self, member: MemberId, limits: OwnerLimits) -> None:
        self._member = member
        self._limits = limits
        self._buckets: dict[Bucket, BucketOwner] = {}
        self._tasks: Mapping[TaskName, RunnableTask] = {}
        self._watched: list[TaskName] = []

    def handle(self, event: Event) -> list[Instruction]:  # noqa: PLR0911 -- one way per event
        """Take one event; what comes back is to be done in this order."""
        match event:
            case AssignmentRead():
                return self._assignment_read(event.assignment)
            case TasksChanged():
                return self._tasks_changed(event.tasks)
            case BucketClaimed():
                return self._bucket(event.bucket).claimed(event)
            case EmissionsAudited():
                return self._bucket(event.bucket).audited(event)
            case BucketCommitted():
                return self._bucket(event.bucket).committed(event)
            case BucketFailed():
                return self._bucket(event.bucket).failed(event)
            case HeadsRead():
                return self._heads_read(event)
            case LogRead():
                return self._bucket(event.request.bucket).log_read(event)
            case SnapshotsRead():
                return self._bucket(event.request.bucket).snapshots_read(event)
            case LogRestored():
                return self._bucket(event.request.bucket).log_restored(event)
            case Ticked():
                return self._bucket(event.bucket).ticked(event.now_ms, in_turn=event.in_turn)
            case _:
                assert_never(event)

    def _heads_read(self, event: HeadsRead) -> list[Instruction]:
        for said in event.clearings:
            head = event.heads.get(said.task)
            if head is not None and head.epoch == said.epoch:
                self._bucket(said.bucket).term.cleared(said)
        heads = event.heads
        return [given for owning in self._buckets.values() for given in owning.heads_read(heads)]

    def _bucket(self, bucket: Bucket) -> BucketOwner:
        owning = self._buckets.get(bucket)
        if owning is None:
            owning = self._buckets[bucket] = BucketOwner(bucket, self._limits)
            owning.tasks_changed(self._tasks)
        return owning

    def _assignment_read(self, assignment: Assignment | None) -> list[Instruction]:
        if assignment is None:
            return []
        instructions: list[Instruction] = []
        for bucket, owner in assignment.owners.items():
            if owner.member == self._member:
                instructions += self._bucket(bucket).assigned(owner, assignment.store_epoch)
                self._bucket(bucket).assisted = bool(assignment.assistants.get(bucket))
            elif bucket in self._buckets:
                instructions += self._buckets[bucket].unassigned()
        return instructions

    def _tasks_changed(self, tasks: Mapping[TaskName, RunnableTask]) -> list[Instruction]:
        self._tasks = tasks
        self._watched = [name for name, one in tasks.items() if one.begun() and not one.deleted]
        return [given for bucket in self._buckets.values() for given in bucket.tasks_changed(tasks)]

    def buckets(self) -> tuple[Bucket, ...]:
        """The buckets that this reducer knows."""
        return tuple(self._buckets)

    def watched(self) -> list[TaskName]:
        """The tasks whose heads the next round needs; empty while no bucket is owned."""
        if not any(bucket.owner is not None for bucket in self._buckets.values()):
            return []
        return self._watched

    def followed(self, tasks: Iterable[TaskName]) -> dict[TaskName, dict[Bucket, Sequence64]]:
        """These tasks, and up to where their logs have been read; none that waits for a commit."""
        owning = [
            (bucket, one.term)
            for bucket, one in self._buckets.items()
            if one.state is OwnerState.OWNING
        ]
        return {
            task: {bucket: seq for bucket, term in owning if (seq := term.last_seq(task))}
            for task in tasks
        }

    def clearings(self) -> tuple[Clearing, ...]:
        """What is to be said to the store at the moment of the next look."""
        return tuple(said for bucket in self._buckets.values() for said in bucket.clearings())

    def unread(self, heads: Mapping[TaskName, Head | None]) -> dict[tuple[TaskName, Bucket], int]:
        """How many batches of each task and bucket are there and not absorbed."""
        return {
            (task, bucket): batches
            for bucket, owning in self._buckets.items()
            for task, batches in owning.term.unread(heads).items()
        }

    def left(self, heads: Mapping[TaskName, Head | None]) -> set[TaskName]:
        """The tasks with more to read in buckets that commit: to be looked at again after it."""
        return set().union(*(owning.left(heads) for owning in self._buckets.values()))

    def drafts(self) -> DraftFigures:
        """What became of the drafts of all buckets that it ever had."""
        return sum((owning.drafting.figures for owning in self._buckets.values()), DraftFigures())

    def statuses(self) -> tuple[BucketStatus, ...]:
        """What each owned bucket is doing."""
        return tuple(
            BucketStatus(bucket, AssignmentEpoch(owning.owner.epoch), owning.status)
            for bucket, owning in sorted(self._buckets.items())
            if owning.owner is not None
        )
