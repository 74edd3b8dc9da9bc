"""Incidents, read from `mars.incidents`."""

from __future__ import annotations

from api.audit_schemas import Incidents, IncidentView
from api.names import known_task_name
from api.services.context import Ports
from mars.ports import Incident


class IncidentService:
    """What the path /v1/incidents does."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    def recent(self, task: str | None, since_ms: int | None, limit: int) -> Incidents:
        """The newest, of a task those that concern all tasks too. Raises NotFound, Unavailable."""
        name = None if task is None else known_task_name(task)
        found = self._ports.incidents.recent(name, since_ms, limit)
        return Incidents(incidents=[_view(one) for one in found])


def _view(incident: Incident) -> IncidentView:
    return IncidentView(
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
