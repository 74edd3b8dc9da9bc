"""The state of the cluster, as its members report it."""

from __future__ import annotations

from collections.abc import Mapping

from api.presenting import alike
from api.services.context import BucketCount, ClusterContext, Ports
from api.services.inside.missing import Away, Missing
from api.services.inside.sampling import Sample, Sampler
from mars.client import answers
from mars.core.types import MemberId
from mars.protocol.ports import Assignment, Assisted, Balance, MemberInfo

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
        cluster: ClusterContext,
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
        roster = missing.ask("zookeeper", lambda: self._ports.coordinator.roster(*ROLES)) or {}
        return {name: info for members in roster.values() for name, info in members.items()}

    def show(self) -> answers.Cluster:
        """The state of the cluster; what is away is named in `missing`."""
        missing = Missing(self._away())
        coordinator = self._ports.coordinator
        buckets = missing.ask("zookeeper", self._buckets) or self._cluster.buckets_wanted
        answer = missing.begin("zookeeper", coordinator.assignment)
        members = self.members(missing)
        assignment = answer()
        sample, balance = self._sampler.latest(), balance_of(members)
        ages_s = ages_of(members, balance, self._ports.now_ms())
        return answers.Cluster(
            namespace=self._cluster.namespace,
            version=self._version,
            buckets=buckets,
            store_epoch=assignment.store_epoch if assignment else None,
            leader=_leader(assignment, members),
            members=[_member(members[name], ages_s.get(name)) for name in sorted(members)],
            assignment=_owners(assignment),
            balance=_balance(balance),
            backlog=_backlog(sample),
            missing=sorted({*missing.services, *sample.missing}),
        )


def _leader(assignment: Assignment | None, members: Members) -> answers.Leader | None:
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
        return answers.Leader(member=leading[1], epoch=leading[0])
    return answers.Leader(member=None, epoch=assignment.leader_epoch) if assignment else None


def balance_of(members: Members) -> Balance | None:
    """What the leader says of the loads; of several who believe to lead, the newest one."""
    said = [
        (info.load.get(LEADS, 0.0), info.balance)
        for info in members.values()
        if info.balance is not None
    ]
    return max(said, key=lambda pair: pair[0])[1] if said else None


def ages_of(members: Members, balance: Balance | None, now_ms: int) -> dict[MemberId, float]:
    """How long ago each member reported, in seconds: by the leader's clock, else by two clocks."""
    heard = balance.ages_s if balance is not None else {}
    return {
        name: heard.get(name, max(0, now_ms - info.reported_ms) / 1000)
        for name, info in members.items()
        if info.reported_ms
    }


def _balance(balance: Balance | None) -> answers.Balance | None:
    if balance is None:
        return None
    return answers.Balance(
        mean_use=balance.mean_use,
        deviation=balance.deviation,
        pressure={str(member): value for member, value in balance.pressure.items()},
        wanted=[alike(each, answers.Wanted) for each in balance.wanted],
        moves=[
            answers.Move(
                bucket=move.bucket,
                source=move.source,
                target=move.target,
                reason=move.reason,
                at=move.at_ms,
                kind=move.kind,
            )
            for move in balance.moves
        ],
        moves_total=balance.moves_total,
        moves_by_kind={kind.value: count for kind, count in balance.moves_by_kind.items()},
        strategy=balance.strategy,
        strategy_reason=balance.strategy_reason,
        strategy_kind=balance.strategy_kind,
        rows_ratio=balance.rows_ratio,
        assisted=[alike(each, answers.Assisted) for each in balance.assisted],
        lent=[alike(each, answers.Lent) for each in balance.lent],
        lent_total=balance.lent_total,
        assistant_changes=[_assistant_change(each) for each in balance.assistant_changes],
        strategy_changes=[
            answers.StrategyChange(strategy=each.strategy, reason=each.reason, at=each.at_ms)
            for each in balance.strategy_changes
        ],
    )


def _assistant_change(change: Assisted) -> answers.AssistantChange:
    return answers.AssistantChange(
        bucket=change.bucket,
        assistants=list(change.assistants),
        reason=change.reason,
        at=change.at_ms,
    )


def _member(info: MemberInfo, age_s: float | None) -> answers.Member:
    loads = {load.bucket: alike(load, answers.BucketLoad) for load in info.loads}
    return answers.Member(
        id=info.id,
        role=info.role,
        host=info.host,
        pid=info.pid,
        started=info.started_ms,
        reported=info.reported_ms or None,
        load=dict(info.load),
        missing=list(info.missing),
        partitions=[alike(part, answers.Partition) for part in info.partitions],
        buckets=[
            answers.Bucket(
                bucket=status.bucket,
                epoch=status.epoch,
                state=status.state,
                load=loads.get(status.bucket),
            )
            for status in info.buckets
        ],
        age_s=age_s,
        leaving=info.leaving,
    )


def _owners(assignment: Assignment | None) -> list[answers.Owner]:
    if assignment is None:
        return []
    return [
        answers.Owner(bucket=bucket, member=owner.member, epoch=owner.epoch)
        for bucket, owner in sorted(assignment.owners.items())
    ]


def _backlog(sample: Sample) -> answers.Backlog:
    tasks = [
        answers.TaskBacklog(
            task=name,
            log_bytes=figures.log_bytes or 0,
            lag=sum((figures.lag or {}).values()),
        )
        for name, figures in sorted(sample.tasks.items())
    ]
    return answers.Backlog(
        log_bytes=sum(task.log_bytes for task in tasks),
        lag=sum(task.lag for task in tasks),
        tasks=tasks,
    )
