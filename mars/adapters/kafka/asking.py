"""Clients that are kept for questions to the brokers, and waiting for their answers."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Generic, Protocol, TypeVar

from confluent_kafka import KafkaError, KafkaException

from mars.adapters.kafka.config import Properties
from mars.adapters.kafka.errors import REFUSALS, UNANSWERED, configured, kafka_error

ASK_TIMEOUT_S = 10.0
"""For each question; a healthy broker needs milliseconds."""

STOP_STEP_S = 0.5
"""Between two looks whether an answer is still wanted."""

CUT_OFF_S = 15.0
"""Without any answer; then a new client is tried, and after as long again another."""

Answer = TypeVar("Answer")
Client = TypeVar("Client", bound="Polled")


def go_on() -> None:
    """Of questions whose answer is wanted, however long it takes."""


class Polled(Protocol):
    """A client that tells its errors when it is polled."""

    def poll(self, timeout: float, /) -> object:
        """Serve what has come."""


class Refusals:
    """Why brokers refuse a client, as its `error_cb` hears it.

    A call that is refused for its credentials only hears that there was no connection. This is no
    part of what holds the client: whom a client refers to would keep it, with its threads and its
    connections, until the interpreter looks for cycles, which takes it minutes or for ever.
    """

    def __init__(self) -> None:
        self._heard: list[KafkaError] = []

    def __call__(self, error: KafkaError) -> None:
        """Hear one of the client's errors."""
        if error.code() in REFUSALS:
            self._heard.append(error)

    def told_by(self, client: Polled) -> KafkaError | None:
        """Why the client is refused just now, if it is."""
        self._heard.clear()
        client.poll(0)
        return next(iter(self._heard), None)  # another thread may ask, too, and clear them


class Asker(Generic[Client]):
    """A client, replaced by a new one when it has had no answer for long, see `deafness`."""

    def __init__(self, kind: Callable[[Properties], Client], properties: Properties) -> None:
        self._kind = kind
        self._refusals = Refusals()
        self._properties: Properties = {**properties, "error_cb": self._refusals}
        self._answered_s = time.monotonic()
        self.client = self._connected()

    def _connected(self) -> Client:
        with configured():
            return self._kind(self._properties)

    def answer(self, future: Future[Answer], stop: Callable[[], None] = go_on) -> Answer:
        """The answer to a question put to the client; `stop` raises when nobody wants it any more.

        The client answers or fails by itself; the second time-out is for one that does neither.
        """
        deadline = time.monotonic() + 2 * ASK_TIMEOUT_S
        try:
            while not wait([future], STOP_STEP_S).done and time.monotonic() < deadline:
                stop()
            answer = future.result(timeout=0)
        except (KafkaException, FutureTimeoutError) as error:
            problem = kafka_error(error)
            if problem is None or problem.code() in UNANSWERED:
                refusal = self._refusals.told_by(self.client)
                if refusal is not None:
                    raise KafkaException(refusal) from error
                self._connect_anew_if_cut_off()
            raise
        self._answered_s = time.monotonic()
        return answer

    def _connect_anew_if_cut_off(self) -> None:
        now_s = time.monotonic()
        if now_s - self._answered_s > CUT_OFF_S:
            self.client, self._answered_s = self._connected(), now_s
