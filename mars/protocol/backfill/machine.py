"""What a bulk process maps next: histories chunk by chunk, and tasks that fell far behind.

    chunks of a backfill   0    1    2    3    4 ...
                                ▲    └────┴─ jobs that run ahead
                                └ the head's offsets: the next to be appended, and nothing else

Jobs run side by side, but their batches are appended in order, each by the usual compare-and-set.
What comes next is read off one look at all lanes, so it makes no difference who appended what is
there, whether a batch was sent twice, or whether the store went back: the same chunks come again. A
refusal names one lane, which says nothing of the others: the store is looked at anew.

A chunk takes its share of every lane at once. Its ranges never lie on both sides of what a bucket
has accounted, because every offset that a bucket can have accounted lies between two chunks. What a
task that fell behind is given is different each time, so there each batch is of one lane.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import assert_never

from mars.core.definitions import Backfill, TaskDefinition, TaskRun
from mars.core.types import (
    Lane,
    Mapped,
    Range,
    TaskName,
    Topic,
    lane_backfill,
    lane_partition,
)
from mars.protocol.backfill.events import (
    Append,
    Appended,
    CancelJob,
    EndsRead,
    Event,
    FailTask,
    HeadsRead,
    Instruction,
    JobEnded,
    ReadEnds,
    ReadHeads,
    Report,
    SetCatchUp,
    StartJob,
    TasksChanged,
    Ticked,
)
from mars.protocol.backfill.steps import Ranges, Step, marked
from mars.protocol.ports import Applied, Backpressure, Cut, Head, MapJob
from mars.protocol.runnable import RunnableTask

HEAD_INTERVAL_MS = 1_000
"""How often heads are read while nothing is appended: only so a loss of the store is noticed."""

ENDS_INTERVAL_MS = 5_000
"""How often it is looked how far behind tasks are."""

RETRY_PAUSE_MS = 2_000
"""Pause after a job that failed for a reason that may pass."""

TRIES = 3
"""Jobs of a task that failed for reasons that may pass, after which it gives way to others: without
its topic, or with files that nobody can read, they fail for ever."""

LEFT_MS = 600_000
"""How long such a task is left to mappers if it is behind: they need no Spark."""

REFUSED_PAUSE_MS = 100
"""Pause before a batch that the store did not take is offered again."""


@dataclass(frozen=True, slots=True)
class BackfillLimits:
    """How a bulk process divides its work.

    `chunk_rows`: messages of a batch of a task that fell behind. `ahead`: jobs at a time.
    `catch_up_rows_min`: messages by which a running task must be behind to be helped.
    """

    buckets: int
    chunk_rows: int
    ahead: int
    catch_up_rows_min: int


@dataclass(slots=True)
class _Piece:
    """A step under way. `mapped` is None until its job has ended."""

    step: Step
    job: MapJob
    run: TaskRun
    mapped: Mapped | None = None
    appending: bool = False


class BackfillMachine:
    """The machine of a bulk process; it works for one task at a time, from its first tick on."""

    def __init__(self, limits: BackfillLimits) -> None:
        self._limits = limits
        self._working = False
        self._now_ms = 0
        self._tasks: Mapping[TaskName, RunnableTask] = {}
        self._heads: dict[TaskName, Head] = {}
        self._cuts: dict[Lane, int] = {}
        self._task: TaskName | None = None
        self._pressed = False
        self._pieces: dict[str, _Piece] = {}
        self._failures: Counter[TaskName] = Counter()
        """How many jobs of a task have failed for now since a batch of it was appended."""
        self._left_until_ms: dict[TaskName, int] = {}
        """Until when tasks that may be far behind are left to mappers."""
        self._jobs = 0
        self._wait_until_ms = 0
        self._heads_at_ms = -HEAD_INTERVAL_MS
        self._ends_at_ms = -ENDS_INTERVAL_MS
        self.rows_mapped = 0

    @property
    def task(self) -> TaskName | None:
        """The task that is being worked for."""
        return self._task

    def handle(self, event: Event) -> list[Instruction]:
        """Take one event; what comes back is to be done in this order."""
        match event:
            case TasksChanged():
                self._tasks = event.tasks
                return [*self._ask_heads(), *self._work()]
            case HeadsRead():
                for name, head in event.heads.items():
                    self._learn(name, head)
                return self._work()
            case EndsRead():
                return self._look_behind(event.ends)
            case JobEnded():
                return self._ended(event)
            case Appended():
                return self._appended(event)
            case Ticked():
                return self._ticked(event.now_ms)
            case _:
                assert_never(event)

    def stop(self) -> list[Instruction]:
        """Somebody else works from now on, until the next tick: give up all jobs."""
        self._working = False
        self._task = None
        return self._drop(list(self._pieces))

    # -------------------------------------------------------------------------------- looking

    def _ticked(self, now_ms: int) -> list[Instruction]:
        self._now_ms, self._working = now_ms, True
        instructions: list[Instruction] = []
        if now_ms - self._heads_at_ms >= HEAD_INTERVAL_MS:
            instructions += self._ask_heads()
        if now_ms - self._ends_at_ms >= ENDS_INTERVAL_MS:
            self._ends_at_ms = now_ms
            topics = sorted({_topic(task) for task in self._running()})
            instructions += [ReadEnds(tuple(topics))] if topics else []
        return instructions + self._work()

    def _running(self) -> list[RunnableTask]:
        return [task for task in self._tasks.values() if task.running and task.begun()]

    def _ask_heads(self) -> list[Instruction]:
        self._heads_at_ms = self._now_ms
        names = tuple(task.name for task in self._running())
        return [ReadHeads(names)] if names else []

    def _learn(self, name: TaskName, head: Head | None) -> None:
        """A head that is missing, paused or of another life of the name leaves nothing to do."""
        task = self._tasks.get(name)
        ours = head is not None and task is not None and task.definition.has(head.version)
        if head is None or not head.active or not ours:
            self._heads.pop(name, None)
        else:
            self._heads[name] = head

    def _look_behind(self, ends: Mapping[Topic, Mapping[int, int]]) -> list[Instruction]:
        """Take over the lanes of running tasks that are far behind, for as far as they are now."""
        instructions: list[Instruction] = []
        for task in self._running():
            head = self._heads.get(task.name)
            if head is None or _unfinished(task.definition, head) or _is_for_mappers(task):
                continue
            if self._now_ms < self._left_until_ms.get(task.name, 0):
                continue
            fences = {
                lane: end
                for lane in head.offsets
                if lane_backfill(lane) is None
                and (end := ends.get(_topic(task), {}).get(lane_partition(lane) or 0)) is not None
            }
            behind = sum(max(0, end - head.offsets[lane]) for lane, end in fences.items())
            if behind >= self._limits.catch_up_rows_min:
                instructions.append(SetCatchUp(task.name, task.definition.run, fences))
        return instructions

    # --------------------------------------------------------------------------- what is next

    def _work(self) -> list[Instruction]:
        """Start the jobs of the next steps, append what is next, drop what nobody needs."""
        if not self._working:
            return []
        task, head = self._chosen()
        if task is None or head is None:
            return self._drop(list(self._pieces))
        coming = _steps(task, head, self._cuts, self._limits, pressed=self._pressed)
        steps = list(islice(coming, self._limits.ahead))
        if not steps and task.definition.catch_up:
            caught_up = SetCatchUp(task.name, task.definition.run, {})
            return [*self._drop(list(self._pieces)), caught_up]
        wanted = [(step.version, step.ranges) for step in steps]
        unneeded = [
            job_id
            for job_id, piece in self._pieces.items()
            if piece.job.task != task.name
            or ((piece.step.version, piece.step.ranges) not in wanted and not piece.appending)
        ]
        dropped = self._drop(unneeded)
        if self._now_ms < self._wait_until_ms:
            return dropped
        return [*dropped, *self._start(task, steps), *self._append(task, head, steps)]

    def _chosen(self) -> tuple[RunnableTask | None, Head | None]:
        """The task being worked for while it has steps, else the first one that has any. One whose
        jobs go on failing gives way to others.
        """
        tasks = sorted(
            self._running(),
            key=lambda one: (self._failures[one.name] // TRIES, one.name != self._task, one.name),
        )
        for task in tasks:
            head = self._heads.get(task.name)
            if head is not None and self._has_work(task, head):
                if task.name != self._task:
                    self._task, self._cuts, self._pressed = task.name, {}, False
                return task, head
        self._task = None
        return None, None

    def _has_work(self, task: RunnableTask, head: Head) -> bool:
        """Not so where what comes next is of a version that this release cannot compile: one that
        can goes on with it, and until then it must not hold up the others.
        """
        if task.definition.catch_up:
            return True
        coming = _steps(task, head, {}, self._limits, pressed=False)
        return _unfinished(task.definition, head) and next(coming, None) is not None

    def _start(self, task: RunnableTask, steps: Sequence[Step]) -> list[Instruction]:
        """Jobs for the steps that have none."""
        under_way = {(piece.step.version, piece.step.ranges) for piece in self._pieces.values()}
        instructions: list[Instruction] = []
        for step in steps:
            if (step.version, step.ranges) in under_way:
                continue
            self._jobs += 1
            versions = {version.version: version for version, _plan in task.begun()}
            job = MapJob(
                id=f"{task.name}-{self._jobs}",
                task=task.name,
                version=versions[step.version],
                buckets=self._limits.buckets,
                ranges=step.ranges,
                files=step.files,
            )
            self._pieces[job.id] = _Piece(step, job, task.definition.run)
            instructions.append(StartJob(job))
        return instructions

    def _append(self, task: RunnableTask, head: Head, steps: Sequence[Step]) -> list[Instruction]:
        """The first step's batch, if it is there and not on its way."""
        if not steps or any(piece.appending for piece in self._pieces.values()):
            return []
        first = steps[0]
        for job_id, piece in self._pieces.items():
            same = (piece.step.version, piece.step.ranges) == (first.version, first.ranges)
            if same and piece.mapped is not None:
                piece.appending = True
                mapped = marked(piece.mapped, first, task)
                return [Append(job_id, task.name, head.epoch, first.version, mapped)]
        return []

    def _drop(self, job_ids: Sequence[str]) -> list[Instruction]:
        dropped = [self._pieces.pop(job_id) for job_id in job_ids]
        return [CancelJob(piece.job.id) for piece in dropped if piece.mapped is None]

    # -------------------------------------------------------------------------------- outcomes

    def _ended(self, event: JobEnded) -> list[Instruction]:
        piece = self._pieces.get(event.job_id)
        if piece is None:
            return []
        if event.mapped is not None:
            piece.mapped = event.mapped
            return self._work()
        del self._pieces[event.job_id]
        if event.lasting:
            return [FailTask(piece.job.task, piece.run, event.problem), *self._work()]
        name = piece.job.task
        self._failures[name] += 1
        self._wait_until_ms = self._now_ms + RETRY_PAUSE_MS
        report = Report(f"a job for task {name} is tried again: {event.problem}")
        task = self._tasks.get(name)
        if self._failures[name] < TRIES or task is None or not task.definition.catch_up:
            return [report]
        self._left_until_ms[name] = self._now_ms + LEFT_MS
        return [report, SetCatchUp(name, piece.run, {})]

    def _appended(self, event: Appended) -> list[Instruction]:
        piece = self._pieces.get(event.append.job_id)
        if piece is not None:
            piece.appending = False
        name, head = event.append.task, self._heads.get(event.append.task)
        match event.outcome:
            case Applied():
                self._pieces.pop(event.append.job_id, None)
                del self._failures[name]
                counts = (partial.counts.read for partial in event.append.mapped.partials)
                self.rows_mapped += sum(counts)
                if head is not None and head.epoch == event.append.epoch:
                    self._heads[name] = _advanced(head, event.append.mapped)
                return self._work()
            case Cut(lane=lane, offset=offset):
                self._cuts[lane] = offset
                return self._work()
            case Backpressure() | None:
                # A full log takes only the lane that holds the watermark: go on with that one.
                self._pressed |= event.outcome is not None
                self._wait_until_ms = self._now_ms + REFUSED_PAUSE_MS
                return []
            case _:
                self._heads.pop(name, None)
                self._wait_until_ms = self._now_ms + REFUSED_PAUSE_MS
                return self._ask_heads()


