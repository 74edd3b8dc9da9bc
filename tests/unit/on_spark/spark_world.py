"""A topic in a list, the store's and the registry's twins, and rounds run without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from mapper.on_spark.planning import RoundLimits, RoundLook, RoundRefusals, shares_of, works_of
from mapper.on_spark.taking import Taking
from mapper.on_spark.watching import Watch
from mars.adapters.memory.partial_log import MemoryPartialLog
from mars.adapters.memory.registry import MemoryRegistry
from mars.adapters.spark.lane_work import LaneWork, Outcome, Share, encode_outcome
from mars.core.settings import Settings
from mars.core.types import Range, Records, TaskName, Topic, live_lane
from mars.process.life import ServiceHealth
from mars.protocol.ports import TaskStart
from mars.protocol.runnable import RunnableTask
from tests.unit.machines.mapping_world import BUCKETS, EPOCH, TOPIC, World

Batches = Iterator[Records | Range]


@dataclass
class SparkWorld:
    """`World` has the rows and the counting; here they are read by works instead of a machine."""

    partitions: dict[int, list[bytes]]
    rows_max: int = 100
    bytes_max: int = 10**9
    batch: int = 30
    log_bytes_max: int = 10**9
    now_ms: int = 1_000_000
    tasks: dict[TaskName, RunnableTask] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.world = World(self.partitions, log_bytes_max=self.log_bytes_max)
        self.store: MemoryPartialLog = self.world.store
        self.registry = MemoryRegistry()
        self.services = ServiceHealth("test")
        self.watch = Watch(lambda: self.now_ms)
        self.refusals = RoundRefusals()
        self.mapped_again: list[Range] = []
        self.planned: list[LaneWork] = []
        self.taking = Taking(
            self.store,
            self.registry,
            self.services,
            self.watch,
            lambda: self.tasks,
            self._map_again,
        )

    def add(self, task: RunnableTask, start: TaskStart | None = None, **offsets: int) -> None:
        """Register a task and initialise it in the store."""
        at = {live_lane(number): offsets.get(f"p{number}", 0) for number in self.partitions}
        begun = task.definition.begun
        bounds = {version.version: version.starts or {} for version in begun}
        usual = TaskStart(begun[-1].version, True, at, bounds, {})
        self.store.initialise(task.name, EPOCH, start or usual)
        self.registry.create_task(task.definition)
        self.tasks[task.name] = task

    def look(self) -> RoundLook:
        """What there is now."""
        ends = {number: len(rows) for number, rows in self.partitions.items()}
        return RoundLook(self.tasks, self.store.head(sorted(self.tasks)), {TOPIC: ends})

    def plan(self) -> list[LaneWork]:
        """The next round."""
        shares = self.refusals.due(shares_of(self.look(), self.rows_max), self.now_ms)
        self.refusals.planned(shares, self.now_ms)
        limits = RoundLimits(self.rows_max, self.bytes_max, BUCKETS)
        return works_of(Settings(), limits, self.look(), shares)

    def round(self) -> None:
        """Plan, run, take."""
        self.planned = self.plan()
        self.take(outcome for work in self.planned for outcome in self.run(work))

    def take(self, outcomes: Iterator[Outcome] | Sequence[Outcome]) -> None:
        self.taking.take([encode_outcome(one) for one in outcomes])

    def run(
        self, work: LaneWork, batches: Callable[[Range], Batches] | None = None
    ) -> list[Outcome]:
        return list(work.outcomes((batches or self.batches)(work.part)))

    def batches(self, part: Range) -> Batches:
        """The rows of a range, some at a time."""
        rows = self.partitions[int(part.lane)]
        for first in range(part.first, part.next, self.batch):
            after = min(part.next, first + self.batch)
            values = rows[first:after]
            times = [-1] * len(values)
            yield Records(part.lane, first, after, values, range(first, after), times)

    def _map_again(self, topic: Topic, share: Share) -> list[Outcome]:
        self.mapped_again.append(share.part)
        work = LaneWork(Settings(), topic, share.part, BUCKETS, self.bytes_max, (share,))
        return self.run(work)

    def state(self, task: RunnableTask) -> tuple[str, str]:
        found = self.registry.task(task.name)
        assert found is not None
        return found[0].state, found[0].detail


def fenced(task: RunnableTask, **fences: int) -> RunnableTask:
    """The task, with a bulk process at work below these offsets of lanes `p0`, `p1` ..."""
    lanes = {live_lane(int(name[1:])): offset for name, offset in fences.items()}
    return replace(task, definition=replace(task.definition, catch_up=lanes))
