"""Tasks as answers: the definition, its plan, and figures as of now."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal

from msgspec import structs

from api.presenting import alike, output_view, plan_view
from api.services.inside.sampling import TaskFigures
from mars.client import answers
from mars.core.definitions import TaskDefinition, TaskVersion
from mars.core.plan import Plan


def summary(task: TaskDefinition, state: str) -> answers.TaskSummary:
    """A task in a list; `state` as it is shown."""
    current = task.current
    return answers.TaskSummary(
        name=task.name,
        version=current.version,
        state=state,
        detail=task.detail,
        sql=current.sql,
        options=dict(current.options),
        stream=current.stream.name,
        created=current.created_ms,
        set=task.set_name or None,
    )


def listed(
    task: TaskDefinition,
    state: str,
    plan: answers.Plan | None,
    figures: TaskFigures | None,
    point: answers.FigurePoint | None,
) -> answers.TaskListed:
    """A task in the list of all, with the figures that were seen last."""
    return answers.TaskListed(
        **structs.asdict(summary(task, state)),
        plan=plan,
        rates=_rates(figures),
        lag=None if figures is None else _lag(figures),
        watermark=None if figures is None else figures.watermark_ms,
        figures=point,
    )


def task_view(
    task: TaskDefinition,
    plan: Plan | None,
    figures: TaskFigures,
    closed: Collection[int],
    missing: Sequence[str],
    warnings: Sequence[str],
) -> answers.Task:
    """A task with everything that is known of it now; `closed` are versions without windows."""
    return answers.Task(
        **structs.asdict(summary(task, figures.state)),
        plan=None if plan is None else plan_view(plan),
        output=None if plan is None else output_view(plan),
        versions=_versions(task, closed),
        rates=_rates(figures),
        lag=_lag(figures),
        watermark=figures.watermark_ms,
        backfill=_backfill(figures),
        ledger=None if figures.ledger is None else alike(figures.ledger, answers.Ledger),
        log_bytes=figures.log_bytes,
        missing=list(missing),
        warnings=list(warnings),
    )


def _versions(task: TaskDefinition, closed: Collection[int]) -> list[answers.TaskVersion]:
    """All versions that are kept, the oldest first."""
    following = [*task.versions[1:], None]
    return [
        answers.TaskVersion(
            version=version.version,
            sql=version.sql,
            created=version.created_ms,
            begun=version.starts is not None,
            state=_state_of(version, newer, closed),
        )
        for version, newer in zip(task.versions, following, strict=True)
    ]


def _state_of(
    version: TaskVersion, newer: TaskVersion | None, closed: Collection[int]
) -> Literal["waiting", "active", "closing", "closed"]:
    if version.starts is None:
        return "waiting"
    if newer is None or newer.starts is None:
        return "active"
    return "closed" if version.version in closed else "closing"


def _rates(figures: TaskFigures | None) -> answers.Rates:
    if figures is None:
        return answers.Rates(rows_per_second=None, messages_per_second=None)
    return alike(figures, answers.Rates)


def _lag(figures: TaskFigures) -> answers.Lag | None:
    if figures.lag is None:
        return None
    return answers.Lag(
        rows=sum(figures.lag.values()),
        partitions={str(partition): rows for partition, rows in figures.lag.items()},
    )


def _backfill(figures: TaskFigures) -> answers.Backfill | None:
    history = figures.history
    if history is None:
        return None
    return answers.Backfill(
        rows_done=history.done,
        rows_total=history.total,
        percent=history.percent,
        rows_per_second=figures.history_per_second,
        expected_end=figures.history_end_ms,
        lanes=[alike(one, answers.BackfillLane) for one in history.lanes],
    )


def validation(plan: Plan, warnings: Sequence[str]) -> answers.Validation:
    """A query that can be registered."""
    return answers.Validation(
        plan=plan_view(plan), output=output_view(plan), warnings=list(warnings)
    )
