"""Loads as the leader sees them, made of what the members say of themselves."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping

from mars.core.types import Bucket, MemberId
from mars.protocol.balance.placement import ReducerLoad
from mars.protocol.balance.scaling import Demand
from mars.protocol.balance.steering import Loads
from mars.protocol.ports import Assignment, BucketLoad, MemberInfo

STALE_S = 5.0
"""A member that has said nothing new for five reports: its figures are of another time."""

SETTLED = frozenset({"owning", "committing"})
"""States of a bucket that works; in others it is on its way already, or in trouble."""


HELD_BACK_MIN = 0.05
"""Of the last seconds: a mapper that the store held back for more leaves undone what reducers do
not take. However long it was, it is forgotten in half a minute, three time constants."""


class Freshness:
    """Tells by the reader's own clock how long ago each member said something new.

    The members' clocks are compared with nothing: they may be wrong.
    """

    def __init__(self) -> None:
        self._heard: dict[MemberId, tuple[int, float]] = {}

    def fresh(self, members: Iterable[MemberInfo], now_s: float) -> frozenset[MemberId]:
        """Those who said something new within `STALE_S`."""
        heard: dict[MemberId, tuple[int, float]] = {}
        for info in members:
            before = self._heard.get(info.id)
            news = before is None or before[0] != info.reported_ms
            heard[info.id] = (info.reported_ms, now_s) if news or before is None else before
        self._heard = heard
        return frozenset(m for m, age_s in self.ages_s(now_s).items() if age_s <= STALE_S)

    def ages_s(self, now_s: float) -> dict[MemberId, float]:
        """How long each of those who were there at the last look has said nothing new."""
        return {member: now_s - at_s for member, (_, at_s) in self._heard.items()}


def loads_of(
    reducers: Mapping[MemberId, MemberInfo],
    mappers: Mapping[MemberId, MemberInfo],
    assignment: Assignment | None,
    fresh: frozenset[MemberId],
    room_bytes: int,
    now_s: float,
) -> Loads:
    """`room_bytes` is a task's budget, of which each reducer has an equal share."""
    share = max(1.0, room_bytes / max(1, len(reducers)))
    fastest = max((_bandwidth(info) for info in reducers.values()), default=0.0)
    every = {
        member: _reducer(info, assignment, member in fresh, share, fastest)
        for member, info in reducers.items()
    }
    return Loads(
        now_s=now_s,
        reducers={member: load for member, load in every.items() if not reducers[member].leaving},
        leaving={member: load for member, load in every.items() if reducers[member].leaving},
        reducer_demands=_demands(
            reducers, fresh, lambda info: _reducer_demand(info, every[info.id])
        ),
        mapper_demands=_demands(mappers, fresh, _mapper_demand),
    )


def _demands(
    members: Mapping[MemberId, MemberInfo],
    fresh: frozenset[MemberId],
    demand: Callable[[MemberInfo], Demand],
) -> tuple[Demand, ...]:
    """Of all of a role; none if one of them is silent."""
    if not fresh.issuperset(members):
        return ()
    return tuple(demand(info) for info in members.values())


def _reducer(
    info: MemberInfo, assignment: Assignment | None, fresh: bool, share: float, fastest: float
) -> ReducerLoad:
    load, bandwidth = info.load, _bandwidth(info)
    return ReducerLoad(
        use=load.get("cpu_use", 0.0),
        buckets={each.bucket: each for each in info.loads},
        settled=_settled(info, assignment),
        fresh=fresh and "cpu_use" in load,
        queue=load.get("backlog_bytes", 0.0) / share,
        growth=load.get("backlog_growth_bytes_per_second", 0.0) / share,
        behind_s=behind_s(info.loads),
        bandwidth=bandwidth / fastest if bandwidth and fastest else 1.0,
        rows=load.get("rows_per_second", 0.0),
        capacity=_capacity(info),
        remaining=load.get("assisted_remaining"),
    )


def _settled(info: MemberInfo, assignment: Assignment | None) -> frozenset[Bucket]:
    owners = assignment.owners if assignment is not None else {}
    return frozenset(
        status.bucket
        for status in info.buckets
        if status.state in SETTLED
        and (owner := owners.get(status.bucket)) is not None
        and owner.member == info.id
        and owner.epoch == status.epoch
    )


def _bandwidth(info: MemberInfo) -> float:
    return info.load.get("read_bytes_per_second", 0.0)


def _capacity(info: MemberInfo) -> float:
    return info.load.get("capacity", 1.0) or 1.0


def behind_s(loads: Collection[BucketLoad]) -> float:
    """How long buckets would read on what lies unread of them, as fast as they do now."""
    unread = sum(each.backlog_bytes for each in loads)
    rate = sum(each.bytes_per_second for each in loads)
    if not unread:
        return 0.0
    return unread / rate if rate else math.inf


def _reducer_demand(info: MemberInfo, load: ReducerLoad) -> Demand:
    return Demand(
        use=load.relative_use,
        done=sum(each.bytes_per_second for each in info.loads),
        growth=info.load.get("backlog_growth_bytes_per_second", 0.0),
        backlog=info.load.get("backlog_bytes", 0.0),
        parts=parts(load),
        hottest=hottest(load),
    )


def parts(load: ReducerLoad) -> float:
    """Its buckets, counted by how they compare with the hottest: spread further, that one would
    still need as much.
    """
    uses = [each.use for bucket, each in load.buckets.items() if bucket in load.settled]
    hottest = max(uses, default=0.0)
    return sum(uses) / hottest if hottest > 0 else math.inf


def hottest(load: ReducerLoad) -> Bucket | None:
    """The one of its buckets that costs most."""
    own = [each for bucket, each in load.buckets.items() if bucket in load.settled]
    return max(own, key=lambda each: (each.use, -each.bucket)).bucket if own else None


def _mapper_demand(info: MemberInfo) -> Demand:
    """Of lanes that nobody reads at the moment nothing is undone; nor where the store is full."""
    held_back = info.load.get("held_back", 0.0) > HELD_BACK_MIN
    return Demand(
        use=info.load.get("cpu_use", 0.0) / _capacity(info),
        done=info.load.get("messages_per_second", 0.0),
        growth=0.0 if held_back else info.load.get("lag_growth_messages_per_second", 0.0),
        backlog=0.0 if held_back else info.load.get("lag_read_messages", 0.0),
        parts=len(info.partitions) or math.inf,
        held_back=held_back,
    )
