"""What a leader looks at before it decides: members, tasks, topics, the store, the progress."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from mars.core.definitions import TaskDefinition, TaskState
from mars.core.errors import TopicRefused, Unavailable
from mars.core.plan import Stream
from mars.core.types import Bucket, LeaderEpoch, MemberId, StoreEpoch, StreamName, TaskName, Topic
from mars.process.life import ServiceHealth
from mars.process.telemetry import incidents, logs
from mars.process.telemetry.incidents import Tell, untold
from mars.protocol.balance.load_view import Freshness, loads_of
from mars.protocol.balance.steering import Loads, SteeringLimits
from mars.protocol.leader.view import KnownProgress, View
from mars.protocol.ports import (
    Assignment,
    ControlLog,
    ControlState,
    Coordinator,
    Head,
    LeaderLog,
    MemberInfo,
    ProgressLog,
    Registry,
    StoreIdentity,
    TopicAdmin,
)
from reducer.restarts import OFTEN, WITHIN_MS, Restarts
from reducer.tracking import LOST_EPOCH

SELDOM_LOOKS = 40
"""Topics are looked at every this many looks (10 s), and missed changes of tasks."""

MAPPER_LOOKS = 4
"""Mappers' reports are read every this many looks (1 s): they come no more often."""

_log = logs.logger("leader")


@dataclass(frozen=True, slots=True)
class LeaderPorts:
    """What a leader talks to, and what it has to keep to."""

    buckets: int
    log: LeaderLog
    progress: ProgressLog
    control: ControlLog
    registry: Registry
    coordinator: Coordinator
    admin: TopicAdmin
    services: ServiceHealth
    limits: SteeringLimits = field(default_factory=SteeringLimits)
    tell: Tell = untold


@dataclass(slots=True)
class Copies:
    """The definitions that `mars.control` has, as far as this leader knows."""

    tasks: dict[TaskName, TaskDefinition] = field(default_factory=dict)
    streams: dict[StreamName, Stream] = field(default_factory=dict)


class KnownTasks:
    """The definitions as they were read last, by whichever reign of this process."""

    def __init__(self) -> None:
        self.tasks: dict[TaskName, TaskDefinition] = {}
        self.streams: dict[StreamName, Stream] = {}
        self.changed = threading.Event()

    def read(self, registry: Registry) -> None:
        """Read them again. Raises Unavailable; then they are still to be read."""
        self.changed.clear()
        try:
            self.tasks, self.streams = registry.tasks(), registry.streams()
        except Unavailable:
            self.changed.set()
            raise


