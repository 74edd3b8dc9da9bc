"""The topic `mars.incidents` in memory: the twin of Kafka's."""

from __future__ import annotations

import msgspec

from mars.adapters.kafka.incidents import decoded, newest
from mars.adapters.kafka.names import DEFAULT_NAMESPACE, Names
from mars.adapters.memory.broker import MemoryBroker
from mars.adapters.memory.faults import Faults, fallible
from mars.core.errors import Unavailable
from mars.core.types import TaskName
from mars.protocol.ports import Incident


class MemoryIncidentLog:
    """`IncidentLog` in memory."""

    def __init__(self, broker: MemoryBroker, namespace: str = DEFAULT_NAMESPACE) -> None:
        self.faults = Faults("kafka")
        self._broker = broker
        self._topic = Names(namespace).incidents

    def fail_next(self, method: str, *, before: bool = True) -> None:
        """Let the next call of `method` raise `Unavailable`, before or after its effect."""
        self.faults.plan(method, before=before)

    @fallible
    def put(self, incident: Incident) -> None:
        """Keep it."""
        self._check()
        value = msgspec.json.encode(incident)
        self._broker.append(self._topic, 0, value, key=incident.id.encode())

    @fallible
    def recent(self, task: TaskName | None, since_ms: int | None, limit: int) -> list[Incident]:
        """The newest first."""
        self._check()
        log = self._broker.partition(self._topic, 0)
        known: dict[str, Incident] = {}
        for record in log.committed(0, log.stable_end):
            incident = decoded(record.value)
            if incident is not None:
                known.setdefault(incident.id, incident)
        return newest(known.values(), task, since_ms, limit)

    def _check(self) -> None:
        if self._topic not in self._broker.topics:
            raise Unavailable("kafka", f"there is no topic {self._topic}")
