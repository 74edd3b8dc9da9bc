"""What a reader says of a client that has lost its brokers."""

from __future__ import annotations

from typing import cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException

from mars.adapters.kafka.errors import ALL_BROKERS_DOWN
from mars.adapters.kafka.source.troubles import Troubles
from mars.core.errors import Unavailable

WRONG_PASSWORD = KafkaError._AUTHENTICATION


class _Deaf:
    """A client without a broker."""

    def list_topics(self, *, timeout: float) -> None:
        assert timeout < 1, "who polls does not wait long"
        raise KafkaException(KafkaError(ALL_BROKERS_DOWN))


def _said(*codes: int) -> str:
    troubles = Troubles()
    for code in codes:
        troubles.heard(KafkaError(code))
    with pytest.raises(Unavailable) as caught:
        troubles.raise_if_away(cast(Consumer, _Deaf()))
    return str(caught.value)


@pytest.mark.parametrize(
    "codes", [(WRONG_PASSWORD, ALL_BROKERS_DOWN), (ALL_BROKERS_DOWN, WRONG_PASSWORD)]
)
def test_that_all_brokers_are_down_hides_no_other_reason(codes: tuple[int, int]) -> None:
    assert "refuses the credentials" in _said(*codes)


def test_without_another_reason_it_is_said() -> None:
    assert "no connection" in _said(ALL_BROKERS_DOWN)


def test_who_has_been_answered_has_nothing_to_say() -> None:
    troubles = Troubles()
    troubles.heard(KafkaError(WRONG_PASSWORD))
    troubles.answered()
    troubles.raise_if_away(cast(Consumer, _Deaf()))