# ---------------------------------------------------------------------------- steps of a task


def _topic(task: RunnableTask) -> Topic:
    return Topic(task.definition.current.stream.topic)


def _is_for_mappers(task: RunnableTask) -> bool:
    """Whether some rows are mapped by mappers alone: one after the other, or by those of a release
    that can compile their version.
    """
    known = len(task.begun()) == len(task.definition.begun)
    return not known or any(plan.maps_in_order for plan in task.plans.values())


def _unfinished(definition: TaskDefinition, head: Head) -> bool:
    """True if a backfill is not at its end, or a catch-up not ended."""
    offsets = head.offsets
    return bool(definition.catch_up) or any(
        offsets[lane] < end for lane, end in definition.ends.items() if lane in offsets
    )


def _steps(
    task: RunnableTask,
    head: Head,
    cuts: Mapping[Lane, int],
    limits: BackfillLimits,
    *,
    pressed: bool,
) -> Iterator[Step]:
    """What is to be appended next, and after that, and so on.

    Where the log is `pressed`, the lanes with the lowest marks come first, whatever is left. A
    version that is mapped in order is left to mappers.
    """
    definition = task.definition
    plans = {version.version for version, plan in task.begun() if not plan.maps_in_order}
    level = _level_in(head) if pressed else _no_level
    for whole, backfill in _ranges(definition, head, limits, level):
        for version, part in _by_version(definition, whole, cuts):
            if version not in plans:
                return
            yield Step(version, part, backfill)


