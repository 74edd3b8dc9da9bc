"""Which reducer should own which bucket: pure functions of who is there and what was measured.

`place` answers changes of membership, `spread` an uneven use of the processors (BalanceLoad of
Zhang et al., SPSPS, Acta Electronica Sinica 43(4), 2015); `pressing` relieves a full backlog.
Equal input gives equal output.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from statistics import fmean

from mars.core.types import Bucket, MemberId
from mars.protocol.ports import BucketLoad, Move, MoveKind

IDLE_BUCKET_USE = 0.001
"""Of a core: what a bucket costs in which nothing happens. It spreads such buckets evenly too."""

EQUAL_USE = 1e-9
"""Sums of the same figures in another order differ by less."""

MOVED_AT_ONCE_SHARE = 0.25
"""Of all buckets, at most (but one always): each move pauses its bucket for about a second."""


def moved_at_once(buckets: int) -> int:
    """How many of so many buckets may be taken from living owners at once."""
    return max(1, int(buckets * MOVED_AT_ONCE_SHARE))


@dataclass(frozen=True, slots=True)
class ReducerLoad:
    """What is known of a living reducer.

    `use` is that of the whole process, of a core, and `capacity` what it may use of one; `rows` are
    those that it reads, a second. `settled` are the buckets that it emits from in the present
    assignment. Of a reducer that is not `fresh` nothing new was heard for a while. `queue` is the
    unread part of its room in the store, `growth` by how much of it that grows a second,
    `behind_s` how long it would read on that, `bandwidth` how fast it reads, 1 being the fastest
    reducer. Of what it merged for others `remaining` is the part of the bytes that was left; None
    where it merged nothing.
    """

    use: float
    buckets: Mapping[Bucket, BucketLoad] = field(default_factory=dict)
    settled: frozenset[Bucket] = frozenset()
    fresh: bool = True
    queue: float = 0.0
    growth: float = 0.0
    behind_s: float = math.inf
    bandwidth: float = 1.0
    rows: float = 0.0
    capacity: float = 1.0
    remaining: float | None = None

    @property
    def relative_use(self) -> float:
        """Of what it may use."""
        return self.use / self.capacity


@dataclass(frozen=True, slots=True)
class SpreadLimits:
    """When use is uneven: above a deviation of `imbalance_max` (UIT); it is moved until half of it
    is reached, or no move relieves the busier of two reducers by `gain_min`.
    """

    imbalance_max: float = 0.10
    gain_min: float = 0.02


# --------------------------------------------------------------------------------- membership


@dataclass(frozen=True, slots=True)
class Welcome:
    """What newcomers may take of those who are there.

    `filling` are newcomers that have a part already, but not all of theirs. `fixed` buckets stay
    with an owner that stays. Of those that are `working` no more than `moved_at_once` go: nobody
    misses the others.
    """

    filling: Collection[MemberId] = ()
    fixed: Collection[Bucket] = ()
    working: Collection[Bucket] = ()


ALL_AT_ONCE = Welcome()
"""Where no bucket works yet."""


def place(
    buckets: int,
    current: Mapping[Bucket, MemberId],
    reducers: frozenset[MemberId],
    use: Mapping[Bucket, float] | None = None,
    capacities: Mapping[MemberId, float] | None = None,
    welcome: Welcome = ALL_AT_ONCE,
) -> dict[Bucket, MemberId]:
    """Every bucket to one of `reducers`: what has an owner stays, except what newcomers take over.

    Buckets without an owner go to whoever has least to do, the heaviest first; then reducers that
    had nothing take from the busiest. `use` is what is known of buckets; without it they count
    alike. `capacities` are what reducers may use of a core, 1 where nothing is said. There must be
    reducers.
    """
    known = use or {}
    numbers = [Bucket(number) for number in range(buckets)]
    weights = {bucket: known.get(bucket, 0.0) + IDLE_BUCKET_USE for bucket in numbers}
    held: dict[MemberId, set[Bucket]] = {member: set() for member in sorted(reducers)}
    homeless: list[Bucket] = []
    for bucket in numbers:
        owner = current.get(bucket)
        homeless.append(bucket) if owner not in held else held[owner].add(bucket)
    newcomers = [m for m, theirs in held.items() if not theirs or m in welcome.filling]
    sizes = {member: (capacities or {}).get(member, 1.0) for member in held}
    _house(homeless, held, weights, sizes)
    _welcome(newcomers, held, weights, sizes, welcome)
    return {bucket: member for member, theirs in held.items() for bucket in sorted(theirs)}


def _house(
    homeless: list[Bucket],
    held: dict[MemberId, set[Bucket]],
    weights: Mapping[Bucket, float],
    sizes: Mapping[MemberId, float],
) -> None:
    """Each to whoever has least to do for its size."""
    least = [(_sum(theirs, weights) / sizes[member], member) for member, theirs in held.items()]
    heapq.heapify(least)
    for bucket in sorted(homeless, key=lambda each: (-weights[each], each)):
        load, member = least[0]
        held[member].add(bucket)
        heapq.heapreplace(least, (load + weights[bucket] / sizes[member], member))


def _welcome(
    newcomers: list[MemberId],
    held: dict[MemberId, set[Bucket]],
    weights: Mapping[Bucket, float],
    sizes: Mapping[MemberId, float],
    welcome: Welcome,
) -> None:
    """Newcomers take from the busiest, as long as that one stays busier than they become."""
    sums = {member: _sum(theirs, weights) / sizes[member] for member, theirs in held.items()}
    loose = {member: theirs.difference(welcome.fixed) for member, theirs in held.items()}
    takers, left = list(newcomers), moved_at_once(len(weights))
    while takers:
        taker = min(takers, key=lambda member: (sums[member], member))
        givers = [member for member, theirs in held.items() if len(theirs) > 1 and loose[member]]
        giver = max(givers, key=lambda member: (sums[member], member), default=taker)
        gap = sums[giver] - sums[taker] - EQUAL_USE
        room = gap * sizes[taker]
        fitting = {bucket: weights[bucket] for bucket in loose[giver] if weights[bucket] < room}
        if giver == taker or not fitting:
            takers.remove(taker)
            continue
        bucket = _most_helpful(fitting, gap, sizes[giver], sizes[taker])
        if bucket in welcome.working:
            if not left:
                return
            left -= 1
        held[giver].remove(bucket)
        held[taker].add(bucket)
        loose[giver].remove(bucket)
        sums[giver] -= weights[bucket] / sizes[giver]
        sums[taker] += weights[bucket] / sizes[taker]


def _gain(weight: float, gap: float, giver: float, taker: float) -> float:
    """By how much the busier of two that are `gap` apart is relieved; both have a capacity."""
    return min(weight / giver, gap - weight / taker)


def _most_helpful(
    weights: Mapping[Bucket, float], gap: float, giver: float, taker: float
) -> Bucket:
    """The one whose move relieves most."""
    return max(weights, key=lambda bucket: (_gain(weights[bucket], gap, giver, taker), -bucket))


def _sum(buckets: set[Bucket], weights: Mapping[Bucket, float]) -> float:
    return sum(weights[bucket] for bucket in sorted(buckets))


# ---------------------------------------------------------------------------------------- load


def deviation(reducers: Mapping[MemberId, ReducerLoad]) -> float:
    """Standard deviation of the use, by capacity, of those with fresh figures."""
    uses = [load.relative_use for load in reducers.values() if load.fresh]
    return _deviation(uses)


def _deviation(values: Collection[float]) -> float:
    """As `statistics.pstdev`, which is exact and forty times slower."""
    if not values:
        return 0.0
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))


def mean_use(reducers: Mapping[MemberId, ReducerLoad]) -> float:
    """Mean use of those with fresh figures."""
    uses = [load.use for load in reducers.values() if load.fresh]
    return fmean(uses) if uses else 0.0


def spread(
    reducers: Mapping[MemberId, ReducerLoad],
    resting: frozenset[Bucket],
    limits: SpreadLimits,
    buckets: int,
) -> list[Move]:
    """Moves that even out the use of the processors; none while it is even enough.

    Each takes from the busiest reducer the bucket that relieves it most: the hottest, unless that
    would only carry the trouble along. Buckets that rest, or are not settled, stay where they are;
    reducers without fresh figures neither give nor take. Use is by capacity.
    """
    before = deviation(reducers)
    if before <= limits.imbalance_max:
        return []
    book = _Book(reducers, resting)
    moves: list[Move] = []
    while len(moves) < moved_at_once(buckets) and book.deviation() > limits.imbalance_max / 2:
        step = book.next_step(limits.gain_min)
        if step is None:
            break
        bucket, source, target = step
        reason = (
            f"use is uneven (deviation {before:.2f}, at most {limits.imbalance_max:.2f}): "
            f"{source} at {book.use[source]:.2f} gives {book.weight(source, bucket):.2f} to "
            f"{target} at {book.use[target]:.2f}"
        )
        moves.append(Move(bucket, source, target, reason, kind=MoveKind.USE))
        book.move(bucket, source, target)
    return moves


class _Book:
    """Use by reducer, of its capacity, as it will be after the moves so far."""

    def __init__(
        self, reducers: Mapping[MemberId, ReducerLoad], resting: frozenset[Bucket]
    ) -> None:
        fresh = {member: load for member, load in sorted(reducers.items()) if load.fresh}
        self.use = {member: load.relative_use for member, load in fresh.items()}
        self._sizes = {member: load.capacity for member, load in fresh.items()}
        self._movable = {
            member: {
                bucket: each.use
                for bucket, each in load.buckets.items()
                if bucket in load.settled and bucket not in resting
            }
            for member, load in fresh.items()
        }
        self._owned = {member: len(load.settled) for member, load in fresh.items()}

    def deviation(self) -> float:
        return _deviation(self.use.values())

    def weight(self, member: MemberId, bucket: Bucket) -> float:
        return self._movable[member][bucket]

    def next_step(self, gain_min: float) -> tuple[Bucket, MemberId, MemberId] | None:
        """From the busiest that can give anything worth it, to the least busy."""
        by_use = sorted(self.use, key=lambda member: (-self.use[member], member))
        target = by_use[-1]
        for source in by_use[:-1]:
            gap = self.use[source] - self.use[target]
            if gap < gain_min:
                return None
            bucket = self._best(source, target, gain_min)
            if bucket is not None:
                return bucket, source, target
        return None

    def _best(self, source: MemberId, target: MemberId, gain_min: float) -> Bucket | None:
        """The most helpful one, if it helps enough."""
        movable = self._movable[source]
        if self._owned[source] < 2 or not movable:
            return None  # without a bucket it would count as a newcomer
        gap = self.use[source] - self.use[target]
        giver, taker = self._sizes[source], self._sizes[target]
        best = _most_helpful(movable, gap, giver, taker)
        return best if _gain(movable[best], gap, giver, taker) >= gain_min else None

    def move(self, bucket: Bucket, source: MemberId, target: MemberId) -> None:
        weight = self._movable[source].pop(bucket)  # at rest now, wherever it is
        self.use[source] -= weight / self._sizes[source]
        self.use[target] += weight / self._sizes[target]
        self._owned[source] -= 1
        self._owned[target] += 1
