"""The server behind `MemoryPartialLog`: what `lua/append.lua` and its like do, on plain values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from mars.adapters.store import LOOK_ENTRIES_MAX, content_of, has_rows, merged_content_of
from mars.core.types import (
    NOT_KNOWN,
    AssignmentEpoch,
    Bucket,
    Entry,
    Lane,
    LeaderEpoch,
    Mapped,
    Mark,
    Numbers,
    Range,
    RowNumbers,
    Sequence64,
    StoreEpoch,
    TaskName,
    lane_group,
)
from mars.protocol.ports import (
    AppendOutcome,
    Begun,
    Cleared,
    Clearing,
    Cut,
    Head,
    Stale,
    TaskPaused,
    TaskStart,
    WrongEpoch,
    WrongVersion,
)


@dataclass(frozen=True, slots=True)
class Stored:
    """An entry and what it counts for."""

    entry: Entry
    size: int


@dataclass(slots=True)
class StoredTask:
    """All that a store knows of one task; `bounds` has each version's first offsets, in order."""

    epoch: StoreEpoch
    leader: LeaderEpoch
    active: bool
    offsets: dict[Lane, int]
    bounds: dict[int, dict[Lane, int]]
    cuts: dict[Lane, tuple[int, ...]]
    ends: dict[Lane, int] = field(default_factory=dict)
    marks_ms: dict[Lane, int] = field(default_factory=dict)
    taken_ms: dict[Lane, int] = field(default_factory=dict)
    restored: Mark | None = None
    born: str = ""
    begun_on: str = ""
    leases_ms: dict[Lane, int] = field(default_factory=dict)
    rows: dict[Lane, int] = field(default_factory=dict)
    numbers: Numbers = field(default_factory=dict)
    rows_before: dict[int, dict[Lane, int]] = field(default_factory=dict)
    seq: int = 0
    logs: dict[Bucket, dict[Sequence64, Stored]] = field(default_factory=dict)
    bases: dict[Bucket, Stored] = field(default_factory=dict)
    older: dict[Bucket, tuple[Stored, ...]] = field(default_factory=dict)
    vanished: dict[Bucket, set[Sequence64]] = field(default_factory=dict)
    cleared: dict[Bucket, Cleared] = field(default_factory=dict)

    @classmethod
    def begin(
        cls, epoch: StoreEpoch, start: TaskStart, now_ms: int, born: str, begun_on: str
    ) -> StoredTask:
        """What `lua/initialise.lua` leaves."""
        return cls(
            epoch=epoch,
            leader=start.leader,
            active=start.active,
            offsets=dict(start.offsets),
            bounds={version: dict(bounds) for version, bounds in start.versions.items()},
            cuts=dict(start.cuts),
            ends=dict(start.ends),
            restored=_taken_by(start.restored, now_ms),
            born=born,
            begun_on=begun_on,
            rows=start.rows,
            numbers={lane: dict(below) for lane, below in start.numbers.items()},
        )

    @property
    def version(self) -> int:
        """The newest one."""
        return max(self.bounds)

    def begin_version(self, version: int) -> Begun:
        """What `lua/begin_version.lua` does where nothing speaks against it."""
        if version != self.version:
            self.bounds[version] = dict(self.offsets)
            self.rows_before[version], self.rows = self.rows, {}
            self.active = False
        rows = dict(self.rows_before.get(version, {}))
        return Begun(dict(self.bounds[version]), dict(self.marks_ms), rows)

    def copy(self) -> StoredTask:
        """The same task, sharing nothing that changes."""
        return replace(
            self,
            offsets=dict(self.offsets),
            bounds={version: dict(bounds) for version, bounds in self.bounds.items()},
            cuts=dict(self.cuts),
            ends=dict(self.ends),
            marks_ms=dict(self.marks_ms),
            taken_ms=dict(self.taken_ms),
            leases_ms=dict(self.leases_ms),
            rows=dict(self.rows),
            rows_before={version: dict(rows) for version, rows in self.rows_before.items()},
            logs={bucket: dict(log) for bucket, log in self.logs.items()},
            bases=dict(self.bases),
            older=dict(self.older),
            vanished={bucket: set(seqs) for bucket, seqs in self.vanished.items()},
            cleared=dict(self.cleared),
        )

    def clear(self, said: Clearing) -> None:
        """What `lua/clear.lua` does."""
        last = self.cleared.get(said.bucket)
        if last is None or last.owner_epoch <= said.owner_epoch:
            after = Sequence64(self.seq) if said.opens else None
            self.cleared[said.bucket] = Cleared(said.owner_epoch, after)

    def replace(self, entry: Entry) -> None:
        """What `lua/merge.lua` writes."""
        bucket = entry.partial.bucket
        log = dict(self.logs.get(bucket, {}))
        for seq in entry.merged:
            log.pop(seq, None)
        log[entry.seq] = Stored(entry, entry_size(entry))
        self.logs[bucket] = dict(sorted(log.items()))
        self.vanished.get(bucket, set()).difference_update(entry.merged)

    def log_bytes(self) -> int:
        """The size of all entries and bases."""
        groups = (*(log.values() for log in self.logs.values()), *self.older.values())
        sizes = [stored.size for stored in self.bases.values()]
        for group in groups:
            sizes += [stored.size for stored in group]
        return sum(sizes)

    def idle(self, now_ms: int) -> frozenset[Lane]:
        """The lanes whose lease has not expired."""
        return frozenset(lane for lane, end_ms in self.leases_ms.items() if end_ms > now_ms)

    def finished(self) -> frozenset[Lane]:
        """The lanes that are read to their end."""
        return frozenset(
            lane for lane, end in self.ends.items() if self.offsets.get(lane, -1) >= end
        )

    def holders(self, now_ms: int) -> frozenset[str]:
        """The lanes and backfills that hold the watermark; see `lua/append.lua`."""
        return frozenset(map(lane_group, self._slowest(now_ms)))

    def _slowest(self, now_ms: int) -> frozenset[Lane]:
        lanes = self.offsets.keys() - self.idle(now_ms) - self.finished()
        if unmarked := lanes - self.marks_ms.keys():
            return frozenset(unmarked)
        lowest = min((self.marks_ms[lane] for lane in lanes), default=0)
        return frozenset(lane for lane in lanes if self.marks_ms[lane] == lowest)


