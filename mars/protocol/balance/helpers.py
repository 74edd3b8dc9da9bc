"""Which buckets get assistants, and who: where one needs more than a processor.

A bucket that is hotter than a reducer is carried along by every move. Its owner merges what is in
its log, and it alone; but what lies there unread others can merge into less (`assisting`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from mars.core.types import Bucket, MemberId
from mars.protocol.balance.placement import ReducerLoad
from mars.protocol.balance.scaling import Demand, ScaleLimits
from mars.protocol.ports import Assisted, BucketLoad
from mars.protocol.reducer.assisting import SHRINK_MAX

REST_SHARE = 0.25
"""Of what a reducer's buckets cost: with more besides its hottest, that can be given away first."""

VAIN_REST_S = 600.0
"""How long a bucket gets no assistants after merging has not shrunk its log: which keys come
changes slowly, and each try keeps reducers busy for a cool-down."""

ASSISTANTS_MAX = 4
"""Of one bucket: beyond, its owner has most to do with what they have merged."""

Assistants = Mapping[Bucket, tuple[MemberId, ...]]


@dataclass(frozen=True, slots=True)
class Help:
    """What one bucket's assistants should be now; `reason` says why they are others than before.

    They are in `vain` where merging does not shrink its log.
    """

    assistants: tuple[MemberId, ...]
    reason: str
    vain: bool = False


def hottest_alone(load: ReducerLoad, limits: ScaleLimits) -> BucketLoad | None:
    """The bucket that is nearly all of a reducer's work, where that is over the upper bound."""
    own = [each for bucket, each in load.buckets.items() if bucket in load.settled]
    if not load.fresh or load.relative_use <= limits.high or not own:
        return None
    hottest = max(own, key=lambda each: (each.use, -each.bucket))
    whole = sum(each.use for each in own)
    return hottest if whole and whole - hottest.use <= REST_SHARE * whole else None


def hotter_than_a_reducer(
    reducers: Mapping[MemberId, ReducerLoad], limits: ScaleLimits
) -> list[Bucket]:
    """The buckets whose owners are over the upper bound because of them, while others are not."""
    alone = {member: hottest_alone(load, limits) for member, load in sorted(reducers.items())}
    return [
        hottest.bucket
        for member, hottest in alone.items()
        if hottest is not None and _helpers(reducers, {member}, limits)
    ]


def splittable(demand: Demand, limits: ScaleLimits, vain: Collection[Bucket] = ()) -> Demand:
    """What a reducer asks for where its hottest bucket may have assistants: they are of use too,
    unless they were in `vain`.
    """
    if demand.hottest in vain:
        return demand
    alone = demand.use > limits.high and demand.parts * (1 - REST_SHARE) <= 1
    return replace(demand, parts=demand.parts + ASSISTANTS_MAX) if alone else demand


def help_wanted(
    reducers: Mapping[MemberId, ReducerLoad],
    owners: Mapping[Bucket, MemberId],
    present: Assistants,
    limits: ScaleLimits,
    vain: Collection[Bucket] = (),
) -> dict[Bucket, Help]:
    """The buckets whose assistants should be others than `present`, one more or none.

    What a bucket costs is counted at its owner and at its assistants: it keeps them as long as that
    is more than a reducer should do (`limits.target`), and gets one more while its owner still is
    over the upper bound. Use is by capacity. Reducers without fresh figures change nothing.
    Assistants whose merging does not shrink the log go; those of `vain` buckets did so lately.
    """
    wanted: dict[Bucket, Help] = {}
    taken: set[MemberId] = {member for members in present.values() for member in members}
    for bucket, members in sorted(present.items()):
        load = reducers.get(owners[bucket]) if bucket in owners else None
        if load is None or not load.fresh or bucket not in load.settled:
            continue
        left = _remaining(reducers, members)
        if left is not None and left > SHRINK_MAX:
            reason = f"merging leaves {left:.0%} of bucket {bucket}: assistants are of no use to it"
            wanted[bucket] = Help((), reason, vain=True)
            continue
        whole = sum(_use(reducers, member, bucket) for member in (owners[bucket], *members))
        if whole < limits.target:
            reason = f"bucket {bucket} costs {whole:.2f} in all: its owner does that alone"
            wanted[bucket] = Help((), reason)
    for member, load in sorted(reducers.items()):
        hottest = hottest_alone(load, limits)
        if (
            hottest is None
            or hottest.bucket in {*wanted, *vain}
            or owners.get(hottest.bucket) != member
        ):
            continue
        helpers = _helpers(reducers, taken | {member}, limits)
        assistants = present.get(hottest.bucket, ())
        if helpers and len(assistants) < ASSISTANTS_MAX:
            taken.add(helpers[0])
            reason = (
                f"{member} at {load.relative_use:.2f} has little else to give away than bucket "
                f"{hottest.bucket} ({hottest.use:.2f}); {helpers[0]} at "
                f"{reducers[helpers[0]].relative_use:.2f} merges for it"
            )
            wanted[hottest.bucket] = Help((*assistants, helpers[0]), reason)
    return wanted


def still_there(
    present: Assistants,
    before: Mapping[Bucket, MemberId],
    owners: Mapping[Bucket, MemberId],
    staying: Collection[MemberId],
) -> dict[Bucket, tuple[MemberId, ...]]:
    """The assistants who stay, of buckets that stay with their owner."""
    kept = {
        bucket: tuple(member for member in members if member in staying)
        for bucket, members in present.items()
        if bucket in owners and owners[bucket] == before.get(bucket)
    }
    return {bucket: members for bucket, members in kept.items() if members}


def changes(
    before: Assistants, after: Assistants, why: Callable[[Bucket], str]
) -> tuple[Assisted, ...]:
    """The buckets whose assistants are others than before, and who they are now."""
    changed = sorted(b for b in {*before, *after} if after.get(b, ()) != before.get(b, ()))
    return tuple(Assisted(bucket, after.get(bucket, ()), why(bucket)) for bucket in changed)


def told(present: Assistants, reasons: Mapping[Bucket, str]) -> tuple[Assisted, ...]:
    """For people; of one that an earlier leader named the reason is not known."""
    return tuple(
        Assisted(bucket, members, reasons.get(bucket, "an earlier leader named them"))
        for bucket, members in sorted(present.items())
    )


def _remaining(
    reducers: Mapping[MemberId, ReducerLoad], members: Collection[MemberId]
) -> float | None:
    """What merging leaves at best; None: none of these has merged enough to tell."""
    loads = [reducers[member] for member in members if member in reducers]
    known = [load.remaining for load in loads if load.fresh and load.remaining is not None]
    return min(known, default=None)


def _use(reducers: Mapping[MemberId, ReducerLoad], member: MemberId, bucket: Bucket) -> float:
    load = reducers.get(member)
    own = load.buckets.get(bucket) if load is not None else None
    return own.use / load.capacity if load is not None and own is not None else 0.0


def _helpers(
    reducers: Mapping[MemberId, ReducerLoad], others_than: Collection[MemberId], limits: ScaleLimits
) -> list[MemberId]:
    """Who has room for more, the least busy first."""
    idle = [
        member
        for member, load in reducers.items()
        if load.fresh and member not in others_than and load.relative_use <= limits.target
    ]
    return sorted(idle, key=lambda member: (reducers[member].relative_use, member))
