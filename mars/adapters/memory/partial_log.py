"""The partial log in memory: the twin of Redis for simulations and unit tests.

One `MemoryStore` is the server; each `MemoryPartialLog` is one process's connection to it, which
can be told to fail by itself. Nothing blocks and nothing is safe for threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from mars.adapters.memory.faults import Faults, fallible
from mars.adapters.memory.store import (
    EMPTY_STORE,
    Bell,
    MemoryStore,
    Seal,
    Stored,
    StoredTask,
    StoreSnapshot,
    entry_size,
    head_of,
    refused_merge,
    refused_ranges,
    refused_task,
    stored_entries,
    write,
)
from mars.adapters.store import IDLE_LEASE_MS, LOOK_BYTES_MAX, check_batch, holder_limit
from mars.core.errors import Unavailable
from mars.core.types import (
    AssignmentEpoch,
    Bucket,
    Entry,
    Lane,
    LeaderEpoch,
    Mapped,
    Sequence64,
    StoreEpoch,
    TaskName,
    lane_group,
)
from mars.engine.codec.snapshot import BEFORE_THE_LOG
from mars.protocol.ports import (
    AppendOutcome,
    Applied,
    Backpressure,
    Batch,
    Begun,
    Cleared,
    Clearing,
    Followed,
    Head,
    IdleLease,
    LogSlice,
    LogTrim,
    NoTask,
    ReadRequest,
    StoreIdentity,
    TaskLook,
    TaskStart,
)

BUDGET_BYTES = 256 * 1024 * 1024
"""The budget of a task's logs where a test does not name one; the same as the real default."""


