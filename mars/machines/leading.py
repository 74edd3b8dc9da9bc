"""What the leader has to change, given everything it sees.

The leader looks (a `View`), decides with pure functions, acts, and looks again. Each decision is
safe to repeat, because every action is guarded where it takes effect: the assignment by the leader
epoch, the store by its epoch, definitions by the registry's version.

The one recovery path, for every way in which the store can be lost or go back, also at first start:

    sentinel missing, of another run or another epoch, or a reducer says that the log went back
      └▶ RAISE     publish E+1 and a new assignment epoch for every bucket
          └▶ wait  until every bucket's claim of its new epoch is in mars.progress: now all progress
              │    records are final
              └▶ INITIALISE  every task: offsets = lowest L, cuts = all M
                  └▶ SEAL    leave the sentinel: (E, run id)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from mars.definitions import TaskDefinition, TaskState, TaskVersion
from mars.machines.balancing import balance
from mars.plan import Plan
from mars.ports import (
    Assignment,
    Claim,
    ControlState,
    Head,
    Owner,
    Progress,
    ProgressRecord,
    StoreIdentity,
    TaskStart,
)
from mars.types import (
    AssignmentEpoch,
    Bucket,
    Lane,
    LeaderEpoch,
    MemberId,
    StoreEpoch,
    TaskName,
    Topic,
    live_lane,
)

# ----------------------------------------------------------------------------------- decisions


@dataclass(frozen=True, slots=True)
class PublishAssignment:
    """Write the assignment, guarded by the leader epoch; note its epochs in mars.control."""

    assignment: Assignment
    reason: str


@dataclass(frozen=True, slots=True)
class InitialiseTask:
    """Begin a task's life in the store."""

    task: TaskName
    epoch: StoreEpoch
    start: TaskStart


@dataclass(frozen=True, slots=True)
class SealStore:
    """Leave the sentinel: all tasks of this store are of this epoch."""

    epoch: StoreEpoch
    run_id: str


@dataclass(frozen=True, slots=True)
class SetActive:
    """Pause or resume a task in the store."""

    task: TaskName
    epoch: StoreEpoch
    active: bool


@dataclass(frozen=True, slots=True)
class BeginVersion:
    """Write a definition in which the newest version has begun, and copy it to mars.control."""

    definition: TaskDefinition


@dataclass(frozen=True, slots=True)
class SwitchVersion:
    """Make a version the current one in the store."""

    task: TaskName
    epoch: StoreEpoch
    version: int
    bounds: Mapping[Lane, int]


@dataclass(frozen=True, slots=True)
class AddLanes:
    """Let a task read partitions that its topic has got since."""

    task: TaskName
    epoch: StoreEpoch
    lanes: Mapping[Lane, int]


@dataclass(frozen=True, slots=True)
class DropTask:
    """Unlink a deleted task's keys."""

    task: TaskName


@dataclass(frozen=True, slots=True)
class CopyDefinition:
    """Repair the copy of a definition in mars.control."""

    definition: TaskDefinition


Decision = (
    PublishAssignment
    | InitialiseTask
    | SealStore
    | SetActive
    | BeginVersion
    | SwitchVersion
    | AddLanes
    | DropTask
    | CopyDefinition
)

# ---------------------------------------------------------------------------------------- view


@dataclass(frozen=True, slots=True)
class KnownProgress:
    """The newest records of `mars.progress`."""

    claims: Mapping[Bucket, Claim] = field(default_factory=dict)
    records: Mapping[tuple[TaskName, int, Bucket], Progress] = field(default_factory=dict)

    def with_records(self, records: Iterable[ProgressRecord]) -> KnownProgress:
        """The same after further records.

        A former owner may claim in an older epoch after a newer one: it commits that claim before
        it finds out. The newer claim stands.
        """
        claims, newest = dict(self.claims), dict(self.records)
        for record in records:
            if isinstance(record, Claim):
                present = claims.get(record.bucket)
                if present is None or record.assignment_epoch >= present.assignment_epoch:
                    claims[record.bucket] = record
            else:
                newest[record.task, record.version, record.bucket] = record
        return KnownProgress(claims, newest)

    def knows(self, definition: TaskDefinition) -> bool:
        """True if any bucket has committed progress of one of the definition's versions."""
        versions = {version.version for version in definition.versions}
        return any(
            record.task == definition.name and record.version in versions and not record.deleted
            for record in self.records.values()
        )


