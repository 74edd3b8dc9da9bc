"""Relief of a reducer whose backlog fills: a hot bucket goes to the one under least pressure.

After the migration strategy for backpressure: a node is pressed when its queue is nearly full and
grows. Data of the heaviest branch goes to the lightest, by pressure P = (a Q + (1 - a) D) / B^b
with Q the used part of the queue, D = (in - out) / time and B the bandwidth. What was lent comes
back once there is room at home. Holding the source back is the last resort: what the mappers do at
the budget.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from mars.core.types import Bucket, MemberId
from mars.protocol.balance.placement import ReducerLoad
from mars.protocol.ports import Move, MoveKind

QUEUE_SHARE = 0.5
"""a: what is there already counts as much as what will have come in `HORIZON_S`."""

HORIZON_S = 10.0
"""D is taken over this time: about what a move takes until its effect is measured."""

BANDWIDTH_POWER = 0.5
"""b: one that reads four times slower is under twice the pressure."""

BANDWIDTH_MIN = 0.05
"""Bandwidth below which a reducer counts as no slower still: a pause is not a speed."""


GROWTH_MIN = 0.01
"""Of its room, a second: a reducer that reads as fast as is written grows and shrinks by less. What
grows more slowly takes 20 s from `high` until it is full, and then is relieved for that."""

BEHIND_MIN_S = 3.0
"""How long a reducer must need for what is unread: where many share the budget, each one's room
holds less than what it reads between two commits, about a second apart. Of 5 s a small budget does
not hold so much before mappers pause."""


@dataclass(frozen=True, slots=True)
class PressLimits:
    """Used parts of the room: above `high` and growing it is relieved, below `low` all is well.

    Nobody takes a bucket with which it would be busier than `use_high`, of what it may use; nor
    does one go home to that.
    """

    high: float = 0.80
    low: float = 0.50
    use_high: float = 0.75
    growth_min: float = GROWTH_MIN
    behind_min_s: float = BEHIND_MIN_S


@dataclass(frozen=True, slots=True)
class Loan:
    """A bucket that was moved to relieve `home`, and who has it meanwhile."""

    home: MemberId
    borrower: MemberId


def pressure(load: ReducerLoad) -> float:
    """P; about 1 for a reducer whose room is full, or will be soon."""
    filling = QUEUE_SHARE * load.queue + (1 - QUEUE_SHARE) * load.growth * HORIZON_S
    return max(0.0, filling) / math.pow(max(load.bandwidth, BANDWIDTH_MIN), BANDWIDTH_POWER)


def relieve(
    reducers: Mapping[MemberId, ReducerLoad], resting: frozenset[Bucket], limits: PressLimits
) -> list[Move]:
    """One bucket from each pressed reducer to a light one, the most pressed first.

    Pressed is who is over `high` and fills, or is full: then mappers hold its rows back. A light
    one takes one bucket at a time, if it has the time for it: a bucket that needs more than a
    reducer would press the next one as well. Where nobody is light nothing moves: mappers pause.
    """
    fresh = {member: load for member, load in sorted(reducers.items()) if load.fresh}
    pressed = [member for member, load in fresh.items() if _pressed(load, limits)]
    pressed.sort(key=lambda member: -pressure(fresh[member]))
    light = [member for member, load in fresh.items() if load.queue < limits.low]
    light.sort(key=lambda member: (pressure(fresh[member]), fresh[member].use, member))
    moves: list[Move] = []
    for source in pressed:
        load = fresh[source]
        found = _lightened(load, {member: fresh[member] for member in light}, resting, limits)
        if found is None:
            continue
        bucket, target = found
        light.remove(target)
        reason = (
            f"{source} is under pressure {pressure(load):.2f} (backlog {load.queue:.0%} of its "
            f"room, growing by {load.growth:.1%} a second); {target} at "
            f"{pressure(fresh[target]):.2f} is the lightest"
        )
        moves.append(Move(bucket, source, target, reason, kind=MoveKind.PRESSURE))
    return moves


def _pressed(load: ReducerLoad, limits: PressLimits) -> bool:
    fills = load.growth > limits.growth_min or load.queue >= 1
    return load.queue > limits.high and fills and load.behind_s > limits.behind_min_s


def _lightened(
    load: ReducerLoad,
    light: Mapping[MemberId, ReducerLoad],
    resting: frozenset[Bucket],
    limits: PressLimits,
) -> tuple[Bucket, MemberId] | None:
    """The bucket with most unread that somebody light can take, and the first who can."""
    movable = [
        each
        for bucket, each in load.buckets.items()
        if bucket in load.settled and bucket not in resting and each.use < limits.use_high
    ]
    if len(load.settled) < 2 or not light:
        return None
    movable.sort(key=lambda each: (-each.backlog_bytes, -each.use, each.bucket))
    room = max(_room(target, limits) for target in light.values())
    bucket = next((each for each in movable if each.use <= room), None)
    if bucket is None:
        return None
    return bucket.bucket, next(m for m in light if bucket.use <= _room(light[m], limits))


def _room(load: ReducerLoad, limits: PressLimits) -> float:
    """How much more it may do, of a core."""
    return limits.use_high * load.capacity - load.use


def restore(
    loans: Mapping[Bucket, Loan],
    reducers: Mapping[MemberId, ReducerLoad],
    resting: frozenset[Bucket],
    limits: PressLimits,
) -> list[Move]:
    """Lent buckets back to where they came from, once there is room for them."""
    moves: list[Move] = []
    added: dict[MemberId, float] = {}
    for bucket, loan in sorted(loans.items()):
        home, borrower = reducers.get(loan.home), reducers.get(loan.borrower)
        if home is None or borrower is None or not (home.fresh and borrower.fresh):
            continue
        if bucket in resting or bucket not in borrower.settled or len(borrower.settled) < 2:
            continue
        own = borrower.buckets.get(bucket)
        more = added.get(loan.home, 0.0) + (own.use if own else 0.0)
        if pressure(home) >= limits.low or more > _room(home, limits):
            continue
        added[loan.home] = more
        reason = f"{loan.home} has room again (backlog {home.queue:.0%}): back from the relief"
        moves.append(Move(bucket, loan.borrower, loan.home, reason, kind=MoveKind.RETURN))
    return moves
