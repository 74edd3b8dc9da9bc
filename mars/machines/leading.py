"""What the leader has to change, given everything it sees.

The leader looks (a `View`), decides with pure functions, acts, and looks again. Each decision is
safe to repeat, because every action is guarded where it takes effect: the assignment by the leader
epoch, the store by its epoch, definitions by the registry's version.

The one recovery path, for every way in which the store can be lost or go back, also at first start:

    sentinel missing, of another run or another epoch, or a reducer says that the log went back
      └▶ RAISE     publish E+1 and a new assignment epoch for every bucket
          └▶ wait  until every bucket's claim of its new epoch is in mars.progress: now all progress
              │    records are final
              └▶ INITIALISE  every task: offsets = lowest L, cuts = all M and S
                  └▶ SEAL    leave the sentinel: (E, run id)
"""

from __future__ import annotations

from collections.abc import Iterator

from mars.definitions import TaskDefinition, TaskState
from mars.machines.balancing import balance
from mars.machines.leading_tasks import of_former_task, task_start, tend_task
from mars.machines.leading_view import (
    CopyDefinition,
    CopyStream,
    Decision,
    DropStreamCopy,
    DropTask,
    InitialiseTask,
    PublishAssignment,
    SealStore,
    View,
)
from mars.ports import Assignment, Owner, StoreIdentity
from mars.types import AssignmentEpoch, StoreEpoch, TaskName


class Leading:
    """The leader's memory: which epoch it raised, and what it initialised in it.

    A new leader has an empty memory, and so raises the epoch of a store that is not sealed; so does
    a leader whose seal has vanished.
    """

    def __init__(self) -> None:
        self._raised = StoreEpoch(0)
        self._raised_run_id = ""
        self._initialised: set[TaskName] = set()
        self._sealed = False

    def decide(self, view: View) -> list[Decision]:
        """What to change now. Act on all of it in order, then look again."""
        copies = _missing_copies(view)
        if not view.reducers:
            return copies
        assignment = view.assignment
        reason = self._loss(view)
        if reason or assignment is None:
            return [*copies, self._raise(view, reason)]
        moves = _rebalance(view, assignment)
        if moves is not None:
            return [*copies, moves]
        if view.identity is None:
            return copies
        if not _sealed(view.identity, assignment):
            return copies + self._recover(view, view.identity, assignment)
        return copies + self._tend(view, assignment)

    # -------------------------------------------------------------------------------- recovery

    def _loss(self, view: View) -> str:
        """Why the store's epoch must be raised, or an empty text."""
        assignment = view.assignment
        if assignment is None:
            return "first assignment"
        if assignment.store_epoch < view.floor.store_epoch:
            return "the assignment is older than mars.control"
        if view.went_back:
            return f"the log went back in buckets {sorted(view.went_back)}"
        return self._store_loss(view, view.identity, assignment) if view.identity else ""

    def _store_loss(self, view: View, identity: StoreIdentity, assignment: Assignment) -> str:
        mine = (
            self._raised == assignment.store_epoch
            and self._raised_run_id == identity.run_id
            and not self._sealed
        )
        if not _sealed(identity, assignment) and not mine:
            return f"store {identity.run_id} is not sealed for epoch {assignment.store_epoch}"
        for name, head in view.heads.items():
            definition = view.tasks.get(name)
            if definition is None or definition.state is TaskState.DELETED:
                continue
            gone = head is None or head.epoch < assignment.store_epoch
            begun_before = name in self._initialised or (
                _sealed(identity, assignment) and view.progress.knows(definition)
            )
            if gone and begun_before:
                return f"task {name} is gone from the store"
        return ""

    def _raise(self, view: View, reason: str) -> Decision:
        store_epoch = StoreEpoch(_highest_store_epoch(view) + 1)
        owners = view.assignment.owners if view.assignment else {}
        highest = _highest_epoch(view)
        targets = balance(view.buckets, {b: o.member for b, o in owners.items()}, view.reducers)
        self._raised = store_epoch
        self._raised_run_id = view.identity.run_id if view.identity else ""
        self._initialised, self._sealed = set(), False
        fresh = {
            bucket: Owner(member, AssignmentEpoch(highest + 1))
            for bucket, member in targets.items()
        }
        return PublishAssignment(Assignment(view.leader_epoch, store_epoch, fresh), reason)

    def _recover(
        self, view: View, identity: StoreIdentity, assignment: Assignment
    ) -> list[Decision]:
        """INITIALISE and SEAL, once all claims are there."""
        if not self._all_claimed(view, assignment):
            return []
        starts = [
            InitialiseTask(name, assignment.store_epoch, task_start(definition, view))
            for name, definition in _living(view)
            if definition.begun
        ]
        self._initialised |= {start.task for start in starts}
        self._sealed = True
        return [*starts, SealStore(assignment.store_epoch, identity.run_id)]

    @staticmethod
    def _all_claimed(view: View, assignment: Assignment) -> bool:
        for bucket, owner in assignment.owners.items():
            claim = view.progress.claims.get(bucket)
            if claim is None or claim.assignment_epoch < owner.epoch:
                return False
            if claim.store_epoch < assignment.store_epoch:
                return False
        return True

    # ---------------------------------------------------------------------------- daily business

    def _tend(self, view: View, assignment: Assignment) -> list[Decision]:
        decisions: list[Decision] = []
        for name, definition in view.tasks.items():
            head = view.heads.get(name)
            if definition.state is TaskState.DELETED or of_former_task(definition, head):
                decisions += [DropTask(name)] if head is not None else []
                self._initialised.discard(name)
            elif head is None or head.epoch < assignment.store_epoch:
                decisions += self._begin(view, definition, assignment)
            else:
                self._initialised.add(name)
                decisions += tend_task(view, definition, head)
        return decisions

    def _begin(
        self, view: View, definition: TaskDefinition, assignment: Assignment
    ) -> list[Decision]:
        """A new task: nothing was ever committed of it."""
        if not definition.begun or definition.name not in view.heads:
            return []
        self._initialised.add(definition.name)
        start = task_start(definition, view)
        return [InitialiseTask(definition.name, assignment.store_epoch, start)]


