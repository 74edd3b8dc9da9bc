"""The state of the service itself."""

from __future__ import annotations

from mars.answers.balance import Balance
from mars.answers.base import Answer


class Partition(Answer, frozen=True):
    """How far a mapper is in a partition."""

    topic: str
    partition: int
    position: int
    state: str
    lag: int | None = None


class BucketLoad(Answer, frozen=True):
    """What a bucket costs its owner, a second; `use` in CPU seconds."""

    use: float
    rows_per_second: float
    bytes_per_second: float
    backlog_bytes: int


class Bucket(Answer, frozen=True):
    """What a reducer does with a bucket; no load: next to nothing."""

    bucket: int
    epoch: int
    state: str
    load: BucketLoad | None = None


class Member(Answer, frozen=True):
    """A live process."""

    id: str
    role: str
    host: str
    pid: int
    started: int
    load: dict[str, float]
    missing: list[str]
    partitions: list[Partition]
    buckets: list[Bucket]
    reported: int | None = None
    age_s: float | None = None
    leaving: bool = False


class Leader(Answer, frozen=True):
    """Who leads the reducers, and in which epoch."""

    member: str | None
    epoch: int


class Owner(Answer, frozen=True):
    """Which reducer owns a bucket."""

    bucket: int
    member: str
    epoch: int


class TaskBacklog(Answer, frozen=True):
    """What one task has not done yet."""

    task: str
    log_bytes: int
    lag: int


class Backlog(Answer, frozen=True):
    """What has not been done yet."""

    log_bytes: int
    lag: int
    tasks: list[TaskBacklog]


class Cluster(Answer, frozen=True):
    """The state of the cluster."""

    namespace: str
    version: str
    buckets: int
    store_epoch: int | None
    leader: Leader | None
    members: list[Member]
    assignment: list[Owner]
    backlog: Backlog
    missing: list[str]
    balance: Balance | None = None


class Readiness(Answer, frozen=True):
    """Each server: ok, or what is missing."""

    status: str
    services: dict[str, str]
