"""What a mapper knows: its tasks, and what its two readers have read and not yet offered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mars.core.types import TaskName, Topic, live_lane
from mars.protocol.mapper.events import CATCH_UP, LIVE, ReaderName
from mars.protocol.mapper.lane_buffer import LaneBuffer
from mars.protocol.mapper.task_view import TaskView

RETRY_PAUSE_MS = 100
"""Pause before a refused batch is offered again, or an unknown head read again."""

Partition = tuple[Topic, int]


class MapperState:
    """Shared by the parts of the mapping machine; `now_ms` is the time of the last tick."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.views: dict[TaskName, TaskView] = {}
        self.buffers: dict[ReaderName, dict[Partition, LaneBuffer]] = {LIVE: {}, CATCH_UP: {}}

    def tasks_of(self, topic: Topic) -> Iterator[TaskView]:
        """The tasks that read a topic."""
        return (view for view in self.views.values() if view.topic == topic)

    def ready(self, key: Partition) -> list[TaskView]:
        """The tasks that may be offered rows of a partition.

        Mappers read live lanes only: those of backfills are a bulk process's.
        """
        lane = live_lane(key[1])
        return [view for view in self.tasks_of(key[0]) if view.ready(lane)]

    def within(self, key: Partition, buffer: LaneBuffer) -> list[TaskView]:
        """The tasks whose next offset lies in a buffer, and that did not fail over it."""
        return self.among(self.ready(key), buffer)

    @staticmethod
    def among(ready: Iterable[TaskView], buffer: LaneBuffer) -> list[TaskView]:
        """The same of tasks that may be offered rows of the partition."""
        lane = buffer.lane
        return [
            view
            for view in ready
            if buffer.first <= view.offsets[lane] < buffer.next and view.name not in buffer.failed
        ]

    def held_back(self, key: Partition, buffer: LaneBuffer) -> bool:
        """Whether the store takes no more of a buffer at the moment, for some task at least."""
        since_ms = self.now_ms - RETRY_PAUSE_MS
        return any(view.blocked(buffer.lane, since_ms) for view in self.within(key, buffer))

    def silent(self, key: Partition, buffer: LaneBuffer) -> list[TaskView]:
        """The tasks that have seen all of the lane, and no row of it for their `idle_after`."""
        return [
            view
            for view in self.ready(key)
            if view.offsets[buffer.lane] == buffer.next
            and self.now_ms - view.row_seen_ms(buffer.lane, self.now_ms) >= view.idle_after_ms
        ]
