"""The servers in memory, and the processes: the real loops around the real machines."""

from __future__ import annotations

import math
import queue
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

from mapper.bulk.loop import BulkLoop
from mapper.loop import MapperLoop
from mars.adapters.memory.admin import MemoryTopicAdmin
from mars.adapters.memory.broker import MemoryBroker, Outcome
from mars.adapters.memory.control import MemoryControlLog
from mars.adapters.memory.coordinator import MemoryCoordinator, MemoryEnsemble
from mars.adapters.memory.notes import Mailboxes, MemoryNoteBox
from mars.adapters.memory.progress import MemoryProgressLog
from mars.adapters.memory.registry import MemoryRegistry
from mars.adapters.memory.store import MemoryStore
from mars.core.types import Bucket, Entry, MemberId
from mars.process.life import Life, ServiceHealth
from mars.process.tasks import TaskSource
from mars.process.telemetry.member import Reporter
from mars.process.tracking import Outbox
from mars.protocol.backfill.machine import BackfillLimits, BackfillMachine
from mars.protocol.balance.placement import SpreadLimits
from mars.protocol.balance.steering import SteeringLimits
from mars.protocol.balance.strategies import Strategy
from mars.protocol.mapper.events import CATCH_UP, LIVE
from mars.protocol.mapper.machine import MapperMachine
from mars.protocol.ports import MapJob
from mars.protocol.reducer.commit_plan import OwnerLimits
from mars.protocol.reducer.machine import ReducerMachine
from reducer.assisting import AssistLoop
from reducer.leader import LeaderLoop
from reducer.lookout import LeaderPorts
from reducer.loop import ReducerLoop
from reducer.tracking import TrackerLoop
from tests.simulation.stepping import (
    Stepping,
    SteppingEngine,
    SteppingLog,
    SteppingSink,
    SteppingSource,
    Steps,
)
from tests.simulation.strands import Host, Scheduler
from tests.simulation.watching import Watch, WatchedLog

BUCKETS = 4

SHARED_PARTITIONS = 3
"""Of output topics: two buckets write to one of them. Windows are drafted only where none do."""

GROUP = "mappers"
PROGRESS_INTERVAL_MS = 1_500
TRACKER_DEADLINE_MS = 3_000
LARGE_TASK_ROWS = 6
LINGER_MS = 150
BATCH_ROWS_MAX = 6
JOBS_AHEAD = 2
CATCH_UP_ROWS = 7
CATCH_UP_ROWS_MIN = 10
BALANCE = SteeringLimits(
    cooldown_s=2.0, bucket_rest_s=4.0, spread=SpreadLimits(imbalance_max=0.01, gain_min=0.001)
)
"""So small that noise moves buckets every few seconds."""

SPLIT = replace(
    BALANCE, strategy=Strategy.SPLIT, cooldown_s=0.3, spread=SpreadLimits(imbalance_max=10.0)
)
"""Assistants change often; buckets move when reducers come and go."""

ROUND_MS_MAX = 250

SLOW_ROUND_MS_MAX = 3_000
"""Of owners that are to find something merged when they look again."""

MERGE_MS_MAX = 300
"""Longest time that an assistant needs for a segment."""


class Servers:
    """Kafka, Redis and ZooKeeper."""

    def __init__(
        self, clock: Callable[[], int], log_bytes_max: int, snapshot_every_ms: int
    ) -> None:
        self.snapshot_every_ms = snapshot_every_ms
        self.broker = CarelessBroker(clock)
        self.store = MemoryStore(clock, BUCKETS, log_bytes_max)
        self.store.look_entries_max = 1  # what is read by itself is to meet faults, too
        self.ensemble = MemoryEnsemble()
        self.registry = MemoryRegistry()
        self.control = MemoryControlLog()
        self.watch = Watch()
        self.mailboxes: Mailboxes = {}
        MemoryTopicAdmin(self.broker).ensure_internal(BUCKETS)


