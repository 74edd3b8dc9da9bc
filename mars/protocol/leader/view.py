"""What the leader sees, and what it may decide to change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from mars.core.definitions import TaskDefinition, TaskRun
from mars.core.plan import Stream
from mars.core.types import (
    Bucket,
    Lane,
    LeaderEpoch,
    MemberId,
    StoreEpoch,
    StreamName,
    TaskName,
    Topic,
)
from mars.protocol.balance.steering import Loads
from mars.protocol.ports import (
    Assignment,
    Assisted,
    Claim,
    ControlState,
    Head,
    Move,
    Progress,
    ProgressRecord,
    StoreIdentity,
    TaskStart,
)

# ----------------------------------------------------------------------------------- decisions


@dataclass(frozen=True, slots=True)
class PublishAssignment:
    """Write the assignment, guarded by the leader epoch; note its epochs in mars.control.

    `moves` are the buckets that change hands by it, `assisted` those whose assistants change.
    """

    assignment: Assignment
    reason: str
    moves: tuple[Move, ...] = ()
    assisted: tuple[Assisted, ...] = ()


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
    """Let a version begin: in the store, then in the definition with the offsets that it answers.

    `run_id` is of the server on which `after`, the version before, was seen to have come to where
    it has been. `behind_ms`: how far rows of `after` may lag behind the mark of their lane.
    `newest_ms`: no row that a record accounts for has an event time after it.
    """

    task: TaskName
    epoch: StoreEpoch
    run_id: str
    version: int
    after: int
    behind_ms: int
    newest_ms: int | None = None


@dataclass(frozen=True, slots=True)
class AddLanes:
    """Let a task read partitions that its topic has got since."""

    task: TaskName
    epoch: StoreEpoch
    lanes: Mapping[Lane, int]


@dataclass(frozen=True, slots=True)
class DropTask:
    """Unlink a deleted task's keys; `version` is its last one, so nothing of the next task goes."""

    task: TaskName
    epoch: StoreEpoch
    version: int


@dataclass(frozen=True, slots=True)
class EndCatchUp:
    """Leave a task's lanes to mappers again: nobody is there who could catch them up."""

    task: TaskName
    run: TaskRun


@dataclass(frozen=True, slots=True)
class FailTask:
    """The task cannot go on: set it to failed, unless it was resumed or made anew since."""

    task: TaskName
    run: TaskRun
    detail: str


@dataclass(frozen=True, slots=True)
class CopyDefinitions:
    """Repair the copies of definitions in mars.control, all in one act: after a loss they may be of
    a thousand tasks.
    """

    definitions: tuple[TaskDefinition, ...]


@dataclass(frozen=True, slots=True)
class CopyStream:
    """Repair the copy of a stream in mars.control."""

    stream: Stream


@dataclass(frozen=True, slots=True)
class DropStreamCopy:
    """Take the copy of a stream away that is there no more."""

    name: StreamName


Decision = (
    PublishAssignment
    | InitialiseTask
    | SealStore
    | SetActive
    | BeginVersion
    | AddLanes
    | DropTask
    | EndCatchUp
    | FailTask
    | CopyDefinitions
    | CopyStream
    | DropStreamCopy
)

# ---------------------------------------------------------------------------------------- view


@dataclass(frozen=True, slots=True)
class KnownProgress:
    """The newest records of `mars.progress`, and when Kafka got each of them.

    `written_ms` names those records of which that is known.
    """

    claims: Mapping[Bucket, Claim] = field(default_factory=dict)
    records: Mapping[tuple[TaskName, int, Bucket], Progress] = field(default_factory=dict)
    written_ms: Mapping[tuple[TaskName, int, Bucket], int] = field(default_factory=dict)

    def with_records(
        self, records: Iterable[ProgressRecord], times_ms: Iterable[int] = ()
    ) -> KnownProgress:
        """The same after further records, which were written at these times, if that matters.

        A former owner may claim in an older epoch after a newer one: it commits that claim before
        it finds out. The newer claim stands.
        """
        claims, newest, written_ms = dict(self.claims), dict(self.records), dict(self.written_ms)
        times = iter(times_ms)
        for record in records:
            time_ms = next(times, None)
            if isinstance(record, Claim):
                present = claims.get(record.bucket)
                if present is None or record.assignment_epoch >= present.assignment_epoch:
                    claims[record.bucket] = record
            else:
                key = record.task, record.version, record.bucket
                newest[key] = record
                written_ms |= {} if time_ms is None else {key: time_ms}
        return KnownProgress(claims, newest, written_ms)

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
    the definitions as they stand in mars.control, `copied_streams` the streams. `went_back`:
    buckets whose owner says, in the current assignment epoch, that the log contradicts what it
    read before. `partitions` has the number of partitions of each source topic, `topic_ids` the
    unique ids of those that exist.
    `bulk_alive`: there is a bulk process, or no task waits for one. `leaving` are reducers that
    want to stop once they own nothing. `partial_lost`: a tracker says that this life of the store
    has lost one.
    """

    leader_epoch: LeaderEpoch
    buckets: int
    reducers: frozenset[MemberId]
    assignment: Assignment | None
    floor: ControlState
    identity: StoreIdentity | None
    heads: Mapping[TaskName, Head | None]
    tasks: Mapping[TaskName, TaskDefinition]
    copied: Mapping[TaskName, TaskDefinition]
    progress: KnownProgress
    partitions: Mapping[Topic, int]
    went_back: frozenset[Bucket] = frozenset()
    topic_ids: Mapping[Topic, str] = field(default_factory=dict)
    partial_lost: bool = False
    bulk_alive: bool = True
    leaving: frozenset[MemberId] = frozenset()
    loads: Loads = field(default_factory=Loads)
    streams: Mapping[StreamName, Stream] = field(default_factory=dict)
    copied_streams: Mapping[StreamName, Stream] = field(default_factory=dict)
