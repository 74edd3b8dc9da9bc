"""Sets of tasks."""

from __future__ import annotations

from typing import Annotated

from mars.client.answers.base import Answer, Object, one_of, says


class TaskBefore(Answer, frozen=True):
    """What a task was, or still is after a dry run."""

    version: int
    sql: str
    options: Object


class TaskChange(Answer, frozen=True):
    """What a set does to one task."""

    name: str
    action: Annotated[
        str,
        says("unchanged: query and options are those that the task has"),
        one_of("create", "change", "unchanged", "remove"),
    ]
    version: Annotated[int, says("the current one afterwards; of a removed task its last one")]
    before: Annotated[TaskBefore | None, says("null: a new or unchanged task")] = None


class TaskSet(Answer, frozen=True):
    """What a set of tasks changes: the tasks in the order in which they were given, then those
    that are removed, by name.
    """

    set: Annotated[str | None, says("null: the tasks are of no set")]
    dry_run: Annotated[bool, says("true: nothing has changed")]
    tasks: list[TaskChange]
