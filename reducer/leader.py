"""The leader thread: stands for election and, while it leads, looks, decides and acts."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import assert_never

from mars.core.definitions import TaskDefinition, TaskState
from mars.core.errors import MarsError, TopicRefused, Unavailable
from mars.core.plan import Plan, Stream
from mars.core.types import Bucket, LeaderEpoch, MemberId, StoreEpoch, StreamName, TaskName, Topic
from mars.process.compiling import compile_version
from mars.process.life import Life, ServiceHealth
from mars.process.outliving import Outliving
from mars.process.tasks import fail_task, set_catch_up
from mars.process.telemetry import incidents, logs
from mars.process.telemetry.incidents import Tell, untold
from mars.protocol.balance.load_view import Freshness, loads_of
from mars.protocol.balance.steering import Loads, SteeringLimits
from mars.protocol.leader.machine import LeaderMachine
from mars.protocol.leader.tasks import begin_version
from mars.protocol.leader.view import (
    AddLanes,
    BeginVersion,
    CopyDefinition,
    CopyStream,
    Decision,
    DropStreamCopy,
    DropTask,
    EndCatchUp,
    FailTask,
    InitialiseTask,
    KnownProgress,
    PublishAssignment,
    SealStore,
    SetActive,
    View,
)
from mars.protocol.ports import (
    Assignment,
    Balance,
    ControlLog,
    ControlState,
    Coordinator,
    Head,
    Leadership,
    MemberInfo,
    PartialLog,
    ProgressLog,
    Registry,
    StoreIdentity,
    TopicAdmin,
    put_copy,
)
from reducer.tracking import LOST_EPOCH

LOOK_INTERVAL_S = 0.25
"""Between two looks: how late the leader notices a lost store, a dead reducer or a new task."""

FIRST_EPOCH = StoreEpoch(1)

SELDOM_LOOKS = 40
"""New partitions are looked for every this many looks (10 s), and missed changes of tasks."""


MAPPER_LOOKS = 4
"""Mappers' reports are read every this many looks (1 s): they come no more often."""

MOVES_LOGGED = 10
"""Moves that are logged one by one: of a cluster that starts there may be thousands."""


