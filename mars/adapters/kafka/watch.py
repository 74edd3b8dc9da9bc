"""Does Kafka answer? For `/readyz`: over a connection that is kept while it does."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, KafkaException

from mars.adapters.kafka.asking import Refusals
from mars.adapters.kafka.errors import unavailable
from mars.adapters.kafka.names import Names
from mars.adapters.probe import KAFKA_PORT, any_listens, kafka_properties, silent
from mars.core.settings import Settings

WATCH_S = 2.0
"""How long a broker may keep us waiting: one that lives needs milliseconds, and people
wait for its answer."""


class KafkaWatch:
    """Asks again and again whether a broker answers; not safe for threads."""

    def __init__(self, settings: Settings, timeout_s: float = WATCH_S) -> None:
        self._kafka = settings.kafka
        self._names = Names(settings.namespace)
        self._timeout_s = timeout_s
        self._client: Consumer | None = None
        self._refusals = Refusals()

    def __call__(self) -> str | None:
        """None if a broker answers in time, else a sentence that says what to do."""
        where = f"Kafka at {self._kafka.bootstrap}"
        deadline = time.monotonic() + self._timeout_s
        # One that got no answer is let go: a new one does not wait before it connects again.
        client, self._client = self._client, None
        if client is None and not any_listens(self._kafka.bootstrap, KAFKA_PORT, self._timeout_s):
            return f"{where} is not listening; check that it runs and kafka.bootstrap"
        try:
            client = client or self._connect()
            left = max(deadline - time.monotonic(), 0.1)
            # Asking for one topic costs little, whether it is there or not, and is no attempt to
            # make it; it is one of our own, which we may see where we see no others.
            client.list_topics(self._names.control, left)
        except (KafkaException, ValueError) as error:
            return f"{where} does not answer: {self._reason(client, error)}"
        self._client = client
        return None

    def _reason(self, client: Consumer | None, error: Exception) -> str:
        refusal = None if client is None else self._refusals.told_by(client)
        if refusal is not None:
            return unavailable(refusal).detail
        return f"check kafka.security_protocol and its log ({error})"

    def _connect(self) -> Consumer:
        """A consumer that consumes nothing: unlike other clients, it never makes a topic."""
        properties = {
            **kafka_properties(self._kafka),
            "group.id": self._names.readers,
            "error_cb": self._refusals,
        }
        return Consumer(properties, logger=silent)