Level = Callable[[Iterable[Lane]], float]
"""How early the slowest of some lanes is; equal for all where that does not matter."""


def _no_level(_lanes: Iterable[Lane]) -> float:
    return 0.0


def _level_in(head: Head) -> Level:
    def level(lanes: Iterable[Lane]) -> float:
        going_on = [lane for lane in lanes if lane not in head.finished]
        return min((head.marks_ms.get(lane, -math.inf) for lane in going_on), default=math.inf)

    return level


def _ranges(
    definition: TaskDefinition, head: Head, limits: BackfillLimits, level: Level
) -> Iterator[tuple[Ranges, Backfill | None]]:
    """History first, then what a task is behind; where levels count, whatever is earlier."""
    history = next(_chunks(definition, head, level), None)
    behind = next(_behind(definition, head, limits, level), None)
    if history is None or (behind is not None and level(_lanes(behind)) < level(_lanes(history))):
        yield from _behind(definition, head, limits, level)
    else:
        yield from _chunks(definition, head, level)


def _lanes(found: tuple[Ranges, Backfill | None]) -> list[Lane]:
    """The lanes of some ranges; those of a backfill go on together."""
    ranges, backfill = found
    return [part.lane for part in ranges] if backfill is None else list(backfill.lanes)


def _chunks(
    definition: TaskDefinition, head: Head, level: Level
) -> Iterator[tuple[Ranges, Backfill | None]]:
    """The chunks of all backfills that lie above the head, those that are least far first."""
    numbers = {
        backfill.id: next(
            (n for n in range(backfill.chunks) if _above(backfill.chunk(n), head)), backfill.chunks
        )
        for backfill in definition.backfills
    }
    by_id = {backfill.id: backfill for backfill in definition.backfills}
    while True:
        left = [one for one in by_id.values() if numbers[one.id] < one.chunks]
        if not left:
            return
        backfill = min(left, key=lambda one: (level(one.lanes), numbers[one.id] / one.chunks))
        ranges = _above(backfill.chunk(numbers[backfill.id]), head)
        numbers[backfill.id] += 1
        if ranges:
            yield ranges, backfill


