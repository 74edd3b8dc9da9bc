"""Everything around the machines of bulk processes: a topic, Spark's jobs, the store's twin."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import polars as pl

from mars.adapters.memory.partial_log import MemoryPartialLog
from mars.core.definitions import Backfill, LaneSpan, TaskDefinition, TaskState
from mars.core.errors import Unavailable
from mars.core.types import (
    Bucket,
    Lane,
    Mapped,
    Range,
    Records,
    Sequence64,
    StoreEpoch,
    TaskName,
    backfill_lane,
    lane_partition,
    live_lane,
)
from mars.engine.codec.states import decode_states
from mars.engine.combining import combine
from mars.engine.kernel import decode, map_batch
from mars.process.acting import feed
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
    SetCatchUp,
    StartJob,
    TasksChanged,
    Ticked,
)
from mars.protocol.backfill.machine import BackfillLimits, BackfillMachine
from mars.protocol.ports import AppendOutcome, Applied, MapJob, TaskStart
from mars.protocol.runnable import RunnableTask
from tests.unit.machines.mapping_world import BUCKETS, STREAM, TOPIC, make_plan, make_version, row

NAME = TaskName("a")
B1 = "b1"


def history(spans: Mapping[int, tuple[int, int]], chunks: int) -> Backfill:
    """A backfill of these stretches of partitions."""
    lanes = {backfill_lane(number, B1): LaneSpan(*span) for number, span in spans.items()}
    return Backfill(B1, lanes, chunks, 0)


def make_task(*backfills: Backfill, live: Mapping[int, int]) -> RunnableTask:
    """A task with histories, whose live lanes start at the given offsets."""
    starts = {live_lane(number): offset for number, offset in live.items()}
    for backfill in backfills:
        starts |= {lane: span.first for lane, span in backfill.lanes.items()}
    definition = TaskDefinition(
        NAME, TaskState.RUNNING, (make_version(starts=starts),), backfills=backfills
    )
    plans = {1: make_plan(NAME)}
    return RunnableTask(definition, plans, {f"mars.results.{NAME}": BUCKETS})


def map_job(partitions: Mapping[int, list[bytes]], job: MapJob) -> Mapped:
    """What Spark would make of a job."""
    plan = make_plan(job.task, job.version.version)
    pieces = []
    for part in job.ranges:
        values = partitions[lane_partition(part.lane) or 0][part.first : part.next]
        records = Records(
            part.lane,
            part.first,
            part.next,
            values,
            range(part.first, part.next),
            [-1] * len(values),
        )
        pieces.append(map_batch(plan, BUCKETS, decode(STREAM, plan.fields, records)))
    return combine(plan, pieces)


class Bulk:
    """One bulk process. Its jobs run when `spark` is called, in the order in which they began."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.machine = BackfillMachine(
            BackfillLimits(
                BUCKETS, chunk_rows=50, ahead=2, catch_up_rows_min=world.catch_up_rows_min
            )
        )
        self.jobs: dict[str, MapJob] = {}
        self.feed(TasksChanged(world.tasks))

    def tick(self) -> None:
        self.world.now_ms += 100
        self.feed(Ticked(self.world.now_ms))

    def spark(self, jobs: int = 1, problem: str = "", *, lasting: bool = False) -> None:
        """End some of the jobs that run."""
        for job_id in list(self.jobs)[:jobs]:
            job = self.jobs.pop(job_id)
            mapped = None if problem else map_job(self.world.partitions, job)
            self.feed(JobEnded(job_id, mapped, problem, lasting))

    def run(self, rounds: int = 100) -> None:
        for _ in range(rounds):
            self.tick()
            self.spark()

    def stop(self) -> None:
        for instruction in self.machine.stop():
            self._act(instruction)

    def feed(self, event: Event) -> None:
        feed(self.machine.handle, self._act, event)

    def _act(self, instruction: Instruction) -> Event | None:
        world = self.world
        match instruction:
            case StartJob(job=job):
                self.jobs[job.id] = job
                world.started.append(job.ranges)
            case CancelJob(job_id=job_id):
                del self.jobs[job_id]
            case Append():
                return Appended(instruction, world.append(instruction))
            case ReadHeads(tasks=names):
                return HeadsRead(world.store.head(names))
            case ReadEnds():
                return EndsRead({TOPIC: {n: len(rows) for n, rows in world.partitions.items()}})
            case SetCatchUp(run=run, fences=fences):
                assert run == world.task.definition.run
                world.set_catch_up(fences)
                return TasksChanged(world.tasks)
            case FailTask(task=task, detail=detail):
                world.failed[task] = detail
        return None