@dataclass(frozen=True, slots=True)
class View:
    """Everything the leader sees at one moment.

    `floor` are the highest epochs that mars.control knows. `identity` is None while the store does
    not answer; then `heads` is empty. `progress` is as of after the heads were read. `copied` are
    the definitions as they stand in mars.control. `went_back`: buckets whose owner says, in the
    current assignment epoch, that the log contradicts what it read before. `plans` has the newest
    begun version's plan of each task, `partitions` the number of partitions of each source topic.
    """

    leader_epoch: LeaderEpoch
    buckets: int
    reducers: frozenset[MemberId]
    assignment: Assignment | None
    floor: ControlState
    identity: StoreIdentity | None
    heads: Mapping[TaskName, Head | None]
    tasks: Mapping[TaskName, TaskDefinition]
    plans: Mapping[TaskName, Plan]
    copied: Mapping[TaskName, TaskDefinition]
    progress: KnownProgress
    partitions: Mapping[Topic, int]
    went_back: frozenset[Bucket] = frozenset()


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
            if definition.state is TaskState.DELETED or _of_former_task(definition, head):
                decisions += [DropTask(name)] if head is not None else []
                self._initialised.discard(name)
            elif head is None or head.epoch < assignment.store_epoch:
                decisions += self._begin(view, definition, assignment)
            else:
                self._initialised.add(name)
                decisions += _tend_task(view, definition, head)
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
    return [
        CopyDefinition(definition)
        for name, definition in view.tasks.items()
        if view.copied.get(name) != definition
    ]


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


def _of_former_task(definition: TaskDefinition, head: Head | None) -> bool:
    """True if what the store holds is of a deleted task that bore the name before."""
    return head is not None and head.version < definition.first_version


def _tend_task(view: View, definition: TaskDefinition, head: Head) -> list[Decision]:
    """Make the store agree with the definition of one task."""
    name, epoch = definition.name, head.epoch
    if definition.current.starts is None:
        return _towards_new_version(view, definition, head)
    if head.version < definition.current.version:
        return [SwitchVersion(name, epoch, definition.current.version, definition.current.starts)]
    wanted = definition.state is TaskState.RUNNING
    decisions: list[Decision] = []
    if head.active is not wanted:
        decisions.append(SetActive(name, epoch, active=wanted))
    known = view.partitions.get(Topic(definition.current.stream.topic), 0)
    lanes = {live_lane(number): 0 for number in range(known)}
    missing = {lane: 0 for lane in lanes if lane not in head.offsets}
    if missing:
        decisions.append(AddLanes(name, epoch, missing))
    return decisions


def _towards_new_version(view: View, definition: TaskDefinition, head: Head) -> list[Decision]:
    """Let the version before come to where it has been, stop it, then let the new one begin.

    After a loss of the store a task goes on from L. The rows between L and M are accounted to the
    version before, which builds its open panes from them again: they must not become rows of the
    new one.
    """
    name, epoch = definition.name, head.epoch
    wanted = definition.state is TaskState.RUNNING
    if not _caught_up(view, definition, head):
        return [SetActive(name, epoch, active=wanted)] if head.active is not wanted else []
    if head.active:
        return [SetActive(name, epoch, active=False)]
    return [BeginVersion(_begin_version(definition, head, view.plans[name]))]