# --------------------------------------------------------------------------------------- parts


def _missing_copies(view: View) -> list[Decision]:
    tasks = [
        CopyDefinition(definition)
        for name, definition in view.tasks.items()
        if view.copied.get(name) != definition
    ]
    streams = [
        CopyStream(stream)
        for name, stream in view.streams.items()
        if view.copied_streams.get(name) != stream
    ]
    gone = [DropStreamCopy(name) for name in view.copied_streams if name not in view.streams]
    return [*tasks, *streams, *gone]


def _living(view: View) -> Iterator[tuple[TaskName, TaskDefinition]]:
    return (
        (name, definition)
        for name, definition in view.tasks.items()
        if definition.state is not TaskState.DELETED
    )


def _sealed(identity: StoreIdentity, assignment: Assignment) -> bool:
    return (
        identity.sealed_run_id == identity.run_id
        and identity.sealed_epoch == assignment.store_epoch
    )


def _highest_store_epoch(view: View) -> int:
    """The highest E that anything knows of: it must never be given twice."""
    known = [view.floor.store_epoch, *(head.epoch for head in view.heads.values() if head)]
    known += [view.assignment.store_epoch] if view.assignment else []
    known += [claim.store_epoch for claim in view.progress.claims.values()]
    if view.identity is not None and view.identity.sealed_epoch is not None:
        known.append(view.identity.sealed_epoch)
    return max(known)


def _highest_epoch(view: View) -> int:
    known = [view.floor.assignment_epoch]
    known += [owner.epoch for owner in view.assignment.owners.values()] if view.assignment else []
    known += [claim.assignment_epoch for claim in view.progress.claims.values()]
    return max(known)


def _rebalance(view: View, assignment: Assignment) -> Decision | None:
    """Give the buckets of dead reducers away, and spread them evenly; None: nothing to move."""
    current = {bucket: owner.member for bucket, owner in assignment.owners.items()}
    targets = balance(view.buckets, current, view.reducers)
    same_leader = assignment.leader_epoch == view.leader_epoch
    if targets == current and same_leader:
        return None
    highest = _highest_epoch(view)
    owners = {
        bucket: assignment.owners[bucket]
        if current.get(bucket) == member
        else Owner(member, AssignmentEpoch(highest + 1))
        for bucket, member in targets.items()
    }
    moved = sorted(bucket for bucket, member in targets.items() if current.get(bucket) != member)
    reason = f"buckets {moved} move" if moved else "a new leader confirms the assignment"
    return PublishAssignment(Assignment(view.leader_epoch, assignment.store_epoch, owners), reason)