@dataclass
class World:
    """A topic, a task and the store; and what was appended."""

    partitions: dict[int, list[bytes]]
    task: RunnableTask
    log_bytes_max: int = 10**9
    catch_up_rows_min: int = 10**9
    now_ms: int = 1_000_000
    epoch: int = 1
    failed: dict[TaskName, str] = field(default_factory=dict)
    started: list[tuple[Range, ...]] = field(default_factory=list)
    appended: list[tuple[Range, ...]] = field(default_factory=list)
    caught_up: list[Mapping[Lane, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.store = MemoryPartialLog(
            lambda: self.now_ms, buckets=BUCKETS, log_bytes_max=self.log_bytes_max
        )
        self.recover(dict(self.task.definition.current.starts or {}))

    @property
    def tasks(self) -> dict[TaskName, RunnableTask]:
        return {NAME: self.task}

    def recover(
        self, offsets: Mapping[Lane, int], cuts: Mapping[Lane, tuple[int, ...]] | None = None
    ) -> None:
        """Begin a life of the store at these offsets."""
        self.store.flush()
        start = TaskStart(1, True, offsets, {}, cuts or {}, self.task.definition.ends)
        self.store.initialise(NAME, StoreEpoch(self.epoch), start)
        self.epoch += 1
        self.appended.clear()

    def set_catch_up(self, fences: Mapping[Lane, int]) -> None:
        self.caught_up.append(fences)
        definition = replace(self.task.definition, catch_up=fences)
        self.task = replace(self.task, definition=definition)

    def append(self, append: Append) -> AppendOutcome | None:
        try:
            outcome = self.store.append(append.task, append.epoch, append.version, append.mapped)
        except Unavailable:
            return None
        if isinstance(outcome, Applied):
            self.appended.append(append.mapped.ranges)
        return outcome

    # -------------------------------------------------------------------------- what came out

    def offsets(self) -> dict[Lane, int]:
        head = self.store.head([NAME])[NAME]
        assert head is not None
        return dict(head.offsets)

    def counts(self) -> Counter[tuple[int, str]]:
        """(pane, sip) -> rows in the log, over all buckets."""
        found: Counter[tuple[int, str]] = Counter()
        for number in range(BUCKETS):
            piece = self.store.read(NAME, Bucket(number), Sequence64(0), Sequence64(2**40))
            for entry in piece.entries:
                if entry.partial.states:
                    found.update(_counts(decode_states(entry.partial.states)))
        return found

    def expected(self, spans: Mapping[int, tuple[int, int]]) -> Counter[tuple[int, str]]:
        """The same from the rows themselves."""
        return Counter(
            (number * 1000 // 60_000 * 60_000, f"10.0.0.{number % 7}")
            for first, after in spans.values()
            for number in range(first, after)
        )


def topic(rows: int, partitions: int = 2) -> dict[int, list[bytes]]:
    """A topic of rows whose values follow from their offsets."""
    return {number: [row(offset) for offset in range(rows)] for number in range(partitions)}


def _counts(states: pl.DataFrame) -> dict[tuple[int, str], int]:
    counted = [name for name in states.columns if name not in {"pane", "k0"}]
    return {(line["pane"], line["k0"]): line[counted[0]] for line in states.iter_rows(named=True)}