class MemoryPartialLog:
    """`PartialLog` in memory; `clock` is the server's, in epoch ms."""

    def __init__(
        self,
        clock: Callable[[], int],
        *,
        buckets: int = 8,
        log_bytes_max: int = BUDGET_BYTES,
        store: MemoryStore | None = None,
    ) -> None:
        self.faults = Faults("redis")
        self._store = store or MemoryStore(clock, buckets, log_bytes_max)
        self._bell = Bell()
        self._store.bells.append(self._bell)

    # ------------------------------------------------------------------- what tests do to it

    def connect(self) -> MemoryPartialLog:
        """Another process's connection to the same store."""
        return MemoryPartialLog(self._store.clock, store=self._store)

    def fail_next(self, method: str, *, before: bool = True) -> None:
        """Let the next call of `method` raise `Unavailable`, before or after its effect."""
        self.faults.plan(method, before=before)

    def flush(self) -> None:
        """FLUSHALL: everything is gone, the run id stays."""
        self._store.tasks.clear()
        self._store.sealed = None

    def restart(self, held: StoreSnapshot = EMPTY_STORE) -> None:
        """The server starts again, or a replica in its place, with what that held: the run id is
        another.
        """
        self.restore(held)
        self._store.starts += 1

    def snapshot(self) -> StoreSnapshot:
        """The store as it is."""
        tasks = {name: task.copy() for name, task in self._store.tasks.items()}
        return StoreSnapshot(tasks, self._store.sealed)

    def restore(self, snapshot: StoreSnapshot) -> None:
        """Silently go back to what the store once was."""
        self._store.tasks = {name: task.copy() for name, task in snapshot.tasks.items()}
        self._store.sealed = snapshot.sealed

    def lose_entry(self, task: TaskName, bucket: Bucket, seq: Sequence64) -> None:
        """XDEL behind everybody's back: the entry is gone, what is noted of it stays."""
        found = self._store.tasks[task]
        del found.logs[bucket][seq]
        found.vanished.setdefault(bucket, set()).add(seq)

    def dump(self) -> object:
        """Everything in the store, to be compared with what was there before."""
        return self.snapshot()

    # --------------------------------------------------------------------------- the store

    @fallible
    def identity(self) -> StoreIdentity:
        """The store's run id, and what the last recovery left."""
        seal = self._store.sealed
        if seal is None:
            return StoreIdentity(self._store.run_id, None, None)
        return StoreIdentity(self._store.run_id, seal.run_id, seal.epoch)

    @fallible
    def seal(self, epoch: StoreEpoch, leader: LeaderEpoch, run_id: str) -> bool:
        """Leave the sentinel; one of a later epoch or leader stays as it is."""
        sealed = self._store.sealed
        if sealed is not None and (sealed.epoch, sealed.leader) > (epoch, leader):
            return False
        self._store.sealed = Seal(epoch, leader, run_id)
        return True

    # -------------------------------------------------------------------------- the mappers

    @fallible
    def append(
        self, task: TaskName, epoch: StoreEpoch, version: int, mapped: Mapped
    ) -> AppendOutcome:
        """M3, with the checks of `lua/append.lua` in the same order."""
        check_batch(mapped, self._store.buckets)
        found = self._store.tasks.get(task)
        if found is None:
            return NoTask()
        stored = stored_entries(version, mapped, Sequence64(found.seq + 1))
        refusal = (
            refused_task(found, epoch)
            or refused_ranges(found, version, mapped)
            or self._refused_size(found, mapped, stored.values())
        )
        if refusal is not None:
            return refusal
        write(found, version, mapped, stored, self._store.clock())
        self._store.ring(task)
        return Applied(Sequence64(found.seq))

    @fallible
    def append_together(self, batches: Sequence[Batch]) -> list[AppendOutcome | Unavailable]:
        """Each as by `append`."""
        return [_attempted(self, batch) for batch in batches]

    @fallible
    def renew_idle(self, leases: Sequence[IdleLease]) -> list[bool]:
        """Lease lanes as idle for `IDLE_LEASE_MS`, where the next offset still is the lease's."""
        return [_renewed(self._store, lease) for lease in leases]

    # ------------------------------------------------------------------------- the reducers

    @fallible
    def head(self, tasks: Sequence[TaskName]) -> dict[TaskName, Head | None]:
        """One look per task."""
        return self._heads(tasks)

    def _heads(self, tasks: Sequence[TaskName]) -> dict[TaskName, Head | None]:
        now_ms, run_id = self._store.clock(), self._store.run_id
        return {name: head_of(self._store.tasks.get(name), now_ms, run_id) for name in tasks}

    @fallible
    def look(
        self, followed: Followed, clearings: Sequence[Clearing]
    ) -> dict[TaskName, TaskLook | None]:
        """The heads, what is new in the logs, and the logs cleared or closed, all at one moment."""
        for one in clearings:
            found = self._store.task(one.task, one.epoch)
            if found is not None and one.task in followed:
                found.clear(one)
        heads = self._heads([*followed])
        return {
            task: None
            if head is None
            else TaskLook(head, _news(self._store, task, head, followed[task]))
            for task, head in heads.items()
        }

    @fallible
    def cleared(self, task: TaskName) -> dict[Bucket, Cleared]:
        """What the owners of a task's logs said last."""
        found = self._store.tasks.get(task)
        return {} if found is None else dict(found.cleared)

    @fallible
    def merge(
        self,
        task: TaskName,
        epoch: StoreEpoch,
        owner_epoch: AssignmentEpoch,
        entry: Entry,
        run_id: str,
    ) -> bool:
        """One entry of an assistant in place of all that it stands for, or of none."""
        found = self._store.task(task, epoch)
        if found is None or found.version != entry.version or run_id != self._store.run_id:
            return False
        if refused_merge(found, owner_epoch, entry):
            return False
        found.replace(entry)
        return True

    @fallible
    def read(self, task: TaskName, bucket: Bucket, after: Sequence64, upto: Sequence64) -> LogSlice:
        """The entries with `after < seq <= upto`, and the base where `after` is 0."""
        return _slice(self._store, ReadRequest(task, bucket, after, upto))

    @fallible
    def read_many(self, requests: Sequence[ReadRequest]) -> list[LogSlice]:
        """Answers in the order of the requests."""
        return [_slice(self._store, request) for request in requests]

    @fallible
    def read_together(
        self, task: TaskName, buckets: Sequence[Bucket], upto: Sequence64
    ) -> list[LogSlice]:
        """The whole logs of several buckets."""
        return [
            _slice(self._store, ReadRequest(task, each, Sequence64(0), upto), crossing=True)
            for each in buckets
        ]

    @fallible
    def trim(
        self,
        task: TaskName,
        epoch: StoreEpoch,
        born: str,
        bucket: Bucket,
        seqs: Sequence[Sequence64],
    ) -> bool:
        """R9: delete these entries."""
        found = self._store.life(task, epoch, born)
        if found is None:
            return False
        for seq in seqs:
            found.logs.get(bucket, {}).pop(seq, None)
            found.vanished.get(bucket, set()).discard(seq)
        return True

    def trim_together(self, trims: Sequence[LogTrim]) -> None:
        """Each as by `trim`."""
        for one in trims:
            self.trim(one.task, one.epoch, one.born, one.bucket, one.seqs)

    @fallible
    def compact(
        self,
        task: TaskName,
        epoch: StoreEpoch,
        born: str,
        bucket: Bucket,
        base: Entry | None,
        older: Sequence[Entry] = (),
    ) -> bool:
        """R9. Also False if a base of a higher `seq` is there: the bucket has a newer owner."""
        found = self._store.life(task, epoch, born)
        if found is None:
            return False
        if base is None:
            found.bases.pop(bucket, None)
            found.older.pop(bucket, None)
            return True
        present = found.bases.get(bucket)
        if present is not None and present.entry.seq > base.seq:
            return False
        found.bases[bucket] = Stored(base, entry_size(base))
        found.older[bucket] = tuple(Stored(one, entry_size(one)) for one in older)
        log = found.logs.get(bucket, {})
        found.logs[bucket] = {seq: entry for seq, entry in log.items() if seq > base.seq}
        vanished = found.vanished.get(bucket, set())
        found.vanished[bucket] = {seq for seq in vanished if seq > base.seq}
        return True

    @fallible
    def put_base(
        self, task: TaskName, epoch: StoreEpoch, born: str, bucket: Bucket, bases: Sequence[Entry]
    ) -> bool:
        """Let a bucket's log begin with saved panes; a base that is there stays as it is."""
        found = self._store.life(task, epoch, born)
        if found is None:
            return False
        if bucket not in found.bases:
            newest, *older = (replace(base, seq=BEFORE_THE_LOG) for base in bases)
            found.bases[bucket] = Stored(newest, entry_size(newest))
            found.older[bucket] = tuple(Stored(one, entry_size(one)) for one in older)
        return True

    # --------------------------------------------------------------------------- the leader

    @fallible
    def heed(self, tasks: Sequence[TaskName], epoch: StoreEpoch, leader: LeaderEpoch) -> None:
        """Let the lives of this epoch hear of a leader."""
        for task in tasks:
            self._store.led(task, epoch, leader)

    @fallible
    def initialise(self, task: TaskName, epoch: StoreEpoch, start: TaskStart) -> bool:
        """Begin a life of the task, with the logs of all buckets empty."""
        found = self._store.tasks.get(task)
        if found is not None and found.epoch >= epoch:
            return False
        born, run_id = self._store.next_life(), self._store.run_id
        self._store.tasks[task] = StoredTask.begin(epoch, start, self._store.clock(), born, run_id)
        return True

    @fallible
    def set_active(
        self, task: TaskName, epoch: StoreEpoch, leader: LeaderEpoch, *, active: bool
    ) -> bool:
        """Pause or resume; a resume clears the idle leases."""
        found = self._store.led(task, epoch, leader)
        if found is None:
            return False
        found.active = active
        if active:
            found.leases_ms.clear()
        return True

    @fallible
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
        """Let a version begin where the lanes stand, and stop the task."""
        present = self._store.task(task, epoch)
        if present is None or present.version not in {version, after}:
            return None
        if run_id != self._store.run_id:
            return None
        found = self._store.led(task, epoch, leader)
        return None if found is None else found.begin_version(version)

    @fallible
    def add_lanes(
        self, task: TaskName, epoch: StoreEpoch, leader: LeaderEpoch, lanes: Mapping[Lane, int]
    ) -> bool:
        """Add lanes at these offsets where the task has none of that name."""
        found = self._store.led(task, epoch, leader)
        if found is None:
            return False
        found.offsets = {**lanes, **found.offsets}
        return True

    @fallible
    def drop(self, task: TaskName, epoch: StoreEpoch, leader: LeaderEpoch, version: int) -> bool:
        """Forget a deleted task, and nothing of one that bears its name since."""
        found = self._store.tasks.get(task)
        if found is not None:
            later = (found.epoch, found.leader) > (epoch, leader)
            if later or found.version > version:
                return False
            del self._store.tasks[task]
        return True

    # -------------------------------------------------------------------------- the doorbell

    def listen(self, tasks: Sequence[TaskName]) -> None:
        """Hear the doorbells of these tasks, and of no others."""
        self._bell.listening = frozenset(tasks)

    def wait(self, timeout_s: float) -> frozenset[TaskName]:
        """The tasks whose doorbells rang since the last call; does not block."""
        del timeout_s
        rung, self._bell.rung = self._bell.rung, frozenset()
        return rung

    def ping(self) -> str | None:
        """Always None: the twin answers."""
        return None

    # -------------------------------------------------------------------------------- within

    def _refused_size(
        self, found: StoredTask, mapped: Mapped, stored: Iterable[Stored]
    ) -> AppendOutcome | None:
        used, budget = found.log_bytes(), self._store.budget
        needed = used + sum(entry.size for entry in stored)
        if needed <= budget:
            return None
        if used > budget and needed > holder_limit(budget):
            return Backpressure()
        holders = found.holders(self._store.clock())
        held = all(lane_group(part.lane) in holders for part in mapped.ranges)
        return None if held else Backpressure()


