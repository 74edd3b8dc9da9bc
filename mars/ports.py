"""What the machines need from outside, as Protocols; `mars.adapters` has the real ones and a twin
of each in memory.

Every method may raise `Unavailable` (the server does not answer; a write may still have taken
effect) and nothing else, unless its docstring says so. Calls block, for at most the time-outs that
the adapter states.

    SourceReader   Kafka topics of the users, read by mappers
    PartialLog     Redis: offsets, marks, SEQ and the partial logs
    ResultSink     Kafka transactions of the reducers: results, dead letters, progress
    ProgressLog    the topic `mars.progress`, read
    ResultTail     output topics, read for people
    DeadLetters    the topic `mars.dead`, read for people
    ControlLog     the topic `mars.control`
    TopicAdmin     topics, partitions and offsets
    Registry       ZooKeeper: streams, tasks
    Coordinator    ZooKeeper: members, election, assignment
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from mars.definitions import TaskDefinition
from mars.plan import Stream
from mars.types import (
    AssignmentEpoch,
    Bucket,
    Entry,
    Lane,
    LeaderEpoch,
    Mapped,
    MemberId,
    Records,
    Sequence64,
    StoreEpoch,
    StreamName,
    TaskName,
    Topic,
)

# --------------------------------------------------------------------------------- source


@dataclass(frozen=True, slots=True)
class Assigned:
    """Partitions that this member of the group now reads; it must seek before records come."""

    partitions: tuple[tuple[Topic, int], ...]


@dataclass(frozen=True, slots=True)
class Revoked:
    """Partitions that another member may read from now on."""

    partitions: tuple[tuple[Topic, int], ...]


@dataclass(frozen=True, slots=True)
class Fetched:
    """Records of one partition; `records.first` is where the last ones (or the seek) ended."""

    topic: Topic
    records: Records


@dataclass(frozen=True, slots=True)
class EndReached:
    """The broker confirmed that nothing committed lies at or after `offset` at this moment."""

    topic: Topic
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class OffsetGone:
    """The sought offset does not exist in Kafka any more; `available` is the lowest that does."""

    topic: Topic
    partition: int
    offset: int
    available: int


SourceEvent = Assigned | Revoked | Fetched | EndReached | OffsetGone


class SourceReader(Protocol):
    """Reads partitions, either as a member of a consumer group or those it is told to.

    Committed rows only (`read_committed`). A partition delivers nothing before its first `seek`.
    """

    def subscribe(self, topics: Sequence[Topic]) -> None:
        """Read these topics as a group member; `Assigned` and `Revoked` come out of `poll`."""

    def seek(self, topic: Topic, partition: int, offset: int) -> None:
        """Go on from `offset`; a reader outside a group starts to read the partition by it."""

    def drop(self, topic: Topic, partition: int) -> None:
        """Stop to read a partition (a reader outside a group only)."""

    def pause(self, topic: Topic, partition: int) -> None:
        """Deliver no more records of a partition; membership and heartbeats go on."""

    def resume(self, topic: Topic, partition: int, offset: int) -> None:
        """Deliver records of a paused partition again, from `offset`."""

    def poll(self, records_max: int, timeout_s: float) -> list[SourceEvent]:
        """Wait until there is something, at most `timeout_s`; a topic comes in offset order."""

    def behind(self) -> int:
        """How many messages are known to lie ahead, over all partitions, without asking anybody."""

    def confirm_end(self, topic: Topic, partition: int, offset: int) -> bool:
        """Ask the broker whether nothing committed lies at or after `offset`."""

    def hint(self, positions: Mapping[tuple[Topic, int], int]) -> None:
        """Commit group offsets, best effort: a lag figure for other tools, never read back."""

    def close(self) -> None:
        """Leave the group and free everything."""


# ------------------------------------------------------------------------------ partial log


@dataclass(frozen=True, slots=True)
class Applied:
    """The batch is in the log under `seq`."""

    seq: Sequence64


@dataclass(frozen=True, slots=True)
class Stale:
    """The task's next offset of `lane` is `current`, not the batch's first."""

    lane: Lane
    current: int


@dataclass(frozen=True, slots=True)
class NoTask:
    """The store knows no such task (yet, any more, or since it was lost)."""


@dataclass(frozen=True, slots=True)
class WrongEpoch:
    """The store lives in another epoch than the caller believes."""

    current: StoreEpoch


@dataclass(frozen=True, slots=True)
class WrongVersion:
    """These offsets belong to another version of the task; `current` is the newest."""

    current: int


@dataclass(frozen=True, slots=True)
class TaskPaused:
    """The task takes no rows at the moment."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The batch straddles `offset` of `lane`: send what lies before it by itself."""

    lane: Lane
    offset: int


