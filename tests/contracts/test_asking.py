"""Clients that are kept for questions: when they go, and what they tell."""

from __future__ import annotations

import gc
import weakref

from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient

from mars.adapters.kafka.asking import Asker, Refusals
from mars.adapters.kafka.config import admin_properties
from mars.core.settings import KafkaSettings, Settings
from mars.local.network import HOST, free_port


def test_a_client_whom_nobody_asks_any_more_goes_at_once() -> None:
    """Each takes four threads and one of the 1,024 thread-local keys of a process."""
    settings = Settings(kafka=KafkaSettings(bootstrap=f"{HOST}:{free_port()}"))
    gc.disable()
    try:
        asker = Asker(AdminClient, admin_properties(settings, "test"))
        client = weakref.ref(asker.client)
        assert client() is not None
        del asker
        assert client() is None
    finally:
        gc.enable()


class Errors:
    """A client that hears these errors when it is polled."""

    def __init__(self, refusals: Refusals, *codes: int) -> None:
        self._refusals = refusals
        self._codes = codes

    def poll(self, _timeout: float) -> None:
        """Tell them."""
        for code in self._codes:
            self._refusals(KafkaError(code))


def test_of_the_errors_of_a_client_the_first_refusal_counts() -> None:
    refusals = Refusals()
    client = Errors(refusals, KafkaError._TRANSPORT, KafkaError._AUTHENTICATION, KafkaError._SSL)
    refusal = refusals.told_by(client)
    assert refusal is not None
    assert refusal.code() == KafkaError._AUTHENTICATION


def test_a_refusal_of_before_counts_no_more() -> None:
    refusals = Refusals()
    refusals(KafkaError(KafkaError._AUTHENTICATION))
    assert refusals.told_by(Errors(refusals, KafkaError._TRANSPORT)) is None
