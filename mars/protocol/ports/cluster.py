"""What lies in ZooKeeper: definitions, members, the election, the assignment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from mars.core.definitions import TaskDefinition
from mars.core.plan import Stream
from mars.core.types import (
    AssignmentEpoch,
    Bucket,
    LeaderEpoch,
    MemberId,
    StoreEpoch,
    StreamName,
    TaskName,
    Topic,
)
from mars.protocol.ports.loads import Balance, BucketLoad


class Leadership(Protocol):
    """A process's leadership as its `Coordinator` knows it: what `Registry` can check.

    It holds until another process leads, whatever this one believes.
    """

    @property
    def epoch(self) -> LeaderEpoch:
        """The leader epoch."""


@dataclass(frozen=True, slots=True)
class TaskWrite:
    """A definition, and the registry's version that it replaces; None: its name is free."""

    definition: TaskDefinition
    expected: int | None


class Registry(Protocol):
    """Streams and tasks in ZooKeeper. Versions are the registry's own, for compare-and-set.

    What is written with `lead` is written only while that leadership holds: both are one step, so
    a leader that stood still meanwhile writes nothing. It is told by False.
    """

    def whole(self) -> bool:
        """False where ZooKeeper was never used, or has lost everything: until `make_whole`."""

    def make_whole(self, lead: Leadership | None = None) -> bool:
        """Say that all that `mars.control` knows is in the registry."""

    def streams(self) -> dict[StreamName, Stream]: ...

    def stream(self, name: StreamName) -> Stream | None: ...

    def put_stream(self, stream: Stream, lead: Leadership | None = None) -> bool: ...

    def delete_stream(self, name: StreamName) -> bool:
        """False if there was none."""

    def tasks(self) -> dict[TaskName, TaskDefinition]:
        """All definitions, deleted ones included."""

    def versioned_tasks(self) -> dict[TaskName, tuple[TaskDefinition, int]]:
        """The same, each with the registry's version of it."""

    def task(self, name: TaskName) -> tuple[TaskDefinition, int] | None:
        """A definition and the registry's version of it."""

    def create_task(self, definition: TaskDefinition, lead: Leadership | None = None) -> bool:
        """False if the name exists (a deleted task's name exists, see `replace_task`)."""

    def replace_task(
        self, definition: TaskDefinition, expected: int, lead: Leadership | None = None
    ) -> bool:
        """Write a definition if the registry's version still is `expected`; else False."""

    def write_tasks(self, writes: Sequence[TaskWrite]) -> int:
        """Write many definitions, in order and some hundred in one step: how many were written.

        It ends before the first step in which one is no longer what its writer expected: of such a
        step nothing is written.
        """

    def watch_tasks(self, changed: Callable[[], None]) -> None:
        """Call `changed` (from another thread) after any change of any task."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Who owns a bucket, and since which assignment epoch."""

    member: MemberId
    epoch: AssignmentEpoch


@dataclass(frozen=True, slots=True)
class Assignment:
    """Which reducer owns which bucket in which life of the store; one znode.

    `assistants` merge segments of the logs of those few buckets that need more than a processor.
    """

    leader_epoch: LeaderEpoch
    store_epoch: StoreEpoch
    owners: Mapping[Bucket, Owner]
    assistants: Mapping[Bucket, tuple[MemberId, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PartitionReading:
    """How far a mapper is in a partition: `position` is the next offset it will map.

    `state` is one of `starting`, `reading`, `idle`, `paused`, `backpressure`. `lag` is how many
    messages lie ahead of what was read, as far as the mapper knows; None if it does not.
    """

    topic: Topic
    partition: int
    position: int
    state: str
    lag: int | None = None


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
    `rows_per_second`, `cpu_use` (of a core), `cpu_seconds_total`, `resident_bytes`; of a mapper
    `queue_bytes` and `lag_messages`; of a reducer `backlog_bytes` (of the task that has most),
    `backlog_growth_bytes_per_second` and `read_bytes_per_second` (while it reads); of both
    `capacity` (of a core); `leader_epoch` of the leader; of a reducer that assists others
    `assisted_segments_total`, `assisted_refused_total` and `assisted_remaining` (the part of the
    bytes that merging left). Rates are smoothed. `reported_ms` is the process's own wall clock:
    that it differs from the last one is what others may rely on. `loads` are the buckets that cost
    most. `leaving`: it wants to stop, and waits until its buckets have gone elsewhere. `balance`
    is said by the leader.
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
    reported_ms: int = 0
    loads: tuple[BucketLoad, ...] = ()
    leaving: bool = False
    balance: Balance | None = None


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

    def members(self, role: str) -> dict[MemberId, MemberInfo]:
        """Those of a role that are alive."""

    def roster(self, *roles: str) -> dict[str, dict[MemberId, MemberInfo]]:
        """Those of each of these roles, asked for at once: two round trips, however many roles."""

    def watch(self, changed: Callable[[], None]) -> None:
        """Call `changed` (from another thread) when members, assignment or connection change."""

    def assignment(self) -> Assignment | None:
        """The current assignment, read after a sync with the ZooKeeper leader."""

    def outgrow(self, floor: LeaderEpoch) -> None:
        """End the own leadership, and let leader epochs go on above `floor`.

        For a ZooKeeper that has lost how high they were.
        """

    def campaign(self) -> None:
        """Stand for election in the background, for as long as the process lives."""

    def leading(self) -> LeaderEpoch | None:
        """This process's own leader epoch while it leads, else None (at once when suspended)."""

    def leadership(self) -> Leadership | None:
        """The leadership that `leading` tells the epoch of, for what the registry is to write."""

    def publish(self, assignment: Assignment) -> bool:
        """Write the assignment if this process still leads in `assignment.leader_epoch`."""

    def close(self) -> None:
        """Leave: members and election nodes vanish at once."""
