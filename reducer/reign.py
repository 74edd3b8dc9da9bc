"""One reign of a leader: it begins with an empty memory, looks, decides and acts until it ends."""

from __future__ import annotations

import time
from typing import assert_never

from mars.core.definitions import TaskDefinition
from mars.core.types import LeaderEpoch, StoreEpoch
from mars.process.tasks import fail_task, set_catch_up
from mars.process.telemetry import incidents, logs
from mars.protocol.leader.machine import LeaderMachine
from mars.protocol.leader.tasks import begin_version
from mars.protocol.leader.view import (
    AddLanes,
    BeginVersion,
    CopyDefinitions,
    CopyStream,
    Decision,
    DropStreamCopy,
    DropTask,
    EndCatchUp,
    FailTask,
    InitialiseTask,
    PublishAssignment,
    SealStore,
    SetActive,
)
from mars.protocol.ports import Balance, ControlState, Leadership, put_copies
from reducer.lookout import Copies, KnownTasks, LeaderPorts, Lookout, wall_ms

FIRST_EPOCH = StoreEpoch(1)

MOVES_LOGGED = 10
"""Moves that are logged one by one: of a cluster that starts there may be thousands."""

_log = logs.logger("leader")


class ReignEnded(Exception):
    """What this reign remembers may be of another ZooKeeper: another reign is to begin."""


