"""What /readyz asks the servers: over the connections that are there, so that it costs nothing."""

from __future__ import annotations

from mars.adapters.kafka.names import Names
from mars.adapters.probe import kafka_ready
from mars.errors import Unavailable
from mars.ports import TopicAdmin
from mars.settings import Settings

QUICK_S = 2.0
"""For a first look at Kafka: its client would wait longer for an address where nobody listens."""


class KafkaProbe:
    """Asks the brokers for a topic; while they are away, whether anybody listens."""

    def __init__(self, admin: TopicAdmin, settings: Settings) -> None:
        self._admin = admin
        self._settings = settings
        # Asking for it reaches a broker, whether it is there or not; and it is one of our own
        # topics, which we may see where we see no others.
        self._topic = Names(settings.namespace).control
        self._answered = False

    def __call__(self) -> str | None:
        """None if Kafka answers, else a sentence that says what to do."""
        if not self._answered:
            found = kafka_ready(self._settings, QUICK_S)
            self._answered = found is None
            return found
        try:
            self._admin.describe(self._topic)
        except Unavailable as error:
            self._answered = False
            return str(error)
        return None
