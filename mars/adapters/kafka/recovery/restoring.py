"""What a broker's restart has hidden is found when a bucket is claimed, and written again.

A broker that starts again may end a transaction without its markers in some partitions (decision
24). There it *hangs*: its records stay hidden, and so does whatever comes behind them, until the
next marker of the same producer id, which decides their fate, whatever theirs was to be.

    progress hangs ───▶ the claim's own commit ends it as committed
    ... and that claim was aborted ───▶ `undone`: the next claim writes the progress once more
    anything else hangs ───▶ an empty transaction is aborted there, so it counts as aborted
    committed progress names what nobody can see ───▶ `restoration`: it is written once more

So progress that was written decides: it is the last thing that a transaction writes, and whoever
wrote it was fenced before anybody could act on its absence.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Protocol

from mars.adapters.kafka.names import Names, Place
from mars.adapters.kafka.recovery.audit import difference
from mars.adapters.kafka.sink.transaction import WrittenSpan
from mars.adapters.kafka.state import parts_of
from mars.adapters.kafka.wire import state_key
from mars.core.errors import SnapshotLost
from mars.core.types import Bucket, TaskName
from mars.engine.codec.result_headers import BUCKET, EMIT, number
from mars.protocol.ports import (
    Claim,
    Emission,
    Progress,
    ProgressRecord,
    References,
    ResultBatch,
    Snapshot,
    SnapshotParts,
    Transaction,
)

TAIL_OFFSETS = 1_000
"""How far back undone progress is looked for: that of some hundred claims in a row that all were
broken off. A record has about a kilobyte, so this is one request."""


@dataclass(frozen=True, slots=True)
class Kept:
    """One record of a partition, whether committed or not."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes]]


class PartitionLook(Protocol):
    """Reads stretches of partitions, `first` and `last` inclusive. Raises Unavailable."""

    def start(self, place: Place) -> int | None:
        """The lowest offset that is still there; None if there is no such partition."""

    def shown(self, place: Place, first: int, last: int) -> Iterator[Kept]:
        """What readers see there; waits while it is hidden, and raises Unavailable if it stays."""

    def written(self, place: Place, first: int, last: int) -> Iterator[Kept]:
        """All that was written there and is still kept, committed or not."""

    def end(self, place: Place) -> int:
        """The offset behind the last record, committed or not."""

    def stable_end(self, place: Place) -> int:
        """The last stable offset: the first record of whoever has been open for longest."""


# --------------------------------------------------------------------------------------- progress


def undone(
    tail: Iterable[tuple[int, ProgressRecord]], committed: Container[int]
) -> tuple[Progress, ...]:
    """Progress that hung when a claim was written behind it, and that fell with that claim.

    `tail` is the end of the partition, in order, with offsets; `committed` those of it that are
    committed, or will be by the next commit. A marker takes an offset, and no transaction has both
    progress and a claim unless it writes undone progress once more: so where a claim follows
    progress without a gap, that progress was complete, and nobody acted on its absence. What lies
    before something committed has been looked after.
    """
    found: tuple[Progress, ...] = ()
    run: list[Progress] = []
    expected = -1
    for offset, record in tail:
        if offset in committed:
            found, run = (), []
            continue
        if offset != expected:
            run = []
        expected = offset + 1
        if isinstance(record, Progress):
            run.append(record)
        elif run:
            found, run = tuple(run), []
    return found


def told_of(again: Sequence[Progress]) -> tuple[str, ...]:
    """What people should hear of undone progress."""
    return tuple(
        f"progress of task {record.task} with emit number {record.emit} was committed with the "
        "claim after it"
        for record in again
    )


def newest(records: Iterable[ProgressRecord]) -> tuple[Progress, ...]:
    """The last record of each task version, without those of deleted tasks."""
    last: dict[tuple[TaskName, int], Progress] = {}
    for record in records:
        if isinstance(record, Progress):
            last[record.task, record.version] = record
    return tuple(record for record in last.values() if not record.deleted)


