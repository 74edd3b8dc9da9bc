"""The loop of a bulk process: does what the backfilling machine asks, and tells it what came of it.

main thread    tasks, heads, appends, decisions
job threads    wait for Spark                    (one per job that runs ahead)
query thread   ad-hoc queries                    (queries.py)

Several processes may stand by; the one that has lived longest works. Where two believe that they
are it for a moment, the compare-and-set takes each batch once.
"""

from __future__ import annotations

import queue
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import assert_never

from mars.core.errors import JobCancelled, JobFailed, MarsError, Unavailable
from mars.core.types import MemberId
from mars.process.acting import feed
from mars.process.life import Life, ServiceHealth
from mars.process.tasks import TaskSource, fail_task, set_catch_up
from mars.process.telemetry import logs, tracing
from mars.process.telemetry.member import Reporter
from mars.process.tracking import Outbox
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
from mars.protocol.backfill.machine import BackfillMachine
from mars.protocol.ports import (
    Applied,
    BulkEngine,
    Coordinator,
    MapJob,
    MapperLog,
    Registry,
    TopicAdmin,
    ends_by_topic,
)

ROUND_S = 0.1
"""Longest wait for the outcome of a job before the rest is looked at."""

ROLE = "bulk"


class BulkLoop:
    """Goes round at every outcome, and every ROUND_S besides."""

    def __init__(  # noqa: PLR0913 -- the ports of a process
        self,
        member: MemberId,
        machine: BackfillMachine,
        *,
        engine: BulkEngine,
        log: MapperLog,
        registry: Registry,
        coordinator: Coordinator,
        admin: TopicAdmin,
        tasks: TaskSource,
        reporter: Reporter,
        services: ServiceHealth,
        jobs: int,
        tracking: Outbox | None = None,
    ) -> None:
        self._member = member
        self._machine = machine
        self._engine = engine
        self._store = log
        self._registry = registry
        self._coordinator = coordinator
        self._admin = admin
        self._tasks = tasks
        self._reporter = reporter
        self._services = services
        self._tracking = tracking
        self._log = logs.logger("bulk")
        self._inbox: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._pool = ThreadPoolExecutor(jobs, thread_name_prefix="job")
        self._working = False

    @property
    def working(self) -> bool:
        """True while it is this process's turn."""
        return self._working

    def run(self, life: Life) -> None:
        """Go round until asked to stop."""
        try:
            while not life.stopping:
                self.round(ROUND_S)
        finally:
            self._carry_out(self._machine.stop())
            self._engine.close()
            self._pool.shutdown(wait=True, cancel_futures=True)

    def round(self, wait_s: float) -> None:
        """One turn: outcomes, tasks, time, report."""
        for event in self._outcomes(wait_s):
            self._feed(event)
        tasks = self._services.attempt("zookeeper", self._tasks.poll)
        if tasks is not None:
            self._feed(TasksChanged(tasks))
        worked, self._working = self._working, self._is_our_turn()
        if self._working:
            self._feed(Ticked(int(time.monotonic() * 1000)))
        elif worked:
            self._carry_out(self._machine.stop())
        if self._reporter.due():
            self._report()

    def _outcomes(self, wait_s: float) -> list[Event]:
        events: list[Event] = []
        with suppress(queue.Empty):
            events.append(self._inbox.get(timeout=wait_s))
            while True:
                events.append(self._inbox.get_nowait())
        return events

    def _is_our_turn(self) -> bool:
        """Whether this is the bulk process that has lived longest; asked once a report."""
        if not self._coordinator.connected():
            return self._working
        if self._reporter.due():
            members = self._services.attempt("zookeeper", lambda: self._coordinator.members(ROLE))
            if members:
                first = min(members.values(), key=lambda info: (info.started_ms, info.id))
                return first.id == self._member
        return self._working

    def _report(self) -> None:
        info = self._reporter.report(self._machine.rows_mapped, self._services.missing)
        with suppress(Unavailable):  # best effort; the next one comes in a second
            self._coordinator.report(info)

    # --------------------------------------------------------------------------------- acting

    def _feed(self, event: Event) -> None:
        feed(self._machine.handle, self._act, event)

    def _carry_out(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            self._act(instruction)

    def _act(self, instruction: Instruction) -> Event | None:
        match instruction:
            case StartJob(job=job):
                self._pool.submit(self._run_job, job)
            case CancelJob(job_id=job_id):
                self._engine.cancel(job_id)
            case Append() | ReadHeads() | ReadEnds():
                return self._ask(instruction)
            case SetCatchUp():
                self._services.attempt("zookeeper", lambda: self._set_catch_up(instruction))
            case FailTask(task=task, run=run, detail=detail):
                logs.error(self._log, "a task failed", task=task, detail=detail)
                self._services.attempt(
                    "zookeeper", lambda: fail_task(self._registry, task, run, detail)
                )
            case Report(detail=detail):
                logs.warning(self._log, detail)
            case _:
                assert_never(instruction)
        return None

    def _ask(self, instruction: Append | ReadHeads | ReadEnds) -> Event | None:
        store, tracking = self._store, self._tracking
        match instruction:
            case Append(task=task, epoch=epoch, version=version, mapped=mapped):
                outcome = self._services.attempt(
                    "redis", lambda: store.append(task, epoch, version, mapped)
                )
                tracing.appended(self._log, task, epoch, version, mapped, outcome)
                if tracking is not None and isinstance(outcome, Applied):
                    tracking.stored(task, epoch, version, outcome.seq, mapped)
                return Appended(instruction, outcome)
            case ReadHeads(tasks=names):
                heads = self._services.attempt("redis", lambda: store.head(names))
                return None if heads is None else HeadsRead(heads)
            case ReadEnds(topics=topics):
                ends = self._services.attempt("kafka", lambda: ends_by_topic(self._admin, topics))
                return None if ends is None else EndsRead(ends)
            case _:
                assert_never(instruction)

    def _set_catch_up(self, asked: SetCatchUp) -> None:
        if set_catch_up(self._registry, asked.task, asked.run, asked.fences):
            what = "catches up" if asked.fences else "has caught up"
            logs.info(self._log, f"a task that was far behind {what}", task=asked.task)

    def _run_job(self, job: MapJob) -> None:
        """In a thread: run a job, tell how it ended."""
        try:
            ended = JobEnded(job.id, self._engine.map(job))
            self._services.found("spark")
        except JobCancelled:
            return
        except JobFailed as problem:
            ended = JobEnded(job.id, None, str(problem), lasting=True)
        except Unavailable as problem:
            self._services.lost(problem)
            ended = JobEnded(job.id, None, str(problem))
        except MarsError as problem:
            ended = JobEnded(job.id, None, str(problem), lasting=True)
        except Exception as problem:  # noqa: BLE001 -- whatever it is, only this task stops (I7)
            logs.error(self._log, "unexpected error", trace=True, job=job.id)
            ended = JobEnded(
                job.id, None, f"unexpected {type(problem).__name__}: {problem}", lasting=True
            )
        self._inbox.put(ended)
