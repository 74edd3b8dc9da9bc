"""Reducers that only count: a cluster in arithmetic, around the real load figures and decisions.

Each second rows arrive by bucket, reducers work off what they can, measure it with the real meters,
and the real steering decides. What is simulated is the work, the pause of a bucket that moves,
what assistants merge, and mappers that hold rows back while the unread ones fill the budget. The
busier a reducer is, the longer a read of it takes, so that its bandwidth is the lower.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from mars.core.types import Bucket, MemberId, TaskName
from mars.protocol.balance.helpers import Assistants
from mars.protocol.balance.load_meter import LoadMeter, ReducerFigures
from mars.protocol.balance.load_view import behind_s, hottest, parts
from mars.protocol.balance.placement import ReducerLoad, deviation, mean_use, place
from mars.protocol.balance.scaling import Demand
from mars.protocol.balance.smoothing import Smoothed
from mars.protocol.balance.steering import Loads, Steering, SteeringLimits
from mars.protocol.ports import Move
from mars.protocol.reducer.assisting import SEGMENT_SEQS

TASK = TaskName("simulated")

TICK_S = 1.0
"""As often as processes report."""

MOVE_PAUSE_S = 1.0
"""How long nobody works on a bucket that moves: the claim and the reading of its log."""

ROW_BYTES = 100
"""Of the partials in the store, for each row that was not merged away."""

SEQS_A_SECOND = 40
"""Batches a second, of all mappers."""

ASSIST_COST = 1.2
"""What an assistant needs for a row, of what its owner would need: it writes besides."""

MERGED_COST_MIN = 0.1
"""What an owner needs at least for a row that was merged for it, however few groups are left: to
read an entry costs something whatever is in it."""

READ_COST = 0.1
"""Of what a row costs: what reading it takes while the reducer does nothing else."""

READ_SLOWER_MAX = 20.0
"""By how much a read takes longer at the most: at a use u it takes 1 / (1 - u) times as long."""

Rows = npt.NDArray[np.float64]


@dataclass(slots=True)
class _Reducer:
    """How fast it is, what it may use of a core, its meters, and the use that it reports."""

    speed: float = 1.0
    capacity: float = 1.0
    meter: LoadMeter = field(default_factory=LoadMeter)
    use: Smoothed = field(default_factory=Smoothed)
    used: float = 0.0
    done: float = 0.0
    remaining: float | None = None


@dataclass(frozen=True, slots=True)
class Moment:
    """What was so in one second. Use is the momentary one, not what was smoothed of it."""

    second: int
    deviation: float
    mean_use: float
    arrived: float
    done: float
    held: float
    moves: int
    members: int
    wanted: int
    done_by: Mapping[MemberId, float]
    used_by: Mapping[MemberId, float]
    assistants: int = 0


class Delays:
    """How many seconds rows waited: those of a bucket are done in the order in which they came."""

    def __init__(self, buckets: int) -> None:
        self._waiting: list[deque[tuple[int, float]]] = [deque() for _ in range(buckets)]
        self._rows: dict[int, float] = {}

    def came(self, second: int, rows: Rows) -> None:
        """So many of each bucket."""
        for bucket, count in enumerate(rows.tolist()):
            if count:
                self._waiting[bucket].append((second, count))

    def done(self, second: int, bucket: int, rows: float) -> None:
        """So many of one bucket."""
        waiting = self._waiting[bucket]
        while waiting and rows > 0:
            came, count = waiting.popleft()
            taken = min(count, rows)
            self._rows[second - came] = self._rows.get(second - came, 0.0) + taken
            rows -= taken
            if count > taken:
                waiting.appendleft((came, count - taken))

    def percentile_s(self, percent: float) -> int:
        """Of all rows that are done so many percent had waited no longer."""
        enough, sofar = sum(self._rows.values()) * percent / 100, 0.0
        for second, rows in sorted(self._rows.items()):
            sofar += rows
            if sofar >= enough:
                return second
        return 0


class SimulatedReducers:
    """`row_s` is the CPU time of a row; `budget_rows` how many may lie unread before all wait."""

    def __init__(
        self,
        buckets: int,
        members: int,
        limits: SteeringLimits,
        *,
        row_s: float,
        budget_rows: float = float("inf"),
        capacities: Sequence[float] = (),
        groups: Rows | None = None,
    ) -> None:
        self.steering = Steering(limits)
        self.now = 0
        self.moves: list[Move] = []
        self.delay_row_s = 0.0
        self.delays = Delays(buckets)
        self._limits = limits
        self._row_s = row_s
        self._budget_rows = budget_rows
        self._count = buckets
        self._members = {member_name(number): _Reducer() for number in range(members)}
        for member, capacity in zip(self._members.values(), capacities, strict=False):
            member.capacity = capacity
        self._owners = place(buckets, {}, frozenset(self._members))
        self._unread: Rows = np.zeros(buckets)
        self._merged: Rows = np.zeros(buckets)
        self._left: Rows = np.zeros(buckets)
        self._arriving: Rows = np.zeros(buckets)
        self._groups = groups
        self._assistants: Assistants = {}
        self._ready_at = np.zeros(buckets)
        self._held: deque[Rows] = deque()

    @property
    def owners(self) -> dict[Bucket, MemberId]:
        """Who owns what at the moment."""
        return dict(self._owners)

    @property
    def members(self) -> list[MemberId]:
        """All of them, in order."""
        return list(self._members)

    @property
    def assistants(self) -> int:
        """How many reducers assist at the moment."""
        return sum(len(members) for members in self._assistants.values())

    @property
    def strategy(self) -> str:
        """How buckets are spread at the moment."""
        return self.steering.balance(Loads()).strategy

    @property
    def waiting_rows(self) -> float:
        """Rows that are unread, or not yet let in."""
        return float(
            self._unread.sum() + self._merged.sum() + sum(rows.sum() for rows in self._held)
        )

    def step(self, arriving: Rows) -> Moment:
        """One second."""
        self._held.append(arriving)
        self.delays.came(self.now, arriving)
        if arriving.any():
            self._arriving = arriving
        while self._held and self._stored_rows() < self._budget_rows:
            self._unread += self._held.popleft()
        done = self._work()
        self.delay_row_s += self.waiting_rows * TICK_S
        loads = self._measure()
        moves = self._steer(loads)
        self.now += 1
        wanted = [each.wanted for each in self.steering.balance(loads).wanted]
        momentary = {name: ReducerLoad(member.used) for name, member in self._members.items()}
        return Moment(
            second=self.now,
            deviation=deviation(momentary),
            mean_use=mean_use(momentary),
            arrived=float(arriving.sum()),
            done=done,
            held=float(sum(rows.sum() for rows in self._held)),
            moves=len(moves),
            members=len(self._members),
            wanted=wanted[0] if wanted else len(self._members),
            done_by={name: member.done for name, member in self._members.items()},
            used_by={name: member.used for name, member in self._members.items()},
            assistants=self.assistants,
        )

    def scale(self, members: int) -> None:
        """Have so many; newcomers take over, and whoever goes is emptied first."""
        for number in range(members):
            self._members.setdefault(member_name(number), _Reducer())
        staying = frozenset(member_name(number) for number in range(members))
        targets = place(self._count, self._owners, staying, self.steering.bucket_use())
        moves = [
            Move(bucket, self._owners[bucket], target, "members changed")
            for bucket, target in targets.items()
            if self._owners[bucket] != target
        ]
        self._carry_out(moves)
        self._members = {name: self._members[name] for name in sorted(staying)}

    # ------------------------------------------------------------------------------------ within

    def _work(self) -> float:
        """Everybody works for a second on what is unread, in proportion to how much that is."""
        for name, member in self._members.items():
            member.used = 0.0
            self._assist(name, member)
        whole = 0.0
        for name, member in self._members.items():
            ready = self._ready(name)
            share = min(1.0, self._can(member) / max(self._cost(ready), 1e-9))
            cost = (self._unread[ready] + self._merged[ready] * self._merged_cost(ready)) * share
            done = (self._unread[ready] + self._merged[ready]) * share
            self._unread[ready] *= 1 - share
            self._merged[ready] *= 1 - share
            self._note(member, ready, done, cost)
            whole += float(done.sum())
        self._left = self._unread.copy()
        return whole

    def _ready(self, name: MemberId) -> npt.NDArray[np.int_]:
        own = np.array([b for b, owner in self._owners.items() if owner == name], dtype=int)
        ready: npt.NDArray[np.int_] = own[self._ready_at[own] <= self.now]
        return ready

    def _can(self, member: _Reducer) -> float:
        """Rows for which it has time left."""
        return (member.capacity - member.used) * member.speed * TICK_S / self._row_s

    def _cost(self, buckets: npt.NDArray[np.int_]) -> float:
        """What is there for an owner to do, in rows that nobody has merged."""
        merged = self._merged[buckets] * self._merged_cost(buckets)
        return float(self._unread[buckets].sum() + merged.sum())

    def _merged_cost(self, buckets: npt.NDArray[np.int_]) -> Rows:
        """Of a row that was merged, by how many groups are left of a segment's rows."""
        if self._groups is None:
            return np.ones(len(buckets))
        rows = np.maximum(self._arriving[buckets] * SEGMENT_SEQS / SEQS_A_SECOND, 1.0)
        return np.clip(self._groups[buckets] / rows, MERGED_COST_MIN, 1.0)

    def _assist(self, name: MemberId, member: _Reducer) -> None:
        """After its own work, merge whole segments of what its owner had left a second ago."""
        can = self._can(member) - self._cost(self._ready(name))
        member.remaining = None
        for bucket, members in self._assistants.items():
            if name not in members:
                continue
            member.remaining = float(self._merged_cost(np.array([bucket]))[0])
            if can <= 0:
                continue
            seqs = SEQS_A_SECOND * self._left[bucket] / max(self._arriving[bucket], 1.0)
            whole = seqs // SEGMENT_SEQS * SEGMENT_SEQS / max(seqs, 1.0)
            rows = min(can / ASSIST_COST, self._left[bucket] * whole / len(members))
            self._unread[bucket] -= rows
            self._merged[bucket] += rows
            can -= rows * ASSIST_COST
            busy_s = rows * ASSIST_COST * self._row_s / member.speed
            member.used += busy_s / TICK_S
            member.meter.worked(bucket, busy_s)

    def _stored_rows(self) -> float:
        """What fills the budget."""
        every = np.arange(self._count)
        return float((self._unread + self._merged * self._merged_cost(every)).sum())

    def _note(
        self, member: _Reducer, buckets: npt.NDArray[np.int_], done: Rows, cost: Rows
    ) -> None:
        rows = member.done = float(done.sum())
        busy_s = cost * self._row_s / member.speed
        member.used += float(busy_s.sum()) / TICK_S
        member.use.add(member.used, TICK_S)
        for bucket, count, cpu_s in zip(
            buckets.tolist(), done.tolist(), busy_s.tolist(), strict=True
        ):
            number = Bucket(bucket)
            self.delays.done(self.now, bucket, count)
            member.meter.worked(number, cpu_s)
            member.meter.read((TASK, number), int(count), int(count), int(count) * ROW_BYTES)
            member.meter.look({(TASK, number): int(self._unread[bucket])})
        if rows:
            slower = 1 / max(1 - member.used / member.capacity, 1 / READ_SLOWER_MAX)
            read_s = rows * READ_COST * self._row_s / member.speed * slower
            member.meter.took(int(rows) * ROW_BYTES, read_s)

    def _measure(self) -> Loads:
        room = self._budget_rows * ROW_BYTES / len(self._members)
        reducers, demands = {}, []
        measured = {
            name: member.meter.measure(TICK_S, self._own(name) | self._helped(name))
            for name, member in self._members.items()
        }
        fastest = max(figures.read_bytes_per_second for figures in measured.values())
        for name, member in self._members.items():
            figures, bandwidth = measured[name], measured[name].read_bytes_per_second
            settled = frozenset(b for b in self._own(name) if self._ready_at[b] <= self.now)
            reducers[name] = ReducerLoad(
                use=member.use.value,
                buckets={load.bucket: load for load in figures.buckets},
                settled=settled,
                queue=figures.backlog_bytes / room,
                growth=figures.backlog_growth_bytes_per_second / room,
                behind_s=behind_s(figures.buckets),
                bandwidth=bandwidth / fastest if bandwidth and fastest else 1.0,
                rows=sum(load.rows_per_second for load in figures.buckets),
                capacity=member.capacity,
                remaining=member.remaining,
            )
            demands.append(_demand(reducers[name], figures))
        return Loads(float(self.now), reducers, tuple(demands))

    def _own(self, name: MemberId) -> frozenset[Bucket]:
        return frozenset(b for b, owner in self._owners.items() if owner == name)

    def _helped(self, name: MemberId) -> frozenset[Bucket]:
        return frozenset(b for b, members in self._assistants.items() if name in members)

    def _steer(self, loads: Loads) -> list[Move]:
        self.steering.look(loads, self._count, 1, self._assistants)
        moves = self.steering.moves(loads, self._owners, self._assistants)
        self._carry_out(moves)
        if not moves:  # as the leader: it looks for assistants where nothing moves
            wanted = self.steering.assistants(loads, self._owners, self._assistants)
            self._assistants = self._assistants if wanted is None else wanted
        return moves

    def _carry_out(self, moves: list[Move]) -> None:
        for move in moves:
            self._owners[move.bucket] = move.target
            self._ready_at[move.bucket] = self.now + 1 + MOVE_PAUSE_S
        moved = {move.bucket for move in moves}
        self._assistants = {b: who for b, who in self._assistants.items() if b not in moved}
        self.steering.moving(moves, float(self.now))
        self.moves += moves


def member_name(number: int) -> MemberId:
    """`reducer-01` and so on: their order is that of their numbers."""
    return MemberId(f"reducer-{number + 1:02}")


def _demand(load: ReducerLoad, figures: ReducerFigures) -> Demand:
    return Demand(
        use=load.relative_use,
        done=sum(load.bytes_per_second for load in figures.buckets),
        growth=figures.backlog_growth_bytes_per_second,
        backlog=figures.backlog_bytes,
        parts=parts(load),
        hottest=hottest(load),
    )


def settings_without_moves() -> SteeringLimits:
    """The same cluster, in which nothing moves because of load."""
    return SteeringLimits(enabled=False)