def seen(records: Iterable[ProgressRecord]) -> dict[tuple[TaskName, int], Progress]:
    """The record before the newest of each task version: what it names was seen since.

    Between two transactions of a bucket its owner looks whether the first one hangs, or another
    owner claims it and looks for all that is new in the newest record.
    """
    last: dict[tuple[TaskName, int], Progress] = {}
    before: dict[tuple[TaskName, int], Progress] = {}
    for record in records:
        if isinstance(record, Progress):
            name = record.task, record.version
            if name in last:
                before[name] = last[name]
            last[name] = record
    return before


# ---------------------------------------------------------------------------------------- places


def named_places(records: Iterable[Progress], bucket: Bucket, names: Names) -> set[Place]:
    """The partitions in which lies what the records name."""
    places: set[Place] = set()
    for record in records:
        if record.emission is not None:
            places.add((record.emission.topic, record.emission.partition))
        if record.snapshot is not None:
            places.add((names.state, bucket))
        if record.references is not None:
            places.add((names.dead, record.references.partition))
    return places


def written_places(transaction: Transaction, dead: Place, state: Place) -> set[Place]:
    """The partitions that a transaction writes to, progress aside."""
    places = result_places(transaction.results)
    if transaction.dead:
        places.add(dead)
    if transaction.snapshots:
        places.add(state)
    return places


def result_places(results: Iterable[ResultBatch]) -> set[Place]:
    """The partitions that these rows go to."""
    return {(batch.topic, batch.partition) for batch in results if batch.values}


def written_spans(
    transaction: Transaction, progress: Iterable[Progress], names: Names
) -> dict[Place, WrittenSpan]:
    """Where a transaction's records lie, progress aside; `progress` is its own, as written.

    Tombstones alone are left out: what they take away is named by nobody any more.
    """
    rows = {(batch.task, batch.version) for batch in transaction.results if batch.values}
    parts = {(one.task, one.version) for one in transaction.snapshots if one.parts}
    spans: dict[Place, WrittenSpan] = {}
    for record in progress:
        name = record.task, record.version
        emission, snapshot, references = record.emission, record.snapshot, record.references
        if emission is not None and name in rows:
            _widen(spans, (emission.topic, emission.partition), emission)
        if snapshot is not None and name in parts:
            _widen(spans, (names.state, record.bucket), snapshot)
        if references is not None and transaction.dead:
            _widen(spans, (names.dead, references.partition), references)
    return spans


def _widen(
    spans: dict[Place, WrittenSpan], place: Place, by: Emission | Snapshot | References
) -> None:
    """Versions of a task, and tasks, may share a partition."""
    known = spans.get(place, WrittenSpan(by.first, by.last))
    spans[place] = WrittenSpan(min(known.first, by.first), max(known.last, by.last))


# ------------------------------------------------------------------------------------- restoring


@dataclass(frozen=True, slots=True)
class Restoration:
    """What is to be written again, if anything; `sound` are emissions found as recorded.

    `told` says for people what was hidden, and where.
    """

    transaction: Transaction | None
    sound: frozenset[Emission]
    told: tuple[str, ...]


@dataclass(slots=True)
class _Found:
    """What has been found so far."""

    results: list[ResultBatch] = field(default_factory=list)
    snapshots: list[SnapshotParts] = field(default_factory=list)
    dead: dict[References, tuple[bytes, ...]] = field(default_factory=dict)
    sound: set[Emission] = field(default_factory=set)
    told: list[str] = field(default_factory=list)


def restoration(
    claim: Claim, records: Sequence[ProgressRecord], names: Names, look: PartitionLook
) -> Restoration:
    """What the newest record of each task version names and nobody can see, ready to be written.

    `records` is all that is committed. What is not there any more as it was written is left alone:
    the audit says so. The progress carries emit numbers on and is otherwise that of before.
    """
    found = _Found()
    progress: list[Progress] = []
    before = seen(records)
    for record in newest(records):
        earlier = before.get((record.task, record.version))
        looks = (
            _look_at_rows(record, look, found),
            _look_at_parts(record, earlier, names, look, found),
            _look_at_references(record, earlier, names, look, found),
        )
        if any(looks):
            progress.append(
                replace(record, emit=record.emit + 1, assignment_epoch=claim.assignment_epoch)
            )
    dead = tuple(value for values in found.dead.values() for value in values)
    wanted = Transaction(
        claim.bucket, tuple(found.results), dead, tuple(progress), tuple(found.snapshots)
    )
    sound, told = frozenset(found.sound), tuple(found.told)
    return Restoration(wanted if progress else None, sound, told)


