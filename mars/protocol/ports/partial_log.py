"""The scratchpad in Redis: what the tasks have seen, and the partials not yet emitted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from mars.core.errors import Unavailable
from mars.core.types import (
    AssignmentEpoch,
    Bucket,
    Entry,
    Lane,
    LeaderEpoch,
    Mapped,
    Mark,
    Numbers,
    Sequence64,
    StoreEpoch,
    TaskName,
)


@dataclass(frozen=True, slots=True)
class Batch:
    """What a mapper has made of some rows for a task, to be stored."""

    task: TaskName
    epoch: StoreEpoch
    version: int
    mapped: Mapped


@dataclass(frozen=True, slots=True)
class Applied:
    """The batch is in the log under `seq`."""

    seq: Sequence64


@dataclass(frozen=True, slots=True)
class Stale:
    """The task's next offset of `lane` is `current`, not the batch's first; or `rows` are counted
    below it, not as many as the batch says.
    """

    lane: Lane
    current: int
    rows: int = 0


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
    """The batch straddles `offset` of `lane`: send what lies before it by itself.

    One of lanes that go on by themselves is refused while a cut of any of them lies ahead, too.
    Where `offset` is the lane's end, nothing beyond it is ever taken.
    """

    lane: Lane
    offset: int


@dataclass(frozen=True, slots=True)
class Backpressure:
    """The task's log is over its budget and a lane of the batch does not hold the watermark, or it
    is over twice its budget.
    """


AppendOutcome = (
    Applied | Stale | NoTask | WrongEpoch | WrongVersion | TaskPaused | Cut | Backpressure
)


@dataclass(frozen=True, slots=True)
class Head:
    """One consistent look at a task in the store.

    `marks_ms` holds lanes that have one, `taken_ms` when rows with a usable event time were last
    taken from them, by the store's clock; not of lanes that an older release alone has written.
    `restored` is what the life before this one had come to, see `TaskStart`. `idle` are the lanes
    whose idle lease has not expired. `now_ms` is the store's clock. `log_bytes` is the size of the
    task's logs. `ends` names the lanes that have an end (those of backfills), with the offset at
    which they are finished. `run_id` is of the server and of its history: another one after each
    start, and after each time it was a replica. `leader` is the highest leader epoch that this life
    of the task has heard of. `born` tells this life of the task from any other, `begun_on` is the
    run id of the server on which it was begun; they are empty where an older release has begun it.
    `rows` are counted below the offsets, NOT_KNOWN behind rows that are gone, and `numbers` below
    others, see `TaskStart`; both for windows that count rows alone.
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
    ends: Mapping[Lane, int] = field(default_factory=dict)
    run_id: str = ""
    leader: LeaderEpoch = LeaderEpoch(0)
    taken_ms: Mapping[Lane, int] = field(default_factory=dict)
    restored: Mark | None = None
    born: str = ""
    begun_on: str = ""
    rows: Mapping[Lane, int] = field(default_factory=dict)
    numbers: Numbers = field(default_factory=dict)

    @property
    def finished(self) -> frozenset[Lane]:
        """The lanes that are read to their end; they no longer hold the watermark."""
        return frozenset(
            lane for lane, end in self.ends.items() if self.offsets.get(lane, -1) >= end
        )


@dataclass(frozen=True, slots=True)
class LogSlice:
    """What was read of one bucket's log: `base` (merged entries, R9), then entries in SEQ order.

    `base` is given only to a reader that starts from nothing (`after == 0`); its `seq` is that of
    the last entry merged into it. `older` are the same for the versions before the base's that were
    not yet emitted to the end. `run_id` is that of the server which was read. `vanished`: how many
    entries the whole log should hold more than it does, by what the store has noted of appends,
    trims and merges.
    """

    base: Entry | None
    entries: tuple[Entry, ...]
    older: tuple[Entry, ...] = ()
    run_id: str = ""
    vanished: int = 0


