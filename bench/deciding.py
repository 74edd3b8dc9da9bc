"""How long the leader needs to decide about 1,000 buckets of 100 reducers: all of it, not a part.

Each situation asks for another decision: to even out, to relieve, to name assistants, to welcome
half of the reducers as newcomers, to house what half of them leave behind.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from mars.core.types import AssignmentEpoch, Bucket, LeaderEpoch, MemberId, StoreEpoch, Topic
from mars.protocol.balance.placement import ReducerLoad, SpreadLimits
from mars.protocol.balance.scaling import Demand
from mars.protocol.balance.steering import Loads, SteeringLimits
from mars.protocol.balance.strategies import Strategy
from mars.protocol.leader.machine import LeaderMachine
from mars.protocol.leader.view import Decision, KnownProgress, View
from mars.protocol.ports import Assignment, BucketLoad, ControlState, Owner, StoreIdentity

BUCKETS = 1_000
MEMBERS = 100
LOOKS = 5
LATER_S = 100.0
"""When a new leader no longer keeps still."""

NAMES = tuple(MemberId(f"reducer-{number:03}") for number in range(MEMBERS))
OLD, NEW = frozenset(NAMES[: MEMBERS // 2]), frozenset(NAMES[MEMBERS // 2 :])

Owners = Mapping[Bucket, MemberId]


@dataclass(frozen=True, slots=True)
class Situation:
    """What the leader sees when it begins, and when it has to decide."""

    name: str
    first: View
    then: View
    strategy: Strategy | None = None

    def decided(self) -> tuple[list[Decision], float]:
        """What a leader decides, and the CPU time that takes, ms."""
        spread = SpreadLimits(imbalance_max=0.01, gain_min=0.001)
        leading = LeaderMachine(SteeringLimits(strategy=self.strategy, spread=spread))
        leading.decide(self.first)
        begun_s = time.process_time()
        decisions = leading.decide(self.then)
        return decisions, (time.process_time() - begun_s) * 1_000


def decision_ms() -> float:
    """The longest look of all situations."""
    return round(max(_longest_ms(situation) for situation in situations()), 2)


def _longest_ms(situation: Situation) -> float:
    return max(situation.decided()[1] for _ in range(LOOKS))


def situations() -> list[Situation]:
    """One for each kind of decision."""
    dealt = {Bucket(n): NAMES[n % MEMBERS] for n in range(BUCKETS)}
    halved = {Bucket(n): NAMES[n % (MEMBERS // 2)] for n in range(BUCKETS)}
    everybody = frozenset(NAMES)
    return [
        _seen("spread", dealt, everybody, _skewed),
        _seen("relieve", dealt, everybody, _pressed),
        _seen("help", dealt, everybody, _hot, Strategy.SPLIT),
        _seen("welcome", halved, everybody, _skewed, before=OLD),
        _seen("house", dealt, OLD, _skewed, before=everybody),
    ]


def _seen(
    name: str,
    owners: Owners,
    reducers: frozenset[MemberId],
    load: Callable[[int, list[Bucket]], ReducerLoad],
    strategy: Strategy | None = None,
    before: frozenset[MemberId] | None = None,
) -> Situation:
    held: dict[MemberId, list[Bucket]] = {member: [] for member in NAMES}
    for bucket, member in owners.items():
        held[member].append(bucket)
    loads = {name: load(number, held[name]) for number, name in enumerate(NAMES)}
    then = _view(owners, {m: loads[m] for m in sorted(reducers)}, LATER_S)
    known = reducers if before is None else before
    first = _view(owners, {m: loads[m] for m in sorted(known)}, 0.0)
    return Situation(name, first, then, strategy)


def _view(owners: Owners, loads: Mapping[MemberId, ReducerLoad], now_s: float) -> View:
    epoch = StoreEpoch(1)
    named = {bucket: Owner(member, AssignmentEpoch(1)) for bucket, member in owners.items()}
    demands = tuple(Demand(load.use, done=1e6, backlog=1e6) for load in loads.values())
    return View(
        leader_epoch=LeaderEpoch(1),
        buckets=BUCKETS,
        reducers=frozenset(loads),
        assignment=Assignment(LeaderEpoch(1), epoch, named),
        floor=ControlState(),
        identity=StoreIdentity("run", "run", epoch),
        heads={},
        tasks={},
        copied={},
        progress=KnownProgress(),
        partitions={Topic("flows"): 64},
        loads=Loads(now_s, loads, reducer_demands=demands),
    )


# --------------------------------------------------------------------------------------- loads


def _skewed(_number: int, buckets: list[Bucket]) -> ReducerLoad:
    return _load({bucket: 0.2 / (1 + bucket % 97) for bucket in buckets})


def _pressed(number: int, buckets: list[Bucket]) -> ReducerLoad:
    """Every second one is full, and the others have hardly any time for its buckets."""
    full = number % 2 == 0
    load = _load(dict.fromkeys(buckets, 0.07 if full else 0.065))
    return replace(load, queue=1.2, growth=0.05) if full else load


def _hot(number: int, buckets: list[Bucket]) -> ReducerLoad:
    """Every second one has a bucket that needs a processor."""
    hot = number % 2 == 0
    return _load({bucket: 0.9 if hot and bucket < MEMBERS else 0.0 for bucket in buckets})


def _load(uses: Mapping[Bucket, float]) -> ReducerLoad:
    buckets = {
        b: BucketLoad(b, use, 1e4 * use, 1e6 * use, int(1e6 * use)) for b, use in uses.items()
    }
    return ReducerLoad(
        use=sum(uses.values()),
        buckets=buckets,
        settled=frozenset(uses),
        rows=1e4 * sum(uses.values()),
    )
