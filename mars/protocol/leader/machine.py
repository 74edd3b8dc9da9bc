"""What the leader has to change, given everything it sees.

The leader looks (a `View`), decides with pure functions, acts, and looks again. Each decision is
safe to repeat, and to be carried out late, by a leader that stood still while others led: every
action is guarded where it takes effect, by the leader epoch and by what else it was decided on
(`docs/decisions/0034-every-decision-of-a-leader-is-guarded-where-it-takes-effect.md`).

The one recovery path, for every way in which the store can be lost or go back, also at first start:

    sentinel missing, of another run or another epoch, or a reducer says that the log went back,
    or a tracker that a partial is lost
      └▶ RAISE     publish E+1 and a new assignment epoch for every bucket
          └▶ wait  until every bucket's claim of its new epoch is in mars.progress: now all progress
              │    records are final
              └▶ INITIALISE  every task: offsets = lowest L, cuts = all M and S
                  └▶ SEAL    leave the sentinel: (E, run id)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from mars.core.definitions import TaskDefinition, TaskState
from mars.core.types import AssignmentEpoch, Bucket, MemberId, StoreEpoch, TaskName
from mars.protocol.balance.helpers import changes, still_there
from mars.protocol.balance.placement import ALL_AT_ONCE, Welcome, moved_at_once, place
from mars.protocol.balance.steering import Steering, SteeringLimits
from mars.protocol.leader.tasks import last_of_former, of_former_task, task_start, tend_task
from mars.protocol.leader.view import (
    CopyDefinitions,
    CopyStream,
    Decision,
    DropStreamCopy,
    DropTask,
    InitialiseTask,
    PublishAssignment,
    SealStore,
    View,
)
from mars.protocol.ports import Assignment, Balance, Head, Move, Owner, StoreIdentity


class LeaderMachine:
    """The leader's memory: which epoch it raised, and what it initialised in it.

    A new leader has an empty memory, and so raises the epoch of a store that is not sealed; so does
    a leader whose seal has vanished.
    """

    def __init__(self, limits: SteeringLimits | None = None) -> None:
        self._steering = Steering(limits or SteeringLimits())
        self._raised = StoreEpoch(0)
        self._raised_run_id = ""
        self._initialised: set[TaskName] = set()
        self._sealed = False
        self._filling: frozenset[MemberId] = frozenset()
        self._publishing: PublishAssignment | None = None

    def decide(self, view: View) -> list[Decision]:
        """What to change now. Act on all of it in order, then look again."""
        self._confirm(view)
        copies = _missing_copies(view)
        assisted = view.assignment.assistants if view.assignment else {}
        partitions = sum(view.partitions.values())
        self._steering.look(view.loads, view.buckets, partitions, assisted)
        if not view.reducers:
            return copies
        assignment = view.assignment
        reason = self._loss(view)
        if reason or assignment is None:
            return [*copies, self._raise(view, reason)]
        moves = self._follow_members(view, assignment)
        if moves is not None:
            return [*copies, moves]
        if view.identity is None:
            return copies
        if not _sealed(view.identity, assignment):
            return copies + self._recover(view, view.identity, assignment)
        return [*copies, *self._tend(view, assignment), *self._even_out(view, assignment)]

    def publishing(self, decision: PublishAssignment, now_s: float, wall_ms: int) -> None:
        """It is being published, at `now_s` of the view's clock. Whether it was, which may stay
        unknown to whoever did so, the next view shows.
        """
        self._steering.moving(decision.moves, now_s)
        moves = tuple(replace(move, at_ms=wall_ms) for move in decision.moves)
        assisted = tuple(replace(one, at_ms=wall_ms) for one in decision.assisted)
        self._publishing = replace(decision, moves=moves, assisted=assisted)

    def _confirm(self, view: View) -> None:
        """Tell of what was being published, if the view has it."""
        last, self._publishing = self._publishing, None
        if last is not None and view.assignment == last.assignment:
            self._steering.published(last.moves, last.assisted)

    def balance(self, view: View) -> Balance:
        """What this leader makes of the loads, for people."""
        present = view.assignment.assistants if view.assignment else {}
        return self._steering.balance(view.loads, present)

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
        if view.partial_lost:
            return f"a partial of store epoch {assignment.store_epoch} is lost"
        return self._store_loss(view, view.identity, assignment) if view.identity else ""

    def _store_loss(self, view: View, identity: StoreIdentity, assignment: Assignment) -> str:
        mine = (
            self._raised == assignment.store_epoch
            and self._raised_run_id == identity.run_id
            and not self._sealed
        )
        if not _sealed(identity, assignment) and not mine:
            return _other_store(identity, assignment)
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
            if head is not None and not gone and head.begun_on not in {"", head.run_id}:
                return f"task {name} lies on another server than the one on which it was begun"
            if head is not None and not gone and _lacks_version(definition, head):
                return f"the store does not know where the newest version of {name} begins"
        return ""

    def _raise(self, view: View, reason: str) -> Decision:
        store_epoch = StoreEpoch(_highest_store_epoch(view) + 1)
        before = _owners(view.assignment)
        highest = _highest_epoch(view)
        targets = self._place(view, before, ALL_AT_ONCE)
        self._raised = store_epoch
        self._raised_run_id = view.identity.run_id if view.identity else ""
        self._initialised, self._sealed = set(), False
        self._filling = frozenset()
        fresh = {
            bucket: Owner(member, AssignmentEpoch(highest + 1))
            for bucket, member in targets.items()
        }
        present = view.assignment.assistants if view.assignment else {}
        return PublishAssignment(
            Assignment(view.leader_epoch, store_epoch, fresh),
            reason,
            _moves(view, before, targets),
            changes(present, {}, lambda bucket: f"store epoch {store_epoch} begins"),
        )

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

    # ------------------------------------------------------------------------------------ moves

    def _place(
        self, view: View, before: Mapping[Bucket, MemberId], welcome: Welcome
    ) -> dict[Bucket, MemberId]:
        staying = view.reducers - view.leaving
        return place(
            view.buckets,
            before,
            staying or view.reducers,
            self._steering.bucket_use(),
            self._steering.capacities(view.loads),
            welcome,
        )

    def _follow_members(self, view: View, assignment: Assignment) -> Decision | None:
        """Give away what dead and leaving reducers have, and new ones their part; None: nothing."""
        before = _owners(assignment)
        targets = self._welcomed(view, assignment)
        helped = _assistants(view, assignment, targets) == assignment.assistants
        if targets == before and helped and assignment.leader_epoch == view.leader_epoch:
            return None
        moves = _moves(view, before, targets)
        moved = sorted(move.bucket for move in moves)
        reason = f"buckets {moved} move" if moved else "a new leader confirms the assignment"
        if not moved and not helped:
            reason = "assistants are gone"
        return _published(view, assignment, targets, reason, moves)

    def _welcomed(self, view: View, assignment: Assignment) -> dict[Bucket, MemberId]:
        """Whose the buckets are by who is there.

        A newcomer's part may be more than may move at once: then it takes more of it as soon as
        what it took works again.
        """
        before, working = _owners(assignment), view.loads.working()
        waiting = any(m in self._filling and b not in working for b, m in before.items())
        filling = frozenset() if waiting else self._filling
        welcome = self._steering.welcome(view.loads, filling, assignment.assistants)
        targets = self._place(view, before, welcome)
        takers = [m for b, m in targets.items() if b in working and m != before.get(b)]
        if len(takers) >= moved_at_once(view.buckets):
            self._filling |= frozenset(takers)
        elif not waiting:
            self._filling = frozenset()
        return targets

    def _even_out(self, view: View, assignment: Assignment) -> list[Decision]:
        """Moves because of load, else other assistants."""
        before, present = _owners(assignment), assignment.assistants
        moves = tuple(self._steering.moves(view.loads, before, present))
        if not moves:
            return self._assist(view, assignment)
        targets = before | {move.bucket: move.target for move in moves}
        reason = moves[0].reason + (f", and {len(moves) - 1} more" if len(moves) > 1 else "")
        return [_published(view, assignment, targets, reason, moves)]

    def _assist(self, view: View, assignment: Assignment) -> list[Decision]:
        present = assignment.assistants
        wanted = self._steering.assistants(view.loads, _owners(assignment), present)
        if wanted is None or wanted == present:
            return []
        given = replace(assignment, leader_epoch=view.leader_epoch, assistants=wanted)
        changed = changes(present, wanted, self._steering.why)
        return [PublishAssignment(given, changed[0].reason, assisted=changed)]

    # ---------------------------------------------------------------------------- daily business

    def _tend(self, view: View, assignment: Assignment) -> list[Decision]:
        decisions: list[Decision] = []
        for name, definition in view.tasks.items():
            head = view.heads.get(name)
            if definition.state is TaskState.DELETED or of_former_task(definition, head):
                epoch, last = assignment.store_epoch, last_of_former(definition)
                decisions += [DropTask(name, epoch, last)] if head is not None else []
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
    known = view.tasks.items()
    tasks = tuple(definition for name, definition in known if view.copied.get(name) != definition)
    streams = [
        CopyStream(stream)
        for name, stream in view.streams.items()
        if view.copied_streams.get(name) != stream
    ]
    gone = [DropStreamCopy(name) for name in view.copied_streams if name not in view.streams]
    copies = [CopyDefinitions(tasks)] if tasks else []
    return [*copies, *streams, *gone]


def _living(view: View) -> Iterator[tuple[TaskName, TaskDefinition]]:
    return (
        (name, definition)
        for name, definition in view.tasks.items()
        if definition.state is not TaskState.DELETED
    )


def _other_store(identity: StoreIdentity, assignment: Assignment) -> str:
    """What a store is that has not the seal of this epoch in this life of the server."""
    of = f"epoch {assignment.store_epoch}; run id {identity.run_id}"
    if identity.sealed_epoch is None:
        return f"Redis was started anew or emptied, it has nothing of {of}"
    if identity.sealed_epoch == assignment.store_epoch:
        return f"Redis was started again, or a replica took its place, with what it had of {of}"
    return f"Redis holds epoch {identity.sealed_epoch}, not {of}"


def _lacks_version(definition: TaskDefinition, head: Head) -> bool:
    """True where a version has begun that the store has not heard of.

    It begins there first, so the store has gone back, or an older release has begun the version.
    """
    former = of_former_task(definition, head)
    return not former and head.version < max((one.version for one in definition.begun), default=0)


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


def _owners(assignment: Assignment | None) -> dict[Bucket, MemberId]:
    if assignment is None:
        return {}
    return {bucket: owner.member for bucket, owner in assignment.owners.items()}


def _reassigned(
    view: View, assignment: Assignment, targets: Mapping[Bucket, MemberId]
) -> Assignment:
    """With a new epoch for each bucket that changes hands; the others keep epoch and assistants."""
    epoch = AssignmentEpoch(_highest_epoch(view) + 1)
    owners = assignment.owners
    return Assignment(
        view.leader_epoch,
        assignment.store_epoch,
        {
            bucket: owners[bucket]
            if bucket in owners and owners[bucket].member == member
            else Owner(member, epoch)
            for bucket, member in targets.items()
        },
        _assistants(view, assignment, targets),
    )


def _published(
    view: View,
    assignment: Assignment,
    targets: Mapping[Bucket, MemberId],
    reason: str,
    moves: tuple[Move, ...],
) -> PublishAssignment:
    """With the assistants that stay, and why others go."""
    given = _reassigned(view, assignment, targets)

    def why(bucket: Bucket) -> str:
        if targets.get(bucket) != assignment.owners[bucket].member:
            return f"bucket {bucket} moves to {targets.get(bucket)}"
        staying = given.assistants.get(bucket, ())
        gone = [member for member in assignment.assistants[bucket] if member not in staying]
        return f"{', '.join(gone)} goes"

    return PublishAssignment(
        given, reason, moves, changes(assignment.assistants, given.assistants, why)
    )


def _assistants(
    view: View, assignment: Assignment, targets: Mapping[Bucket, MemberId]
) -> dict[Bucket, tuple[MemberId, ...]]:
    """Those that stay."""
    staying = view.reducers - view.leaving
    return still_there(assignment.assistants, _owners(assignment), targets, staying)


def _moves(
    view: View, before: Mapping[Bucket, MemberId], targets: Mapping[Bucket, MemberId]
) -> tuple[Move, ...]:
    """What changes hands because of who is there, each with its reason."""
    return tuple(
        Move(bucket, source, target, _why(view, source, target))
        for bucket, target in sorted(targets.items())
        if (source := before.get(bucket)) != target
    )


def _why(view: View, source: MemberId | None, target: MemberId) -> str:
    if source is None:
        return "nobody owned it"
    if source not in view.reducers:
        return f"{source} is gone"
    return f"{source} is leaving" if source in view.leaving else f"{target} has come"