@dataclass(frozen=True, slots=True)
class Backpressure:
    """The task's log is over its budget and the lane does not hold the watermark."""


AppendOutcome = (
    Applied | Stale | NoTask | WrongEpoch | WrongVersion | TaskPaused | Cut | Backpressure
)


@dataclass(frozen=True, slots=True)
class Head:
    """One consistent look at a task in the store.

    `marks_ms` holds lanes that have one. `idle` are the lanes whose idle lease has not expired.
    `now_ms` is the store's clock. `log_bytes` is the size of the task's logs.
    """

    epoch: StoreEpoch
    version: int
    active: bool
    offsets: Mapping[Lane, int]
    marks_ms: Mapping[Lane, int]
    idle: frozenset[Lane]
    seq: Sequence64
    now_ms: int
    log_bytes: int


@dataclass(frozen=True, slots=True)
class LogSlice:
    """What was read of one bucket's log: `base` (merged entries, R9), then entries in SEQ order.

    `base` is given only to a reader that starts from nothing (`after == 0`); its `seq` is that of
    the last entry merged into it.
    """

    base: Entry | None
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """Entries `after < seq <= upto` of one bucket's log, and the base where `after` is 0."""

    task: TaskName
    bucket: Bucket
    after: Sequence64
    upto: Sequence64


