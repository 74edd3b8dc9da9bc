"""The state of the service itself."""

from __future__ import annotations

from typing import Annotated

from mars.client.answers.balance import Balance
from mars.client.answers.base import Answer, one_of, says


class Partition(Answer, frozen=True):
    """How far a mapper is in a partition."""

    topic: str
    partition: int
    position: int
    state: str
    lag: Annotated[int | None, says("messages ahead, as far as the mapper knows")] = None


class BucketLoad(Answer, frozen=True):
    """What a bucket costs its owner; the rates are smoothed."""

    use: Annotated[float, says("CPU seconds a second, of one core")]
    rows_per_second: float
    bytes_per_second: float
    backlog_bytes: int


class Bucket(Answer, frozen=True):
    """What a reducer does with a bucket."""

    bucket: int
    epoch: int
    state: str
    load: Annotated[BucketLoad | None, says("null: next to nothing")] = None


class Member(Answer, frozen=True, kw_only=True):
    """A live process."""

    id: str
    role: str
    host: str
    pid: int
    started: int
    reported: Annotated[int | None, says("when it last said so, by its own clock")] = None
    load: dict[str, float]
    missing: list[str]
    partitions: list[Partition]
    buckets: list[Bucket]
    age_s: Annotated[
        float | None,
        says(
            "of all this, by the leader's clock; what it does not watch, and while nobody"
            " leads, by the clocks of both machines"
        ),
    ] = None
    leaving: Annotated[bool, says("it stops once its buckets have gone elsewhere")] = False


class Leader(Answer, frozen=True):
    """Who leads the reducers, and in which epoch."""

    member: str | None
    epoch: int


class Owner(Answer, frozen=True):
    """Which reducer owns a bucket, and since which epoch."""

    bucket: int
    member: str
    epoch: int


class TaskBacklog(Answer, frozen=True):
    """What one task has not done yet."""

    task: str
    log_bytes: int
    lag: int


class Backlog(Answer, frozen=True):
    """What has not been done yet, in all and by task."""

    log_bytes: int
    lag: int
    tasks: list[TaskBacklog]


class Cluster(Answer, frozen=True, kw_only=True):
    """The state of the cluster."""

    namespace: str
    version: str
    buckets: int
    store_epoch: int | None
    leader: Leader | None
    members: list[Member]
    assignment: list[Owner]
    balance: Annotated[Balance | None, says("null while nobody leads")] = None
    backlog: Backlog
    missing: list[str]


class Alive(Answer, frozen=True):
    """The process runs."""

    status: Annotated[str, one_of("alive")] = "alive"


class Readiness(Answer, frozen=True):
    """Each server: ok, or what is missing."""

    status: Annotated[str, one_of("ready", "not ready")]
    services: dict[str, str]
