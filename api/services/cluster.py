"""The state of the cluster, as its members report it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from api.schemas import (
    Backlog,
    BucketView,
    ClusterView,
    LeaderView,
    MemberView,
    OwnerView,
    PartitionView,
    TaskBacklog,
)
from api.services.context import BucketCount, Cluster, Ports
from api.services.missing import Away, Missing
from api.services.sampling import Sample, Sampler
from mars.ports import Assignment, MemberInfo
from mars.types import MemberId

ROLES = ("mapper", "reducer", "api", "bulk")
"""The roles of our own processes."""

LEADS = "leader_epoch"
"""The figure in a member's load by which it says that it leads, and in which epoch."""

Members = Mapping[MemberId, MemberInfo]


class ClusterService:
    """What the path /v1/cluster does."""

    def __init__(
        self,
        ports: Ports,
        cluster: Cluster,
        buckets: BucketCount,
        sampler: Sampler,
        away: Away,
        version: str,
    ) -> None:
        self._ports = ports
        self._cluster = cluster
        self._buckets = buckets
        self._sampler = sampler
        self._away = away
        self._version = version

    def members(self, missing: Missing) -> dict[MemberId, MemberInfo]:
        """All live processes of ours."""
        found: dict[MemberId, MemberInfo] = {}
        for role in ROLES:
            found |= missing.ask("zookeeper", partial(self._ports.coordinator.members, role)) or {}
        return found

    def show(self) -> ClusterView:
        """The state of the cluster; what is away is named in `missing`."""
        missing = Missing(self._away())
        coordinator = self._ports.coordinator
        buckets = missing.ask("zookeeper", self._buckets) or self._cluster.buckets_wanted
        assignment = missing.ask("zookeeper", coordinator.assignment)
        members = self.members(missing)
        sample = self._sampler.latest()
        return ClusterView(
            namespace=self._cluster.namespace,
            version=self._version,
            buckets=buckets,
            store_epoch=assignment.store_epoch if assignment else None,
            leader=_leader(assignment, members),
            members=[_member(members[name]) for name in sorted(members)],
            assignment=_owners(assignment),
            backlog=_backlog(sample),
            missing=sorted({*missing.services, *sample.missing}),
        )


def _leader(assignment: Assignment | None, members: Members) -> LeaderView | None:
    """The member that says it leads; the epoch alone where none says so at the moment."""
    leading = max(
        (
            (int(info.load[LEADS]), name)
            for name, info in members.items()
            if info.load.get(LEADS, 0) > 0
        ),
        default=None,
    )
    if leading is not None:
        return LeaderView(member=leading[1], epoch=leading[0])
    return LeaderView(member=None, epoch=assignment.leader_epoch) if assignment else None


def _member(info: MemberInfo) -> MemberView:
    return MemberView(
        id=info.id,
        role=info.role,
        host=info.host,
        pid=info.pid,
        started=info.started_ms,
        reported=info.reported_ms,
        load=dict(info.load),
        missing=list(info.missing),
        partitions=[
            PartitionView(
                topic=part.topic,
                partition=part.partition,
                position=part.position,
                state=part.state,
            )
            for part in info.partitions
        ],
        buckets=[
            BucketView(bucket=status.bucket, epoch=status.epoch, state=status.state)
            for status in info.buckets
        ],
    )


def _owners(assignment: Assignment | None) -> list[OwnerView]:
    if assignment is None:
        return []
    return [
        OwnerView(bucket=bucket, member=owner.member, epoch=owner.epoch)
        for bucket, owner in sorted(assignment.owners.items())
    ]


def _backlog(sample: Sample) -> Backlog:
    tasks = [
        TaskBacklog(
            task=name,
            log_bytes=figures.log_bytes or 0,
            lag=sum((figures.lag or {}).values()),
        )
        for name, figures in sorted(sample.tasks.items())
    ]
    return Backlog(
        log_bytes=sum(task.log_bytes for task in tasks),
        lag=sum(task.lag for task in tasks),
        tasks=tasks,
    )