@dataclass(frozen=True, slots=True)
class TaskStart:
    """How a task begins a life in the store.

    `bounds`: the first offset per lane of the current version. `cuts`: offsets that no batch may
    straddle (merged-through offsets of all buckets, starts of versions).
    """

    version: int
    active: bool
    offsets: Mapping[Lane, int]
    bounds: Mapping[Lane, int]
    cuts: Mapping[Lane, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class StoreIdentity:
    """Which store answers: the server's run id, and what the last recovery left in it."""

    run_id: str
    sealed_run_id: str | None
    sealed_epoch: StoreEpoch | None


class PartialLog(Protocol):
    """The scratchpad: what the tasks have seen, and the partials not yet emitted.

    Writes are never retried by the adapter. Every write is guarded by the store epoch; a refused
    write changes nothing.
    """

    def identity(self) -> StoreIdentity: ...

    def seal(self, epoch: StoreEpoch, run_id: str) -> None:
        """Leave the sentinel that says: all tasks of this store are of `epoch`."""

    def append(
        self, task: TaskName, epoch: StoreEpoch, version: int, mapped: Mapped
    ) -> AppendOutcome:
        """M3: compare-and-set all ranges, number, store the partials, set the marks."""

    def renew_idle(self, task: TaskName, epoch: StoreEpoch, lane: Lane, offset: int) -> bool:
        """Lease the lane as idle for 3 s, if its next offset is still `offset`; else False."""

    def head(self, tasks: Sequence[TaskName]) -> dict[TaskName, Head | None]:
        """One look per task; None where the store does not know it."""

    def read(self, task: TaskName, bucket: Bucket, after: Sequence64, upto: Sequence64) -> LogSlice:
        """The entries with `after < seq <= upto`, and the base where `after` is 0.

        Raises CorruptEntry for an entry that cannot be read.
        """

    def read_many(self, requests: Sequence[ReadRequest]) -> list[LogSlice]:
        """Several reads at once, answered in the order of the requests."""

    def trim(
        self, task: TaskName, epoch: StoreEpoch, bucket: Bucket, seqs: Sequence[Sequence64]
    ) -> bool:
        """R9: delete these entries; False if the epoch is another."""

    def compact(self, task: TaskName, epoch: StoreEpoch, bucket: Bucket, base: Entry) -> bool:
        """R9: put `base` in place of all entries up to `base.seq` (and of the older base).

        A base without rows stands for entries that nobody needs. False if the epoch is another,
        or if the base that is there has a higher `seq`: the caller is a former owner.
        """

    def initialise(self, task: TaskName, epoch: StoreEpoch, start: TaskStart) -> bool:
        """Begin a life: unlink all keys of the task and set them anew.

        Nothing happens, and the answer is False, where the task already is of this epoch or of a
        later one.
        """

    def set_active(self, task: TaskName, epoch: StoreEpoch, *, active: bool) -> bool:
        """Pause or resume; a resume clears the idle leases. False if epoch or task is missing."""

    def switch_version(
        self, task: TaskName, epoch: StoreEpoch, version: int, bounds: Mapping[Lane, int]
    ) -> bool:
        """Make `version` the current one from these offsets on, and the task active again."""

    def add_lanes(self, task: TaskName, epoch: StoreEpoch, lanes: Mapping[Lane, int]) -> bool:
        """Add lanes at these offsets where the task has none of that name."""

    def drop(self, task: TaskName) -> None:
        """Unlink all keys of a deleted task."""

    def listen(self, tasks: Sequence[TaskName]) -> None:
        """Hear the doorbells of these tasks from now on."""

    def wait(self, timeout_s: float) -> bool:
        """Wait for a doorbell; True if one rang. Best effort: callers poll besides."""


# ---------------------------------------------------------------------- results and progress


@dataclass(frozen=True, slots=True)
class Ledger:
    """Where rows went. read = counted + filtered + bad + future + late; counted = emitted + open.

    `late_partly` rows are among the counted: they missed some of their windows.
    """

    read: int = 0
    filtered: int = 0
    bad: int = 0
    future: int = 0
    late: int = 0
    counted: int = 0
    emitted: int = 0
    late_partly: int = 0

    @property
    def open(self) -> int:
        """Counted rows of which some window is still to be emitted."""
        return self.counted - self.emitted


@dataclass(frozen=True, slots=True)
class Emission:
    """Results that a transaction wrote to one partition: between two offsets, inclusive.

    `checksum` is the sum modulo 2**64 of xxh3_64 over the values; other buckets' rows may lie in
    between, so a reader selects by the headers `mars-bucket` and `mars-emit`.
    """

    topic: Topic
    partition: int
    emit: int
    first: int
    last: int
    count: int
    checksum: int


@dataclass(frozen=True, slots=True)
class Progress:
    """What a bucket of a task version has emitted: the record of truth (R3, R7).

    `closed_ms` (C): windows ending at or before it are closed; None: none yet. `merged` (M): rows
    below these offsets are accounted. `needed` (L): rows below these are never read again.
    `watermark_ms` is that of the commit, for people. `deleted`: the task is gone.
    """

    task: TaskName
    version: int
    bucket: Bucket
    assignment_epoch: AssignmentEpoch
    store_epoch: StoreEpoch
    emit: int
    closed_ms: int | None
    merged: Mapping[Lane, int]
    needed: Mapping[Lane, int]
    ledger: Ledger
    watermark_ms: int | None = None
    emission: Emission | None = None
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class Claim:
    """A reducer says that it owns a bucket (R3)."""

    bucket: Bucket
    assignment_epoch: AssignmentEpoch
    store_epoch: StoreEpoch
    nonce: str
    member: MemberId


ProgressRecord = Progress | Claim


@dataclass(frozen=True, slots=True)
class ProgressSlice:
    """Committed records of one bucket's partition, and the offset at which to read on."""

    records: tuple[ProgressRecord, ...]
    next: int


class ProgressLog(Protocol):
    """The topic `mars.progress`: one partition per bucket."""

    def read(self, bucket: Bucket, first: int) -> ProgressSlice:
        """Everything committed from `first` to the partition's end at the time of the call."""


@dataclass(frozen=True, slots=True)
class ResultBatch:
    """Rows of one task version for one output partition: `keys[i]` goes with `values[i]`.

    `headers` are the same for all rows.
    """

    task: TaskName
    version: int
    topic: Topic
    partition: int
    keys: Sequence[bytes]
    values: Sequence[bytes]
    headers: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class Transaction:
    """What a bucket commits at once.

    For each progress record whose `emission` is of its own emit number, the sink replaces `first`
    and `last` by the offsets that its rows (the result batches of that task version, all of one
    partition) got. An emission of an earlier emit number is carried on as it is.
    """

    bucket: Bucket
    results: tuple[ResultBatch, ...]
    dead: tuple[bytes, ...]
    progress: tuple[Progress, ...]


@dataclass(frozen=True, slots=True)
class Committed:
    """The transaction is durable; `progress` as written, `next` the progress offset behind it."""

    progress: tuple[Progress, ...]
    next: int


@dataclass(frozen=True, slots=True)
class Claimed:
    """The claim is durable and everything before it is known: `records`, read from offset 0."""

    records: tuple[ProgressRecord, ...]
    next: int


class ResultSink(Protocol):
    """Transactions with id `mars.<ns>.<bucket>`; one producer per transaction (R2, R8)."""

    def claim(self, claim: Claim) -> Claimed:
        """R2, R3: fence any older owner, commit the claim, read progress until the nonce is back.

        Raises Fenced if a higher assignment epoch was seen, Interrupted if the outcome is unknown.
        """

    def audit(self, emission: Emission, bucket: Bucket) -> str | None:
        """R4: None if the emission is in the output as recorded, else what differs."""

    def commit(self, transaction: Transaction, next: int) -> Committed:
        """R7, R8: write and commit; then make the next producer and look for foreign records.

        `next` is the offset up to which the progress partition is known. Raises Fenced if somebody
        else wrote to it, Interrupted if the outcome is unknown.
        """

    def release(self, bucket: Bucket) -> None:
        """Throw the bucket's producer away."""

    def close(self) -> None:
        """Throw all producers away."""


# --------------------------------------------------------------------------- results, read


@dataclass(frozen=True, slots=True)
class CommittedRow:
    """One committed result row as it lies in an output topic; `key` and `value` are JSON.

    `complete` and `revision` are what its headers say.
    """

    partition: int
    offset: int
    key: bytes
    value: bytes
    version: int
    revision: int
    complete: bool


class ResultFollower(Protocol):
    """Result rows of one task as they are committed, from the moment it was made."""

    def poll(self, timeout_s: float) -> list[CommittedRow]:
        """What was committed since the last call; waits up to `timeout_s` for something."""

    def close(self) -> None:
        """Free everything."""


class ResultTail(Protocol):
    """The output topics, read from their ends; committed rows only."""

    def recent(
        self, topic: Topic, task: TaskName, rows_max: int, window_start_ms: int | None
    ) -> list[CommittedRow]:
        """The newest rows of a task (of one window), per partition in offset order.

        At most `rows_max` of each partition; nothing if there is no such topic. A window is looked
        for among the newest rows only: the adapter states among how many.
        """

    def follow(self, topic: Topic, task: TaskName) -> ResultFollower:
        """Rows that are committed from now on."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One reference in `mars.dead`: `rows` rows in `[first, next)` that were not counted.

    `window_start_ms` is set for late rows, `partition` for all that came from Kafka.
    """

    task: TaskName
    topic: Topic
    partition: int | None
    first: int
    next: int
    reason: str
    rows: int
    window_start_ms: int | None = None


class DeadLetters(Protocol):
    """The newest references in `mars.dead`."""

    def recent(self, task: TaskName, limit: int) -> list[DeadLetter]:
        """The newest references of a task, newest first; the adapter states how far it looks."""


# ---------------------------------------------------------------------------- control, admin


class ControlLog(Protocol):
    """The compacted topic `mars.control`: what survives the loss of ZooKeeper."""

    def put_task(self, definition: TaskDefinition) -> None:
        """Copy a definition; returns once the broker has it."""

    def put_epochs(
        self, leader: LeaderEpoch, store: StoreEpoch, assignment: AssignmentEpoch
    ) -> None:
        """Note the highest epochs in use; returns once the broker has them."""

    def read(self) -> ControlState:
        """Everything in the topic."""


@dataclass(frozen=True, slots=True)
class ControlState:
    """What `mars.control` says: definitions by name, and the highest epochs."""

    tasks: Mapping[TaskName, TaskDefinition] = field(default_factory=dict)
    leader_epoch: LeaderEpoch = LeaderEpoch(0)
    store_epoch: StoreEpoch = StoreEpoch(0)
    assignment_epoch: AssignmentEpoch = AssignmentEpoch(0)


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic's unique id and its number of partitions."""

    topic_id: str
    partitions: int


class TopicAdmin(Protocol):
    """Topics, partitions and offsets of Kafka."""

    def describe(self, topic: Topic) -> TopicInfo | None:
        """None if there is no such topic."""

    def ensure_internal(self, buckets: int) -> None:
        """Make `mars.progress`, `mars.control` and `mars.dead` where they are missing."""

    def ensure_output(self, topic: Topic, partitions: int) -> TopicInfo:
        """Make an output topic where it is missing."""

    def ends(self, topic: Topic) -> dict[int, int]:
        """The offset behind the last committed record, per partition."""

    def starts(self, topic: Topic) -> dict[int, int]:
        """The lowest available offset per partition."""

    def offsets_at(self, topic: Topic, timestamp_ms: int) -> dict[int, int]:
        """The first offset at or after a time, per partition; the end where there is none."""


# -------------------------------------------------------------------------------- registry


class Registry(Protocol):
    """Streams and tasks in ZooKeeper. Versions are the registry's own, for compare-and-set."""

    def streams(self) -> dict[StreamName, Stream]: ...

    def stream(self, name: StreamName) -> Stream | None: ...

    def put_stream(self, stream: Stream) -> None: ...

    def delete_stream(self, name: StreamName) -> bool:
        """False if there was none."""

    def tasks(self) -> dict[TaskName, TaskDefinition]:
        """All definitions, deleted ones included."""

    def task(self, name: TaskName) -> tuple[TaskDefinition, int] | None:
        """A definition and the registry's version of it."""

    def create_task(self, definition: TaskDefinition) -> bool:
        """False if the name exists (a deleted task's name exists, see `replace_task`)."""

    def replace_task(self, definition: TaskDefinition, expected: int) -> bool:
        """Write a definition if the registry's version still is `expected`; else False."""

    def watch_tasks(self, changed: Callable[[], None]) -> None:
        """Call `changed` (from another thread) after any change of any task."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Who owns a bucket, and since which assignment epoch."""

    member: MemberId
    epoch: AssignmentEpoch


@dataclass(frozen=True, slots=True)
class Assignment:
    """Which reducer owns which bucket in which life of the store; one znode."""

    leader_epoch: LeaderEpoch
    store_epoch: StoreEpoch
    owners: Mapping[Bucket, Owner]


@dataclass(frozen=True, slots=True)
class PartitionReading:
    """How far a mapper is in a partition: `position` is the next offset it will map.

    `state` is one of `starting`, `reading`, `idle`, `paused`, `backpressure`.
    """

    topic: Topic
    partition: int
    position: int
    state: str


@dataclass(frozen=True, slots=True)
class BucketStatus:
    """What a reducer does with a bucket it owns.

    `state` is one of `claiming`, `auditing`, `catching_up`, `owning`, `committing`, `waiting`.
    """

    bucket: Bucket
    epoch: AssignmentEpoch
    state: str


@dataclass(frozen=True, slots=True)
class MemberInfo:
    """A live process: what it says of itself, refreshed every few seconds.

    `missing` names the services it cannot reach. `load` holds figures in base units:
    `rows_per_second`, `cpu_seconds_total`, `resident_bytes`; and `leader_epoch` of the leader.
    """

    id: MemberId
    role: str
    host: str
    pid: int
    started_ms: int
    load: Mapping[str, float] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    partitions: tuple[PartitionReading, ...] = ()
    buckets: tuple[BucketStatus, ...] = ()


class Coordinator(Protocol):
    """Who is alive, who leads, who owns what."""

    def connected(self) -> bool:
        """False from the moment the session is suspended."""

    def buckets(self, wanted: int) -> int:
        """B of this namespace: `wanted` if it is being made just now, else what was fixed."""

    def join(self, info: MemberInfo) -> None:
        """Register (and, after an expired session, register again) this process."""

    def report(self, info: MemberInfo) -> None:
        """Refresh what is known of this process, best effort."""

    def members(self, role: str) -> dict[MemberId, MemberInfo]: ...

    def watch(self, changed: Callable[[], None]) -> None:
        """Call `changed` (from another thread) when members, assignment or connection change."""

    def assignment(self) -> Assignment | None:
        """The current assignment, read after a sync with the ZooKeeper leader."""

    def campaign(self) -> None:
        """Stand for election in the background, for as long as the process lives."""

    def leading(self) -> LeaderEpoch | None:
        """This process's own leader epoch while it leads, else None (at once when suspended)."""

    def publish(self, assignment: Assignment) -> bool:
        """Write the assignment if this process still leads in `assignment.leader_epoch`."""

    def close(self) -> None:
        """Leave: members and election nodes vanish at once."""