def _look_at_rows(record: Progress, look: PartitionLook, found: _Found) -> bool:
    emission = record.emission
    if emission is None:
        return False
    place = emission.topic, emission.partition
    if _is_gone(look, place, emission.first):
        return False
    first, last, bucket = emission.first, emission.last, record.bucket
    shown = ((row.headers, row.value) for row in look.shown(place, first, last))
    if difference(emission, bucket, shown) is None:
        found.sound.add(emission)
        return False
    if _of(look.shown(place, first, last), bucket, emission.emit):
        return False  # A marker shows all rows or none: this is something else.
    rows = _of(look.written(place, first, last), bucket, emission.emit)
    if difference(emission, bucket, ((row.headers, row.value) for row in rows)) is not None:
        return False
    found.results += _batches(record, emission, rows)
    found.told.append(
        f"{len(rows)} rows of task {record.task} in {place[0]}[{place[1]}] from offset {first} on "
        "were hidden and are written again"
    )
    return True


def _is_gone(look: PartitionLook, place: Place, first: int) -> bool:
    """Whether retention took what began there, or somebody the whole topic."""
    start = look.start(place)
    return start is None or start > first


def _of(rows: Iterable[Kept], bucket: Bucket, emit: int) -> list[Kept]:
    """The rows of one emission of the bucket."""
    wanted = {(BUCKET, number(bucket)), (EMIT, number(emit))}
    return [row for row in rows if wanted.issubset(row.headers)]


def _batches(record: Progress, emission: Emission, rows: Sequence[Kept]) -> Iterator[ResultBatch]:
    """The rows as they were: rows of one window have the same headers."""
    for headers, group in groupby(rows, key=lambda row: tuple(row.headers)):
        window = list(group)
        yield ResultBatch(
            record.task,
            record.version,
            emission.topic,
            emission.partition,
            [row.key or b"" for row in window],
            [row.value or b"" for row in window],
            headers,
        )


def _look_at_parts(
    record: Progress, earlier: Progress | None, names: Names, look: PartitionLook, found: _Found
) -> bool:
    snapshot = record.snapshot
    if snapshot is None or (earlier is not None and earlier.snapshot == snapshot):
        return False
    if _is_shown(record, snapshot, names, look):
        return False
    place = names.state, record.bucket
    written = look.written(place, snapshot.first, snapshot.last)
    try:
        parts = parts_of(record, {row.key: row.value for row in written})
    except SnapshotLost:
        return False  # Whoever needs it is told so.
    found.snapshots.append(SnapshotParts(record.task, record.version, parts, 0))
    found.told.append(
        f"the saved panes of task {record.task} in {place[0]}[{place[1]}] from offset "
        f"{snapshot.first} on were hidden and are written again"
    )
    return True


def _is_shown(record: Progress, snapshot: Snapshot, names: Names, look: PartitionLook) -> bool:
    """The last part stands for all: one marker shows all of them or none."""
    place, last = (names.state, record.bucket), snapshot.last
    key = state_key(record.task, record.version, record.bucket, snapshot.parts - 1)
    return key in [row.key for row in look.shown(place, last, last)]


def _look_at_references(
    record: Progress, earlier: Progress | None, names: Names, look: PartitionLook, found: _Found
) -> bool:
    references, bucket = record.references, record.bucket
    if references is None or (earlier is not None and earlier.references == references):
        return False
    if references in found.dead:
        return bool(found.dead[references])
    found.dead[references] = ()
    place = names.dead, references.partition
    if _is_gone(look, place, references.first):
        return False
    if _references(look.shown(place, references.last, references.last), bucket):
        return False  # The last one stands for all.
    values = _references(look.written(place, references.first, references.last), bucket)
    if len(values) != references.count:
        return False
    found.dead[references] = values
    found.told.append(
        f"{len(values)} references in {place[0]}[{place[1]}] from offset {references.first} on "
        "were hidden and are written again"
    )
    return True


def _references(rows: Iterable[Kept], bucket: Bucket) -> tuple[bytes, ...]:
    """The values of those that the bucket wrote."""
    ours = (BUCKET, number(bucket))
    return tuple([row.value or b"" for row in rows if ours in row.headers])