def _taken_by(mark: Mark | None, now_ms: int) -> Mark | None:
    """The mark, taken no later than now: Kafka's clock may be ahead."""
    if mark is None or mark.taken_ms is None:
        return mark
    return replace(mark, taken_ms=min(mark.taken_ms, now_ms))


@dataclass(frozen=True, slots=True)
class Seal:
    """The sentinel, as `lua/seal.lua` leaves it."""

    epoch: StoreEpoch
    leader: LeaderEpoch
    run_id: str


@dataclass(frozen=True, slots=True)
class StoreSnapshot:
    """A store as it was once, for `MemoryPartialLog.restore`."""

    tasks: Mapping[TaskName, StoredTask]
    sealed: Seal | None


EMPTY_STORE = StoreSnapshot({}, None)


@dataclass(slots=True)
class Bell:
    """What one connection listens to, and what rang since it was last asked."""

    listening: frozenset[TaskName] = frozenset()
    rung: frozenset[TaskName] = frozenset()


class MemoryStore:
    """The server: its tasks, its sentinel, its run id and its clock."""

    def __init__(self, clock: Callable[[], int], buckets: int, budget: int) -> None:
        self.clock = clock
        self.buckets = buckets
        self.budget = budget
        self.look_entries_max = LOOK_ENTRIES_MAX
        self.tasks: dict[TaskName, StoredTask] = {}
        self.sealed: Seal | None = None
        self.starts = 1
        self._lives = 0
        self.bells: list[Bell] = []

    @property
    def run_id(self) -> str:
        """Another one after each restart, and each time it was a replica."""
        return f"run-{self.starts}"

    def next_life(self) -> str:
        """A name for a life of a task; no two have the same."""
        self._lives += 1
        return f"life-{self._lives}"

    def ring(self, task: TaskName) -> None:
        """Ring the doorbell of a task."""
        for bell in self.bells:
            bell.rung |= {task} & bell.listening

    def task(self, name: TaskName, epoch: StoreEpoch) -> StoredTask | None:
        """The task, if it is of this epoch."""
        found = self.tasks.get(name)
        return found if found is not None and found.epoch == epoch else None

    def life(self, name: TaskName, epoch: StoreEpoch, born: str) -> StoredTask | None:
        """The task, if it is in this life of this epoch."""
        found = self.task(name, epoch)
        return found if found is not None and found.born == born else None

    def led(self, name: TaskName, epoch: StoreEpoch, leader: LeaderEpoch) -> StoredTask | None:
        """The task, if it is of this epoch and has not heard of a later leader; now of this one."""
        found = self.task(name, epoch)
        if found is None or found.leader > leader:
            return None
        found.leader = leader
        return found


def entry_size(entry: Entry) -> int:
    """What an entry counts for."""
    if entry.merged:
        return merged_content_of(entry)[1]
    return content_of(entry.version, entry.ranges, entry.partial)[2]


def stored_entries(version: int, mapped: Mapped, seq: Sequence64) -> dict[Bucket, Stored]:
    """The entries that a batch makes under `seq`."""
    entries = [Entry(seq, version, mapped.ranges, partial) for partial in mapped.partials]
    return {entry.partial.bucket: Stored(entry, entry_size(entry)) for entry in entries}