class CarelessBroker(MemoryBroker):
    """`MemoryBroker` that asks for each abort in which partitions it leaves no marker."""

    lost_aborts: Callable[[], Callable[[object], bool] | None] = staticmethod(lambda: None)

    def _finish(self, transactional_id: str, known: Any, outcome: Outcome) -> None:
        if outcome is Outcome.ABORTED and known.partitions:
            lost = self.lost_aborts()
            if lost is not None:
                self.lose_markers(lost, outcome=outcome)
        super()._finish(transactional_id, known, outcome)


class LateWatches:
    """A process's registry, whose watches ring when the world lets them."""

    def __init__(self, world: Steps, host: Host, registry: MemoryRegistry) -> None:
        self._world = world
        self._host = host
        self._registry = registry

    def __getattr__(self, name: str) -> Any:
        return getattr(self._registry, name)

    def watch_tasks(self, changed: Callable[[], None]) -> None:
        """Ring when any task changes."""
        self._registry.watch_tasks(lambda: self._world.ring(self._host, changed))


class StrandPool:
    """`SerialPool` on strands."""

    def __init__(self, scheduler: Scheduler, host: Host) -> None:
        self._scheduler = scheduler
        self._host = host
        self._queues: dict[Bucket, deque[Callable[[], None]]] = {}

    def submit(self, bucket: Bucket, work: Callable[[], None]) -> None:
        """Do the work after all earlier works of the bucket."""
        if bucket in self._queues:
            self._queues[bucket].append(work)
            return
        self._queues[bucket] = deque([work])
        self._scheduler.start(self._host, f"bucket-{bucket}", lambda: self._drain(bucket))

    def _drain(self, bucket: Bucket) -> None:
        waiting = self._queues[bucket]
        while waiting:
            waiting.popleft()()
        del self._queues[bucket]


class JobStrands:
    """The bulk process's pool of job threads, on strands."""

    def __init__(self, scheduler: Scheduler, host: Host) -> None:
        self._scheduler = scheduler
        self._host = host
        self._jobs = 0

    def submit(self, work: Callable[[MapJob], None], job: MapJob) -> None:
        """Run a job beside everything else."""
        self._jobs += 1
        self._scheduler.start(self._host, f"job-{self._jobs}", lambda: work(job))


class SimulatedLife(Life):
    """One whose waits are the scheduler's."""

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__()
        self._scheduler = scheduler

    def wait(self, timeout_s: float) -> bool:
        """Always False: processes end by being killed."""
        self._scheduler.sleep(int(timeout_s * 1000))
        return False


@dataclass
class Process:
    """One process, and what of it the servers know."""

    host: Host
    role: str
    member: MemberId
    source: SteppingSource | None = None
    parts: dict[str, Any] = field(default_factory=dict)


class SlowAssistant(AssistLoop):
    """An assistant who needs time to merge what it has read: meanwhile its owner may look."""

    def __init__(self, log: Stepping, world: Steps) -> None:
        super().__init__(log)
        self._world = world

    def _merged_entries(self, *given: Any) -> list[tuple[Entry, str]]:
        merged = super()._merged_entries(*given)
        self._world.rest(MERGE_MS_MAX if merged else 0)
        return merged


