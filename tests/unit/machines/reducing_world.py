"""Reducing machines around the twins of store and sink; hands do at once what they ask for."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from mars.adapters.memory.admin import MemoryTopicAdmin
from mars.adapters.memory.broker import MemoryBroker
from mars.adapters.memory.partial_log import MemoryPartialLog
from mars.adapters.memory.progress import MemoryProgressLog
from mars.adapters.memory.sink import MemorySink
from mars.core.errors import Fenced, MarsError, TaskAtFault, Unavailable
from mars.core.types import (
    AssignmentEpoch,
    Bucket,
    Lane,
    LeaderEpoch,
    MemberId,
    Records,
    StoreEpoch,
    TaskName,
    Topic,
)
from mars.engine.kernel import decode, map_batch
from mars.process.acting import feed
from mars.process.snapshots import read_snapshots
from mars.protocol.leader.tasks import task_start
from mars.protocol.leader.view import KnownProgress, View
from mars.protocol.ports import (
    Applied,
    Assignment,
    Claim,
    ControlState,
    IdleLease,
    Owner,
    Progress,
    ReadRequest,
    TaskStart,
)
from mars.protocol.reducer.commit_plan import OwnerLimits
from mars.protocol.reducer.events import (
    AssignmentRead,
    AuditEmissions,
    BucketClaimed,
    BucketCommitted,
    BucketFailed,
    ClaimBucket,
    CommitTransaction,
    CompactLog,
    EmissionsAudited,
    Event,
    FailTask,
    HeadsRead,
    Instruction,
    LogRead,
    LogRestored,
    ReadAssignment,
    ReadLog,
    ReadSnapshots,
    ReleaseBucket,
    Report,
    RestoreLog,
    TasksChanged,
    Ticked,
    TrimLog,
    WriteDraft,
)
from mars.protocol.reducer.machine import ReducerMachine
from mars.protocol.runnable import RunnableTask
from tests.unit.machines.reducing_rows import E1, STREAM, RowSpec, message

BUCKETS = 3
OUTPUT_PARTITIONS = 2


class World:
    """Store, topics and assignment; reducers come and go."""

    def __init__(
        self,
        *tasks: RunnableTask,
        buckets: int = BUCKETS,
        log_bytes_max: int = 10**9,
        snapshot_every_ms: int = 900_000,
        draft_rows_min: int = 0,
        output_partitions: int = OUTPUT_PARTITIONS,
    ) -> None:
        self.now_ms = 1_000
        self.buckets = buckets
        self.store_epoch = E1
        self.broker = MemoryBroker(lambda: self.now_ms)
        MemoryTopicAdmin(self.broker).ensure_internal(buckets)
        self.store = MemoryPartialLog(
            lambda: self.now_ms, buckets=buckets, log_bytes_max=log_bytes_max
        )
        self.limits = OwnerLimits(
            10_000,
            1_000,
            log_bytes_max,
            buckets,
            snapshot_every_ms,
            draft_rows_min=draft_rows_min,
        )
        self.tasks = {
            task.name: replace(
                task, output_partitions=dict.fromkeys(task.output_partitions, output_partitions)
            )
            for task in tasks
        }
        self.assignment = Assignment(LeaderEpoch(1), E1, {})
        self._epoch = 0
        for task in tasks:
            for version in task.plans.values():
                self.broker.create_topic(Topic(version.options.output_topic), output_partitions)
            offsets = {Lane("0"): 0, Lane("1"): 0}
            self.store.initialise(task.name, E1, TaskStart(1, True, offsets, {}, {}))

    def assign(self, owners: Mapping[int, str]) -> None:
        """Give buckets away, each under a higher epoch."""
        self._epoch += 1
        moved = {
            Bucket(bucket): Owner(MemberId(member), AssignmentEpoch(self._epoch))
            for bucket, member in owners.items()
        }
        everywhere = {**self.assignment.owners, **moved}
        self.assignment = Assignment(LeaderEpoch(1), self.store_epoch, everywhere)

    def lose_store(self, owners: Mapping[int, str], *, also: Callable[[], None]) -> None:
        """FLUSHALL, and what the leader does then; `also` lets the new owners claim."""
        self.store.flush()
        self.store_epoch = StoreEpoch(self.store_epoch + 1)
        self.assign(owners)
        also()
        for name, task in self.tasks.items():
            self.store.initialise(name, self.store_epoch, self.start_of(task))

    def start_of(self, task: RunnableTask) -> TaskStart:
        """Where a task begins in a new store, by what is in `mars.progress`."""
        return task_start(
            task.definition,
            View(
                leader_epoch=LeaderEpoch(1),
                buckets=self.buckets,
                reducers=frozenset(),
                assignment=self.assignment,
                floor=ControlState(),
                identity=None,
                heads={},
                tasks={},
                copied={},
                progress=self.progress(),
                partitions={Topic(STREAM.topic): 2},
            ),
        )

    def progress(self) -> KnownProgress:
        """What is in `mars.progress`, as a leader knows it."""
        log, known = MemoryProgressLog(self.broker), KnownProgress()
        for number in range(self.buckets):
            piece = log.read(Bucket(number), 0)
            known = known.with_records(piece.records, piece.times_ms)
        return known

    def newest(self) -> list[Progress]:
        """The newest progress of each bucket of each version."""
        return list(self.progress().records.values())

    def lease(self, name: str) -> None:
        """Every lane is read to its end, and idle: so mappers say of those without rows."""
        head = self.store.head([TaskName(name)])[TaskName(name)]
        assert head is not None
        self.store.renew_idle(
            [
                IdleLease(TaskName(name), head.epoch, lane, at, head.version)
                for lane, at in head.offsets.items()
            ]
        )

    def append(self, name: str, lane: str, first: int, rows: Sequence[RowSpec]) -> None:
        """A batch of a mapper."""
        task = self.tasks[TaskName(name)]
        plan = task.plans[task.definition.current.version]
        offsets = range(first, first + len(rows))
        values = [message(row) for row in rows]
        records = Records(Lane(lane), first, offsets.stop, values, offsets, [-1] * len(rows))
        mapped = map_batch(plan, self.buckets, decode(STREAM, plan.fields, records))
        outcome = self.store.append(task.name, self.store_epoch, plan.version, mapped)
        assert isinstance(outcome, Applied), outcome

    def emitted(self, name: str) -> dict[tuple[int, str], int]:
        """All committed rows of a task: (window start in seconds, key) -> n."""
        found: dict[tuple[int, str], int] = {}
        for partition in self.broker.topics[Topic(f"mars.results.{name}")].partitions:
            for record in partition.committed(0, partition.stable_end):
                row = json.loads(record.value or b"")
                place = (row["window_start"] // 1000, row["k"])
                assert place not in found, f"emitted twice: {place}"
                found[place] = row["n"]
        return found


class Reducer:
    """One process."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = MemberId(name)
        self.machine = ReducerMachine(self.name, world.limits)
        self.sink = MemorySink(world.broker)
        self.store = world.store.connect()
        self.reports: list[str] = []
        self.entries_read = 0
        self.failed: dict[TaskName, str] = {}
        self.drafts: list[Bucket] = []
        """The buckets whose windows were drafted, each time."""
        self.feed(TasksChanged(world.tasks))
        self.feed(AssignmentRead(world.assignment))

    def run(self, rounds: int = 1, elapsed_ms: int = 100) -> None:
        """Look at the heads and tick."""
        for _ in range(rounds):
            self.world.now_ms += elapsed_ms
            watched = self.machine.watched()
            if watched:
                clearings = self.machine.clearings()
                looks = self.store.look({task: {} for task in watched}, clearings)
                heads = {task: None if one is None else one.head for task, one in looks.items()}
                self.feed(HeadsRead(heads, clearings))
            for bucket in self.machine.buckets():
                self.feed(Ticked(self.world.now_ms, bucket))

    def feed(self, event: Event) -> None:
        feed(self.machine.handle, self._act, event)

    def _act(self, instruction: Instruction) -> Event | None:
        match instruction:
            case ReadAssignment():
                return AssignmentRead(self.world.assignment)
            case ReadLog():
                return self._read(instruction)
            case ClaimBucket() | AuditEmissions() | CommitTransaction() | WriteDraft():
                return self._act_on_sink(instruction)
            case ReadSnapshots():
                return read_snapshots(self.sink, instruction)
            case RestoreLog(bucket, _term, task, epoch, born, bases):
                with suppress(Unavailable):
                    if self.store.put_base(task, epoch, born, bucket, bases):
                        return LogRestored(instruction)
            case ReleaseBucket(bucket=bucket):
                self.sink.release(bucket)
            case TrimLog(bucket, task, epoch, born, seqs):
                self.store.trim(task, epoch, born, bucket, seqs)
            case CompactLog(bucket, task, epoch, born, base, older):
                self.store.compact(task, epoch, born, bucket, base, older)
            case FailTask(task=task, detail=detail):
                self.failed[task] = detail
            case Report(kind=kind):
                self.reports.append(kind)
        return None

    def _read(self, read: ReadLog) -> Event:
        request = ReadRequest(read.task, read.bucket, read.after, read.upto)
        (piece,) = self.store.read_many([request])
        self.entries_read += len(piece.entries)
        return LogRead(read, piece, self.store.head([read.task])[read.task])

    def _act_on_sink(
        self, instruction: ClaimBucket | AuditEmissions | CommitTransaction | WriteDraft
    ) -> Event | None:
        bucket, term = instruction.bucket, instruction.term
        try:
            match instruction:
                case ClaimBucket(epoch=epoch, store_epoch=store_epoch):
                    claim = Claim(bucket, epoch, store_epoch, f"{self.name}-{term}", self.name)
                    return BucketClaimed(bucket, term, self.sink.claim(claim))
                case AuditEmissions(emissions=emissions):
                    found = (self.sink.audit(emission, bucket) for emission in emissions)
                    return EmissionsAudited(bucket, term, tuple(text for text in found if text))
                case CommitTransaction(transaction=transaction, next=known):
                    return BucketCommitted(bucket, term, self.sink.commit(transaction, known))
                case WriteDraft(results=results, next=known):
                    self.drafts += [bucket] * bool(results)
                    self.sink.draft(bucket, results, known)
                    return None
        except TaskAtFault as problem:
            culprit = TaskName(problem.task)
            return BucketFailed(bucket, term, False, str(problem), culprit)
        except MarsError as problem:
            return BucketFailed(bucket, term, isinstance(problem, Fenced), str(problem))


def counted(rows: Iterable[RowSpec], until_s: int, size_s: int = 10) -> dict[tuple[int, str], int]:
    """What tumbling windows that end by then must hold."""
    found: dict[tuple[int, str], int] = {}
    for seconds, key in rows:
        place = (seconds // size_s * size_s, key)
        if key and place[0] + size_s <= until_s:
            found[place] = found.get(place, 0) + 1
    return found
