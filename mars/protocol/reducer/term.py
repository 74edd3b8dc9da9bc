"""The tasks of a bucket in one term of its owner: from a claim to whatever ends it.

A term is made anew each time, so nothing of one is left to the next but what Kafka has.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from itertools import zip_longest
from typing import TypeVar

from mars.core.definitions import TaskDefinition, TaskState
from mars.core.errors import TaskLimit
from mars.core.types import Sequence64, TaskName
from mars.protocol.outlived import is_done
from mars.protocol.ports import Clearing, Committed, Head, Progress, SnapshotParts
from mars.protocol.reducer.events import (
    CompactLog,
    FailTask,
    Instruction,
    LogRead,
    LogRestored,
    ReadLog,
    ReadSnapshots,
    Report,
    RestoreLog,
    SnapshotsRead,
    TellTracker,
    TrimLog,
)
from mars.protocol.reducer.task_in_bucket import TaskInBucket
from mars.protocol.reducer.version import Ownership
from mars.protocol.runnable import RunnableTask
from mars.protocol.windows.input import StoreWentBack

Answer = TypeVar("Answer")


class TaskWentBack(Exception):
    """The store contradicts what was read of a task: the whole bucket starts over."""

    def __init__(self, task: TaskName, problem: StoreWentBack) -> None:
        super().__init__(str(problem))
        self.task = task


class Failing:
    """Tasks that have failed here: they are left out until they were seen as failed, and run again.

    One that was resumed, or made anew under the name, is in another run, and is not left out.
    """

    def __init__(self) -> None:
        self._failures: dict[TaskName, FailTask] = {}
        self._given: dict[TaskName, RunnableTask] = {}
        """The tasks whose rows the sink may refuse; of several of a name, the first."""

    def __contains__(self, name: object) -> bool:
        return name in self._failures

    def fail(self, task: RunnableTask, detail: str) -> FailTask:
        """Leave a task out from now on."""
        failure = self._failures[task.name] = FailTask(task.name, task.definition.run, detail)
        return failure

    def given(self, tasks: Iterable[RunnableTask]) -> None:
        """The sink is given rows of these tasks."""
        self._given = {task.name: task for task in tasks} | self._given

    def settled(self) -> None:
        """What became of the rows that it was given is known."""
        self._given = {}

    def refused(
        self, name: TaskName | None, detail: str, tasks: Mapping[TaskName, RunnableTask]
    ) -> list[Instruction]:
        """The sink refused rows of a task, which fails: not in another run than they are of."""
        task = None if name is None else self._given.get(name)
        if task is None:
            return []
        failure = self.fail(task, detail)
        self.update(tasks)
        return [failure] if task.name in self else []

    def unseen(self) -> list[Instruction]:
        """The failures that the definitions do not show, to be told again.

        ZooKeeper may have lost one, and have got an older definition back. What was told already
        changes nothing.
        """
        return [*self._failures.values()]

    def update(self, tasks: Mapping[TaskName, RunnableTask]) -> None:
        """Forget failures of tasks that are known to have failed or gone, and of earlier runs."""
        for name, failure in list(self._failures.items()):
            task = tasks.get(name)
            stays = task is not None and not (task.deleted or task.failed)
            if task is None or not stays or failure.run < task.definition.run:
                del self._failures[name]


class Term:
    """Reads the logs of a bucket's tasks, and knows their records.

    `failing` are the tasks that have failed here; they are left out until they run again. Whatever
    reads a log may raise TaskWentBack.
    """

    def __init__(
        self, number: int, owner: Ownership, snapshot_every_ms: int, failing: Failing
    ) -> None:
        self.number = number
        self.owner = owner
        self.parts: dict[TaskName, TaskInBucket] = {}
        self.records: dict[TaskName, dict[int, Progress]] = {}
        self._snapshot_every_ms = snapshot_every_ms
        self._failing = failing
        self.tasks: Mapping[TaskName, RunnableTask] = {}
        """The definitions that were taken last."""
        self._any_deleted = True
        """Some record may be of a task or version that was deleted since."""
        self._pending: dict[TaskName, Head] = {}
        """The heads for which logs are being read."""

    # ------------------------------------------------------------------------------------ tasks

    def know(self, record: Progress) -> None:
        """The newest record of a task version, as Kafka has it."""
        self.records.setdefault(record.task, {})[record.version] = record

    def attempt(self, task: TaskName, work: Callable[[], Answer]) -> Answer | FailTask:
        """Do one task's work: its failure must not touch the other tasks of the bucket (I7)."""
        try:
            return work()
        except StoreWentBack as problem:
            raise TaskWentBack(task, problem) from problem
        except TaskLimit as problem:
            return self.fail(task, str(problem))
        except Exception as problem:  # noqa: BLE001 -- whatever it is, only this task stops
            return self.fail(task, f"unexpected {type(problem).__name__}: {problem}")

    def fail(self, task: TaskName, detail: str) -> FailTask:
        """Leave a task out, and say why."""
        return self._failing.fail(self.parts.pop(task).task, detail)

    def update(self, tasks: Mapping[TaskName, RunnableTask]) -> list[Instruction]:
        """Take the newest definitions; the snapshots of some tasks are to be read first."""
        self.tasks = tasks
        self._any_deleted = True
        self._failing.update(tasks)  # what failed since they came may be of an earlier run
        reads: list[Instruction] = []
        for name, task in tasks.items():
            if task.deleted or task.failed or name in self._failing or self._is_left_alone(task):
                self.parts.pop(name, None)
            elif name in self.parts and self.parts[name].same_life(task):
                self.parts[name].update(task)
            elif task.begun():
                self._pending.pop(name, None)
                part = self.parts[name] = self._begin(task)
                if wanted := part.restoring.wanted:
                    reads.append(ReadSnapshots(self.owner.bucket, self.number, name, wanted))
        for name in [name for name in self.parts if name not in tasks]:
            del self.parts[name]
        return reads

    def _is_left_alone(self, task: RunnableTask) -> bool:
        """Whether a version that this release cannot compile is not done here: what the others need
        no more would be trimmed, its rows among it.
        """
        known, begun = self.records.get(task.name, {}), task.definition.begun
        for version, newer in zip_longest(begun, begun[1:]):
            if version.version not in task.plans:
                record = known.get(version.version)
                if record is None or newer is None or not is_done(record, newer):
                    return True
        return False

    def _begin(self, task: RunnableTask) -> TaskInBucket:
        records = {
            version: record
            for version, record in self.records.get(task.name, {}).items()
            if not (record.deleted or is_dropped(task.definition, version))
        }
        return TaskInBucket(task, self.owner, records, self._snapshot_every_ms)

    # ------------------------------------------------------------------------------- restoring

    def snapshots_read(self, event: SnapshotsRead) -> list[Instruction]:
        """The panes of a lost store are known again; the next look at the head puts them there."""
        request = event.request
        part = self.parts.get(request.task)
        if part is None or part.restoring.wanted != request.records:
            return []
        failed = self.attempt(request.task, partial(part.restored, event.found, event.lost))
        if failed is not None:
            return [failed]
        bucket = self.owner.bucket
        return [
            Report(
                "snapshot_lost", f"bucket {bucket}: {detail} {_INCOMPLETE}", bucket, request.task
            )
            for detail in event.lost.values()
        ]

    def log_restored(self, event: LogRestored) -> None:
        """Now the log can be read."""
        part = self.parts.get(event.request.task)
        if part is not None and part.restoring.found == event.request.bases:
            part.restoring.put_back()

    # -------------------------------------------------------------------------------- reading

    def clearings(self, *, assisted: bool) -> Iterator[Clearing]:
        """What is to be said with the next look: whether assistants may merge what lies above it.

        So a bucket always reads up to a SEQ that no merged entry crosses. Logs are closed, too,
        once at the beginning, whoever owned the bucket before: until all is read again that was
        accounted, an assistant cannot know which offsets the records name.
        """
        bucket, store_epoch, epoch = self.owner.bucket, self.owner.store_epoch, self.owner.epoch
        for name, part in self.parts.items():
            opens = assisted and part.position.caught_up
            if opens or not part.closed_to_assistants:
                yield Clearing(name, bucket, store_epoch, epoch, opens)

    def cleared(self, said: Clearing) -> None:
        """The store has heard it."""
        part = self.parts.get(said.task)
        if part is not None:
            part.closed_to_assistants = not said.opens

    def last_seq(self, task: TaskName) -> Sequence64:
        """Up to where a task's log has been read; 0 where it has not been."""
        part = self.parts.get(task)
        return Sequence64(0) if part is None else part.position.last_seq

    def _seen(
        self, heads: Mapping[TaskName, Head | None]
    ) -> Iterator[tuple[TaskName, TaskInBucket, Head]]:
        """The tasks that were looked at, of which there may be many more."""
        for name, head in heads.items():
            if head is not None and (part := self.parts.get(name)) is not None:
                yield name, part, head

    def heads_read(self, heads: Mapping[TaskName, Head | None]) -> list[Instruction]:
        """R5: what the log may hold more than has been absorbed."""
        bucket = self.owner.bucket
        reads: list[Instruction] = []
        for name, part, head in self._seen(heads):
            if head.epoch != self.owner.store_epoch or not part.knows(head.version):
                continue
            failed = self.attempt(name, partial(part.position.look, head))
            if failed is not None:
                return [failed]
            if part.restoring.wanted:
                continue
            if bases := part.restoring.found:
                reads.append(RestoreLog(bucket, self.number, name, head.epoch, head.born, bases))
            elif part.position.is_behind(head):
                self._pending[name] = head
                after, run = part.position.last_seq, part.task.definition.run
                reads.append(ReadLog(bucket, self.number, name, after, head.seq, run))
            else:
                failed = self.attempt(name, partial(part.drained, head))
                if failed is not None:
                    return [failed]
        return reads

    def left(self, heads: Mapping[TaskName, Head | None]) -> set[TaskName]:
        """The tasks that have more to read."""
        return {name for name, part, head in self._seen(heads) if part.position.is_behind(head)}

    def log_read(self, event: LogRead) -> list[Instruction]:
        """Fold what was read, then go forward to the head it was read for."""
        request = event.request
        part = self.parts.get(request.task)
        if part is None:
            return []
        head = self._pending.pop(request.task, None)
        if head is None or head.seq != request.upto or part.position.last_seq != request.after:
            return []
        if not _still_there(part, head, event.after):
            return []

        def take() -> None:
            part.absorb(event.slice)
            part.drained(head)

        failed = self.attempt(request.task, take)
        return [] if failed is None else [failed]

    # ----------------------------------------------------------------------------- after commits

    def committed(self, committed: Committed) -> list[TaskName]:
        """These records are durable; the tasks that they are of."""
        touched: dict[TaskName, None] = {}
        for record in committed.progress:
            self.know(record)
            part = self.parts.get(record.task)
            if part is not None and not record.deleted:
                part.committed(record)
                touched[record.task] = None
        return list(touched)

    def clean_up(self, name: TaskName, *, merging: bool) -> list[Instruction]:
        """Trim, or merge, a task's log (R9); merging may find that it is over a limit."""
        done = self.attempt(name, partial(self._trim, name, merging=merging))
        return [done] if isinstance(done, FailTask) else done

    def _trim(self, name: TaskName, *, merging: bool) -> list[Instruction]:
        part, bucket, store_epoch = self.parts[name], self.owner.bucket, self.owner.store_epoch
        gone, born = part.upkeep.trim(), part.position.born
        instructions: list[Instruction] = []
        if gone:
            instructions.append(TrimLog(bucket, name, store_epoch, born, gone))
        bases = part.upkeep.bases() if merging else ()
        current = part.task.definition.current.version
        base, *older = bases or (part.upkeep.empty_base(current),)
        if base is not None:
            instructions.append(CompactLog(bucket, name, store_epoch, born, base, tuple(older)))
        return instructions

    def tell_tracker(self, name: TaskName) -> list[Instruction]:
        """What the tracker is to hear of the commit, where there is one."""
        entries = self.parts[name].take_accounted()
        if not entries:
            return []
        return [TellTracker(self.owner.bucket, name, self.owner.store_epoch, entries)]

    # ------------------------------------------------------------------------------- deletions

    def deleted_records(self, tasks: Mapping[TaskName, RunnableTask]) -> tuple[Progress, ...]:
        """Last records of tasks that were deleted since.

        A deleted task's definition stays, so one that is not there is not deleted: ZooKeeper has
        lost it, and the leader will bring it back.
        """
        if not self._any_deleted:
            return ()
        gone = tuple(
            self._deleted(record)
            for name, versions in self.records.items()
            if name in tasks
            for version, record in versions.items()
            if is_dropped(tasks[name].definition, version) and not record.deleted
        )
        self._any_deleted = bool(gone)
        return gone

    def _deleted(self, record: Progress) -> Progress:
        return Progress(
            task=record.task,
            version=record.version,
            bucket=record.bucket,
            assignment_epoch=self.owner.epoch,
            store_epoch=self.owner.store_epoch,
            emit=record.emit + 1,
            closed_ms=record.closed_ms,
            forgotten_ms=record.forgotten_ms,
            merged=record.merged,
            needed=record.needed,
            ledger=record.ledger,
            deleted=True,
        )

    def snapshots_gone(self, deleted: Collection[Progress]) -> Iterator[SnapshotParts]:
        """The parts in Kafka that nobody names any more."""
        for record in deleted:
            snapshot = self.records[record.task][record.version].snapshot
            if snapshot is not None:
                yield SnapshotParts(record.task, record.version, (), snapshot.parts)

    # ------------------------------------------------------------------------------ for people

    def unread(self, heads: Mapping[TaskName, Head | None]) -> dict[TaskName, int]:
        """How many batches of each task are there and not absorbed."""
        return {
            name: head.seq - last_seq
            for name, part, head in self._seen(heads)
            if head.seq > (last_seq := part.position.last_seq) > 0
        }

    @property
    def is_caught_up(self) -> bool:
        """True if all that was accounted has been read again."""
        return all(part.position.caught_up for part in self.parts.values())


def is_dropped(definition: TaskDefinition, version: int) -> bool:
    """True for a version that a definition had once. One that is newer than all in it is of a
    definition that has not come yet: whoever owned the bucket before knew more.
    """
    if definition.state is TaskState.DELETED:
        return version <= definition.current.version
    kept = {one.version for one in definition.versions}
    return version < definition.current.version and version not in kept


def _still_there(part: TaskInBucket, before: Head, after: Head | None) -> bool:
    """Whether the log was, while it was read, that of the head it was read for."""
    if after is None or (after.epoch, after.born) != (before.epoch, before.born):
        return False
    return after.seq >= before.seq and part.knows(after.version)


_INCOMPLETE = (
    "The windows that were open then lack its rows and say so (mars-complete: 0): register the "
    "task again from an earlier start to have them whole."
)
