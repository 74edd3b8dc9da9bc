"""What the leader does about the loads: when to move, how long to keep still, how many to ask for.

The decisions are pure functions (`balancing`, `pressing`, `scaling`); this is their memory. A new
leader has an empty one: it keeps still for one cool-down, so that buckets do not go to and fro with
the leadership.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from mars.core.types import Bucket, MemberId
from mars.protocol.balance.helpers import (
    VAIN_REST_S,
    Assistants,
    help_wanted,
    hotter_than_a_reducer,
    hottest_alone,
    splittable,
    told,
)
from mars.protocol.balance.placement import (
    ReducerLoad,
    SpreadLimits,
    Welcome,
    deviation,
    mean_use,
    spread,
)
from mars.protocol.balance.relief import Loan, PressLimits, pressure, relieve, restore
from mars.protocol.balance.scaling import Demand, ScaleLimits, wanted
from mars.protocol.balance.strategies import (
    Choice,
    ChoiceKind,
    Strategy,
    as_seen,
    choose,
    rows_ratio,
)
from mars.protocol.ports import (
    Assisted,
    Balance,
    Lent,
    Move,
    MoveKind,
    StrategyChange,
    Wanted,
    WantedKind,
)

RELIEF_PAUSE_S = 5.0
"""Between two reliefs: a move takes about a second, and its effect on a backlog shows soon."""

MOVES_TOLD = 10
"""Moves named in a report: 2 kB of it. As many changes of assistants, and of the strategy."""

LENT_TOLD = 64
"""Buckets on loan named in a report: 5 kB of it. Seldom more than one for each reducer is."""


@dataclass(frozen=True, slots=True)
class SteeringLimits:
    """`enabled`: buckets move because of load; membership is followed always. `strategy`: how they
    are spread; None: as suits the figures.

    `cooldown_s`: after any move the figures need so long to tell of the new state (three time
    constants). `bucket_rest_s`: a bucket that has moved stays at least so long. `fewer_after_s`:
    how long fewer members must have been enough before they are asked for: a lull is not an end.
    `room_bytes`: what all unread partials of a task may take in the store (its budget).
    """

    enabled: bool = True
    strategy: Strategy | None = None
    cooldown_s: float = 30.0
    bucket_rest_s: float = 60.0
    fewer_after_s: float = 60.0
    room_bytes: int = 256 * 1024 * 1024
    spread: SpreadLimits = field(default_factory=SpreadLimits)
    press: PressLimits = field(default_factory=PressLimits)
    scale: ScaleLimits = field(default_factory=ScaleLimits)


@dataclass(frozen=True, slots=True)
class Loads:
    """What the leader knows of all loads at one moment; `now_s` is its own monotonic clock, and
    `wall_ms` the time of day, for people. `ages_s` is for how long members said nothing new.

    `leaving` are reducers that want to stop: nothing goes there, and nobody waits until they are
    less busy. `reducer_demands` and `mapper_demands` are empty while figures are missing.
    """

    now_s: float = 0.0
    reducers: Mapping[MemberId, ReducerLoad] = field(default_factory=dict)
    reducer_demands: tuple[Demand, ...] = ()
    mapper_demands: tuple[Demand, ...] = ()
    leaving: Mapping[MemberId, ReducerLoad] = field(default_factory=dict)
    wall_ms: int = 0
    ages_s: Mapping[MemberId, float] = field(default_factory=dict)

    def bucket_use(self) -> dict[Bucket, float]:
        """Use of the buckets that work; one that its owner does not name costs next to nothing."""
        return {
            bucket: load.buckets[bucket].use if bucket in load.buckets else 0.0
            for load in (*self.reducers.values(), *self.leaving.values())
            if load.fresh
            for bucket in load.settled
        }

    def working(self) -> frozenset[Bucket]:
        """The buckets that their owners emit from."""
        return frozenset().union(*(load.settled for load in self.reducers.values()))


class Steering:
    """Decides on moves because of load; remembers all moves."""

    def __init__(self, limits: SteeringLimits) -> None:
        self._limits = limits
        self._quiet_until_s: float | None = None
        self._relief_after_s = 0.0
        self._assist_after_s = math.inf
        self._moved_at_s: dict[Bucket, float] = {}
        self._use: dict[Bucket, float] = {}
        self._loans: dict[Bucket, Loan] = {}
        self._lent: set[Bucket] = set()
        self._told: deque[Move] = deque(maxlen=MOVES_TOLD)
        self._moves_by_kind = dict.fromkeys(MoveKind, 0)
        self._assistant_changes: deque[Assisted] = deque(maxlen=MOVES_TOLD)
        self._strategy_changes: deque[StrategyChange] = deque(maxlen=MOVES_TOLD)
        self._fewer_since_s: dict[str, float] = {}
        self._wanted: dict[str, Wanted] = {}
        self._vain_until_s: dict[Bucket, float] = {}
        self._calm_since_s: dict[Bucket, float] = {}
        self._reasons: dict[Bucket, str] = {}
        self._choice = _first_choice(limits)

    def look(
        self, loads: Loads, buckets: int, partitions: int, assisted: Collection[Bucket] = ()
    ) -> None:
        """Take note of the figures; as many reducers and mappers as that are of use at most.

        `assisted` are the buckets that have assistants.
        """
        if self._quiet_until_s is None:
            self._quiet_until_s = loads.now_s + self._limits.cooldown_s
            self._assist_after_s = self._quiet_until_s
        self._use.update(loads.bucket_use())
        if self._limits.strategy is None:
            self._choose(loads, assisted, self._quiet_until_s)
        demands = loads.reducer_demands
        if self._may_split:
            scale, vain = self._limits.scale, self._vain(loads.now_s)
            demands = tuple(splittable(demand, scale, vain) for demand in demands)
        self._want("reducer", demands, buckets, loads.now_s)
        self._want("mapper", loads.mapper_demands, max(1, partitions), loads.now_s)

    def _choose(self, loads: Loads, assisted: Collection[Bucket], quiet_until_s: float) -> None:
        """Reliefs of a bucket that is too hot follow each other: they must not hide it."""
        hot_ones = set(self._hot(loads)) - self._vain(loads.now_s)
        hot = min(assisted, default=min(hot_ones, default=None))
        too_hot = hot is not None and loads.now_s >= self._assist_after_s
        if loads.now_s >= quiet_until_s or too_hot:
            most, before = self._limits.spread.imbalance_max, self._choice.strategy
            self._choice = chosen = choose(loads.reducers, before, most, hot)
            if chosen.strategy is not before:
                change = StrategyChange(chosen.strategy.value, chosen.reason, loads.wall_ms)
                self._strategy_changes.append(change)

    def _vain(self, now_s: float) -> set[Bucket]:
        """The buckets whose assistants were of no use lately."""
        return {bucket for bucket, until_s in self._vain_until_s.items() if now_s < until_s}

    @property
    def _may_split(self) -> bool:
        return self._limits.enabled and self._limits.strategy in {None, Strategy.SPLIT}

    def _hot(self, loads: Loads) -> list[Bucket]:
        """What no move would help."""
        if not self._may_split:
            return []
        return hotter_than_a_reducer(loads.reducers, self._limits.scale)

    def bucket_use(self) -> Mapping[Bucket, float]:
        """What was last known of each bucket; its owner may be gone.

        Nothing where hashing was set, so that buckets go by number.
        """
        return {} if self._limits.strategy is Strategy.HASH else self._use

    def capacities(self, loads: Loads) -> Mapping[MemberId, float]:
        """What reducers may use of a core, where the strategy heeds it."""
        seen = as_seen(loads.reducers, self._choice.strategy)
        return {member: load.capacity for member, load in seen.items()}

    def welcome(
        self, loads: Loads, filling: Collection[MemberId], assisted: Collection[Bucket]
    ) -> Welcome:
        """What newcomers may take: neither what has assistants nor what is a reducer's whole work,
        of which they are to become assistants.
        """
        alone = [hottest_alone(load, self._limits.scale) for load in loads.reducers.values()]
        hot = [hottest.bucket for hottest in alone if hottest is not None]
        return Welcome(filling, {*assisted, *hot}, loads.working())

    def moves(
        self,
        loads: Loads,
        owners: Mapping[Bucket, MemberId],
        assisted: Collection[Bucket] = (),
    ) -> list[Move]:
        """What should move now because of load. Call `moving` when it is being published.

        Buckets that are hotter than a reducer stay: they would carry the trouble along.
        """
        limits, now_s = self._limits, loads.now_s
        self._forget_loans(owners)
        if not limits.enabled or self._quiet_until_s is None:
            return []
        resting = frozenset(
            bucket
            for bucket, at_s in self._moved_at_s.items()
            if now_s - at_s < limits.bucket_rest_s
        ).union(assisted, self._hot(loads))
        reducers = loads.reducers  # relief heeds capacities whatever the strategy
        if now_s >= self._relief_after_s:
            relief = relieve(reducers, resting, limits.press)
            if relief:
                self._lent = {move.bucket for move in relief}
                return relief
        if now_s < self._quiet_until_s:
            return []
        back = restore(self._loans, reducers, resting, limits.press)
        if back or self._choice.strategy is Strategy.HASH:
            return back
        seen = as_seen(reducers, self._choice.strategy)
        return spread(seen, resting, limits.spread, len(owners))

    def assistants(
        self, loads: Loads, owners: Mapping[Bucket, MemberId], present: Assistants
    ) -> Assistants | None:
        """Who should assist from now on, the reasons being in `balance`; None: as it is.

        Nobody is named shortly after a move for evenness or another change; those who are of no
        more use go once that has been so for a cool-down, those whose merging shrinks nothing at
        the next look after it, and then none is named for `VAIN_REST_S`.
        """
        limits, now_s = self._limits, loads.now_s
        if not self._may_split:
            return {}
        if now_s < self._assist_after_s or self._choice.strategy is not Strategy.SPLIT:
            return None
        vain = self._vain(now_s)
        wanted = help_wanted(loads.reducers, owners, present, limits.scale, vain)
        calm = {b for b, given in wanted.items() if not given.assistants and not given.vain}
        self._calm_since_s = {b: self._calm_since_s.get(b, now_s) for b in calm}
        for bucket, since_s in self._calm_since_s.items():
            if now_s - since_s < limits.cooldown_s:
                del wanted[bucket]
        if not wanted:
            return None
        self._assist_after_s = self._quiet_until_s = now_s + limits.cooldown_s
        in_vain = {bucket for bucket, given in wanted.items() if given.vain}
        self._vain_until_s.update(dict.fromkeys(in_vain, now_s + VAIN_REST_S))
        self._reasons.update({bucket: given.reason for bucket, given in wanted.items()})
        changed = {**present, **{bucket: given.assistants for bucket, given in wanted.items()}}
        return {bucket: members for bucket, members in changed.items() if members}

    def why(self, bucket: Bucket) -> str:
        """Why its assistants were changed last."""
        otherwise = f"bucket {bucket} needs no assistants with this strategy"
        return self._reasons.get(bucket, otherwise)

    def moving(self, moves: Iterable[Move], now_s: float) -> None:
        """These are being published. To let them rest in vain, should it fail, does no harm."""
        for move in moves:
            self._moved_at_s[move.bucket] = now_s
            self._quiet_until_s = now_s + self._limits.cooldown_s
            if move.bucket not in self._lent:
                self._assist_after_s = self._quiet_until_s
            self._note_loan(move, now_s)
        self._lent = set()

    def published(self, moves: Iterable[Move], assisted: Iterable[Assisted] = ()) -> None:
        """These were published, for people."""
        for move in moves:
            self._told.append(move)
            self._moves_by_kind[move.kind] += 1
        self._assistant_changes.extend(assisted)

    def balance(self, loads: Loads, present: Assistants | None = None) -> Balance:
        """For people; `present` are the assistants that the assignment names."""
        return Balance(
            mean_use=round(mean_use(loads.reducers), 3),
            deviation=round(deviation(loads.reducers), 3),
            pressure={
                member: round(pressure(load), 3) for member, load in sorted(loads.reducers.items())
            },
            wanted=tuple(self._wanted[role] for role in sorted(self._wanted)),
            moves=tuple(self._told),
            moves_total=sum(self._moves_by_kind.values()),
            moves_by_kind=dict(self._moves_by_kind),
            strategy=self._choice.strategy.value,
            strategy_reason=self._choice.reason,
            strategy_kind=self._choice.kind.value,
            rows_ratio=round(rows_ratio(loads.reducers), 2),
            assisted=told(present or {}, self._reasons),
            lent=self._lent_told(),
            lent_total=len(self._loans),
            assistant_changes=tuple(self._assistant_changes),
            strategy_changes=tuple(self._strategy_changes),
            ages_s={member: round(age_s, 1) for member, age_s in sorted(loads.ages_s.items())},
        )

    def _lent_told(self) -> tuple[Lent, ...]:
        loans = sorted(self._loans.items())[:LENT_TOLD]
        return tuple(Lent(bucket, loan.home, loan.borrower) for bucket, loan in loans)

    def _note_loan(self, move: Move, now_s: float) -> None:
        """A relief lends the bucket; of one that was lent already the first home stays home."""
        if move.bucket not in self._lent or move.source is None:
            self._loans.pop(move.bucket, None)
            return
        self._relief_after_s = now_s + RELIEF_PAUSE_S
        before = self._loans.get(move.bucket)
        home = before.home if before is not None else move.source
        self._loans[move.bucket] = Loan(home, move.target)

    def _forget_loans(self, owners: Mapping[Bucket, MemberId]) -> None:
        """Whose borrower has lost it otherwise."""
        self._loans = {
            bucket: loan
            for bucket, loan in self._loans.items()
            if owners.get(bucket) == loan.borrower
        }

    def _want(self, role: str, demands: Sequence[Demand], most: int, now_s: float) -> None:
        """More at once; fewer only when that has been so for a while."""
        if not demands:
            return
        asked = wanted(role, demands, most, self._limits.scale)
        if asked.wanted >= asked.present:
            self._fewer_since_s.pop(role, None)
        elif now_s - self._fewer_since_s.setdefault(role, now_s) < self._limits.fewer_after_s:
            reason = f"{asked.reason}, if it lasts"
            asked = Wanted(role, asked.present, asked.present, reason, WantedKind.LULL)
        self._wanted[role] = asked


def _first_choice(limits: SteeringLimits) -> Choice:
    """What was set, else hashing until there are figures."""
    if limits.strategy is None:
        return Choice(Strategy.HASH, "no figures yet", ChoiceKind.UNKNOWN)
    return Choice(limits.strategy, "balance.strategy says so", ChoiceKind.SET)
