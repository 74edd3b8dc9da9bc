"""Transactions of the reducers, and the progress that they commit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from mars.core.types import (
    AssignmentEpoch,
    Bucket,
    Lane,
    MemberId,
    Numbers,
    StoreEpoch,
    TaskName,
    Topic,
)
from mars.protocol.ports.seen import Seen


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

    def __add__(self, other: Ledger) -> Ledger:
        """Of both together."""
        return Ledger(
            self.read + other.read,
            self.filtered + other.filtered,
            self.bad + other.bad,
            self.future + other.future,
            self.late + other.late,
            self.counted + other.counted,
            self.emitted + other.emitted,
            self.late_partly + other.late_partly,
        )


@dataclass(frozen=True, slots=True)
class Frontier:
    """How far a bucket of a task version has come: what decides about each further row.

    `merged` (M): rows below these offsets are accounted; a lane that is not named is accounted
    below 0 only. `closed_ms` (C): windows that end at or before it are closed. `forgotten_ms`
    (D <= C): those that end at or before it are never revised; between D and C lie windows that
    take late rows, none unless a task revises. `ahead_ms` (X): up to it windows are closed key by
    key. Times are ends of windows, in epoch milliseconds; None: of no window yet. Where windows
    count rows, C is a number of rows for each lane: `closed_rows`; a lane that is not named has 0.
    """

    merged: Mapping[Lane, int]
    closed_ms: int | None = None
    forgotten_ms: int | None = None
    ahead_ms: int | None = None
    closed_rows: Mapping[Lane, int] = field(default_factory=dict)


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
class References:
    """References that a transaction wrote to `mars.dead`: between two offsets, inclusive.

    Other buckets' may lie in between; all of this bucket there are of that transaction.
    """

    partition: int
    first: int
    last: int
    count: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The open panes of a bucket of a task version as they lie in `mars.state`.

    `merged` (S): rows below these offsets are in it, as far as their panes were open when it was
    taken. `until_ms`: no pane in it ends later. Its `parts` records lie in the bucket's partition
    between the offsets `first` and `last`, inclusive; `checksum` is xxh3_64 over all their bytes.
    """

    merged: Mapping[Lane, int]
    until_ms: int
    parts: int
    checksum: int
    first: int = -1
    last: int = -1