class LeaderReign:
    """The acts of one leader epoch, each guarded where it takes effect."""

    def __init__(self, ports: LeaderPorts, epoch: LeaderEpoch, known: KnownTasks) -> None:
        self.epoch = epoch
        self.balance: Balance | None = None
        """What it makes of the loads, for people."""
        self.at_rest = 0
        """How many lanes the heads of the last look had, if nothing was to be done."""
        self._ports = ports
        self._known = known
        self._machine = LeaderMachine(ports.limits)
        self._lookout = Lookout(ports, epoch, known)
        self._copies = Copies()
        self._floor: ControlState | None = None
        self._whole = False
        known.changed.set()

    def lead(self) -> None:
        """Look, decide and act once. Raises what its ports raise."""
        self.at_rest = 0
        floor = self._known_floor()
        if floor is None:
            return
        view = self._lookout.view(floor, self._copies)
        decisions = self._machine.decide(view)
        for decision in decisions:
            lead = self._ports.coordinator.leadership()
            if lead is None or lead.epoch != self.epoch:
                return  # no need to: nothing of what was decided would take effect
            self._act(decision, lead)
        self.balance = self._machine.balance(view)
        heads = (head for head in view.heads.values() if head is not None)
        self.at_rest = 0 if decisions else sum(len(head.offsets) for head in heads)

    # -------------------------------------------------------------------------------- restoring

    def _known_floor(self) -> ControlState | None:
        """What mars.control said when this reign began.

        None until ZooKeeper has all of that, which one that was lost has not: nothing is decided
        before, as a task that is only missing would be taken for none. What is brought back is what
        mars.control says once the loss is seen, and by a leadership that began before it was read:
        what a user does in between is in it, or in a ZooKeeper in which that leadership holds.
        """
        whole = self._ports.registry.whole()
        if self._whole and not whole:
            # Lost in the middle of a reign, perhaps with an epoch of the same number: forget it.
            raise ReignEnded
        lead = self._ports.coordinator.leadership()
        if self._floor is None or not whole:
            self._floor = self._read_control()
        self._whole = self._is_above(self._floor, whole=whole) and (
            whole or self._restored(self._floor, lead)
        )
        return self._floor if self._whole else None

    def _read_control(self) -> ControlState:
        """What mars.control says.

        A task that waits for a version to begin is copied anew before anything is done for it: one
        who led before may have let it begin, and copy that late. With a copy of this leader, who
        sees it wait, that does not count.
        """
        found = self._ports.control.read()
        known = found.tasks.items()
        tasks = {name: one for name, one in known if one.current.starts is not None}
        self._copies = Copies(tasks, dict(found.streams))
        return found

    def _is_above(self, floor: ControlState, *, whole: bool) -> bool:
        """True if nobody has led before in this epoch or above it; else another one is sought."""
        if floor.leader_epoch > self.epoch or (floor.leader_epoch == self.epoch and not whole):
            logs.warning(
                _log,
                "ZooKeeper has forgotten how high leader epochs were: they go on above Kafka's",
                leader_epoch=self.epoch,
                in_kafka=floor.leader_epoch,
            )
            self._ports.coordinator.outgrow(floor.leader_epoch)
            return False
        return True

    def _restored(self, floor: ControlState, lead: Leadership | None) -> bool:
        """Put back what is missing; False if another leader does, or ZooKeeper was lost again."""
        if lead is None or lead.epoch != self.epoch:
            return False
        registry = self._ports.registry
        self._ports.coordinator.buckets(self._ports.buckets)
        present = registry.streams()
        missing = [stream for name, stream in floor.streams.items() if name not in present]
        streams = [stream for stream in missing if registry.put_stream(stream, lead)]
        tasks = [task.name for task in floor.tasks.values() if registry.create_task(task, lead)]
        whole = registry.make_whole(lead)
        self._known.changed.set()
        if tasks or streams:
            logs.warning(
                _log,
                "ZooKeeper had lost everything: tasks and streams are back from mars.control",
                tasks=sorted(tasks),
                streams=sorted(stream.name for stream in streams),
            )
        return whole

    # ----------------------------------------------------------------------------------- acting

    def _act(self, decision: Decision, lead: Leadership) -> None:
        match decision:
            case CopyDefinitions(definitions=definitions):
                put_copies(self._ports.control, definitions, lead.epoch)
                self._copies.tasks |= {one.name: one for one in definitions}
            case PublishAssignment():
                self._publish(decision)
            case BeginVersion():
                self._begin_version(decision, lead)
            case CopyStream(stream=stream):
                self._ports.control.put_stream(stream)
                self._copies.streams[stream.name] = stream
            case DropStreamCopy(name=name):
                # Only whoever still has all the rest has deleted it: a loss since then is none.
                if name not in self._ports.registry.streams() and self._ports.registry.whole():
                    self._ports.control.delete_stream(name)
                    del self._copies.streams[name]
            case EndCatchUp(task=task, run=run):
                if set_catch_up(self._ports.registry, task, run, {}, lead):
                    logs.warning(_log, "no bulk process runs, mappers catch up instead", task=task)
            case FailTask(task=task, run=run, detail=detail):
                logs.error(_log, "a task failed", task=task, detail=detail)
                fail_task(self._ports.registry, task, run, detail, lead)
            case _:
                self._act_on_store(decision, lead.epoch)

    def _publish(self, decision: PublishAssignment) -> None:
        """Note the epochs in Kafka first: they must never be given twice, ZooKeeper lost or not."""
        assignment, reason = decision.assignment, decision.reason
        self._machine.publishing(decision, time.monotonic(), wall_ms())
        highest = max(owner.epoch for owner in assignment.owners.values())
        self._ports.control.put_epochs(assignment.leader_epoch, assignment.store_epoch, highest)
        epoch = assignment.store_epoch
        if self._ports.coordinator.publish(assignment):
            logs.info(_log, "assignment published", reason=reason, store_epoch=epoch)
            for move in decision.moves[:MOVES_LOGGED]:
                logs.info(
                    _log,
                    "a bucket moves",
                    bucket=move.bucket,
                    source=move.source,
                    target=move.target,
                    reason=move.reason,
                )
            # The first epoch of a namespace is its beginning, not a loss.
            if epoch > max(self._lookout.store_epoch, FIRST_EPOCH):
                self._ports.tell(incidents.rewound(epoch, reason))

    def _begin_version(self, decision: BeginVersion, lead: Leadership) -> None:
        """In the store, then the copy, then in ZooKeeper: each step holds what the next relies on.

        What the store has answered stays so in this life of it, whoever asks again. If that ends
        meanwhile nobody has relied on it, for ZooKeeper has not heard of it.
        """
        name, version = decision.task, decision.version
        found = self._ports.registry.task(name)
        if found is None or not _waits_to_begin(found[0], version, decision.after):
            return
        begun = self._ports.log.begin_version(
            name, decision.epoch, lead.epoch, decision.run_id, version, after=decision.after
        )
        if begun is None:
            return
        definition = begin_version(found[0], begun, decision.behind_ms, decision.newest_ms)
        # First the copy: rows are accounted by these starts as soon as ZooKeeper has them, and so
        # they must be the same should it lose them. If it does not get them the next look copies
        # what it has.
        self._copies.tasks.pop(name, None)
        self._known.changed.set()
        self._ports.control.put_task(definition, lead.epoch)
        if self._ports.registry.replace_task(definition, found[1], lead):
            logs.info(_log, "a new version begins", task=name, version=version)

    def _act_on_store(
        self,
        decision: InitialiseTask | SealStore | SetActive | AddLanes | DropTask,
        leader: LeaderEpoch,
    ) -> None:
        store = self._ports.log
        match decision:
            case InitialiseTask(task=task, epoch=epoch, start=start):
                if store.initialise(task, epoch, start):
                    logs.info(_log, "task initialised", task=task, offsets=dict(start.offsets))
            case SealStore(epoch=epoch, run_id=run_id):
                if store.seal(epoch, leader, run_id):
                    logs.info(_log, "store sealed", store_epoch=epoch)
            case SetActive(task=task, epoch=epoch, active=active):
                store.set_active(task, epoch, leader, active=active)
            case AddLanes(task=task, epoch=epoch, lanes=lanes):
                if store.add_lanes(task, epoch, leader, lanes):
                    logs.info(_log, "new partitions", task=task, lanes=sorted(lanes))
            case DropTask(task=task, epoch=epoch, version=version):
                store.drop(task, epoch, leader, version)
            case _:
                assert_never(decision)


def _waits_to_begin(definition: TaskDefinition, version: int, after: int) -> bool:
    """True if a version is the newest, and has yet to follow the one before: since the look it may
    have begun, and the task may have been deleted.
    """
    current, begun = definition.current, definition.begun
    is_the_newest = current.version == version and current.starts is None
    return is_the_newest and [one.version for one in begun[-1:]] == [after]