class LeaderLoop:
    """One reign after the other; each begins with an empty memory."""

    def __init__(  # noqa: PLR0913 -- the ports of a process
        self,
        buckets: int,
        *,
        log: PartialLog,
        progress: ProgressLog,
        control: ControlLog,
        registry: Registry,
        coordinator: Coordinator,
        admin: TopicAdmin,
        namespace: str,
        services: ServiceHealth,
        limits: SteeringLimits | None = None,
        tell: Tell = untold,
    ) -> None:
        self._buckets = buckets
        self._limits = limits or SteeringLimits()
        self._store = log
        self._progress_log = progress
        self._control = control
        self._registry = registry
        self._coordinator = coordinator
        self._admin = admin
        self._namespace = namespace
        self._services = services
        self._tell = tell
        self._log = logs.logger("leader")
        self._tasks: dict[TaskName, TaskDefinition] = {}
        self._tasks_changed = threading.Event()
        registry.watch_tasks(self._tasks_changed.set)
        self._begin_reign(None)

    def _begin_reign(self, epoch: LeaderEpoch | None) -> None:
        self._epoch = epoch
        self._leading = LeaderMachine(self._limits)
        self._freshness = Freshness()
        self._mappers: dict[MemberId, MemberInfo] = {}
        self._balance: Balance | None = None
        self._floor: ControlState | None = None
        self._whole = False
        self._copied: dict[TaskName, TaskDefinition] = {}
        self._copied_streams: dict[StreamName, Stream] = {}
        self._streams: dict[StreamName, Stream] = {}
        self._known = KnownProgress()
        self._positions: dict[Bucket, int] = {}
        self._partitions: dict[Topic, int] = {}
        self._topic_ids: dict[Topic, str] = {}
        self._looks = 0
        self._store_epoch = StoreEpoch(0)
        self._failed: set[TaskName] = set()
        self._tasks_changed.set()

    @property
    def balance(self) -> Balance | None:
        """What this process makes of the loads while it leads; read by another thread."""
        return self._balance if self._epoch is not None else None

    def run(self, life: Life) -> None:
        """Stand for election and lead, until asked to stop."""
        self._coordinator.campaign()
        Outliving("the leader", life.wait).until(life, LOOK_INTERVAL_S, self._round)

    def _round(self) -> None:
        epoch = self._coordinator.leading()
        if epoch != self._epoch:
            self._begin_reign(epoch)
            if epoch is not None:
                logs.info(self._log, "leading", leader_epoch=epoch)
        if epoch is not None:
            self._lead(epoch)

    def _lead(self, epoch: LeaderEpoch) -> None:
        try:
            floor = self._known_floor()
            if not self._has_all(epoch, floor):
                return
            view = self._view(epoch, floor)
            for decision in self._leading.decide(view):
                lead = self._coordinator.leadership()
                if lead is None or lead.epoch != epoch:
                    return  # no need to: nothing of what was decided would take effect
                self._act(decision, lead)
            self._balance = self._leading.balance(view)
        except Unavailable as problem:
            self._services.lost(problem)
        except MarsError as problem:
            logs.error(self._log, "the leader cannot go on and tries again", problem=str(problem))
        except Exception:  # noqa: BLE001 -- a leader that dies silently would stop everything
            logs.error(self._log, "unexpected error, the leader tries again", trace=True)
            self._begin_reign(epoch)

    # -------------------------------------------------------------------------------- restoring

    def _known_floor(self) -> ControlState:
        """What mars.control said when this reign began."""
        if self._floor is None:
            self._floor = self._control.read()
            self._copied = dict(self._floor.tasks)
            self._copied_streams = dict(self._floor.streams)
        return self._floor

    def _has_all(self, epoch: LeaderEpoch, floor: ControlState) -> bool:
        """True once ZooKeeper has all that mars.control knows, which one that was lost has not.

        Until then nothing is decided: a task that is only missing would be taken for none.
        """
        whole = self._registry.whole()
        if self._whole and not whole:
            # Lost in the middle of a reign, perhaps with an epoch of the same number: forget it.
            self._begin_reign(epoch)
            return False
        if floor.leader_epoch > epoch or (floor.leader_epoch == epoch and not whole):
            logs.warning(
                self._log,
                "ZooKeeper has forgotten how high leader epochs were: they go on above Kafka's",
                leader_epoch=epoch,
                in_kafka=floor.leader_epoch,
            )
            self._coordinator.outgrow(floor.leader_epoch)
            return False
        self._whole = whole or self._restored(floor, epoch)
        return self._whole

    def _restored(self, floor: ControlState, epoch: LeaderEpoch) -> bool:
        """Put back what is missing; False if another leader does."""
        lead = self._coordinator.leadership()
        if lead is None or lead.epoch != epoch:
            return False
        registry = self._registry
        self._coordinator.buckets(self._buckets)
        present = registry.streams()
        missing = [stream for name, stream in floor.streams.items() if name not in present]
        streams = [stream for stream in missing if registry.put_stream(stream, lead)]
        tasks = [task.name for task in floor.tasks.values() if registry.create_task(task, lead)]
        whole = registry.make_whole(lead)
        self._tasks_changed.set()
        if tasks or streams:
            logs.warning(
                self._log,
                "ZooKeeper had lost everything: tasks and streams are back from mars.control",
                tasks=sorted(tasks),
                streams=sorted(stream.name for stream in streams),
            )
        return whole

    # ---------------------------------------------------------------------------------- looking

    def _view(self, epoch: LeaderEpoch, floor: ControlState) -> View:
        assignment = self._coordinator.assignment()
        members = self._coordinator.members("reducer")
        loads = self._loads(members, assignment)
        self._look_for_partitions()
        tasks = self._look_for_tasks()
        self._tell_of_failed(tasks)
        self._store_epoch = assignment.store_epoch if assignment else StoreEpoch(0)
        identity, heads = self._look_at_store(tasks, epoch)
        living = [heads.get(name) for name, task in tasks.items() if not _deleted(task)]
        beginning = any(task.current.starts is None for task in tasks.values())
        if beginning or self._progress_needed(assignment, identity, living):
            self._read_progress()
        return View(
            leader_epoch=epoch,
            buckets=self._buckets,
            reducers=frozenset(members),
            assignment=assignment,
            floor=floor,
            identity=identity,
            heads=heads,
            tasks=tasks,
            plans=self._plans(tasks.values()),
            copied=self._copied,
            progress=self._known,
            partitions=self._partitions,
            went_back=_went_back(members.values(), assignment),
            topic_ids=self._topic_ids,
            partial_lost=_partial_lost(members.values(), assignment),
            bulk_alive=self._bulk_alive(tasks.values()),
            leaving=frozenset(name for name, info in members.items() if info.leaving),
            loads=loads,
            streams=self._streams,
            copied_streams=self._copied_streams,
        )

    def _loads(
        self, reducers: Mapping[MemberId, MemberInfo], assignment: Assignment | None
    ) -> Loads:
        if self._looks % MAPPER_LOOKS == 0:
            self._mappers = self._coordinator.members("mapper")
        now_s = time.monotonic()
        fresh = self._freshness.fresh([*reducers.values(), *self._mappers.values()], now_s)
        room_bytes, ages_s = self._limits.room_bytes, self._freshness.ages_s(now_s)
        loads = loads_of(reducers, self._mappers, assignment, fresh, room_bytes, now_s)
        return replace(loads, wall_ms=_wall_ms(), ages_s=ages_s)

    def _look_at_store(
        self, tasks: Iterable[TaskName], epoch: LeaderEpoch
    ) -> tuple[StoreIdentity | None, dict[TaskName, Head | None]]:
        """Identity before heads: a store that is lost in between shows as missing heads."""
        try:
            identity = self._store.identity()
            heads = self._heads(list(tasks), epoch)
        except Unavailable as problem:
            self._services.lost(problem)
            return None, {}
        self._services.found("redis")
        return identity, heads

    def _heads(self, tasks: list[TaskName], epoch: LeaderEpoch) -> dict[TaskName, Head | None]:
        """As they are once the store has heard of this leader: none of before can change them."""
        heads = self._store.head(tasks)
        present = [(name, head) for name, head in heads.items() if head is not None]
        unheard = [
            name
            for name, head in present
            if head.epoch == self._store_epoch and head.leader < epoch
        ]
        if not unheard:
            return heads
        self._store.heed(unheard, self._store_epoch, epoch)
        return self._store.head(tasks)

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
        for number in range(self._buckets):
            bucket = Bucket(number)
            piece = self._progress_log.read(bucket, self._positions.get(bucket, 0))
            self._positions[bucket] = piece.next
            self._known = self._known.with_records(piece.records, piece.times_ms)

    def _look_for_tasks(self) -> dict[TaskName, TaskDefinition]:
        """The definitions, read when they have changed and now and then besides."""
        if self._tasks_changed.is_set() or self._looks % SELDOM_LOOKS == 0:
            self._tasks_changed.clear()
            try:
                self._tasks = self._registry.tasks()
                self._streams = self._registry.streams()
            except Unavailable:
                self._tasks_changed.set()
                raise
        self._looks += 1
        return self._tasks

    def _tell_of_failed(self, tasks: Mapping[TaskName, TaskDefinition]) -> None:
        """Whoever failed a task, the leader tells; a new one tells the same again."""
        failed = {name for name, task in tasks.items() if task.state is TaskState.FAILED}
        for name in failed - self._failed:
            found = self._registry.task(name)
            if found is not None and found[0].state is TaskState.FAILED:
                self._tell(incidents.failed(*found))
        self._failed = failed

    def _bulk_alive(self, tasks: Iterable[TaskDefinition]) -> bool:
        """False if a task waits for a bulk process and there is none."""
        return not any(task.catch_up for task in tasks) or bool(self._coordinator.members("bulk"))

    def _look_for_partitions(self) -> None:
        topics = {
            Topic(task.current.stream.topic) for task in self._tasks.values() if not _deleted(task)
        }
        due = self._looks % SELDOM_LOOKS == 0
        for topic in topics:
            if due or topic not in self._partitions:
                try:
                    found = self._admin.describe(topic)
                except TopicRefused as problem:  # what its tasks know of it still holds (I7)
                    logs.warning(self._log, "a source topic is refused", problem=problem.detail)
                    continue
                self._partitions[topic] = found.partitions if found else 0
                self._topic_ids.pop(topic, None)
                if found is not None:
                    self._topic_ids[topic] = found.topic_id

    def _plans(self, tasks: Iterable[TaskDefinition]) -> dict[TaskName, Plan]:
        """Plans of the tasks that are about to change version: only these are needed."""
        return {
            task.name: compile_version(task.name, task.begun[-1], self._namespace)
            for task in tasks
            if task.current.starts is None and task.begun
        }

    # ----------------------------------------------------------------------------------- acting

    def _act(self, decision: Decision, lead: Leadership) -> None:
        match decision:
            case PublishAssignment():
                self._publish(decision)
            case BeginVersion():
                self._begin_version(decision, lead)
            case CopyDefinition(definition=definition):
                put_copy(self._control, definition, lead.epoch)
                self._copied[definition.name] = definition
            case CopyStream(stream=stream):
                self._control.put_stream(stream)
                self._copied_streams[stream.name] = stream
            case DropStreamCopy(name=name):
                # Only whoever still has all the rest has deleted it: a loss since then is none.
                if name not in self._registry.streams() and self._registry.whole():
                    self._control.delete_stream(name)
                    del self._copied_streams[name]
            case EndCatchUp(task=task):
                if set_catch_up(self._registry, task, {}, lead):
                    logs.warning(
                        self._log, "no bulk process runs, mappers catch up instead", task=task
                    )
            case FailTask(task=task, detail=detail):
                logs.error(self._log, "a task failed", task=task, detail=detail)
                fail_task(self._registry, task, detail, lead)
            case _:
                self._act_on_store(decision, lead.epoch)

    def _publish(self, decision: PublishAssignment) -> None:
        """Note the epochs in Kafka first: they must never be given twice, ZooKeeper lost or not."""
        assignment, reason = decision.assignment, decision.reason
        self._leading.publishing(decision, time.monotonic(), _wall_ms())
        highest = max(owner.epoch for owner in assignment.owners.values())
        self._control.put_epochs(assignment.leader_epoch, assignment.store_epoch, highest)
        epoch = assignment.store_epoch
        if self._coordinator.publish(assignment):
            logs.info(self._log, "assignment published", reason=reason, store_epoch=epoch)
            for move in decision.moves[:MOVES_LOGGED]:
                logs.info(
                    self._log,
                    "a bucket moves",
                    bucket=move.bucket,
                    source=move.source,
                    target=move.target,
                    reason=move.reason,
                )
            # The first epoch of a namespace is its beginning, not a loss.
            if epoch > max(self._store_epoch, FIRST_EPOCH):
                self._tell(incidents.rewound(epoch, reason))

    def _begin_version(self, decision: BeginVersion, lead: Leadership) -> None:
        """In the store, then the copy, then in ZooKeeper: each step holds what the next relies on.

        What the store has answered stays so in this life of it, whoever asks again. If that ends
        meanwhile nobody has relied on it, for ZooKeeper has not heard of it.
        """
        name, version = decision.task, decision.version
        found = self._registry.task(name)
        if found is None or not _waits_to_begin(found[0], version, decision.after):
            return
        begun = self._store.begin_version(
            name, decision.epoch, lead.epoch, decision.run_id, version, after=decision.after
        )
        if begun is None:
            return
        definition = begin_version(found[0], begun, decision.behind_ms, decision.newest_ms)
        # First the copy: rows are accounted by these starts as soon as ZooKeeper has them, and so
        # they must be the same should it lose them. If it does not get them the next look copies
        # what it has.
        self._copied.pop(name, None)
        self._tasks_changed.set()
        self._control.put_task(definition, lead.epoch)
        if self._registry.replace_task(definition, found[1], lead):
            logs.info(self._log, "a new version begins", task=name, version=version)

    def _act_on_store(
        self,
        decision: InitialiseTask | SealStore | SetActive | AddLanes | DropTask,
        leader: LeaderEpoch,
    ) -> None:
        store = self._store
        match decision:
            case InitialiseTask(task=task, epoch=epoch, start=start):
                if store.initialise(task, epoch, start):
                    logs.info(self._log, "task initialised", task=task, offsets=dict(start.offsets))
            case SealStore(epoch=epoch, run_id=run_id):
                if store.seal(epoch, leader, run_id):
                    logs.info(self._log, "store sealed", store_epoch=epoch)
            case SetActive(task=task, epoch=epoch, active=active):
                store.set_active(task, epoch, leader, active=active)
            case AddLanes(task=task, epoch=epoch, lanes=lanes):
                if store.add_lanes(task, epoch, leader, lanes):
                    logs.info(self._log, "new partitions", task=task, lanes=sorted(lanes))
            case DropTask(task=task, epoch=epoch, version=version):
                store.drop(task, epoch, leader, version)
            case _:
                assert_never(decision)


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


def _wall_ms() -> int:
    return int(time.time() * 1000)


def _deleted(task: TaskDefinition) -> bool:
    return task.state is TaskState.DELETED


def _waits_to_begin(definition: TaskDefinition, version: int, after: int) -> bool:
    """True if a version is the newest, and has yet to follow the one before: since the look it may
    have begun, and the task may have been deleted.
    """
    current, begun = definition.current, definition.begun
    is_the_newest = current.version == version and current.starts is None
    return is_the_newest and [one.version for one in begun[-1:]] == [after]