@dataclass(frozen=True, slots=True)
class TaskLook:
    """A look at a task, and at what its followed logs hold up to `head.seq`, all of one moment.

    `slices` has no log in which there is nothing new, and none of which there is more than a look
    brings, or that cannot be read: those are to be read by themselves.
    """

    head: Head
    slices: Mapping[Bucket, LogSlice] = field(default_factory=dict)


Followed = Mapping[TaskName, Mapping[Bucket, Sequence64]]
"""Tasks, and up to which SEQ, above 0, each of their logs has been read."""


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """Entries `after < seq <= upto` of one bucket's log, and the base where `after` is 0."""

    task: TaskName
    bucket: Bucket
    after: Sequence64
    upto: Sequence64


@dataclass(frozen=True, slots=True)
class LogTrim:
    """Entries of one bucket's log that go, of the life of the task that was `born` then."""

    task: TaskName
    epoch: StoreEpoch
    born: str
    bucket: Bucket
    seqs: Sequence[Sequence64]


@dataclass(frozen=True, slots=True)
class IdleLease:
    """A lane that ends at `offset`, all up to there being in the store of that epoch.

    `version` is the newest that the mapper knows: a deleted task of the same name had others.
    """

    task: TaskName
    epoch: StoreEpoch
    lane: Lane
    offset: int
    version: int


@dataclass(frozen=True, slots=True)
class Clearing:
    """What an owner says of a log at a look: whether assistants may merge what comes after it.

    The owner is that of `owner_epoch`, in the store's life `epoch`.
    """

    task: TaskName
    bucket: Bucket
    epoch: StoreEpoch
    owner_epoch: AssignmentEpoch
    opens: bool


@dataclass(frozen=True, slots=True)
class Cleared:
    """What the last `Clearing` left: entries above `after` may be merged; None: nothing may."""

    owner_epoch: AssignmentEpoch
    after: Sequence64 | None


@dataclass(frozen=True, slots=True)
class TaskStart:
    """How a task begins a life in the store.

    `version` is the newest one. `bounds`: of each version the first offset per lane; a lane that a
    version does not name begins at 0 in it, as does every lane of a version that is not there. A
    version ends where the next one begins. `cuts`: offsets that no batch may straddle
    (merged-through offsets of all buckets, starts of versions), and that a batch of lanes that go
    on by themselves must have behind it. `ends`: the offset at which a
    backfill's lane is finished; nothing beyond it is taken. `leader` is who begins it. `restored`
    is how far event time had come before the store was lost, and when that was written: a mark of
    no lane, from which event time goes on where all lanes are idle. It is taken no later than now.
    `numbers`: how many rows are counted below some of the offsets and cuts, as records tell. What
    is not named of the offsets has none, or nobody counts them.
    """

    version: int
    active: bool
    offsets: Mapping[Lane, int]
    bounds: Mapping[int, Mapping[Lane, int]]
    cuts: Mapping[Lane, tuple[int, ...]]
    ends: Mapping[Lane, int] = field(default_factory=dict)
    leader: LeaderEpoch = LeaderEpoch(0)
    restored: Mark | None = None
    numbers: Numbers = field(default_factory=dict)

    @property
    def rows(self) -> dict[Lane, int]:
        """The rows below the first offsets, where there are any."""
        found = {lane: self.numbers.get(lane, {}).get(at, 0) for lane, at in self.offsets.items()}
        return {lane: number for lane, number in found.items() if number}

    @property
    def versions(self) -> dict[int, Mapping[Lane, int]]:
        """The bounds of every version, the oldest one first."""
        return {each: self.bounds.get(each, {}) for each in sorted({*self.bounds, self.version})}


