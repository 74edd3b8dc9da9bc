"""The list of all tasks, made once for all who ask between two samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from api.schemas import TaskList
from api.services.figures import FigureService
from api.services.sampling import Sampler
from api.services.tasks import TaskService
from api.services.views import listed
from mars.definitions import TaskDefinition
from mars.types import TaskName


@dataclass(frozen=True, slots=True)
class _Made:
    """A list as JSON, and all that it was made of."""

    tasks: list[TaskDefinition]
    states: Mapping[TaskName, str]
    taken: int
    json: bytes


class ListingService:
    """What the path /v1/tasks answers. Safe for threads: at worst a list is made twice."""

    def __init__(self, tasks: TaskService, sampler: Sampler, figures: FigureService) -> None:
        self._tasks = tasks
        self._sampler = sampler
        self._figures = figures
        self._made: dict[bool, _Made] = {}

    def as_json(self, *, deleted: bool) -> bytes:
        """The list with the newest figures. Raises Unavailable."""
        tasks = self._tasks.list_all(deleted=deleted)
        states = self._sampler.states(tasks)
        figures = self._figures.newest()
        taken = self._figures.taken
        made = self._made.get(deleted)
        if made is None or (made.taken, made.states, made.tasks) != (taken, states, tasks):
            found = [listed(task, states[task.name], figures.get(task.name)) for task in tasks]
            json = TaskList(tasks=found).model_dump_json().encode()
            self._made[deleted] = made = _Made(tasks, states, taken, json)
        return made.json
