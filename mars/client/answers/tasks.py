"""Tasks."""

from __future__ import annotations

from typing import Annotated

from mars.client.answers.base import Answer, Object, one_of, says
from mars.client.answers.ledgers import FigurePoint, Lag, Ledger, Rates
from mars.client.answers.plans import Output, Plan, Warnings


class BackfillLane(Answer, frozen=True):
    """One lane of a backfill: offsets from first to end, of which those below next are done."""

    lane: Annotated[str, says("3@b1 is of partition 3, f@b2 of files")]
    first: int
    next: int
    end: int


class Backfill(Answer, frozen=True):
    """How far the history is that Spark computes for a task.

    Rows are offsets: messages of the topic, rows of Parquet files, bytes of text files.
    """

    rows_done: int
    rows_total: int
    percent: Annotated[float, says("rounded down: 100 means done")]
    rows_per_second: float | None
    expected_end: Annotated[int | None, says("null: done, or nobody can say")]
    lanes: list[BackfillLane]


class TaskVersion(Answer, frozen=True):
    """One version of a task: the current one, or one before it.

    Older ones are forgotten at the next change once they are closed.
    """

    version: int
    sql: str
    created: int
    begun: bool
    state: Annotated[
        str,
        says(
            "waiting: the leader has not decided yet where it begins; active: rows go to "
            "it; closing: rows go to the next one, and it has open windows; closed: it has none"
        ),
        one_of("waiting", "active", "closing", "closed"),
    ] = "active"


class TaskSummary(Answer, frozen=True):
    """A task in a list."""

    name: str
    version: int
    state: Annotated[str, says("running, backfilling, paused, failed or deleted")]
    detail: str
    sql: str
    options: Object
    stream: str
    created: int
    set: Annotated[str | None, says("the set of tasks that made it; null: no set did")] = None


class Task(TaskSummary, frozen=True, kw_only=True):
    """A task. Figures are null where the server that has them does not answer (see missing)."""

    plan: Annotated[Plan | None, says("null: a query that this release cannot read")]
    output: Output | None
    versions: list[TaskVersion]
    rates: Rates
    lag: Lag | None
    watermark: int | None
    backfill: Annotated[Backfill | None, says("null: the task has no history of its own")] = None
    ledger: Ledger | None
    log_bytes: int | None
    missing: list[str]
    warnings: Warnings = []


class TaskListed(TaskSummary, frozen=True):
    """A task in the list of all; its figures are at most some seconds old, null: none yet."""

    plan: Annotated[
        Plan | None,
        says("null: a query that this release cannot read, or a deleted task"),
    ] = None
    rates: Rates = Rates(None, None)
    lag: Lag | None = None
    watermark: int | None = None
    figures: Annotated[FigurePoint | None, says("the newest point of its charts")] = None


class Tasks(Answer, frozen=True):
    """All tasks, by name."""

    tasks: list[TaskListed]
