"""Which lanes are silent, and how far each partition is: what a mapper says besides its rows."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from mapper.on_spark.planning import RoundLook, lanes_of, topic_of
from mars.core.types import Lane, Mapped, StoreEpoch, TaskName, Topic, lane_partition, live_lane
from mars.protocol.ports import Backpressure, IdleLease, PartitionReading, TaskPaused
from mars.protocol.runnable import RunnableTask

REFUSED_FOR_MS = 3_000
"""How long a refusal is told of: longer than the pause after which the rows are tried again."""


def now_ms() -> int:
    """A clock that only goes on."""
    return int(time.monotonic() * 1000)


@dataclass(slots=True)
class _Lane:
    """What is known of one lane of one task: in which life of it, which is of one of the store."""

    life: tuple[StoreEpoch, int]
    offset: int
    row_seen_ms: int


class Watch:
    """Told of every batch and every look; safe for threads."""

    def __init__(self, clock: Callable[[], int] = now_ms) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._lanes: dict[tuple[TaskName, Lane], _Lane] = {}
        self._refused: dict[tuple[Topic, int], tuple[int, str]] = {}
        self._readings: tuple[PartitionReading, ...] = ()
        self._running = False
        self._rows = 0

    # ------------------------------------------------------------------------- what happened

    def runs(self, *, running: bool) -> None:
        """Whether a query runs on Spark."""
        with self._lock:
            self._running = running

    def applied(self, task: TaskName, mapped: Mapped) -> None:
        """A batch of ours is in the store."""
        now = self._clock()
        with self._lock:
            self._rows += sum(partial.counts.read for partial in mapped.partials)
            for part in mapped.ranges:
                lane = self._lanes.get((task, part.lane))
                if lane is None:
                    continue
                lane.offset = part.next
                if part.lane in mapped.marks_ms:
                    lane.row_seen_ms = now

    def refused(self, topic: Topic, mapped: Mapped, why: Backpressure | TaskPaused) -> None:
        """A batch of ours was not wanted now."""
        state = "backpressure" if isinstance(why, Backpressure) else "paused"
        until = self._clock() + REFUSED_FOR_MS
        with self._lock:
            for part in mapped.ranges:
                self._refused[topic, lane_partition(part.lane) or 0] = until, state

    # ------------------------------------------------------------------------------- looking

    def looked(self, look: RoundLook) -> list[IdleLease]:
        """Take a look in; the leases that may be renewed by it.

        An offset of `look.heads` that has reached the end of `look.ends` was there first, so the
        broker confirms that nothing committed lies behind it.
        """
        now = self._clock()
        with self._lock:
            self._lanes = {key: one for key, one in self._lanes.items() if key[0] in look.tasks}
            leases = [
                lease
                for name, task in look.tasks.items()
                for lease in self._silent(name, task, look, now)
            ]
            idle = {(lease.task, lease.lane) for lease in leases}
            self._readings = tuple(self._read(look, idle, now))
        return leases

    def _silent(
        self, name: TaskName, task: RunnableTask, look: RoundLook, now: int
    ) -> list[IdleLease]:
        head = look.heads.get(name)
        if head is None or not task.begun():
            return []
        idle_after_ms = task.begun()[-1][1].options.idle_after_ms
        ends = look.ends.get(topic_of(task), {})
        life = head.epoch, task.definition.first_version
        found = []
        for partition, offset in lanes_of(task, head).items():
            lane = live_lane(partition)
            if task.definition.version_at(lane, offset)[0] not in task.plans:
                continue  # how long it must be silent those know who can compile it
            seen_ms = self._seen(name, lane, life, offset, now)
            at_end = partition in ends and offset >= ends[partition]
            if at_end and now - seen_ms >= idle_after_ms:
                version = task.definition.begun[-1].version
                found.append(IdleLease(name, head.epoch, lane, offset, version))
        return found

    def _seen(
        self, name: TaskName, lane: Lane, life: tuple[StoreEpoch, int], offset: int, now: int
    ) -> int:
        """When rows last came: now, if somebody else has moved the lane, or it began anew.

        A look that is older than our own last batch says nothing.
        """
        known = self._lanes.get((name, lane))
        if known is None or known.life != life or offset > known.offset:
            self._lanes[name, lane] = known = _Lane(life, offset, now)
        return known.row_seen_ms

    # ------------------------------------------------------------------------------ for people

    @property
    def rows(self) -> int:
        """Rows mapped since the start, of all tasks."""
        return self._rows

    def readings(self) -> tuple[PartitionReading, ...]:
        """How far each partition is, as of the last look."""
        return self._readings

    def _read(
        self, look: RoundLook, idle: set[tuple[TaskName, Lane]], now: int
    ) -> list[PartitionReading]:
        positions: dict[tuple[Topic, int], int] = {}
        quiet: set[tuple[Topic, int]] = set()
        for name, task in look.tasks.items():
            topic = topic_of(task)
            for partition, offset in lanes_of(task, look.heads.get(name)).items():
                positions[topic, partition] = max(offset, positions.get((topic, partition), 0))
                if (name, live_lane(partition)) in idle:
                    quiet.add((topic, partition))
        return [
            PartitionReading(
                topic, partition, position, self._state((topic, partition), quiet, now)
            )
            for (topic, partition), position in sorted(positions.items())
        ]

    def _state(self, place: tuple[Topic, int], quiet: set[tuple[Topic, int]], now: int) -> str:
        until, state = self._refused.get(place, (0, ""))
        if now < until:
            return state
        if place in quiet:
            return "idle"
        return "reading" if self._running else "starting"
