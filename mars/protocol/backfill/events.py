"""What the machine of a bulk process is told, and what it asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mars.core.definitions import TaskRun
from mars.core.types import Lane, Mapped, StoreEpoch, TaskName, Topic
from mars.protocol.ports import AppendOutcome, Head, MapJob
from mars.protocol.runnable import RunnableTask

# ------------------------------------------------------------------------------- instructions


@dataclass(frozen=True, slots=True)
class StartJob:
    """Run a job on Spark, beside others; its outcome comes as `JobEnded`."""

    job: MapJob


@dataclass(frozen=True, slots=True)
class CancelJob:
    """Nobody needs the job any more."""

    job_id: str


@dataclass(frozen=True, slots=True)
class Append:
    """Append a job's batch to the task's log."""

    job_id: str
    task: TaskName
    epoch: StoreEpoch
    version: int
    mapped: Mapped


@dataclass(frozen=True, slots=True)
class ReadHeads:
    """Look at these tasks in the store."""

    tasks: tuple[TaskName, ...]


@dataclass(frozen=True, slots=True)
class ReadEnds:
    """Ask Kafka how far these topics go."""

    topics: tuple[Topic, ...]


@dataclass(frozen=True, slots=True)
class SetCatchUp:
    """Say in the task's definition up to where lanes are this process's, empty: none are; unless it
    was resumed or made anew since.
    """

    task: TaskName
    run: TaskRun
    fences: Mapping[Lane, int]


@dataclass(frozen=True, slots=True)
class FailTask:
    """The task cannot go on: set it to failed, unless it was resumed or made anew since."""

    task: TaskName
    run: TaskRun
    detail: str


@dataclass(frozen=True, slots=True)
class Report:
    """A fact worth a line in the log."""

    detail: str


Instruction = StartJob | CancelJob | Append | ReadHeads | ReadEnds | SetCatchUp | FailTask | Report

# ------------------------------------------------------------------------------------ events


@dataclass(frozen=True, slots=True)
class TasksChanged:
    """All tasks, after any of them changed."""

    tasks: Mapping[TaskName, RunnableTask]


@dataclass(frozen=True, slots=True)
class HeadsRead:
    """The answer to `ReadHeads`."""

    heads: Mapping[TaskName, Head | None]


@dataclass(frozen=True, slots=True)
class EndsRead:
    """The answer to `ReadEnds`: by topic and partition, the offset behind the last record."""

    ends: Mapping[Topic, Mapping[int, int]]


@dataclass(frozen=True, slots=True)
class JobEnded:
    """A job's batch; or None and what went wrong, `lasting` if trying again will not help."""

    job_id: str
    mapped: Mapped | None
    problem: str = ""
    lasting: bool = False


@dataclass(frozen=True, slots=True)
class Appended:
    """The answer to `Append`; None: the store did not answer, the batch may be there or not."""

    append: Append
    outcome: AppendOutcome | None


@dataclass(frozen=True, slots=True)
class Ticked:
    """The process's own monotonic clock, in milliseconds: for pauses only."""

    now_ms: int


Event = TasksChanged | HeadsRead | EndsRead | JobEnded | Appended | Ticked