def _caught_up(view: View, definition: TaskDefinition, head: Head) -> bool:
    """True if the store's offsets have reached what every bucket has accounted, and the last start.

    A version never begins before the one before it does.
    """
    reached: list[Mapping[Lane, int]] = []
    for version in definition.begun:
        reached.append(version.starts or {})
        for bucket in range(view.buckets):
            record = view.progress.records.get((definition.name, version.version, Bucket(bucket)))
            reached += [record.merged] if record is not None else []
    return all(
        head.offsets.get(lane, 0) >= offset for each in reached for lane, offset in each.items()
    )


def _begin_version(definition: TaskDefinition, head: Head, plan: Plan) -> TaskDefinition:
    """The newest version begins where the store stands now.

    Rows below these offsets belong to the version before. A window of the new version may lack rows
    that went to the old one if it begins at or before the highest mark; a window of the old one may
    lack rows if it ends after what every lane has passed by the delay.
    """
    marks = head.marks_ms
    newest = max(marks.values()) + 1 if marks else None
    complete = all(lane in marks for lane in head.offsets) and bool(marks)
    passed = min(marks.values()) - plan.options.delay_ms if complete else None
    old, new = definition.versions[-2], definition.versions[-1]
    until = passed if passed is not None else _LONG_AGO_MS
    old = replace(old, complete_until_ms=until)
    starts = dict(head.offsets)
    began = max(
        (value for value in (newest, old.complete_from_ms) if value is not None), default=None
    )
    new = replace(new, starts=starts, complete_from_ms=began)
    return replace(definition, versions=(*definition.versions[:-2], old, new))


_LONG_AGO_MS = -(2**62)
"""Before every window: a version that ends before any mark has no complete window."""


def task_start(definition: TaskDefinition, view: View) -> TaskStart:
    """Where a task goes on in a new life of the store: offsets = lowest L, cuts = all M."""
    lanes = _lanes(definition, view)
    low: dict[Lane, int] = {}
    cuts: dict[Lane, set[int]] = {lane: set() for lane in lanes}
    versions = definition.begun
    for position, version in enumerate(versions):
        newer = versions[position + 1] if position + 1 < len(versions) else None
        for bucket in range(view.buckets):
            record = view.progress.records.get((definition.name, version.version, Bucket(bucket)))
            if record is not None and newer is not None and _done(record, newer):
                continue
            needed, merged = _positions(record, version, lanes)
            for lane in lanes:
                low[lane] = min(needed[lane], low.get(lane, needed[lane]))
                cuts[lane] |= {merged[lane], (version.starts or {}).get(lane, 0)}
    return TaskStart(
        version=versions[-1].version,
        active=definition.state is TaskState.RUNNING and definition.current.starts is not None,
        offsets=low,
        bounds=versions[-1].starts or {},
        cuts={lane: tuple(sorted(c for c in cuts[lane] if c > low[lane])) for lane in lanes},
    )


def _lanes(definition: TaskDefinition, view: View) -> set[Lane]:
    lanes = {lane for version in definition.begun for lane in version.starts or {}}
    for (name, _version, _bucket), record in view.progress.records.items():
        if name == definition.name:
            lanes |= set(record.merged)
    count = view.partitions.get(Topic(definition.current.stream.topic), 0)
    return lanes | {live_lane(number) for number in range(count)}


def _done(record: Progress, newer: TaskVersion) -> bool:
    """True if a bucket has emitted everything of an older version."""
    ends = newer.starts or {}
    return record.ledger.open == 0 and all(
        record.merged.get(lane, 0) >= end for lane, end in ends.items()
    )


def _positions(
    record: Progress | None, version: TaskVersion, lanes: set[Lane]
) -> tuple[dict[Lane, int], dict[Lane, int]]:
    starts = {lane: (version.starts or {}).get(lane, 0) for lane in lanes}
    if record is None:
        return starts, starts
    needed = {lane: record.needed.get(lane, starts[lane]) for lane in lanes}
    merged = {lane: record.merged.get(lane, starts[lane]) for lane in lanes}
    return needed, merged
