"""The loop of a mapper process: does what the machine asks, and tells it what came of it."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import assert_never

from mars.core.errors import Unavailable
from mars.core.types import TaskName, Topic
from mars.process.life import Life, ServiceHealth
from mars.process.tasks import TaskSource, fail_task
from mars.process.telemetry import logs, tracing
from mars.process.telemetry.member import Reporter
from mars.process.telemetry.undecodable import UndecodableRows
from mars.process.tracking import Outbox
from mars.protocol.mapper.events import (
    CATCH_UP,
    LIVE,
    Alone,
    ConfirmEnds,
    DropLane,
    EndsConfirmed,
    Event,
    FailTask,
    HeadsRead,
    Hint,
    Instruction,
    Offer,
    Offered,
    PauseLane,
    ReaderLane,
    ReaderName,
    ReadHeads,
    RenewIdle,
    Report,
    ResumeLane,
    SeekLane,
    Sourced,
    Steering,
    Subscribe,
    TasksChanged,
    Ticked,
)
from mars.protocol.mapper.machine import MapperMachine
from mars.protocol.mapper.meter import Lags, MapperMeter, ahead, with_lags
from mars.protocol.ports import (
    AppendOutcome,
    Applied,
    Batch,
    Coordinator,
    Fetched,
    MapperLog,
    Registry,
    SourceReader,
)
from mars.protocol.runnable import RunnableTask, topics_with_keys

NEAR_THE_END_MESSAGES = 2_000
"""A reader with less than this ahead of it has caught up: it stops collecting large batches. About
what arrives while a batch is mapped at a modest load."""

LAGS_S = 0.05
"""How old the number of messages ahead may be: it is asked for partition by partition."""

POLL_RECORDS_MAX = 20_000
"""Messages taken in one poll: large enough that the cost of a poll vanishes, small enough that a
poll at full speed takes about 20 ms."""


class MapperLoop:
    """One thread: poll, feed the machine, act, report.

    `records_max`: messages of a batch; a poll takes no more than it may hold.
    """

    def __init__(  # noqa: PLR0913 -- the ports of a process
        self,
        machine: MapperMachine,
        *,
        readers: Mapping[ReaderName, SourceReader],
        log: MapperLog,
        registry: Registry,
        coordinator: Coordinator,
        tasks: TaskSource,
        reporter: Reporter,
        services: ServiceHealth,
        poll_s: float,
        records_max: int = POLL_RECORDS_MAX,
        tracking: Outbox | None = None,
        capacity: float = 1.0,
    ) -> None:
        self._machine = machine
        self._readers = readers
        self._partial_log = log
        self._registry = registry
        self._coordinator = coordinator
        self._tasks = tasks
        self._reporter = reporter
        self._services = services
        self._poll_s = poll_s
        self._records_max = min(records_max, POLL_RECORDS_MAX)
        self._tracking = tracking
        self._capacity = capacity
        self._messages = 0
        self._meter = MapperMeter()
        self._keyed: frozenset[Topic] = frozenset()
        self._stood: set[ReaderLane] = set()
        self._held_back = False
        self._known_lags: dict[ReaderName, tuple[float, Lags]] = {}
        self._measured_s = time.monotonic()
        self._log = logs.logger("mapper")
        self._undecodable = UndecodableRows(self._log)

    def run(self, life: Life) -> None:
        """Go round until asked to stop, then leave the group."""
        try:
            while not life.stopping:
                self.round()
        finally:
            for reader in self._readers.values():
                reader.close()

    def round(self) -> None:
        """One turn: tasks, records, time, report."""
        tasks = self._services.attempt("zookeeper", self._tasks.poll)
        if tasks is not None:
            self._want_keys(tasks)
            self._feed(TasksChanged(tasks))
        catching_up = self._machine.catching_up
        wait_s = 0.0 if self._machine.slicing else self._poll_s
        drained = {self._poll(LIVE, 0.0 if catching_up else wait_s)}
        # With nothing to read, too: what its client tells of itself is kept until it is taken.
        behind = self._poll(CATCH_UP, wait_s / 2 if catching_up else 0.0)
        if catching_up:
            drained.add(behind)
        ready = frozenset(name for name in drained if name is not None)
        self._feed(Ticked(int(time.monotonic() * 1000), ready))
        self._note_standing()
        if self._reporter.due():
            self._report()

    def _want_keys(self, tasks: Mapping[TaskName, RunnableTask]) -> None:
        """Before a task that reads keys is known, so that it is never offered records without."""
        keyed = topics_with_keys(tasks.values())
        if keyed == self._keyed:
            return
        self._keyed = keyed
        for name in self._readers:
            reader = self._readers[name]
            self._services.attempt("kafka", partial(reader.want_keys, keyed))

    def _poll(self, name: ReaderName, timeout_s: float) -> ReaderName | None:
        """Poll one reader; its name if it is near the end of what is there."""
        reader = self._readers[name]
        events = self._services.attempt("kafka", lambda: reader.poll(self._records_max, timeout_s))
        records = 0
        for event in events or ():
            if isinstance(event, Fetched):
                records += len(event.records.values)
            self._feed(Sourced(name, event))
        self._messages += records
        standing = self._machine.standing
        read = sum(lag for at, lag in self._lags(name).items() if (name, *at) not in standing)
        near = records < self._records_max and read < NEAR_THE_END_MESSAGES
        return name if near else None

    def _lags(self, name: ReaderName) -> Lags:
        """Messages ahead of a reader, as of `LAGS_S` ago at most."""
        asked_s, lags = self._known_lags.get(name, (-math.inf, {}))
        now_s = time.monotonic()
        if now_s - asked_s >= LAGS_S:
            lags = self._readers[name].lags()
            self._known_lags[name] = now_s, lags
        return lags

    def _note_standing(self) -> None:
        """A lane that the store holds back may stand still for a tenth of a second only."""
        standing = self._machine.standing
        self._stood |= standing.keys()
        self._held_back = self._held_back or any(standing.values())

    def _report(self) -> None:
        lags = {name: reader.lags() for name, reader in self._readers.items()}
        info = self._reporter.report(
            self._machine.rows_mapped,
            self._services.missing,
            partitions=with_lags(self._machine.readings(), lags[LIVE]),
            figures=self._figures(ahead(lags)),
        )
        with suppress(Unavailable):  # best effort; the next one comes in a second
            self._coordinator.report(info)

    def _figures(self, lags: Mapping[ReaderLane, int]) -> dict[str, float]:
        now_s = time.monotonic()
        duration_s, self._measured_s = now_s - self._measured_s, now_s
        messages, self._messages = self._messages, 0
        stood, self._stood = self._stood, set()
        held_back, self._held_back = self._held_back, False
        figures = self._meter.measure(duration_s, messages, lags, stood, held_back=held_back)
        return {
            **figures,
            "queue_bytes": self._machine.queue_bytes,
            "capacity": self._capacity,
        }

    # --------------------------------------------------------------------------------- acting

    def _feed(self, event: Event) -> None:
        """Give an event to the machine and carry out all that follows from it, outcomes included.

        Offers that follow each other, such as those of a batch to all its tasks, go together.
        """
        waiting = deque(self._machine.handle(event))
        while waiting:
            for outcome in self._act(waiting.popleft(), waiting):
                waiting.extend(self._machine.handle(outcome))

    def _offer(self, offers: Sequence[Offer]) -> list[Event]:
        batches = [Batch(one.task, one.epoch, one.version, one.mapped) for one in offers]
        store = self._partial_log
        outcomes = self._services.attempt("redis", lambda: store.append_together(batches))
        if outcomes is None:
            return [self._offered(offer, None) for offer in offers]
        told: list[Event] = []
        for offer, outcome in zip(offers, outcomes, strict=True):
            if isinstance(outcome, Unavailable):
                self._services.lost(outcome)
                told.append(self._offered(offer, None))
            else:
                told.append(self._offered(offer, outcome))
        return told

    def _offered(self, offer: Offer, outcome: AppendOutcome | None) -> Offered:
        """Tell of what became of an offer; None: that is not known."""
        task, epoch, version, mapped = offer.task, offer.epoch, offer.version, offer.mapped
        self._undecodable.tell(offer.topic, mapped)
        tracing.appended(self._log, task, epoch, version, mapped, outcome)
        if self._tracking is not None and isinstance(outcome, Applied):
            self._tracking.stored(task, epoch, version, outcome.seq, mapped)
        return Offered(offer, outcome)

    def _act(self, instruction: Instruction, waiting: deque[Instruction]) -> list[Event]:
        """Carry out an instruction, with those of `waiting` that go together with it."""
        if isinstance(instruction, Offer):
            return self._offer([instruction, *_offers_of(waiting)])
        outcome = self._act_alone(instruction)
        return [] if outcome is None else [outcome]

    def _act_alone(self, instruction: Alone) -> Event | None:
        match instruction:
            case ReadHeads() | RenewIdle():
                return self._act_on_store(instruction)
            case (
                SeekLane()
                | DropLane()
                | PauseLane()
                | ResumeLane()
                | Subscribe()
                | ConfirmEnds()
                | Hint()
            ):
                return self._act_on_source(instruction)
            case FailTask(task=task, run=run, detail=detail):
                logs.error(self._log, "a task failed", task=task, detail=detail)
                self._attempt("zookeeper", lambda: fail_task(self._registry, task, run, detail))
                return None
            case Report():
                logs.warning(self._log, instruction.detail, kind=instruction.kind)
                return None
            case _:
                assert_never(instruction)

    def _attempt(self, service: str, call: Callable[[], None]) -> None:
        self._services.attempt(service, call)

    def _act_on_store(self, instruction: ReadHeads | RenewIdle) -> Event | None:
        store = self._partial_log
        match instruction:
            case ReadHeads(tasks=names):
                heads = self._services.attempt("redis", lambda: store.head(names))
                return None if heads is None else HeadsRead(heads)
            case RenewIdle(leases=leases):
                self._services.attempt("redis", lambda: store.renew_idle(leases))
                return None
            case _:
                assert_never(instruction)

    def _act_on_source(self, instruction: Steering) -> Event | None:
        try:
            return self._steer(instruction)
        except Unavailable as problem:
            self._services.lost(problem)
            return None

    def _steer(self, instruction: Steering) -> Event | None:
        live = self._readers[LIVE]
        match instruction:
            case SeekLane(reader=name, topic=topic, partition=partition, offset=offset):
                self._readers[name].seek(topic, partition, offset)
                self._stood.add((name, topic, partition))  # how far it jumped is no growth
            case DropLane(reader=name, topic=topic, partition=partition):
                self._readers[name].drop(topic, partition)
            case PauseLane(reader=name, topic=topic, partition=partition):
                self._readers[name].pause(topic, partition)
            case ResumeLane(reader=name, topic=topic, partition=partition, offset=offset):
                self._readers[name].resume(topic, partition, offset)
            case Subscribe(topics=topics):
                live.subscribe(topics)
            case ConfirmEnds(ends=ends):
                return EndsConfirmed({place: ends[place] for place in live.confirm_ends(ends)})
            case Hint(positions=positions):
                live.hint(dict(positions))
            case _:
                assert_never(instruction)
        return None


def _offers_of(waiting: deque[Instruction]) -> Iterator[Offer]:
    """Take the offers with which it begins."""
    while waiting and isinstance(first := waiting[0], Offer):
        waiting.popleft()
        yield first
