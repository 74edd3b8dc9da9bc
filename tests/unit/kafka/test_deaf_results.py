"""Who consumes results hears of a partition of which nothing comes any more."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Message

from mars.adapters.kafka.names import Place
from mars.adapters.kafka.read import groups
from mars.adapters.kafka.read.groups import KafkaResultConsumer
from mars.adapters.kafka.source.deafness import DEAF_S
from mars.core.errors import Unavailable
from mars.core.settings import Settings
from mars.core.types import TaskName, Topic

TOPIC = Topic("mars.results.a")
CLOCK = SimpleNamespace(now_s=100.0)


class _Client:
    """One row of the first partition, and then one of the second each time it is waited for."""

    def __init__(self, _properties: object) -> None:
        self._rows = 0

    def list_topics(self, topic: str, _timeout_s: float) -> Any:
        there = SimpleNamespace(error=None, partitions={0: None, 1: None})
        return SimpleNamespace(topics={topic: there})

    def assign(self, _places: object) -> None: ...

    def poll(self, timeout_s: float) -> Message | None:
        if not timeout_s:
            return None
        CLOCK.now_s += DEAF_S
        self._rows += 1
        assert self._rows < 10, "it would never be noticed"
        return Message(topic=TOPIC, partition=min(self._rows - 1, 1), offset=self._rows, value=b"")


class _Admin:
    def __init__(self, _settings: Settings) -> None: ...

    def stable_ends(self, places: Any, _stop: object) -> dict[Place, int]:
        return dict.fromkeys(places, 1_000)


def test_a_partition_of_which_nothing_comes_is_noticed_though_rows_of_others_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(groups, "time", SimpleNamespace(monotonic=lambda: CLOCK.now_s))
    monkeypatch.setattr(groups, "Consumer", _Client)
    monkeypatch.setattr(groups, "KafkaTopicAdmin", _Admin)
    results = KafkaResultConsumer(Settings(), TOPIC, TaskName("a"), "mine", begin={})

    with pytest.raises(Unavailable, match=r"no more rows come from mars\.results\.a\[0\]"):
        next(results)
