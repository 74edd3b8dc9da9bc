"""The partial log on Redis or Valkey: each call is one script, in one round trip."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from mars.adapters.redis.appending import Appender
from mars.adapters.redis.connection import (
    BELL_TIMEOUT_S,
    CALL_TIMEOUT_S,
    RUN_SECTIONS,
    run_id_of,
    run_id_of_all,
)
from mars.adapters.redis.doorbell import Doorbell
from mars.adapters.redis.keys import TaskKeys, store_key
from mars.adapters.redis.looking import Looker
from mars.adapters.redis.reading import Reader
from mars.adapters.redis.scripts import Argument, Call, Script
from mars.adapters.redis.servers import StoreServers, calling, open_servers, where_they_lie
from mars.adapters.redis.wire import (
    initialise_arguments,
    pairs,
    read_begun,
    read_cleared,
)
from mars.adapters.store import (
    IDLE_LEASE_MS,
    content_of,
    merged_content_of,
)
from mars.core.errors import Unavailable
from mars.core.settings import Settings
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
)
from mars.protocol.ports import (
    AppendOutcome,
    Batch,
    Begun,
    Cleared,
    Clearing,
    Followed,
    Head,
    IdleLease,
    LogSlice,
    LogTrim,
    ReadRequest,
    StoreIdentity,
    TaskLook,
    TaskStart,
)

TRIM_SEQS_MAX = 1_000
"""Entries deleted by one script: it keeps the server busy for about a millisecond."""

TRIM_SEQS_TOGETHER_MAX = 100
"""Entries of a log that is trimmed in one round trip with others: fifty take milliseconds."""

_RENEW_IDLE = Script.load("renew_idle")
_TRIM = Script.load("trim")
_COMPACT = Script.load("compact")
_PUT_BASE = Script.load("put_base")
_INITIALISE = Script.load("initialise")
_SET_ACTIVE = Script.load("set_active")
_BEGIN_VERSION = Script.load("begin_version")
_DROP = Script.load("drop")
_HEED = Script.load("heed")
_ADD_LANES = Script.load("add_lanes")
_SEAL = Script.load("seal")
_MERGE = Script.load("merge")


class RedisPartialLog:
    """`PartialLog` on Redis or Valkey: one server, or a cluster.

    Calls may come from several threads; `listen` and `wait` from one. A call blocks for at most
    `CALL_TIMEOUT_S` of `connection.py`, twice that where a script has to be sent as text. `read`
    and `read_many` raise CorruptEntry for an entry that this release cannot read.
    """

    def __init__(
        self, servers: StoreServers, bell: StoreServers, namespace: str, buckets: int, budget: int
    ) -> None:
        self._servers = servers
        self._bell = bell
        self._doorbell = Doorbell(bell)
        self._namespace = namespace
        self._buckets = buckets
        self._budget = budget
        self._appender = Appender(servers, namespace, buckets, budget)
        self._looker = Looker(servers, namespace)
        self._reader = Reader(servers, namespace)

    @classmethod
    def open(cls, settings: Settings, buckets: int) -> RedisPartialLog:
        """The log that the settings name; `buckets` is the namespace's own B, fixed in ZooKeeper.

        Connects when it is first used.
        """
        servers = open_servers(settings.redis, CALL_TIMEOUT_S)
        bell = open_servers(settings.redis, BELL_TIMEOUT_S)
        return cls(servers, bell, settings.namespace, buckets, settings.cluster.log_bytes_max)

    def close(self) -> None:
        """Give all connections back."""
        self._doorbell.close()
        self._servers.close()
        self._bell.close()

    # --------------------------------------------------------------------------- the store

    def ping(self) -> str | None:
        """None if all servers answer and can be trusted, else a sentence that says what to do."""
        try:
            with calling(self._servers):
                memories = [client.info("memory") for client in self._servers.each()]
        except Unavailable as problem:
            return str(problem)
        for memory in memories:
            policy = memory.get("maxmemory_policy", "noeviction")
            if int(memory.get("maxmemory", 0)) and policy != "noeviction":
                return (
                    f"redis throws data away: set its maxmemory-policy to noeviction, not {policy}"
                )
        return None

    def identity(self) -> StoreIdentity:
        """The run id, of a cluster that of all servers, and what the last recovery left.

        A seal of a release whose tasks do not know where their versions begin is none.
        """
        key = store_key(self._namespace)
        with calling(self._servers):
            sealed: Any = self._servers.of(key).hmget(key, "epoch", "run_id", "versions")
            # Then, so that a server which takes the place of another one in between is told of.
            ids = [run_id_of(client.info(*RUN_SECTIONS)) for client in self._servers.each()]
        epoch, run_id, versions = sealed
        if epoch is None or versions != epoch:
            return StoreIdentity(run_id_of_all(ids), None, None)
        return StoreIdentity(run_id_of_all(ids), run_id.decode(), StoreEpoch(int(epoch)))

    def seal(self, epoch: StoreEpoch, leader: LeaderEpoch, run_id: str) -> bool:
        """Leave the sentinel; one of a later epoch or leader stays as it is."""
        return self._done(_SEAL, [store_key(self._namespace)], [epoch, leader, run_id])

    # -------------------------------------------------------------------------- the mappers

    def append(
        self, task: TaskName, epoch: StoreEpoch, version: int, mapped: Mapped
    ) -> AppendOutcome:
        """M3. `Stale` with -1: the leader has not added this lane yet, send it again later.

        Where the server's memory is full, only lanes that hold the watermark are let in, as if
        the task were over its budget. Raises ValueError for a batch that no mapper may send.
        """
        return self._appender.append(Batch(task, epoch, version, mapped))

    def append_together(self, batches: Sequence[Batch]) -> list[AppendOutcome | Unavailable]:
        """One round trip for some dozen tasks, which the server runs one by one."""
        return self._appender.append_together(batches)

    def renew_idle(self, leases: Sequence[IdleLease]) -> list[bool]:
        """Lease lanes as idle for `IDLE_LEASE_MS`, where the next offset still is the lease's.

        Few round trips, however many tasks have seen a lane to its end.
        """
        of_task: dict[tuple[TaskName, StoreEpoch, int], list[IdleLease]] = {}
        for lease in leases:
            of_task.setdefault((lease.task, lease.epoch, lease.version), []).append(lease)
        calls = [self._renewal(own) for own in of_task.values()]
        with calling(self._servers):
            answers = where_they_lie(self._servers, calls, Script.run_each)
        asked, told = chain.from_iterable(of_task.values()), chain.from_iterable(answers)
        done = dict(zip(asked, told, strict=True))
        return [done[lease] == 1 for lease in leases]

    def _renewal(self, leases: Sequence[IdleLease]) -> Call:
        """One call for those of one task."""
        one, keys = leases[0], self._keys(leases[0].task)
        lanes = [part for lease in leases for part in (lease.lane, lease.offset)]
        arguments = (one.epoch, IDLE_LEASE_MS, one.version, *lanes)
        return _RENEW_IDLE, [keys.meta, keys.offsets, keys.idle], arguments

    # ------------------------------------------------------------------------- the reducers

    def head(self, tasks: Sequence[TaskName]) -> dict[TaskName, Head | None]:
        """One look per task, many in one round trip."""
        looks = self.look({task: {} for task in tasks}, ())
        return {task: None if look is None else look.head for task, look in looks.items()}

    def look(
        self, followed: Followed, clearings: Sequence[Clearing]
    ) -> dict[TaskName, TaskLook | None]:
        """See `PartialLog`; few round trips, however many tasks there are."""
        return self._looker.look(followed, clearings)

    def cleared(self, task: TaskName) -> dict[Bucket, Cleared]:
        """What the owners of a task's logs said last."""
        key = self._keys(task).cleared
        with calling(self._servers):
            found: Any = self._servers.of(key).hgetall(key)
        return {Bucket(int(bucket)): read_cleared(said) for bucket, said in found.items()}

    def merge(
        self,
        task: TaskName,
        epoch: StoreEpoch,
        owner_epoch: AssignmentEpoch,
        entry: Entry,
        run_id: str,
    ) -> bool:
        """One entry of an assistant in place of all that it stands for, or of none."""
        keys, bucket = self._keys(task), entry.partial.bucket
        names = [keys.meta, keys.bytes, keys.log(bucket), keys.sizes(bucket)]
        names += [keys.merged(bucket), keys.cleared]
        arguments: list[Argument] = [epoch, entry.version, run_id, bucket, owner_epoch]
        arguments += [*merged_content_of(entry), *entry.merged]
        return self._done(_MERGE, names, arguments)

    def read(self, task: TaskName, bucket: Bucket, after: Sequence64, upto: Sequence64) -> LogSlice:
        """The entries with `after < seq <= upto`, and the base where `after` is 0."""
        return self.read_many([ReadRequest(task, bucket, after, upto)])[0]

    def read_many(self, requests: Sequence[ReadRequest]) -> list[LogSlice]:
        """Answers in the order of the requests: one round trip, and one per fresh reader.

        Entries and base of a fresh reader are of the same moment; so are entries and their count.
        """
        return self._reader.read_many(requests)

    def read_together(
        self, task: TaskName, buckets: Sequence[Bucket], upto: Sequence64
    ) -> list[LogSlice]:
        """The whole logs of several buckets, in one round trip that holds up the server."""
        return self._reader.read_together(task, buckets, upto)

    def trim(
        self,
        task: TaskName,
        epoch: StoreEpoch,
        born: str,
        bucket: Bucket,
        seqs: Sequence[Sequence64],
    ) -> bool:
        """R9: delete these entries; in several scripts if there are many."""
        calls = self._trim_calls(LogTrim(task, epoch, born, bucket, seqs))
        return all(self._done(*call) for call in calls)

    def trim_together(self, trims: Sequence[LogTrim]) -> None:
        """Some dozen short ones in one round trip; what is long goes by itself."""
        calls = [call for one in trims for call in self._trim_calls(one)]
        short = [call for call in calls if len(call[2]) <= TRIM_SEQS_TOGETHER_MAX]
        with calling(self._servers):
            where_they_lie(self._servers, short, Script.run_each)
        for call in calls:
            if len(call[2]) > TRIM_SEQS_TOGETHER_MAX:
                self._done(*call)

    def _trim_calls(self, trim: LogTrim) -> Iterator[Call]:
        keys, bucket, seqs = self._keys(trim.task), trim.bucket, trim.seqs
        names = [keys.meta, keys.bytes, keys.log(bucket), keys.sizes(bucket), keys.merged(bucket)]
        for start in range(0, len(seqs) or 1, TRIM_SEQS_MAX):
            yield _TRIM, names, [trim.epoch, trim.born, *seqs[start : start + TRIM_SEQS_MAX]]

    def compact(
        self,
        task: TaskName,
        epoch: StoreEpoch,
        born: str,
        bucket: Bucket,
        base: Entry | None,
        older: Sequence[Entry] = (),
    ) -> bool:
        """R9. Also False if a base of a higher `seq` is there: the bucket has a newer owner.

        None takes the base away whatever its `seq` is.
        """
        keys = self._keys(task)
        names = [keys.meta, keys.bytes, keys.log(bucket), keys.sizes(bucket), keys.base(bucket)]
        names.append(keys.merged(bucket))
        arguments: list[Argument] = [epoch, born, "" if base is None else base.seq]
        if base is not None:
            for one in (base, *older):
                arguments += content_of(one.version, one.ranges, one.partial)
        return self._done(_COMPACT, names, arguments)

    def put_base(
        self, task: TaskName, epoch: StoreEpoch, born: str, bucket: Bucket, bases: Sequence[Entry]
    ) -> bool:
        """Let a bucket's log begin with saved panes; a base that is there stays as it is."""
        keys = self._keys(task)
        arguments: list[Argument] = [epoch, born]
        for one in bases:
            arguments += content_of(one.version, one.ranges, one.partial)
        return self._done(_PUT_BASE, [keys.meta, keys.bytes, keys.base(bucket)], arguments)

    # --------------------------------------------------------------------------- the leader

    def heed(self, tasks: Sequence[TaskName], epoch: StoreEpoch, leader: LeaderEpoch) -> None:
        """Let the lives of this epoch hear of a leader; few round trips, however many they are."""
        calls = [(_HEED, [self._keys(task).meta], (epoch, leader)) for task in tasks]
        with calling(self._servers):
            where_they_lie(self._servers, calls, Script.run_each)

    def initialise(self, task: TaskName, epoch: StoreEpoch, start: TaskStart) -> bool:
        """Begin a life of the task, with the logs of all buckets empty."""
        arguments = initialise_arguments(epoch, self._buckets, start)
        return self._done(_INITIALISE, self._keys(task).all(self._buckets), arguments)

    def set_active(
        self, task: TaskName, epoch: StoreEpoch, leader: LeaderEpoch, *, active: bool
    ) -> bool:
        """Pause or resume; a resume clears the idle leases."""
        keys = self._keys(task)
        return self._done(_SET_ACTIVE, [keys.meta, keys.idle], [epoch, leader, int(active)])

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
        keys = self._keys(task)
        names = [keys.meta, keys.offsets, keys.marks, keys.bounds, keys.rows]
        arguments: list[Argument] = [epoch, leader, run_id, version, after]
        with calling(self._servers):
            answer = _BEGIN_VERSION.run(self._servers.of(keys.meta), names, arguments)
        return None if answer is None else read_begun(answer)

    def add_lanes(
        self, task: TaskName, epoch: StoreEpoch, leader: LeaderEpoch, lanes: Mapping[Lane, int]
    ) -> bool:
        """Add lanes at these offsets where the task has none of that name."""
        keys = self._keys(task)
        return self._done(_ADD_LANES, [keys.meta, keys.offsets], [epoch, leader, *pairs(lanes)])

    def drop(self, task: TaskName, epoch: StoreEpoch, leader: LeaderEpoch, version: int) -> bool:
        """Unlink all keys of a deleted task, and nothing of one that bears its name since."""
        return self._done(_DROP, self._keys(task).all(self._buckets), [epoch, leader, version])

    # -------------------------------------------------------------------------- the doorbell

    def listen(self, tasks: Sequence[TaskName]) -> None:
        """Hear the doorbells of these tasks, and of no others, from the next `wait` on."""
        self._doorbell.listen({self._keys(task).bell: task for task in tasks})

    def wait(self, timeout_s: float) -> frozenset[TaskName]:
        """Wait for a doorbell; never raises, bells are lost while the server is away."""
        return self._doorbell.wait(timeout_s)

    # -------------------------------------------------------------------------------- within

    def _keys(self, task: TaskName) -> TaskKeys:
        return TaskKeys.of(self._namespace, task)

    def _done(self, script: Script, keys: Sequence[str], arguments: Sequence[Argument]) -> bool:
        with calling(self._servers):
            return bool(script.run(self._servers.of(keys[0]), keys, arguments) == 1)