def refused_task(found: StoredTask, epoch: StoreEpoch) -> AppendOutcome | None:
    """Why the task takes no batch at all; None if it does."""
    if found.epoch != epoch:
        return WrongEpoch(found.epoch)
    return None if found.active else TaskPaused()


def refused_ranges(found: StoredTask, version: int, mapped: Mapped) -> AppendOutcome | None:
    """Why the task does not take these ranges; None if it does."""
    ranges = mapped.ranges
    for part in ranges:
        current, rows = found.offsets.get(part.lane, -1), found.rows.get(part.lane, 0)
        numbers = mapped.numbered.get(part.lane)
        if current != part.first or (numbers is not None and numbers.first != rows):
            return Stale(part.lane, current, rows)
    if not all(_fits_version(found, version, part) for part in ranges):
        return WrongVersion(found.version)
    apart = len({lane_group(part.lane) for part in ranges}) > 1
    for part in ranges:
        upto = math.inf if apart else part.next
        cuts = [cut for cut in found.cuts.get(part.lane, ()) if part.first < cut < upto]
        end = found.ends.get(part.lane)
        beyond = [end] if end is not None and end < part.next else []
        if cuts or beyond:
            return Cut(part.lane, min(cuts + beyond))
    return None


def refused_merge(found: StoredTask, owner_epoch: AssignmentEpoch, entry: Entry) -> bool:
    """Whether an entry may not be put in place of those that it stands for; see `lua/merge.lua`."""
    bucket = entry.partial.bucket
    cleared = found.cleared.get(bucket)
    if cleared is None or cleared.owner_epoch != owner_epoch or cleared.after is None:
        return True
    if entry.merged[0] <= cleared.after:
        return True
    log, vanished = found.logs.get(bucket, {}), found.vanished.get(bucket, set())
    first, last = entry.merged[0], entry.merged[-1]
    if any(first <= seq <= last and stored.entry.merged for seq, stored in log.items()):
        return True
    return not all(seq in log or seq in vanished for seq in entry.merged)


def _fits_version(found: StoredTask, version: int, part: Range) -> bool:
    """Whether all of a range lies between where its version and the next one begin."""
    if version not in found.bounds or part.first < found.bounds[version].get(part.lane, 0):
        return False
    after = _end_of(found, version, part.lane)
    return after is None or part.next <= after


def _end_of(found: StoredTask, version: int, lane: Lane) -> int | None:
    """Where a version ends in a lane; None for the newest."""
    newer = next((each for each in found.bounds if each > version), None)
    return None if newer is None else found.bounds[newer].get(lane, 0)


def write(
    found: StoredTask,
    version: int,
    mapped: Mapped,
    stored: Mapping[Bucket, Stored],
    now_ms: int,
) -> None:
    """Take a batch that nothing speaks against."""
    found.seq += 1
    for bucket, entry in stored.items():
        found.logs.setdefault(bucket, {})[entry.entry.seq] = entry
    for part in mapped.ranges:
        found.offsets[part.lane] = part.next
        if part.lane in mapped.numbered:
            found.rows[part.lane] = _rows_behind(found, version, part, mapped.numbered[part.lane])
        mark = mapped.marks_ms.get(part.lane)
        if mark is not None:
            found.marks_ms[part.lane] = max(found.marks_ms.get(part.lane, mark), mark)
            found.taken_ms[part.lane] = now_ms
        if has_rows(mapped):
            found.leases_ms.pop(part.lane, None)


def _rows_behind(found: StoredTask, version: int, part: Range, counted: RowNumbers) -> int:
    """How many rows lie below the end of a range; see `lua/append.lua`."""
    if part.next == _end_of(found, version, part.lane):
        return 0
    known = found.numbers.get(part.lane, {})
    if part.next in known:
        return known[part.next]
    if counted.next != NOT_KNOWN:
        return counted.next
    return NOT_KNOWN if any(offset > part.next for offset in known) else counted.first


def head_of(found: StoredTask | None, now_ms: int, run_id: str) -> Head | None:
    """One look at a task."""
    if found is None:
        return None
    return Head(
        epoch=found.epoch,
        version=found.version,
        active=found.active,
        offsets=dict(found.offsets),
        marks_ms=dict(found.marks_ms),
        idle=found.idle(now_ms),
        seq=Sequence64(found.seq),
        now_ms=now_ms,
        log_bytes=found.log_bytes(),
        ends=dict(found.ends),
        run_id=run_id,
        leader=found.leader,
        taken_ms=dict(found.taken_ms),
        restored=found.restored,
        born=found.born,
        begun_on=found.begun_on,
        rows=dict(found.rows),
        numbers=found.numbers,
    )
