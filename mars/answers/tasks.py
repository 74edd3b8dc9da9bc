"""Tasks."""

from __future__ import annotations

from typing import Any

from mars.answers.base import Answer
from mars.answers.ledgers import FigurePoint, Lag, Ledger, Rates
from mars.answers.plans import Output, Plan


class BackfillLane(Answer, frozen=True):
    """One lane of a backfill: offsets from `first` to `end`, those below `next` are done."""

    lane: str
    first: int
    next: int
    end: int


class Backfill(Answer, frozen=True):
    """How far the history of a task is; `expected_end` None: done, or nobody can say."""

    rows_done: int
    rows_total: int
    percent: float
    rows_per_second: float | None
    expected_end: int | None
    lanes: list[BackfillLane]


class TaskVersion(Answer, frozen=True):
    """One version of a task; `state` is waiting, active, closing or closed."""

    version: int
    sql: str
    created: int
    begun: bool
    state: str = "active"


class TaskSummary(Answer, frozen=True):
    """A task in a list."""

    name: str
    version: int
    state: str
    detail: str
    sql: str
    options: dict[str, Any]
    stream: str
    created: int


class Task(TaskSummary, frozen=True):
    """A task; figures are None where the server that has them is `missing`."""

    plan: Plan | None
    output: Output | None
    versions: list[TaskVersion]
    rates: Rates
    lag: Lag | None
    watermark: int | None
    ledger: Ledger | None
    log_bytes: int | None
    missing: list[str]
    backfill: Backfill | None = None
    warnings: list[str] = []


class TaskListed(TaskSummary, frozen=True):
    """A task in the list of all; figures are those that the API saw last, None before the first.

    `plan` is None for a query that the API cannot read, and for a deleted task.
    """

    plan: Plan | None = None
    rates: Rates = Rates(None, None)
    lag: Lag | None = None
    watermark: int | None = None
    figures: FigurePoint | None = None


class Tasks(Answer, frozen=True):
    """All tasks."""

    tasks: list[TaskListed]