@dataclass(frozen=True, slots=True)
class Begun:
    """Where a version has begun in the store, and the marks that the lanes had there; and how many
    rows the version before has counted, if it counts them.
    """

    starts: Mapping[Lane, int]
    marks_ms: Mapping[Lane, int]
    rows: Mapping[Lane, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StoreIdentity:
    """Which store answers: its run id (see `Head`), and what the last recovery left in it."""

    run_id: str
    sealed_run_id: str | None
    sealed_epoch: StoreEpoch | None


class Heads(Protocol):
    """Where tasks stand in the store: for all who have to do with it."""

    def head(self, tasks: Sequence[TaskName]) -> dict[TaskName, Head | None]:
        """One look per task; None where the store does not know it."""


class MapperLog(Heads, Protocol):
    """What a mapper does."""

    def append(
        self, task: TaskName, epoch: StoreEpoch, version: int, mapped: Mapped
    ) -> AppendOutcome:
        """M3: compare-and-set all ranges, number, store the partials, set the marks.

        Of each lane with a mark in the batch it is noted that rows were taken now, whether or not
        they are newer than those before.
        """

    def append_together(self, batches: Sequence[Batch]) -> list[AppendOutcome | Unavailable]:
        """`append` of each, in order and each by itself, in few round trips.

        Unavailable in place of an outcome: it is not known what became of this batch. It is raised
        where the store does not answer: nothing is known of any, and some may be stored.
        """

    def renew_idle(self, leases: Sequence[IdleLease]) -> list[bool]:
        """Lease lanes as idle for 3 s, each by itself; False where its next offset is another."""


class EntryLog(Heads, Protocol):
    """The entries of one bucket."""

    def read(self, task: TaskName, bucket: Bucket, after: Sequence64, upto: Sequence64) -> LogSlice:
        """The entries with `after < seq <= upto`, and the base where `after` is 0.

        Raises CorruptEntry for an entry that cannot be read.
        """


class OwnerLog(EntryLog, Protocol):
    """What the owner of a bucket does, and how it hears that there is something to do."""

    def look(
        self, followed: Followed, clearings: Sequence[Clearing]
    ) -> dict[TaskName, TaskLook | None]:
        """`head`, with what is new in the logs; None where the store does not know the task.

        At the same moment each log is cleared above that SEQ, or closed. Passed over: a clearing of
        another store epoch, of a task that is not looked at, or below the last one's owner epoch.
        """

    def read_many(self, requests: Sequence[ReadRequest]) -> list[LogSlice]:
        """Several reads at once, answered in the order of the requests."""

    def trim(
        self,
        task: TaskName,
        epoch: StoreEpoch,
        born: str,
        bucket: Bucket,
        seqs: Sequence[Sequence64],
    ) -> bool:
        """R9: delete these entries; False if the epoch is another, or the life of the task."""

    def trim_together(self, trims: Sequence[LogTrim]) -> None:
        """`trim` of each, in few round trips. Where it raises, some may be done."""

    def compact(
        self,
        task: TaskName,
        epoch: StoreEpoch,
        born: str,
        bucket: Bucket,
        base: Entry,
        older: Sequence[Entry] = (),
    ) -> bool:
        """R9: put `base` in place of all entries up to `base.seq` (and of the base before).

        `older` are those of older versions, with the same `seq`: an entry holds one version. A base
        without rows stands for entries that nobody needs. False if the epoch is another, or the
        life, or if the base that is there has a higher `seq`: the caller is a former owner.
        """

    def put_base(
        self, task: TaskName, epoch: StoreEpoch, born: str, bucket: Bucket, bases: Sequence[Entry]
    ) -> bool:
        """Let a bucket's log begin with saved panes, one entry per version, the newest first.

        They get the SEQ 0: none of the log's entries is in them. A base that is there stays as it
        is. False if the epoch is another, or the life of the task.
        """

    def listen(self, tasks: Sequence[TaskName]) -> None:
        """Hear the doorbells of these tasks from now on."""

    def wait(self, timeout_s: float) -> frozenset[TaskName]:
        """Wait for a doorbell; the tasks whose bells rang. Best effort: callers poll besides."""


class AssistantLog(EntryLog, Protocol):
    """What assistants of a hot bucket do."""

    def cleared(self, task: TaskName) -> dict[Bucket, Cleared]:
        """What the owners of a task's logs said last, those who did in this life of the task."""

    def merge(
        self,
        task: TaskName,
        epoch: StoreEpoch,
        owner_epoch: AssignmentEpoch,
        entry: Entry,
        run_id: str,
    ) -> bool:
        """Put an entry of an assistant in place of all of `entry.merged`, at the last one's SEQ.

        `run_id` is that of the server on which they were read. Nothing happens, and the answer is
        False, unless the log is cleared by an owner of this epoch, all of them lie above that and
        are there, none of them merged before, and the entry is of the task's current version.
        """


class ReducerLog(OwnerLog, AssistantLog, Protocol):
    """What a reducer does, which may be both."""


class LeaderLog(Heads, Protocol):
    """What the leader does."""

    def identity(self) -> StoreIdentity: ...

    def seal(self, epoch: StoreEpoch, leader: LeaderEpoch, run_id: str) -> bool:
        """Leave the sentinel that says: all tasks of this store are of `epoch`.

        False, and nothing happens, where a later epoch is sealed, or this one by a later leader.
        """

    def heed(self, tasks: Sequence[TaskName], epoch: StoreEpoch, leader: LeaderEpoch) -> None:
        """Let the lives of this epoch hear of a leader: they refuse the ones before it from now on.

        Best before they are looked at: what is seen then, no leader of before can change any more.
        """

    def initialise(self, task: TaskName, epoch: StoreEpoch, start: TaskStart) -> bool:
        """Begin a life: unlink all keys of the task and set them anew.

        Nothing happens, and the answer is False, where the task already is of this epoch or of a
        later one.
        """

    def set_active(
        self, task: TaskName, epoch: StoreEpoch, leader: LeaderEpoch, *, active: bool
    ) -> bool:
        """Pause or resume; a resume clears the idle leases.

        False if epoch or task is missing, or a later leader has been heard of.
        """

    def begin_version(
        self,
        task: TaskName,
        epoch: StoreEpoch,
        leader: LeaderEpoch,
        run_id: str,
        version: int,
        *,
        after: int,
    ) -> Begun | None:
        """Let `version` follow version `after` where the lanes stand now, and stop the task.

        From then on rows below these offsets are `after`'s and all others `version`'s. Where it has
        begun already nothing happens, and the answer is the same as the first time. None: refused,
        because the task is missing, of another epoch or version, a later leader has been heard of,
        or the server is not that of `run_id`, on which the caller has seen that it is time.
        """

    def add_lanes(
        self, task: TaskName, epoch: StoreEpoch, leader: LeaderEpoch, lanes: Mapping[Lane, int]
    ) -> bool:
        """Add lanes at these offsets where the task has none of that name; False as above."""

    def drop(self, task: TaskName, epoch: StoreEpoch, leader: LeaderEpoch, version: int) -> bool:
        """Unlink all keys of a deleted task, whose last version is `version`.

        False, and nothing happens, where they are of a newer version, of a later epoch, or of this
        one and a later leader has been heard of: then somebody else has gone on since.
        """


class ShownLog(EntryLog, Protocol):
    """What is read to be shown to people."""

    def read_together(
        self, task: TaskName, buckets: Sequence[Bucket], upto: Sequence64
    ) -> list[LogSlice]:
        """The whole logs of several buckets, all of one moment: for logs known to be small.

        What assistants have merged since the look at the head, some of it below `upto` and some
        above, is there as a whole. Raises CorruptEntry for an entry that cannot be read.
        """


class PartialLog(MapperLog, ReducerLog, LeaderLog, ShownLog, Protocol):
    """The scratchpad: what the tasks have seen, and the partials not yet emitted.

    Writes are never retried by the adapter. Every write is guarded by the store epoch; a refused
    write changes nothing. What a leader writes is guarded by its own epoch, too: a life of a task
    remembers the highest one that it has heard of, and refuses all lower ones. An owner's writes
    are guarded by the name of the life whose log it has read (`born`, see `Head`): a deleted task
    of the same name had other entries of the same SEQs in the same epoch.
    """