class Cluster:
    """Starts processes."""

    def __init__(
        self,
        scheduler: Scheduler,
        world: Steps,
        servers: Servers,
        *,
        tracked: bool,
        split: bool = False,
        drafted: bool = False,
        rest_ms: int = 0,
    ) -> None:
        self._scheduler = scheduler
        self._rest_ms = rest_ms
        self._tracked = tracked
        self._output_partitions = BUCKETS if drafted else SHARED_PARTITIONS
        self._steering = SPLIT if split else BALANCE
        self._round_ms_max = SLOW_ROUND_MS_MAX if split else ROUND_MS_MAX
        self._world = world
        self._servers = servers
        self._log_bytes_max = servers.store.budget
        self._numbers = 0

    def _coordinator(self, member: MemberId) -> Stepping:
        local = frozenset(
            {"connected", "leading", "leadership", "watch", "campaign", "report", "join"}
        )
        coordinator = MemoryCoordinator(self._servers.ensemble, member)
        return Stepping(self._world, "zookeeper", coordinator, local)

    def _registry(self, host: Host) -> Stepping:
        registry = LateWatches(self._world, host, self._servers.registry.connect())
        return Stepping(self._world, "zookeeper", registry, frozenset({"watch_tasks"}))

    def _store(self) -> Stepping:
        log = WatchedLog(self._servers.store, self._servers.watch)
        return SteppingLog(self._world, "redis", log, frozenset({"listen", "wait"}))

    def _kafka(self, port: object) -> Stepping:
        return Stepping(self._world, "kafka", port)

    def _outbox(self, coordinator: Stepping) -> Outbox:
        return Outbox(self._notes(), coordinator)

    def _notes(self) -> Stepping:
        return Stepping(self._world, "redis", MemoryNoteBox(self._servers.mailboxes))

    def _posting(self, process: Process, coordinator: Stepping) -> Outbox | None:
        """Where a mapper's or bulk process's notes go, and the strand that posts them."""
        if not self._tracked:
            return None
        outbox, life = self._outbox(coordinator), SimulatedLife(self._scheduler)
        self._scheduler.start(process.host, "tracker", lambda: outbox.run(life))
        return outbox

    def _member(self, role: str) -> MemberId:
        self._numbers += 1
        return MemberId(f"{role}-{self._numbers}")

    # --------------------------------------------------------------------------------- mapper

    def mapper(self) -> Process:
        """Start a mapper."""
        member = self._member("mapper")
        process = Process(Host(member), "mapper", member)
        live = process.source = SteppingSource(self._world, self._servers.broker, GROUP)
        reporter = Reporter(member, "mapper")
        coordinator, registry = self._coordinator(member), self._registry(process.host)
        coordinator.join(reporter.report(0, ()))
        loop = MapperLoop(
            MapperMachine(
                BUCKETS,
                rows_max=BATCH_ROWS_MAX,
                bytes_max=2**20,
                linger_ms=LINGER_MS,
                rest_ms=self._rest_ms,
            ),
            readers={LIVE: live, CATCH_UP: SteppingSource(self._world, self._servers.broker, None)},
            log=self._store(),
            registry=registry,
            coordinator=coordinator,
            tasks=TaskSource(registry, "default"),
            reporter=reporter,
            services=ServiceHealth("mapper"),
            poll_s=0.0,
            tracking=self._posting(process, coordinator),
        )
        process.parts["loop"] = loop
        self._scheduler.start(process.host, "main", lambda: self._map(loop))
        return process

    def _map(self, loop: MapperLoop) -> NoReturn:
        while True:
            self._scheduler.sleep(self._world.draw(40, 200))
            loop.round()

    # ----------------------------------------------------------------------------------- bulk

    def bulk(self) -> Process:
        """Start a bulk process: a standby, if another one lives."""
        member = self._member("bulk")
        process = Process(Host(member), "bulk", member)
        reporter = Reporter(member, "bulk")
        coordinator, registry = self._coordinator(member), self._registry(process.host)
        coordinator.join(reporter.report(0, ()))
        limits = BackfillLimits(
            BUCKETS, CATCH_UP_ROWS, JOBS_AHEAD, self._world.draw(CATCH_UP_ROWS_MIN, 100)
        )
        loop = BulkLoop(
            member,
            BackfillMachine(limits),
            engine=SteppingEngine(self._world, self._servers.broker),
            log=self._store(),
            registry=registry,
            coordinator=coordinator,
            admin=self._kafka(MemoryTopicAdmin(self._servers.broker)),
            tasks=TaskSource(registry, "default"),
            reporter=reporter,
            services=ServiceHealth("bulk"),
            jobs=JOBS_AHEAD,
            tracking=self._posting(process, coordinator),
        )
        loop._pool = JobStrands(self._scheduler, process.host)  # type: ignore[assignment]
        process.parts["loop"] = loop
        self._scheduler.start(process.host, "main", lambda: self._backfill(loop))
        return process

    def _backfill(self, loop: BulkLoop) -> NoReturn:
        while True:
            self._scheduler.sleep(self._world.draw(40, 250))
            loop.round(0.0)

    # -------------------------------------------------------------------------------- reducer

    def reducer(self) -> Process:
        """Start a reducer, which stands for election too."""
        member = self._member("reducer")
        process = Process(Host(member), "reducer", member)
        reporter = Reporter(member, "reducer")
        coordinator, store = self._coordinator(member), self._store()
        registry = self._registry(process.host)
        admin = self._kafka(MemoryTopicAdmin(self._servers.broker))
        coordinator.join(reporter.report(0, ()))
        limits = OwnerLimits(
            PROGRESS_INTERVAL_MS,
            LARGE_TASK_ROWS,
            self._log_bytes_max,
            BUCKETS,
            self._servers.snapshot_every_ms,
            self._tracked,
            draft_rows_min=1,
        )
        tracker = self._tracker(member, store, coordinator) if self._tracked else None
        assistant = SlowAssistant(store, self._world)
        loop = ReducerLoop(
            member,
            ReducerMachine(member, limits),
            log=store,
            sink=SteppingSink(self._world, self._servers.broker),
            registry=registry,
            coordinator=coordinator,
            tasks=TaskSource(
                registry,
                "default",
                lambda topics: admin.ensure_outputs(topics, self._output_partitions),
            ),
            reporter=reporter,
            services=ServiceHealth("reducer"),
            poll_s=0.0,
            threads=1,
            balance=lambda: leader.balance,
            tracker=tracker,
            assistant=assistant,
        )
        loop._work._pool = StrandPool(self._scheduler, process.host)  # type: ignore[assignment]
        leader = LeaderLoop(
            LeaderPorts(
                BUCKETS,
                log=store,
                progress=self._kafka(MemoryProgressLog(self._servers.broker)),
                control=self._kafka(self._servers.control),
                registry=registry,
                coordinator=coordinator,
                admin=admin,
                services=ServiceHealth("leader"),
                limits=replace(self._steering, room_bytes=self._log_bytes_max),
            )
        )
        process.parts["loop"], process.parts["leader"] = loop, leader
        self._scheduler.start(process.host, "main", lambda: self._reduce(loop, process))
        life = SimulatedLife(self._scheduler)
        self._scheduler.start(process.host, "leader", lambda: leader.run(life))
        self._scheduler.start(process.host, "assistant", lambda: assistant.run(life))
        if tracker is not None:
            process.parts["tracker"] = tracker
            self._scheduler.start(process.host, "tracker", lambda: tracker.run(life))
        return process

    def _tracker(self, member: MemberId, store: Stepping, coordinator: Stepping) -> TrackerLoop:
        return TrackerLoop(
            member,
            TRACKER_DEADLINE_MS,
            BUCKETS,
            outbox=self._outbox(coordinator),
            box=self._notes(),
            log=store,
            progress=self._kafka(MemoryProgressLog(self._servers.broker)),
        )

    def _reduce(self, loop: ReducerLoop, process: Process) -> None:
        loop._coordinator.watch(loop._on_cluster_change)
        assert isinstance(loop._inbox, queue.SimpleQueue)
        while "asked" not in process.parts:
            self._scheduler.sleep(self._world.draw(40, self._round_ms_max))
            loop._wait()
            loop._bells.rang(loop._store.wait(0.0))
            if self._world.draw(0, 1):  # the time for a look at all tasks has not come
                loop._bells._look_at_all_s = math.inf
            loop.round()
            loop._bells._look_at_all_s = 0.0
        loop._leave()
        self._scheduler.after(0, process.parts["asked"])
