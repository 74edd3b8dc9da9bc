"""The store's connection of a simulated process, watched: what it took, and what refusals did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mars.adapters.memory.partial_log import MemoryPartialLog
from mars.adapters.memory.store import MemoryStore, StoredTask
from mars.adapters.store import IDLE_LEASE_MS
from mars.core.types import (
    AssignmentEpoch,
    Bucket,
    Entry,
    Lane,
    Mapped,
    Mark,
    Sequence64,
    StoreEpoch,
    TaskName,
)
from mars.protocol.ports import AppendOutcome, Applied, IdleLease, TaskStart

Life = tuple[TaskName, StoreEpoch, int]
"""Task, store epoch, and how many times it was begun in that epoch."""


@dataclass(frozen=True, slots=True)
class Leased:
    """A lane of a task is idle up to `end_ms`, where the task's next offsets are these.

    `alone`: no other lane of it tells the time meanwhile. `newest` is the highest mark then; of
    equal ones the one whose rows were taken last.
    """

    lane: Lane
    end_ms: int
    offsets: Mapping[Lane, int]
    alone: bool
    newest: Mark | None


@dataclass
class Watch:
    """I4 and I5 as they happen: one for all connections."""

    lives: dict[TaskName, Life] = field(default_factory=dict)
    reached: dict[tuple[Life, Lane], int] = field(default_factory=dict)
    begun: int = 0
    problems: list[str] = field(default_factory=list)
    applied: int = 0
    refused: int = 0
    merged: int = 0
    leases: dict[TaskName, list[Leased]] = field(default_factory=dict)

    def initialised(self, task: TaskName, epoch: StoreEpoch, offsets: Mapping[Lane, int]) -> None:
        """A life of a task begins at these offsets."""
        self.begun += 1
        life = self.lives[task] = (task, epoch, self.begun)
        for lane, offset in offsets.items():
            self.reached[life, lane] = offset

    def took(self, task: TaskName, mapped: Mapped) -> None:
        """A batch was applied: it must begin where the last one ended."""
        self.applied += 1
        life = self.lives[task]
        for part in mapped.ranges:
            at = self.reached.get((life, part.lane), 0)
            if part.first != at:
                self.problems.append(f"I4: {life} lane {part.lane}: {part} after offset {at}")
            self.reached[life, part.lane] = part.next


def _newest(found: StoredTask) -> Mark | None:
    marks = [(time_ms, found.taken_ms[lane]) for lane, time_ms in found.marks_ms.items()]
    if found.restored is not None and found.restored.taken_ms is not None:
        marks.append((found.restored.time_ms, found.restored.taken_ms))
    return Mark(*max(marks)) if marks else None


class WatchedLog(MemoryPartialLog):
    """`MemoryPartialLog` that tells the watch what happens."""

    def __init__(self, store: MemoryStore, watch: Watch) -> None:
        super().__init__(store.clock, store=store)
        self._watch = watch

    def append(
        self, task: TaskName, epoch: StoreEpoch, version: int, mapped: Mapped
    ) -> AppendOutcome:
        before = self.dump()
        outcome = super().append(task, epoch, version, mapped)
        if isinstance(outcome, Applied):
            self._watch.took(task, mapped)
            self._may_be_alone(task, mapped)
        else:
            self._unchanged(before, f"append of {task}: {outcome}")
        return outcome

    def renew_idle(self, leases: Sequence[IdleLease]) -> list[bool]:
        done = super().renew_idle(leases)
        for lease, given in zip(leases, done, strict=True):
            if given:
                self._leased(lease.task, lease.lane)
        return done

    def _may_be_alone(self, task: TaskName, mapped: Mapped) -> None:
        """With the last rows of a history all lanes may be idle or finished."""
        found = self._store.tasks[task]
        for part in mapped.ranges:
            if part.lane in found.finished():
                self._leased(task, part.lane)

    def _leased(self, task: TaskName, lane: Lane) -> None:
        found, now_ms = self._store.tasks[task], self._store.clock()
        alone = found.offsets.keys() <= found.idle(now_ms) | found.finished()
        end_ms, newest = now_ms + IDLE_LEASE_MS, _newest(found)
        leased = Leased(lane, end_ms, dict(found.offsets), alone, newest)
        self._watch.leases.setdefault(task, []).append(leased)

    def initialise(self, task: TaskName, epoch: StoreEpoch, start: TaskStart) -> bool:
        before = self.dump()
        done = super().initialise(task, epoch, start)
        if done:
            self._watch.initialised(task, epoch, start.offsets)
        else:
            self._unchanged(before, f"initialise of {task}")
        return done

    def trim(
        self,
        task: TaskName,
        epoch: StoreEpoch,
        born: str,
        bucket: Bucket,
        seqs: Sequence[Sequence64],
    ) -> bool:
        before = self.dump()
        done = super().trim(task, epoch, born, bucket, seqs)
        return done or self._unchanged(before, f"trim of {task}")

    def compact(
        self,
        task: TaskName,
        epoch: StoreEpoch,
        born: str,
        bucket: Bucket,
        base: Entry | None,
        older: Sequence[Entry] = (),
    ) -> bool:
        before = self.dump()
        done = super().compact(task, epoch, born, bucket, base, older)
        return done or self._unchanged(before, f"compact of {task}")

    def merge(
        self,
        task: TaskName,
        epoch: StoreEpoch,
        owner_epoch: AssignmentEpoch,
        entry: Entry,
        run_id: str,
    ) -> bool:
        before = self.dump()
        done = super().merge(task, epoch, owner_epoch, entry, run_id)
        self._watch.merged += done
        return done or self._unchanged(before, f"merge of {task}")

    def put_base(
        self, task: TaskName, epoch: StoreEpoch, born: str, bucket: Bucket, bases: Sequence[Entry]
    ) -> bool:
        before = self.dump()
        done = super().put_base(task, epoch, born, bucket, bases)
        return done or self._unchanged(before, f"put_base of {task}")

    def _unchanged(self, before: object, call: str) -> bool:
        """Always False: the call was refused."""
        self._watch.refused += 1
        if self.dump() != before:
            self._watch.problems.append(f"I5: a refused call changed the store: {call}")
        return False
