"""The loop of a reducer process: does what the reducing machine asks, and tells it what came of it.

main thread      heads, logs, folding, decisions           (this module)
bucket threads   claims, audits, commits: they wait for Kafka
bell thread      waits for doorbells
leader thread    stands for election, leads when elected   (leader.py)
tracker thread   is an acker of the tuple tracker          (tracking.py, if it is on)
assistant thread merges logs of buckets of others (assisting.py, while the leader asks for it)
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import assert_never

from mars.core.errors import Unavailable
from mars.core.types import Bucket, MemberId, Reason, TaskName
from mars.engine.codec.entry import CorruptEntry
from mars.engine.combining import rejected_for
from mars.process.life import Life, ServiceHealth
from mars.process.outliving import Outliving
from mars.process.tasks import TaskSource
from mars.process.telemetry import incidents, logs, tracing
from mars.process.telemetry.incidents import Tell, untold
from mars.process.telemetry.member import Reporter
from mars.process.telemetry.reminding import Reminders
from mars.protocol.ports import (
    Balance,
    Coordinator,
    LogSlice,
    ReadRequest,
    ReducerLog,
    Registry,
    ResultSink,
    TaskLook,
)
from mars.protocol.reducer.assisting import assists_of
from mars.protocol.reducer.events import (
    AssignmentRead,
    AuditEmissions,
    BucketClaimed,
    BucketCommitted,
    ClaimBucket,
    CommitTransaction,
    CompactLog,
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
    TellTracker,
    Ticked,
    TrimLog,
    WriteDraft,
)
from mars.protocol.reducer.machine import ReducerMachine
from reducer.assisting import AssistLoop
from reducer.bells import Bells
from reducer.bucket_work import BucketWork
from reducer.chores import Chore, Chores
from reducer.metering import Metering, Stopwatch
from reducer.tracking import TrackerLoop

LEAVE_S = 4.0
"""Longest wait until the leader has given our buckets to others; then we stop all the same. With
the last commits (5 s) it fits into the 10 s that whoever stops processes usually grants."""

ROUND_PAUSE_S = 0.01
"""Least time between two rounds: doorbells that ring meanwhile are answered together."""

TURN_S = 0.1
"""How long windows are closed in a round before only those are closed that take no time: all else
that the process does waits for it, windows of other tasks among it."""


class ReducerLoop:
    """Goes round at every doorbell and outcome, and every `poll_s` besides."""

    def __init__(  # noqa: PLR0913 -- the ports of a process
        self,
        member: MemberId,
        machine: ReducerMachine,
        *,
        log: ReducerLog,
        sink: ResultSink,
        registry: Registry,
        coordinator: Coordinator,
        tasks: TaskSource,
        reporter: Reporter,
        services: ServiceHealth,
        poll_s: float,
        threads: int,
        turn: threading.Lock | None = None,
        balance: Callable[[], Balance | None] = lambda: None,
        capacity: float = 1.0,
        tell: Tell = untold,
        tracker: TrackerLoop | None = None,
        assistant: AssistLoop | None = None,
    ) -> None:
        self._member = member
        self._capacity = capacity
        self._leaving = False
        self._machine = machine
        self._store = log
        self._registry = registry
        self._coordinator = coordinator
        self._tasks = tasks
        self._reporter = reporter
        self._services = services
        self._tell = tell
        self._poll_s = poll_s
        self._turn = turn or threading.Lock()
        """Held by whoever finishes windows or hands rows to Kafka: side by side both are slower."""
        self._tracker = tracker
        self._assistant = assistant or AssistLoop(log)
        self._log = logs.logger("reducer")
        self._reminders = Reminders()
        self._inbox: queue.SimpleQueue[Event | frozenset[TaskName] | None] = queue.SimpleQueue()
        """Outcomes, tasks that rang, and None for whatever else is to begin a round."""
        self._bells = Bells(poll_s)
        self._metering = Metering()
        self._work = BucketWork(member, sink, self._inbox.put, threads, self._metering, services)
        self._balance = balance
        self._assignment_changed = threading.Event()
        self._assignment_changed.set()
        self._chores = Chores(log, registry, services)
        self._rows = 0
        self._first: Bucket | None = None
        """The bucket that was out of turn in the last round."""

    # ------------------------------------------------------------------------------- going round

    def run(self, life: Life) -> None:
        """Go round until asked to stop, let others take the buckets, give the producers back."""
        self._coordinator.watch(self._on_cluster_change)
        bell = threading.Thread(target=self._listen, args=(life,), name="bell", daemon=True)
        bell.start()
        try:
            while not life.stopping:
                self._wait()
                self.round()
                life.wait(ROUND_PAUSE_S)
            self._leave()
        finally:
            self._work.close()
            bell.join(timeout=2 * self._poll_s)

    def _leave(self) -> None:
        """Go on until the leader has moved our buckets to those who stay, if there are any."""
        self._leaving = True
        self._report()
        deadline_s = time.monotonic() + LEAVE_S
        while self._machine.statuses() and time.monotonic() < deadline_s and self._others_stay():
            self._wait()
            self.round()

    def _others_stay(self) -> bool:
        if not self._coordinator.connected():
            return False
        try:
            members = self._coordinator.members("reducer")
        except Unavailable:
            return False
        return any(name != self._member and not info.leaving for name, info in members.items())

    def _on_cluster_change(self) -> None:
        self._assignment_changed.set()
        self._inbox.put(None)

    def _listen(self, life: Life) -> None:
        rounds = Outliving("the doorbell", life.wait)
        while not life.stopping:
            rounds.round(self._listen_once)

    def _listen_once(self) -> None:
        if rung := self._store.wait(self._poll_s):
            self._inbox.put(rung)

    def _wait(self) -> None:
        """Wait for an outcome or a ring, then take all that are there."""
        deadline = time.monotonic() + self._poll_s
        try:
            event = self._inbox.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            return
        while True:
            if isinstance(event, frozenset):
                self._bells.rang(event)
            elif event is not None:
                self._feed(event)
            try:
                event = self._inbox.get_nowait()
            except queue.Empty:
                return

    def round(self) -> None:
        """One turn: assignment, tasks, heads, logs, time, report."""
        if self._assignment_changed.is_set():
            self._assignment_changed.clear()
            if not self._read_assignment():
                self._assignment_changed.set()
        tasks = self._services.attempt("zookeeper", self._tasks.poll)
        if tasks is not None:
            self._feed(TasksChanged(tasks))
            self._assistant.tasks_changed(tasks)
            self._store.listen([name for name, task in tasks.items() if not task.deleted])
        self._look()
        self._tick()
        self._chores.catch_up()
        if self._reporter.due():
            self._report()

    def _tick(self) -> None:
        """Every bucket closes what is closed quickly. Others close more until the turn is over, and
        the next round begins with those that had none.
        """
        begun_s = time.monotonic()
        buckets = deque(self._machine.buckets())
        if self._first is not None and self._first in buckets:
            buckets.rotate(-buckets.index(self._first))
        self._first = None
        for bucket in buckets:
            in_turn = time.monotonic() - begun_s < TURN_S
            if not in_turn and self._first is None:
                self._first = bucket
                self._inbox.put(None)
            with self._turn, self._metering.busy(bucket):
                instructions = self._machine.handle(Ticked(int(begun_s * 1000), bucket, in_turn))
            self._carry_out(instructions)

    def _look(self) -> None:
        clearings = self._machine.clearings()
        named = self._bells.named(self._machine.watched(), {said.task for said in clearings})
        if not named:
            self._bells.looked((), ())
            return
        followed = self._machine.followed(named)
        with Stopwatch() as took:
            looks = self._services.attempt("redis", lambda: self._store.look(followed, clearings))
        if looks is None:
            return
        heads = {task: None if look is None else look.head for task, look in looks.items()}
        left = self._machine.left(heads)
        self._metering.look(self._machine.unread(heads))
        instructions = self._machine.handle(HeadsRead(heads, clearings))
        reads = [each for each in instructions if isinstance(each, ReadLog)]
        self._read_logs(self._take_brought(reads, looks, took))
        self._carry_out([each for each in instructions if not isinstance(each, ReadLog)])
        self._bells.looked(looks, left)

    def _take_brought(
        self, reads: list[ReadLog], looks: Mapping[TaskName, TaskLook | None], took: Stopwatch
    ) -> list[ReadLog]:
        """Take what the look has brought with the heads; what is still to be read."""
        brought: list[LogRead] = []
        missing: list[ReadLog] = []
        for read in reads:
            look = looks[read.task]
            if look is not None and (piece := look.slices.get(read.bucket)) is not None:
                brought.append(LogRead(read, piece, look.head))
            else:
                missing.append(read)
        self._take(brought, took)
        return missing

    def _read_logs(self, reads: list[ReadLog]) -> None:
        if not reads:
            return
        store = self._store
        requests = [ReadRequest(each.task, each.bucket, each.after, each.upto) for each in reads]
        try:
            with Stopwatch() as took:
                slices = self._services.attempt("redis", partial(store.read_many, requests))
        except CorruptEntry as problem:
            self._read_apart(reads, problem)
            return
        if slices is None:
            return
        names = list(dict.fromkeys(read.task for read in reads))
        heads = self._services.attempt("redis", lambda: self._store.head(names)) or {}
        pieces = zip(reads, slices, strict=True)
        self._take([LogRead(read, piece, heads.get(read.task)) for read, piece in pieces], took)

    def _take(self, found: list[LogRead], took: Stopwatch) -> None:
        """Let the machine fold what was read, and people know what it says."""
        self._metering.read(took, found)
        for bucket, of_bucket in groupby(found, key=lambda one: one.request.bucket):
            with self._metering.busy(bucket):
                for one in of_bucket:
                    self._rows += sum(entry.partial.counts.read for entry in one.slice.entries)
                    self._carry_out(self._machine.handle(one))
        for one in found:
            if one.after is not None:
                task, bucket = one.request.task, one.request.bucket
                tracing.read(self._log, task, one.after.epoch, bucket, one.slice)
            self._tell_of_gone_rows(one.request, one.slice)
            self._tell_of_undecodable_rows(one.request, one.slice)

    def _tell_of_gone_rows(self, read: ReadLog, piece: LogSlice) -> None:
        """All buckets are told of rows that are gone; the one that counts them tells people."""
        for entry in piece.entries:
            for part in entry.partial.rejections.ranges:
                if part.reason is Reason.GONE and part.rows:
                    self._tell(incidents.incomplete(read.task, read.bucket, part))

    def _tell_of_undecodable_rows(self, read: ReadLog, piece: LogSlice) -> None:
        """Whoever writes thousands of such batches makes no incident of each."""
        partials = (entry.partial for entry in piece.entries)
        for part in rejected_for(Reason.UNDECODABLE, partials):
            if self._reminders.due((read.task, part.lane)):
                self._tell(incidents.undecodable(read.task, read.bucket, part))

    def _report_to_people(self, report: Report) -> None:
        logs.warning(self._log, report.detail, kind=report.kind)
        if report.kind == "bucket_fenced":
            self._tell(incidents.fenced(report.bucket, report.detail))
        elif report.kind == "audit_mismatch":
            self._tell(incidents.audit_mismatch(report.bucket, report.detail))
        elif report.kind == "snapshot_lost" and report.task is not None:
            self._tell(incidents.panes_lost(report.task, report.bucket, report.detail))
        elif report.kind == "withheld" and report.task is not None:
            self._tell(incidents.withheld(report.task, report.bucket, report.detail))
        elif report.kind == "restored":
            self._tell(incidents.restored(report.bucket, report.detail))

    def _read_apart(self, reads: list[ReadLog], problem: CorruptEntry) -> None:
        """One log cannot be read: its task fails, the others go on (I7)."""
        if len(reads) == 1:
            (read,) = reads
            detail = f"its log in the store cannot be read: {problem}"
            self._carry_out([FailTask(read.task, read.run, detail)])
            return
        for read in reads:
            self._read_logs([read])

    def _report(self) -> None:
        statuses = self._machine.statuses()
        owned = frozenset(status.bucket for status in statuses)
        for bucket, cpu_s in self._assistant.take_worked():
            self._metering.worked(bucket, cpu_s)
        measured = self._metering.measure(owned | self._assistant.buckets)
        drafts = self._machine.drafts()
        info = self._reporter.report(
            self._rows,
            self._services.missing,
            buckets=statuses,
            leader_epoch=self._coordinator.leading(),
            figures={
                "backlog_bytes": measured.backlog_bytes,
                "backlog_growth_bytes_per_second": measured.backlog_growth_bytes_per_second,
                "read_bytes_per_second": measured.read_bytes_per_second,
                "capacity": self._capacity,
                "drafts_committed_total": drafts.committed,
                "drafts_taken_back_total": drafts.taken_back,
                **self._assistant.load(),
                **(self._tracker.load() if self._tracker is not None else {}),
            },
        )
        info = replace(info, loads=measured.buckets, balance=self._balance(), leaving=self._leaving)
        with suppress(Unavailable):  # best effort; the next one comes in a second
            self._coordinator.report(info)

    # --------------------------------------------------------------------------------- acting

    def _feed(self, event: Event) -> None:
        self._note(event)
        if isinstance(event, BucketCommitted):
            self._bells.committed()
        else:
            self._bells.changed()
        self._carry_out(self._machine.handle(event))

    def _note(self, event: Event) -> None:
        """An outcome from the bucket threads says whether Kafka answers."""
        if isinstance(event, BucketClaimed | BucketCommitted):
            self._services.found("kafka")
        if isinstance(event, BucketCommitted):
            tracing.committed(self._log, event.committed.progress)

    def _carry_out(self, instructions: list[Instruction]) -> None:
        if not instructions:
            return
        self._chores.do(*(one for one in instructions if isinstance(one, Chore)))
        for instruction in instructions:
            self._do(instruction)

    def _do(self, instruction: Instruction) -> None:
        """Do or start one thing."""
        match instruction:
            case ReadAssignment():
                # In the next round, once for all buckets that ask.
                self._on_cluster_change()
            case (
                ClaimBucket()
                | AuditEmissions()
                | ReadSnapshots()
                | WriteDraft()
                | CommitTransaction()
                | ReleaseBucket()
            ):
                self._work.start(instruction)
            case RestoreLog():
                self._restore(instruction)
            case ReadLog():
                self._read_logs([instruction])
            case TrimLog() | CompactLog() | FailTask():
                pass  # all of them together, by `_carry_out`
            case TellTracker():
                if self._tracker is not None:
                    _tell_tracker(self._tracker, instruction)
            case Report():
                self._report_to_people(instruction)
            case _:
                assert_never(instruction)

    def _restore(self, wanted: RestoreLog) -> None:
        """Where the store does not answer, the machine asks again at the next look."""
        done = self._services.attempt(
            "redis",
            lambda: self._store.put_base(
                wanted.task, wanted.store_epoch, wanted.born, wanted.bucket, wanted.bases
            ),
        )
        if done:
            self._feed(LogRestored(wanted))

    def _read_assignment(self) -> bool:
        if not self._coordinator.connected():
            return False
        try:
            assignment = self._coordinator.assignment()
        except Unavailable as problem:
            self._services.lost(problem)
            return False
        self._services.found("zookeeper")
        self._feed(AssignmentRead(assignment))
        self._assistant.assigned(assists_of(self._member, assignment))
        return True


def _tell_tracker(tracker: TrackerLoop, told: TellTracker) -> None:
    tracker.outbox.counted(told.task, told.store_epoch, told.bucket, told.entries)
