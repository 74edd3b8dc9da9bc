"""A mapping machine with a topic in a list, the store's twin, and hands that do what it asks."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypedDict

import polars as pl

from mars.adapters.memory.partial_log import MemoryPartialLog
from mars.core.definitions import TaskDefinition, TaskState, TaskVersion
from mars.core.errors import Unavailable
from mars.core.plan import (
    Aggregate,
    AggregateFunction,
    Column,
    Field,
    FieldType,
    Format,
    Key,
    Options,
    Output,
    Plan,
    Stream,
    ValueType,
)
from mars.core.types import (
    Bucket,
    Lane,
    LeaderEpoch,
    Mapped,
    Range,
    Records,
    Sequence64,
    StoreEpoch,
    StreamName,
    TaskName,
    Topic,
    live_lane,
)
from mars.core.windows import Sliding
from mars.engine.codec.states import decode_states
from mars.process.acting import feed
from mars.protocol.mapper.events import (
    CATCH_UP,
    LIVE,
    ConfirmEnds,
    DropLane,
    EndsConfirmed,
    Event,
    FailTask,
    Instruction,
    Offer,
    Offered,
    PauseLane,
    ReaderName,
    ReadHeads,
    RenewIdle,
    Report,
    ResumeLane,
    SeekLane,
    Sourced,
    Subscribe,
    Ticked,
)
from mars.protocol.mapper.machine import MapperMachine
from mars.protocol.ports import (
    AppendOutcome,
    Applied,
    Assigned,
    EndReached,
    Fetched,
    Revoked,
    SourceEvent,
    TaskStart,
)
from mars.protocol.reducer.events import HeadsRead, TasksChanged
from mars.protocol.runnable import RunnableTask, topics_with_keys

BUCKETS = 4
TOPIC = Topic("flows")
EPOCH = StoreEpoch(1)
LEADER = LeaderEpoch(1)
STREAM = Stream(
    StreamName("flows"),
    TOPIC,
    Format.JSON,
    (Field("timestamp", FieldType.TIMESTAMP_MS), Field("sip", FieldType.STRING)),
    "timestamp",
)


def make_plan(name: str, version: int = 1, *, delay_ms: int = 0) -> Plan:
    """Rows per sip and minute."""
    return Plan(
        task=TaskName(name),
        version=version,
        stream=STREAM,
        window=Sliding(60_000, 60_000),
        keys=(Key("k0", Column("sip", ValueType.STRING)),),
        aggregates=(Aggregate("a0", AggregateFunction.COUNT_ALL, None, None, ValueType.INT64),),
        outputs=(
            Output("sip", Column("k0", ValueType.STRING)),
            Output("count", Column("a0", ValueType.INT64)),
        ),
        options=Options(f"mars.results.{name}", delay_ms=delay_ms),
        fields=STREAM.fields,
    )


def make_version(number: int = 1, starts: Mapping[Lane, int] | None = None) -> TaskVersion:
    return TaskVersion(number, "", {}, STREAM, "topic-id", 0, starts)


def make_task(
    name: str, *versions: TaskVersion, state: TaskState = TaskState.RUNNING, delay_ms: int = 0
) -> RunnableTask:
    definition = TaskDefinition(TaskName(name), state, versions or (make_version(starts={}),))
    plans = {
        version.version: make_plan(name, version.version, delay_ms=delay_ms)
        for version in definition.begun
    }
    return RunnableTask(definition, plans, {f"mars.results.{name}": BUCKETS})


def row(number: int) -> bytes:
    """The message at an offset: 1 s of event time apart, seven sips."""
    return json.dumps({"timestamp": number * 1000, "sip": f"10.0.0.{number % 7}"}).encode()


class WorldSettings(TypedDict, total=False):
    """What tests set of a `World`."""

    rest_ms: int
    log_bytes_max: int
    step: int
    tells_ends: bool


@dataclass
class World:
    """Everything around one mapper."""

    partitions: dict[int, list[bytes]]
    rows_max: int = 1000
    rest_ms: int = 0
    log_bytes_max: int = 10**9
    now_ms: int = 1_000_000
    step: int = 100
    drop_answers: int = 0
    tells_ends: bool = True
    keyed: bool = False
    """Records are read with their keys."""
    failed: dict[TaskName, str] = field(default_factory=dict)
    reports: list[str] = field(default_factory=list)
    appended: list[tuple[TaskName, int, tuple[Range, ...]]] = field(default_factory=list)
    asked: list[tuple[TaskName, ...]] = field(default_factory=list)
    """The tasks of each question for heads."""
    confirmed: list[Mapping[tuple[Topic, int], int]] = field(default_factory=list)
    """What each question for ends asked."""
    paused_ever: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.store = MemoryPartialLog(
            lambda: self.now_ms, buckets=BUCKETS, log_bytes_max=self.log_bytes_max
        )
        self.machine = self.new_machine()
        self.tasks: dict[TaskName, RunnableTask] = {}
        self.positions: dict[tuple[ReaderName, int], int] = {}
        self.paused: set[tuple[ReaderName, int]] = set()

    def empty_log(self, name: str) -> None:
        """What reducers do once they have emitted everything."""
        head = self.store.head([TaskName(name)])[TaskName(name)]
        assert head is not None
        seqs = [Sequence64(number) for number in range(1, head.seq + 1)]
        for bucket in range(BUCKETS):
            self.store.trim(TaskName(name), EPOCH, head.born, Bucket(bucket), seqs)

    def new_machine(self) -> MapperMachine:
        return MapperMachine(
            BUCKETS,
            rows_max=self.rows_max,
            bytes_max=10**9,
            linger_ms=1_000,
            rest_ms=self.rest_ms,
        )

    # ------------------------------------------------------------------------ what tests do

    def add(self, task: RunnableTask, **offsets: int) -> None:
        """Register a task and initialise it in the store."""
        at = {live_lane(number): offsets.get(f"p{number}", 0) for number in self.partitions}
        begun = task.definition.begun
        bounds = {version.version: version.starts or {} for version in begun}
        start = TaskStart(begun[-1].version, True, at, bounds, {})
        self.store.initialise(task.name, EPOCH, start)
        self.change(task)

    def change(self, task: RunnableTask) -> None:
        """As the mapper's loop does, which tells the readers before the machine."""
        self.keyed = bool(topics_with_keys([*self.tasks.values(), task]))
        self.tasks = {**self.tasks, task.name: task}
        self.feed(TasksChanged(self.tasks))

    def assign(self, *numbers: int) -> None:
        self.feed(Sourced(LIVE, Assigned(tuple((TOPIC, number) for number in numbers))))

    def revoke(self, *numbers: int) -> None:
        for number in numbers:
            self.positions.pop((LIVE, number), None)
            self.paused.discard((LIVE, number))
        self.feed(Sourced(LIVE, Revoked(tuple((TOPIC, number) for number in numbers))))

    def run(self, rounds: int = 50, elapsed_ms: int = 100) -> None:
        for _ in range(rounds):
            self.now_ms += elapsed_ms
            drained = frozenset(name for name in (LIVE, CATCH_UP) if self._poll(name))
            self.feed(Ticked(self.now_ms, drained))

    def _poll(self, reader: ReaderName) -> bool:
        """Deliver the next records; True if there were no more than those."""
        drained = True
        for (name, number), position in list(self.positions.items()):
            if name != reader or (name, number) in self.paused:
                continue
            end = len(self.partitions[number])
            upto = min(end, position + self.step)
            drained = drained and upto == end
            for event in self._events(number, position, upto, end):
                self.feed(Sourced(reader, event))
            if self.positions.get((name, number)) == position:
                self.positions[name, number] = upto
        return drained

    def _events(self, number: int, first: int, upto: int, end: int) -> Iterable[SourceEvent]:
        if upto > first:
            values = self.partitions[number][first:upto]
            times = [-1] * len(values)
            keys: list[bytes | None] | None = [b"k"] * len(values) if self.keyed else None
            yield Fetched(
                TOPIC,
                Records(live_lane(number), first, upto, values, range(first, upto), times, keys),
            )
        if upto == end and self.tells_ends:
            yield EndReached(TOPIC, number, end)

    # ----------------------------------------------------------------------------- the hands

    def feed(self, event: Event) -> None:
        feed(self.machine.handle, self._act, event)

    def _act(self, instruction: Instruction) -> Event | None:
        match instruction:
            case Offer():
                return Offered(instruction, self._append(instruction))
            case ReadHeads(tasks=tasks):
                self.asked.append(tasks)
                return self._read_heads(tasks)
            case SeekLane(reader=reader, partition=number, offset=offset):
                self.positions[reader, number] = offset
            case ResumeLane(reader=reader, partition=number, offset=offset):
                self.positions[reader, number] = offset
                self.paused.discard((reader, number))
            case PauseLane(reader=reader, partition=number):
                self.paused.add((reader, number))
                self.paused_ever.add(number)
            case DropLane(reader=reader, partition=number):
                self.positions.pop((reader, number), None)
                self.paused.discard((reader, number))
            case ConfirmEnds(ends=ends):
                self.confirmed.append(ends)
                rows = self.partitions
                return EndsConfirmed(
                    {at: end for at, end in ends.items() if end >= len(rows[at[1]])}
                )
            case RenewIdle(leases=leases):
                self.store.renew_idle(leases)
            case FailTask(task=task, detail=detail):
                self.failed[task] = detail
            case Report(detail=detail):
                self.reports.append(detail)
            case Subscribe():
                pass
            case _:
                pass
        return None

    def _read_heads(self, tasks: tuple[TaskName, ...]) -> Event | None:
        try:
            return HeadsRead(self.store.head(tasks))
        except Unavailable:
            return None

    def _append(self, offer: Offer) -> AppendOutcome | None:
        try:
            outcome = self.store.append(offer.task, offer.epoch, offer.version, offer.mapped)
        except Unavailable:
            return None
        if isinstance(outcome, Applied):
            self.appended.append((offer.task, offer.version, offer.mapped.ranges))
        return outcome

    # -------------------------------------------------------------------------- what came out

    def offsets(self, task: str) -> dict[Lane, int]:
        head = self.store.head([TaskName(task)])[TaskName(task)]
        assert head is not None
        return dict(head.offsets)

    def counts(self, task: str) -> Counter[tuple[int, str]]:
        """(pane, sip) -> rows in the log, over all buckets."""
        found: Counter[tuple[int, str]] = Counter()
        for number in range(BUCKETS):
            piece = self.store.read(
                TaskName(task), Bucket(number), Sequence64(0), Sequence64(2**40)
            )
            for entry in piece.entries:
                if entry.partial.states:
                    found.update(_counts(decode_states(entry.partial.states)))
        return found

    def expected(self, **first: int) -> Counter[tuple[int, str]]:
        """The same from the rows themselves, from these offsets on."""
        return Counter(
            (number * 1000 // 60_000 * 60_000, f"10.0.0.{number % 7}")
            for partition, rows in self.partitions.items()
            for number in range(first.get(f"p{partition}", 0), len(rows))
        )

    def tiles(self, task: str, lane: Lane, first: int = 0) -> bool:
        """True if the ranges appended for a task tile a lane."""
        at = first
        for name, _version, ranges in self.appended:
            for part in ranges:
                if name == task and part.lane == lane:
                    if part.first != at:
                        return False
                    at = part.next
        return at == self.offsets(task)[lane]


def _counts(states: pl.DataFrame) -> dict[tuple[int, str], int]:
    counted = [name for name in states.columns if name not in {"pane", "k0"}]
    return {(line["pane"], line["k0"]): line[counted[0]] for line in states.iter_rows(named=True)}


__all__ = ["BUCKETS", "EPOCH", "TOPIC", "Mapped", "World", "make_task", "make_version", "row"]