@dataclass(frozen=True, slots=True)
class RowsRecord:
    """What a record says where windows count rows.

    `closed` is C, for each lane. `below` says how many rows lie below the offsets that the record
    names: M, L and S. Windows may lack rows that touch the numbers between the two of a lane in
    `gaps`: rows there were gone when they were needed.
    """

    closed: Mapping[Lane, int]
    below: Numbers
    gaps: Mapping[Lane, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Progress:
    """What a bucket of a task version has emitted: the record of truth (R3, R7).

    `closed_ms` (C): windows ending at or before it are closed; None: none yet. `merged` (M): rows
    below these offsets are accounted. `needed` (L): rows below these are never read again, because
    their panes are forgotten or in the `snapshot`. `watermark_ms` is the last one that was known:
    from there event time goes on after a loss of the store. `deleted`: the task is gone. Windows
    that begin before `incomplete_before_ms` may lack rows that were gone when they were needed; so
    may all that end after it, while `gaps` names a lane: rows below these offsets are gone, and no
    row of the lane has come since to tell which windows they belong to. `references`: those of the
    last transaction that had some, of all its tasks together.

    `forgotten_ms` (D <= C): windows ending at or before it are never revised; None: those up to C.
    `revisions` has the newest revision of each closed window that has one and is not forgotten, by
    the moment that names it (`Shape.name_of`). Windows that are `owed` count late rows which no
    revision shows yet; of a task that emits changed groups alone it is the next one, which is to
    show groups that rows came late to, whichever they are.

    `ahead_ms` (X): up to it windows are closed key by key, by the marks of the rows below M; None:
    none beyond C are, as in every task whose watermark is not of the keys.

    `seen`: the log entries of this life of the store that are accounted, where a tracker is on.

    `newest_ms`: no row below M has a usable event time after it, counted or filtered. Records of
    older releases do not say.

    `rows`: of tasks whose windows count rows alone; all that is said of times is None there.

    `anchored`: rows below L, or below the S of a snapshot, may have been too late for what is open,
    and nothing tells which. So they are never taken again: whoever owns the bucket begins with the
    snapshot, and no batch that is read again crosses L.
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
    incomplete_before_ms: int | None = None
    emission: Emission | None = None
    deleted: bool = False
    snapshot: Snapshot | None = None
    references: References | None = None
    forgotten_ms: int | None = None
    revisions: Mapping[int, int] = field(default_factory=dict)
    owed: tuple[int, ...] = ()
    seen: Seen | None = None
    ahead_ms: int | None = None
    gaps: Mapping[Lane, int] = field(default_factory=dict)
    newest_ms: int | None = None
    rows: RowsRecord | None = None
    anchored: bool = False

    @property
    def frontier(self) -> Frontier:
        """M, C, D and X; a record that does not name D means all up to C."""
        forgotten_ms = self.closed_ms if self.forgotten_ms is None else self.forgotten_ms
        closed_rows = {} if self.rows is None else self.rows.closed
        return Frontier(self.merged, self.closed_ms, forgotten_ms, self.ahead_ms, closed_rows)


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
    """Committed records of one bucket's partition, and the offset at which to read on.

    `times_ms`: when each was written, by the clock of its writer.
    """

    records: tuple[ProgressRecord, ...]
    next: int
    times_ms: tuple[int, ...] = field(default=(), compare=False)


class ProgressLog(Protocol):
    """The topic `mars.progress`: one partition per bucket."""

    def read(self, bucket: Bucket, first: int) -> ProgressSlice:
        """Everything committed from `first` to the partition's end at the time of the call.

        Raises Unavailable if the brokers do not answer, and a plain MarsError, naming the place,
        for a record that this release cannot read.
        """

    def read_all(self, firsts: Mapping[Bucket, int]) -> dict[Bucket, ProgressSlice]:
        """The same of several buckets, each from its own offset."""

    def written(self, buckets: Iterable[Bucket]) -> dict[Bucket, int]:
        """By bucket the offset behind its last record, committed or not.

        Below it lies what a transaction that is under way has written. Once a slice reaches to it,
        that transaction has ended, and what of it was committed has been read.
        """


class SavedPanes(Protocol):
    """The topic `mars.state`, read by those who look at what is open."""

    def saved(self, record: Progress) -> tuple[bytes, ...]:
        """See `ResultSink`."""


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
class SnapshotParts:
    """The parts of a new snapshot of a task version, in order; none where there is no more.

    `replaced` is the number of parts of the snapshot before: what is beyond the new ones goes.
    """

    task: TaskName
    version: int
    parts: tuple[bytes, ...]
    replaced: int


@dataclass(frozen=True, slots=True)
class SourceTopic:
    """The topic whose rows a task counts, by its unique id."""

    task: TaskName
    topic: Topic
    topic_id: str


@dataclass(frozen=True, slots=True)
class Transaction:
    """What a bucket commits at once.

    For each progress record with rows here (the result batches of that task version, all of one
    partition), the sink replaces `first` and `last` of its `emission` by the offsets that they got.
    An emission without rows here is carried on as it is. In the same way the `snapshot` of a record
    gets the offsets of its parts, where there are some in `snapshots`, and each record `references`
    to what is in `dead`, where there is something.

    `sources`: of the tasks with results here, where their rows were read. Whoever reads a topic by
    its name goes on at his offset in one that was made anew, and does not notice.
    """

    bucket: Bucket
    results: tuple[ResultBatch, ...]
    dead: tuple[bytes, ...]
    progress: tuple[Progress, ...]
    snapshots: tuple[SnapshotParts, ...] = ()
    sources: tuple[SourceTopic, ...] = ()


@dataclass(frozen=True, slots=True)
class Committed:
    """The transaction is durable; `progress` as written, `next` the progress offset behind it."""

    progress: tuple[Progress, ...]
    next: int


@dataclass(frozen=True, slots=True)
class Claimed:
    """The claim is durable and everything before it is known: `records`, read from offset 0.

    `restored` says in words what of it had been lost in Kafka and was written again (see
    `mars.adapters.kafka.recovery.restoring`).
    """

    records: tuple[ProgressRecord, ...]
    next: int
    restored: tuple[str, ...] = ()


class ResultSink(Protocol):
    """Transactions with id `mars.<ns>.<bucket>`; one producer per transaction (R2, R8).

    Besides what they name, `claim`, `draft` and `commit` raise SettingsError where no producer can
    be made of the settings. After any error of theirs the bucket's producer is gone: claim again.
    Nothing here reads the partial log, so nothing raises CorruptEntry.
    """

    def claim(self, claim: Claim) -> Claimed:
        """R2, R3: fence any older owner, commit the claim, read progress until the nonce is back.

        Then what the newest record of each task version names can be read: what a broker's restart
        has hidden is written again, with a further record that names its new place.

        Raises Fenced if a higher assignment epoch was seen, Interrupted if the outcome is unknown,
        Unavailable if the brokers do not answer, and a plain MarsError, naming the place, for a
        record that this release cannot read.
        """

    def audit(self, emission: Emission, bucket: Bucket) -> str | None:
        """R4: None if the emission is in the output as recorded, else what differs.

        Raises Unavailable if the brokers do not answer, or while an open transaction hides rows.
        """

    def saved(self, record: Progress) -> tuple[bytes, ...]:
        """The parts of the snapshot that a record names, in order.

        Raises SnapshotLost if they are not there as recorded, and Unavailable if the brokers do not
        answer.
        """

    def draft(self, bucket: Bucket, results: tuple[ResultBatch, ...], next: int) -> None:
        """Write what the next transaction is likely to emit, and leave it open: nobody sees it.

        A commit with equal `results` takes these rows. Before any other they are taken back, and by
        a draft, too, which may be without rows. Raises what `commit` raises.
        """

    def commit(self, transaction: Transaction, next: int) -> Committed:
        """R7, R8: write and commit; then make the next producer and look for foreign records.

        `next` is the offset up to which the progress partition is known. Raises Fenced if a newer
        owner wrote to it, Interrupted if an older one did or if the outcome is unknown, and
        Unavailable if the brokers do not answer. Raises TaskAtFault, naming the task, where nothing
        was committed, and the others can go on without it: OutputRefused if an output topic is gone
        or does not take a row, SourceMadeAnew if one of the `sources` has another id by now. That
        is asked after the call has begun, so all rows that are in it were read before.
        """

    def release(self, bucket: Bucket) -> None:
        """Throw the bucket's producer away. Raises nothing."""

    def close(self) -> None:
        """Throw all producers away. Raises nothing."""
