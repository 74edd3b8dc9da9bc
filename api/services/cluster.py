"""The state of the cluster, as its members report it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from api.schemas import (
    AssistedView,
    Backlog,
    BalanceView,
    BucketLoadView,
    BucketView,
    ClusterView,
    LeaderView,
    MemberView,
    MoveView,
    OwnerView,
    PartitionView,
    TaskBacklog,
    WantedView,
)
from api.services.context import BucketCount, Cluster, Ports
from api.services.missing import Away, Missing
from api.services.sampling import Sample, Sampler
from mars.ports import Assignment, Balance, BucketLoad, MemberInfo
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
        members = self._ports.coordinator.members
        begun = [missing.begin("zookeeper", partial(members, role)) for role in ROLES]
        found: dict[MemberId, MemberInfo] = {}
        for answer in begun:
            found |= answer() or {}
        return found

    def show(self) -> ClusterView:
        """The state of the cluster; what is away is named in `missing`."""
        missing = Missing(self._away())
        coordinator = self._ports.coordinator
        buckets = missing.ask("zookeeper", self._buckets) or self._cluster.buckets_wanted
        answer = missing.begin("zookeeper", coordinator.assignment)
        members = self.members(missing)
        assignment = answer()
        sample = self._sampler.latest()
        return ClusterView(
            namespace=self._cluster.namespace,
            version=self._version,
            buckets=buckets,
            store_epoch=assignment.store_epoch if assignment else None,
            leader=_leader(assignment, members),
            members=[_member(members[name], self._ports.now_ms()) for name in sorted(members)],
            assignment=_owners(assignment),
            balance=_balance(balance_of(members)),
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


def balance_of(members: Members) -> Balance | None:
    """What the leader says of the loads; of several who believe to lead, the newest one."""
    said = [
        (info.load.get(LEADS, 0.0), info.balance)
        for info in members.values()
        if info.balance is not None
    ]
    return max(said, key=lambda pair: pair[0])[1] if said else None


def _balance(balance: Balance | None) -> BalanceView | None:
    if balance is None:
        return None
    return BalanceView(
        mean_use=balance.mean_use,
        deviation=balance.deviation,
        pressure={str(member): value for member, value in balance.pressure.items()},
        wanted=[
            WantedView(role=each.role, present=each.present, wanted=each.wanted, reason=each.reason)
            for each in balance.wanted
        ],
        moves=[
            MoveView(
                bucket=move.bucket,
                source=move.source,
                target=move.target,
                reason=move.reason,
                at=move.at_ms,
            )
            for move in balance.moves
        ],
        strategy=balance.strategy,
        strategy_reason=balance.strategy_reason,
        rows_ratio=balance.rows_ratio,
        assisted=[
            AssistedView(bucket=each.bucket, assistants=list(each.assistants), reason=each.reason)
            for each in balance.assisted
        ],
    )


def _load(load: BucketLoad | None) -> BucketLoadView | None:
    if load is None:
        return None
    return BucketLoadView(
        use=load.use,
        rows_per_second=load.rows_per_second,
        bytes_per_second=load.bytes_per_second,
        backlog_bytes=load.backlog_bytes,
    )


def _member(info: MemberInfo, now_ms: int) -> MemberView:
    loads = {load.bucket: load for load in info.loads}
    return MemberView(
        id=info.id,
        role=info.role,
        host=info.host,
        pid=info.pid,
        started=info.started_ms,
        reported=info.reported_ms or None,
        load=dict(info.load),
        missing=list(info.missing),
        partitions=[
            PartitionView(
                topic=part.topic,
                partition=part.partition,
                position=part.position,
                state=part.state,
                lag=part.lag,
            )
            for part in info.partitions
        ],
        buckets=[
            BucketView(
                bucket=status.bucket,
                epoch=status.epoch,
                state=status.state,
                load=_load(loads.get(status.bucket)),
            )
            for status in info.buckets
        ],
        age_s=max(0, now_ms - info.reported_ms) / 1000 if info.reported_ms else None,
        leaving=info.leaving,
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
