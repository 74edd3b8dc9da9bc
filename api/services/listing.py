"""The list of all tasks, made once for all who ask between two samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from api.presenting import plan_view
from api.services.compiling import TaskCompiler
from api.services.inside.sampling import Sampler
from api.services.operation.figures import FigureService
from api.services.tasks import TaskService
from api.services.views import listed
from mars.client import answers
from mars.core.definitions import TaskDefinition, TaskState
from mars.core.plan import Plan
from mars.core.types import TaskName


@dataclass(frozen=True, slots=True)
class _Made:
    """A list as JSON, and all that it was made of."""

    tasks: list[TaskDefinition]
    states: Mapping[TaskName, str]
    taken: int
    json: bytes


class ListingService:
    """What the path /v1/tasks answers. Safe for threads: at worst a list is made twice."""

    def __init__(
        self, tasks: TaskService, compiler: TaskCompiler, sampler: Sampler, figures: FigureService
    ) -> None:
        self._tasks = tasks
        self._compiler = compiler
        self._sampler = sampler
        self._figures = figures
        self._made: dict[bool, _Made] = {}
        self._plans: dict[TaskName, tuple[Plan, answers.Plan]] = {}

    def as_json(self, *, deleted: bool) -> bytes:
        """The list with the newest figures. Raises Unavailable."""
        tasks = self._tasks.list_all(deleted=deleted)
        states = self._sampler.states(tasks)
        points, taken = self._figures.newest(), self._figures.taken
        made = self._made.get(deleted)
        if made is None or (made.taken, made.states, made.tasks) != (taken, states, tasks):
            seen, plans = self._figures.seen(), self._plan_views(tasks)
            found = [
                listed(
                    task,
                    states[task.name],
                    plans.get(task.name),
                    seen.get(task.name),
                    points.get(task.name),
                )
                for task in tasks
            ]
            json = msgspec.json.encode(answers.Tasks(tasks=found))
            self._made[deleted] = made = _Made(tasks, states, taken, json)
        return made.json

    def _plan_views(self, tasks: Sequence[TaskDefinition]) -> dict[TaskName, answers.Plan]:
        """The plans of the tasks that live; each is put into words once, until it changes."""
        known = self._plans
        made: dict[TaskName, tuple[Plan, answers.Plan]] = {}
        for task in tasks:
            if task.state is TaskState.DELETED:
                continue
            plan = self._compiler.plans(task).get(task.current.version)
            if plan is None:
                continue
            before = known.get(task.name)
            if before is None or before[0] is not plan:
                before = (plan, plan_view(plan))
            made[task.name] = before
        self._plans = made
        return {name: view for name, (_plan, view) in made.items()}
