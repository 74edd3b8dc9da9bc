"""What is wrong with a client, and when it is said."""

from __future__ import annotations

from confluent_kafka import Consumer, KafkaError, KafkaException

from mars.adapters.kafka.errors import ALL_BROKERS_DOWN, AWAY, FORBIDDEN, unavailable
from mars.core.errors import Unavailable

PROBE_S = 0.2
"""For the question whether a broker that was away is back."""


class Troubles:
    """That no broker can be talked to is said as long as it is so, all else once."""

    def __init__(self) -> None:
        self._away: Unavailable | None = None
        """No broker can be talked to, as far as is known."""
        self._fatal: Unavailable | None = None
        self._refusal: Unavailable | None = None
        """What else is wrong, to be said once."""

    def heard(self, error: KafkaError) -> None:
        """Take an error of no partition (`error_cb`)."""
        if error.fatal():
            self._fatal = Unavailable(
                "kafka", f"the client cannot go on; make a new reader ({error.str()})"
            )
        elif error.code() in AWAY:
            # That all brokers are down follows each other reason, and says less. A client tells
            # of one that stays, such as a wrong password, only once.
            if self._away is None or error.code() != ALL_BROKERS_DOWN:
                self._away = unavailable(error)
        elif error.code() in FORBIDDEN:
            self._refusal = unavailable(error)

    def refused(self, problem: Unavailable) -> None:
        """Have it said at the next poll; what was read until now must not be lost with it."""
        self._refusal = problem

    def answered(self) -> None:
        """There is a broker."""
        self._away = None

    def raise_refusal(self) -> None:
        """Raise what is to be said once, or what cannot be mended."""
        refusal, self._refusal = self._fatal or self._refusal, None
        if refusal is not None:
            raise refusal

    def raise_if_away(self, client: Consumer) -> None:
        """A reader at the end of all partitions hears nothing when the brokers are back: ask."""
        if self._away is None:
            return
        try:
            client.list_topics(timeout=PROBE_S)
        except KafkaException as error:
            raise self._away from error
        self._away = None