def _above(ranges: Ranges, head: Head) -> Ranges:
    """What of the ranges lies at or above the head's offsets."""
    return tuple(
        Range(part.lane, max(part.first, head.offsets[part.lane]), part.next)
        for part in ranges
        if head.offsets.get(part.lane, part.next) < part.next
    )


def _behind(
    definition: TaskDefinition, head: Head, limits: BackfillLimits, level: Level
) -> Iterator[tuple[Ranges, Backfill | None]]:
    """Pieces of the lanes that are caught up, in turn."""
    fences = definition.catch_up
    at = {lane: head.offsets[lane] for lane in fences if lane in head.offsets}
    while left := [lane for lane in at if at[lane] < fences[lane]]:
        lane = min(left, key=lambda lane: (level([lane]), at[lane] - fences[lane]))
        after = min(fences[lane], at[lane] + limits.chunk_rows)
        yield (Range(lane, at[lane], after),), None
        at[lane] = after


def _by_version(
    definition: TaskDefinition, ranges: Ranges, cuts: Mapping[Lane, int]
) -> Iterator[tuple[int, Ranges]]:
    """The ranges cut where versions begin and where the store said so, by version in order."""
    pieces: dict[tuple[int, int], list[Range]] = {}
    for part in ranges:
        first, turn = part.first, 0
        while first < part.next:
            version, boundary = definition.version_at(part.lane, first)
            ends = [end for end in (boundary, cuts.get(part.lane)) if end is not None]
            after = min([end for end in ends if first < end] + [part.next])
            pieces.setdefault((version, turn), []).append(Range(part.lane, first, after))
            first, turn = after, turn + 1
    for (version, _turn), cut in sorted(pieces.items()):
        yield version, tuple(cut)


def _advanced(head: Head, mapped: Mapped) -> Head:
    offsets = {**head.offsets, **{part.lane: part.next for part in mapped.ranges}}
    return replace(head, offsets=offsets)
