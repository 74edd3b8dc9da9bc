"""The topic `mars.incidents`: what happened that people should hear of."""

from __future__ import annotations

import threading
from collections.abc import Iterable

import msgspec

from mars.adapters.kafka.admin import KafkaTopicAdmin
from mars.adapters.kafka.names import Names
from mars.adapters.kafka.read.rows import UNREADABLE
from mars.adapters.kafka.source.slices import SliceReader
from mars.adapters.kafka.writing import RecordWriter
from mars.core.settings import Settings
from mars.core.types import TaskName
from mars.protocol.ports import Incident

PARTITION = 0

REMEMBERED_MAX = 10_000
"""The newest incidents that are looked at: some megabytes, far more than a month should have."""


class KafkaIncidentLog:
    """`IncidentLog` on Kafka; safe for threads. Each look reads on from where the last one was.

    A record that this release cannot read is passed over.
    """

    def __init__(self, settings: Settings, admin: KafkaTopicAdmin | None = None) -> None:
        self._topic = Names(settings.namespace).incidents
        self._admin = admin or KafkaTopicAdmin(settings)
        self._reader = SliceReader(settings, f"{settings.member or 'mars'}-incidents")
        self._writer = RecordWriter(settings, self._topic, PARTITION)
        self._lock = threading.Lock()
        self._next = 0
        self._known: dict[str, Incident] = {}

    def put(self, incident: Incident) -> None:
        """Keep it; returns once the brokers have it."""
        self._writer.put(incident.id.encode(), msgspec.json.encode(incident))

    def recent(self, task: TaskName | None, since_ms: int | None, limit: int) -> list[Incident]:
        """The newest first."""
        with self._lock:
            self._read_on()
            return newest(self._known.values(), task, since_ms, limit)

    def close(self) -> None:
        """Free the consumer."""
        self._reader.close()

    def _read_on(self) -> None:
        end = self._admin.end(self._topic, PARTITION)
        first = max(self._next, end - REMEMBERED_MAX)
        for portion in self._reader.read(self._topic, PARTITION, first, end):
            for message in portion:
                incident = decoded(message.value())
                if incident is not None:
                    self._known.setdefault(incident.id, incident)
        self._next = max(self._next, end)
        for oldest in list(self._known)[: len(self._known) - REMEMBERED_MAX]:
            del self._known[oldest]


def decoded(raw: bytes | None) -> Incident | None:
    """The incident in a record; None for what is none."""
    try:
        return msgspec.json.decode(raw or b"", type=Incident)
    except UNREADABLE:
        return None


def newest(
    incidents: Iterable[Incident], task: TaskName | None, since_ms: int | None, limit: int
) -> list[Incident]:
    """Those that concern a task and are not older than a time, the newest first."""
    found = [
        one
        for one in incidents
        if one.concerns(task) and (since_ms is None or one.time_ms >= since_ms)
    ]
    return sorted(found, key=lambda one: one.time_ms, reverse=True)[:limit]
