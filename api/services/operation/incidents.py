"""Incidents, read from `mars.incidents`."""

from __future__ import annotations

from api.names import known_task_name, no_task
from api.services.context import Ports
from api.services.operation.restoring import check_whole
from mars.client import answers
from mars.core.types import TaskName
from mars.protocol.ports import Incident


class IncidentService:
    """What the path /v1/incidents does."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    def recent(self, task: str | None, since_ms: int | None, limit: int) -> answers.Incidents:
        """The newest, of a task those that concern all tasks too. Raises NotFound, Unavailable."""
        name = None if task is None else known_task_name(task)
        found = self._ports.incidents.recent(name, since_ms, limit)
        if name is not None and all(one.task != name for one in found):
            self._check_known(name)
        return answers.Incidents(incidents=[_view(one) for one in found])

    def _check_known(self, name: TaskName) -> None:
        """Raise NotFound for a task that never was; a deleted one may have had incidents."""
        if self._ports.registry.task(name) is None:
            check_whole(self._ports)
            raise no_task(name, self._ports.registry.tasks())


def _view(incident: Incident) -> answers.Incident:
    return answers.Incident(
        id=incident.id,
        time=incident.time_ms,
        kind=incident.kind.value,
        task=incident.task,
        bucket=incident.bucket,
        lane=incident.lane,
        first=incident.first,
        next=incident.next,
        what=incident.what,
        means=incident.means,
        do=incident.do,
    )