def _attempted(log: MemoryPartialLog, batch: Batch) -> AppendOutcome | Unavailable:
    try:
        return log.append(batch.task, batch.epoch, batch.version, batch.mapped)
    except Unavailable as problem:
        return problem


def _slice(store: MemoryStore, request: ReadRequest, *, crossing: bool = False) -> LogSlice:
    found = store.tasks.get(request.task)
    if found is None:
        return LogSlice(None, (), run_id=store.run_id)
    fresh = request.after == 0
    base = found.bases.get(request.bucket) if fresh else None
    older = found.older.get(request.bucket, ()) if fresh else ()
    log = found.logs.get(request.bucket, {})
    entries = [
        stored.entry
        for seq, stored in log.items()
        if request.after < seq and (stored.entry.seqs[0] if crossing else seq) <= request.upto
    ]
    return LogSlice(
        None if base is None else base.entry,
        tuple(entries),
        tuple(one.entry for one in older),
        store.run_id,
        vanished=len(found.vanished.get(request.bucket, ())),
    )


def _news(
    store: MemoryStore, task: TaskName, head: Head, logs: Mapping[Bucket, Sequence64]
) -> dict[Bucket, LogSlice]:
    """What `lua/head.lua` brings of each log."""
    slices: dict[Bucket, LogSlice] = {}
    room = LOOK_BYTES_MAX
    for bucket, after in logs.items():
        if 0 < head.seq - after <= store.look_entries_max:
            piece = _slice(store, ReadRequest(task, bucket, after, head.seq))
            room -= sum(map(entry_size, piece.entries))
            if room >= 0:
                slices[bucket] = piece
    return slices


def _renewed(store: MemoryStore, lease: IdleLease) -> bool:
    found = store.task(lease.task, lease.epoch)
    if found is None or not found.active or found.offsets.get(lease.lane) != lease.offset:
        return False
    if lease.version not in found.bounds:
        return False
    found.leases_ms[lease.lane] = store.clock() + IDLE_LEASE_MS
    return True