class Lookout:
    """The looks of one reign. Everything that it remembers is of that reign."""

    def __init__(self, ports: LeaderPorts, epoch: LeaderEpoch, known: KnownTasks) -> None:
        self.store_epoch = StoreEpoch(0)
        self._ports = ports
        self._epoch = epoch
        self._known_tasks = known
        self._freshness = Freshness()
        self._restarts = Restarts()
        self._mappers: dict[MemberId, MemberInfo] = {}
        self._known = KnownProgress()
        self._positions: dict[Bucket, int] = {}
        self._partitions: dict[Topic, int] = {}
        self._topic_ids: dict[Topic, str] = {}
        self._told_gone: set[Topic] = set()
        self._failed: set[TaskName] = set()
        self._looks = 0

    def view(self, floor: ControlState, copies: Copies) -> View:
        """All that a decision is made from. Raises Unavailable."""
        assignment = self._ports.coordinator.assignment()
        members = self._ports.coordinator.members("reducer")
        loads = self._loads(members, assignment)
        seldom = self._looks % SELDOM_LOOKS == 0
        self._looks += 1
        tasks = self._look_for_tasks(seldom)
        self._look_for_topics(tasks.values(), seldom)
        self._tell_of_failed(tasks)
        self.store_epoch = assignment.store_epoch if assignment else StoreEpoch(0)
        identity, heads = self._look_at_store(tasks)
        living = [heads.get(name) for name, task in tasks.items() if not _deleted(task)]
        beginning = any(task.current.starts is None for task in tasks.values())
        if beginning or self._progress_needed(assignment, identity, living):
            self._read_progress()
        return View(
            leader_epoch=self._epoch,
            buckets=self._ports.buckets,
            reducers=frozenset(members),
            assignment=assignment,
            floor=floor,
            identity=identity,
            heads=heads,
            tasks=tasks,
            copied=copies.tasks,
            progress=self._known,
            partitions=self._partitions,
            went_back=_went_back(members.values(), assignment),
            topic_ids=self._topic_ids,
            partial_lost=_partial_lost(members.values(), assignment),
            bulk_alive=self._bulk_alive(tasks.values()),
            leaving=frozenset(name for name, info in members.items() if info.leaving),
            loads=loads,
            streams=self._known_tasks.streams,
            copied_streams=copies.streams,
        )

    def _loads(
        self, reducers: Mapping[MemberId, MemberInfo], assignment: Assignment | None
    ) -> Loads:
        if self._looks % MAPPER_LOOKS == 0:
            self._mappers = self._ports.coordinator.members("mapper")
        self._tell_of_restarts([*reducers.values(), *self._mappers.values()])
        now_s = time.monotonic()
        fresh = self._freshness.fresh([*reducers.values(), *self._mappers.values()], now_s)
        room_bytes, ages_s = self._ports.limits.room_bytes, self._freshness.ages_s(now_s)
        loads = loads_of(reducers, self._mappers, assignment, fresh, room_bytes, now_s)
        return replace(loads, wall_ms=wall_ms(), ages_s=ages_s)

    def _look_at_store(
        self, tasks: Iterable[TaskName]
    ) -> tuple[StoreIdentity | None, dict[TaskName, Head | None]]:
        """Identity before heads: a store that is lost in between shows as missing heads."""
        try:
            identity = self._ports.log.identity()
            heads = self._heads(list(tasks))
        except Unavailable as problem:
            self._ports.services.lost(problem)
            return None, {}
        self._ports.services.found("redis")
        return identity, heads

    def _heads(self, tasks: list[TaskName]) -> dict[TaskName, Head | None]:
        """As they are once the store has heard of this leader: none of before can change them."""
        heads = self._ports.log.head(tasks)
        present = [(name, head) for name, head in heads.items() if head is not None]
        unheard = [
            name
            for name, head in present
            if head.epoch == self.store_epoch and head.leader < self._epoch
        ]
        if not unheard:
            return heads
        self._ports.log.heed(unheard, self.store_epoch, self._epoch)
        return self._ports.log.head(tasks)

    @staticmethod
    def _progress_needed(
        assignment: Assignment | None,
        identity: StoreIdentity | None,
        heads: list[Head | None],
    ) -> bool:
        if assignment is None or identity is None:
            return True
        sealed = identity.sealed_epoch == assignment.store_epoch
        return not sealed or None in heads

    def _read_progress(self) -> None:
        for number in range(self._ports.buckets):
            bucket = Bucket(number)
            piece = self._ports.progress.read(bucket, self._positions.get(bucket, 0))
            self._positions[bucket] = piece.next
            self._known = self._known.with_records(piece.records, piece.times_ms)

    def _look_for_tasks(self, seldom: bool) -> dict[TaskName, TaskDefinition]:
        """The definitions, read when they have changed and now and then besides."""
        if self._known_tasks.changed.is_set() or seldom:
            self._known_tasks.read(self._ports.registry)
        return self._known_tasks.tasks

    def _tell_of_failed(self, tasks: Mapping[TaskName, TaskDefinition]) -> None:
        """Whoever failed a task, the leader tells; a new one tells the same again."""
        failed = {name for name, task in tasks.items() if task.state is TaskState.FAILED}
        for name in failed - self._failed:
            found = self._ports.registry.task(name)
            if found is not None and found[0].state is TaskState.FAILED:
                self._ports.tell(incidents.failed(*found))
        self._failed = failed

    def _tell_of_restarts(self, members: Iterable[MemberInfo]) -> None:
        for info in self._restarts.begun_often(members):
            self._ports.tell(incidents.restarting(info.id, info.host, OFTEN, WITHIN_MS))

    def _bulk_alive(self, tasks: Iterable[TaskDefinition]) -> bool:
        """False if a task waits for a bulk process and there is none."""
        return not any(task.catch_up for task in tasks) or bool(
            self._ports.coordinator.members("bulk")
        )

    def _look_for_topics(self, tasks: Iterable[TaskDefinition], seldom: bool) -> None:
        """Now and then, and at once where a task that runs names another one than is known here: it
        may have been registered since that was made anew.
        """
        living = [task for task in tasks if not _deleted(task)]
        for topic in {Topic(task.current.stream.topic) for task in living}:
            if seldom or topic not in self._partitions:
                self._look_for(topic)
        for task in living:
            topic = Topic(task.current.stream.topic)
            known = self._topic_ids.get(topic, task.current.topic_id)
            if task.state is TaskState.RUNNING and known != task.current.topic_id:
                self._look_for(topic)

    def _look_for(self, topic: Topic) -> None:
        try:
            found = self._ports.admin.describe(topic)
        except TopicRefused as problem:  # what its tasks know of it still holds (I7)
            logs.warning(_log, "Kafka refuses a source topic", problem=problem.detail)
            return
        if found is None and self._partitions.get(topic) == 0:
            self._tell_of_gone(topic)  # at two looks: a broker that begins knows none
        self._partitions[topic] = found.partitions if found else 0
        self._topic_ids.pop(topic, None)
        if found is not None:
            self._topic_ids[topic] = found.topic_id
            self._told_gone.discard(topic)

    def _tell_of_gone(self, topic: Topic) -> None:
        """Once in a reign, for each time; an incident that is there already stays as it was."""
        if topic in self._told_gone:
            return
        self._told_gone.add(topic)
        for task in self._known_tasks.tasks.values():
            if task.current.stream.topic == topic and not _deleted(task):
                self._ports.tell(incidents.source_gone(task))


def _went_back(members: Iterable[MemberInfo], assignment: Assignment | None) -> frozenset[Bucket]:
    """Buckets whose present owner says, in its present epoch, that the log went back."""
    if assignment is None:
        return frozenset()
    return frozenset(
        status.bucket
        for member in members
        for status in member.buckets
        if status.state == "store_went_back"
        and status.bucket in assignment.owners
        and assignment.owners[status.bucket].member == member.id
        and assignment.owners[status.bucket].epoch == status.epoch
    )


def _partial_lost(members: Iterable[MemberInfo], assignment: Assignment | None) -> bool:
    """Whether a tracker says that the present life of the store has lost a partial."""
    return assignment is not None and any(
        member.load.get(LOST_EPOCH) == assignment.store_epoch for member in members
    )


def wall_ms() -> int:
    """The time of day, epoch milliseconds."""
    return int(time.time() * 1000)


def _deleted(task: TaskDefinition) -> bool:
    return task.state is TaskState.DELETED
