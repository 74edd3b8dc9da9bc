"""What the next round reads: for each lane, from where the store says that its tasks are.

    offsets   ──── 100 ─── 140 ─────────────────────── 9,000 ────▶ end
                   x        y                          z
                   ├────── one work, x and y ──────┤   ├── another ──┤

Pure but for `RangePlanner`, which asks the servers. Nothing is remembered that matters: a planner
that begins anew plans the same.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from mars.adapters.kafka import KafkaTopicAdmin
from mars.adapters.redis import RedisPartialLog
from mars.adapters.spark.lane_work import LaneWork, Share
from mars.adapters.zookeeper import ZooKeeperConnection, ZooKeeperRegistry
from mars.core.settings import Settings
from mars.core.types import (
    Lane,
    Range,
    StoreEpoch,
    TaskName,
    Topic,
    lane_backfill,
    lane_partition,
)
from mars.process.life import ServiceHealth
from mars.process.tasks import TaskSource
from mars.process.telemetry import logs
from mars.protocol.ports import Head, Heads, TopicAdmin, ends_by_topic
from mars.protocol.runnable import RunnableTask

RETRY_PAUSE_MS = 1_000
"""Before rows that the store did not take (paused, over budget, another version) are mapped again:
each try reads and maps them anew, which a refusal in a mapper process does not."""

LOOK_WITHOUT_SERVERS_S = 0.5
"""Between two looks while a server does not answer."""


@dataclass(frozen=True, slots=True)
class RoundLook:
    """One look at all that decides what is read: tasks, where they are, where topics end."""

    tasks: Mapping[TaskName, RunnableTask]
    heads: Mapping[TaskName, Head | None]
    ends: Mapping[Topic, Mapping[int, int]]


def topic_of(task: RunnableTask) -> Topic:
    """The topic that a task reads."""
    return Topic(task.definition.current.stream.topic)


def lanes_of(task: RunnableTask, head: Head | None) -> dict[int, int]:
    """Partition -> next offset, of the live lanes whose rows the task takes now.

    What lies below a fence of `catch_up` is a bulk process's, as are the lanes of backfills.
    """
    if head is None or not head.active or not task.running:
        return {}
    if not task.definition.has(head.version):
        return {}
    fences = task.definition.catch_up
    found: dict[int, int] = {}
    for lane, offset in head.offsets.items():
        partition = lane_partition(lane)
        mine = partition is not None and lane_backfill(lane) is None
        if partition is not None and mine and offset >= fences.get(lane, 0):
            found[partition] = offset
    return found


def shares_of(look: RoundLook, rows_max: int) -> Iterator[Share]:
    """For each task and lane with rows: from its next offset, at most `rows_max` messages.

    A share ends where the next version begins. One that lies behind the end of its partition is of
    a single row, by which it is found out whether the partition has lost what was read of it.
    """
    for name, task in look.tasks.items():
        head = look.heads.get(name)
        if head is None:
            continue
        ends = look.ends.get(topic_of(task), {})
        for partition, first in lanes_of(task, head).items():
            lane = Lane(str(partition))
            end = min(ends.get(partition, 0), first + rows_max)
            if end < first and partition in ends:
                end = first + 1  # rows are lost, or the end is not: it is known once it is read
            version, boundary = task.definition.version_at(lane, first)
            if boundary is not None:
                end = min(end, boundary)
            plan = task.plans.get(version)
            # Rows that are counted are mapped one after the other, by the other mappers.
            if first < end and plan is not None and not plan.maps_in_order:
                run, part = task.definition.run, Range(lane, first, end)
                yield Share(name, run, head.epoch, version, plan, part)


def joined(shares: Iterable[Share], rows_max: int) -> list[tuple[Share, ...]]:
    """Shares of one topic and lane, put together where one reading serves several.

    Those whose first offset lies within the range of the lowest one are read with it, and cut where
    it ends: tasks that are read together once stay together. Nothing is read that none of them
    wants: it may be lost.
    """
    by_lane: defaultdict[Lane, list[Share]] = defaultdict(list)
    for share in shares:
        by_lane[share.part.lane].append(share)
    groups: list[tuple[Share, ...]] = []
    for lane in sorted(by_lane):
        group: list[Share] = []
        end = reached = 0
        for share in sorted(by_lane[lane], key=lambda one: (one.part.first, one.task)):
            if not group or share.part.first >= end or share.part.first > reached:
                groups += [tuple(group)] if group else []
                group, end, reached = [], share.part.first + rows_max, 0
            group.append(_until(share, end))
            reached = max(reached, group[-1].part.next)
        groups.append(tuple(group))
    return groups


def _until(share: Share, end: int) -> Share:
    part = share.part
    if part.next <= end:
        return share
    return replace(share, part=Range(part.lane, part.first, end))


@dataclass(slots=True)
class RoundRefusals:
    """Which rows were planned last; the same once more means that the store did not take them."""

    _tried: dict[tuple[TaskName, Lane], tuple[StoreEpoch, int, int]] = field(default_factory=dict)

    def due(self, shares: Iterable[Share], now_ms: int) -> list[Share]:
        """Those that may be tried now."""
        return [share for share in shares if self._due(share, now_ms)]

    def _due(self, share: Share, now_ms: int) -> bool:
        epoch, first, at_ms = self._tried.get((share.task, share.part.lane), (None, 0, 0))
        return (epoch, first) != (share.epoch, share.part.first) or now_ms - at_ms >= RETRY_PAUSE_MS

    def planned(self, shares: Iterable[Share], now_ms: int) -> None:
        """These are tried now."""
        for share in shares:
            key = share.task, share.part.lane
            self._tried[key] = share.epoch, share.part.first, now_ms


@dataclass(frozen=True, slots=True)
class RoundLimits:
    """How much a work reads at the most, and who it is for."""

    rows_max: int
    bytes_max: int
    buckets: int


def works_of(
    settings: Settings, limits: RoundLimits, look: RoundLook, shares: Sequence[Share]
) -> list[LaneWork]:
    """The works that read these shares."""
    by_topic: defaultdict[Topic, list[Share]] = defaultdict(list)
    for share in shares:
        by_topic[topic_of(look.tasks[share.task])].append(share)
    works = []
    for topic in sorted(by_topic):
        for group in joined(by_topic[topic], limits.rows_max):
            part = Range(
                group[0].part.lane,
                group[0].part.first,
                max(share.part.next for share in group),
            )
            works.append(LaneWork(settings, topic, part, limits.buckets, limits.bytes_max, group))
    return works


def look_at(
    services: ServiceHealth,
    tasks: Mapping[TaskName, RunnableTask],
    log: Heads,
    admin: TopicAdmin,
) -> RoundLook | None:
    """Ask the store, then Kafka; None if one of them does not answer.

    So where an offset is at its end, it was there before the end was.
    """
    running = {name: task for name, task in tasks.items() if task.running and task.begun()}
    heads = services.attempt("redis", lambda: log.head(sorted(running))) if running else {}
    if heads is None:
        return None
    topics = {topic_of(running[name]) for name, head in heads.items() if head is not None}
    ends = services.attempt("kafka", lambda: ends_by_topic(admin, sorted(topics)))
    return None if ends is None else RoundLook(running, heads, ends)


class RangePlanner:
    """`Planner` of the rounds, with connections of its own."""

    def __init__(self, settings: Settings, buckets: int) -> None:
        logs.configure(settings.logging)
        self._poll_s = settings.mapper.poll_ms / 1000
        self._limits = RoundLimits(
            settings.mapper.batch_rows_max, settings.mapper.batch_bytes_max, buckets
        )
        # Executors read Kafka, and nothing else: they are told nothing else.
        self._kafka = Settings(namespace=settings.namespace, kafka=settings.kafka)
        self._services = ServiceHealth("planner")
        self._connection = ZooKeeperConnection.open(settings.zookeeper)
        self._source = TaskSource(
            ZooKeeperRegistry(self._connection, settings.namespace), settings.namespace
        )
        self._log = RedisPartialLog.open(settings, buckets)
        self._admin = KafkaTopicAdmin(settings)
        self._tasks: Mapping[TaskName, RunnableTask] = {}
        self._refusals = RoundRefusals()
        self._works: list[LaneWork] = []

    def pending(self) -> bool:
        """Look; where there is nothing to do, wait a little before saying so."""
        self._works = self._look()
        if not self._works:
            time.sleep(LOOK_WITHOUT_SERVERS_S if self._services.missing else self._poll_s)
        return bool(self._works)

    def plan(self) -> Sequence[LaneWork]:
        """What was found when a round was said to be due, however often Spark asks."""
        return self._works

    def close(self) -> None:
        """Give all connections back."""
        self._log.close()
        self._connection.close()

    def _look(self) -> list[LaneWork]:
        changed = self._services.attempt("zookeeper", self._source.poll)
        if changed is not None:
            self._tasks = changed
        look = look_at(self._services, self._tasks, self._log, self._admin)
        if look is None:
            return []
        now_ms = int(time.monotonic() * 1000)
        shares = self._refusals.due(shares_of(look, self._limits.rows_max), now_ms)
        self._refusals.planned(shares, now_ms)
        return works_of(self._kafka, self._limits, look, shares)


@dataclass(frozen=True, slots=True)
class MakeRangePlanner:
    """Makes the planner in its own process."""

    settings: Settings
    buckets: int

    def __call__(self) -> RangePlanner:
        """With connections that are open from now on."""
        return RangePlanner(self.settings, self.buckets)
