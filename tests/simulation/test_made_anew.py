"""The topic is deleted and made anew under running tasks: no row of the new one is in a result.

Whoever reads the topic goes on at his offset, now among rows of the new one, and notices nothing.
The leader looks at ids only now and then, and windows close meanwhile.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from mars.core.definitions import TaskState, resume_helps
from mars.core.types import Topic
from tests.simulation.rows import EVENT_START_MS, LAST_MS, TOPIC, Row
from tests.simulation.users import OVERFULL
from tests.simulation.weather import Weather
from tests.simulation.world import World

SEEDS = 60

NEW = "new"
"""The key of each row of the new topic."""

STEP_MS = 400
"""Between two rows of a partition there, by their times."""

ROWS = 100
"""Of each partition beyond the offsets that the old topic had."""


def without_users(drawn: Weather) -> Weather:
    """A task that is made later is of the new topic."""
    return replace(drawn, user_ms=0, retention_ms=0)


class MadeAnew(World):
    """A run in the middle of which the topic becomes another one."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, tune=without_users, revising=False)

    def _run(self) -> None:
        self._begin()
        self.scheduler.after(self.chance.randint(1_000, 8_000), self._make_anew)
        self._go_on(self._calm, "the storm passes")
        self._heal()
        self._go_on(self._all_failed, "every task has failed")
        assert not self.of_the_new(), f"results hold rows of another topic: {self.of_the_new()[:3]}"

    def _make_anew(self) -> None:
        """As many rows as there were, of the same times, and some that close all windows."""
        broker, topic = self.servers.broker, Topic(TOPIC)
        self.feed.heal()
        ends = [part.end for part in broker.topics[topic].partitions]
        broker.delete_topic(topic)
        broker.create_topic(topic, len(ends))
        self.note("MADE ANEW")
        for partition, end in enumerate(ends):
            for number in range(end + ROWS):
                behind = max(0, number - end)
                row = Row(EVENT_START_MS + STEP_MS * behind, NEW, 1 + number)
                broker.append(topic, partition, row.encode())
            broker.append(topic, partition, Row(LAST_MS, NEW, 1).encode())

    def _all_failed(self) -> bool:
        return all(
            task.state is TaskState.FAILED
            and (task.name == OVERFULL or not resume_helps(task.detail))
            for task in self.servers.registry.tasks().values()
            if task.state is not TaskState.DELETED
        )

    def of_the_new(self) -> list[bytes]:
        """Results that name the key of the new rows."""
        topics = self.servers.broker.topics.items()
        return [
            record.value
            for topic, found in topics
            if ".results." in topic
            for log in found.partitions
            for record in log.committed(0, log.stable_end)
            if record.value is not None and json.loads(record.value).get("k") == NEW
        ]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_row_of_a_topic_that_was_made_anew_is_in_a_result(seed: int) -> None:
    MadeAnew(seed).run()
