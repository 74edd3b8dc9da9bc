"""Skewed keys and uneven machines under each strategy of `balance.strategy`, simulated.

Four reducers get 70 % of what they could do together for four minutes. *Zipf*: keys by a Zipf law
of exponent 1.2. *Half*: every second row is of one key. *Even*: even keys, but two of the reducers
may use half a core each. *Nothing to merge*: as *half*, but each row is a group by itself, so that
an assistant shrinks nothing. What counts is rows/s, max/min of the rows that nodes handle, and
max/min of their use: assistants work on rows that are counted at their owner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import msgspec
import numpy as np

from bench.errors import BenchError
from bench.simulated_reducers import Moment, Rows, SimulatedReducers
from bench.tables import Grid
from mars.core.types import MemberId
from mars.protocol.balance.steering import SteeringLimits
from mars.protocol.balance.strategies import Strategy

SEED = 2016
BUCKETS = 64
ROW_S = 1e-5
BUDGET_ROWS = 640_000
SHARE = 0.7
COMING_S = 240
LONGEST_S = 2_000

EQUAL = (1.0, 1.0, 1.0, 1.0)
UNEQUAL = (1.0, 1.0, 0.5, 0.5)

CHOICES: Mapping[str, Strategy | None] = {
    **{strategy.value: strategy for strategy in Strategy},
    "auto": None,
}

Shares = Callable[[int], Rows]
"""How likely each of so many keys is."""


class SkewRun(msgspec.Struct, frozen=True):
    """One run. `ratio` is max/min of the rows of a second by capacity, `use_ratio` of the use,
    means of the second half of the time in which rows came; `ended_with` the strategy at the end.
    """

    stream: str
    strategy: str
    rows_per_second: float
    ratio: float
    moves: int
    mean_delay_s: float
    ended_with: str
    assistants: int = 0
    use_ratio: float = 0.0


def run_skew(homes: Rows) -> list[SkewRun]:
    """Every stream with every strategy; `homes` is the bucket of each key."""
    return [run_one(stream, name, homes) for stream in STREAMS for name in CHOICES]


def _zipf(keys: int) -> Rows:
    likely = np.arange(1, keys + 1, dtype=float) ** -1.2
    shares: Rows = likely / likely.sum()
    return shares


def _half(keys: int) -> Rows:
    shares = np.full(keys, 0.5 / (keys - 1))
    shares[0] = 0.5
    return shares


def _even(keys: int) -> Rows:
    return np.full(keys, 1 / keys)


ZIPF, ONE_KEY = "Zipf 1.2", "one key takes half"
UNMERGEABLE = "half, nothing to merge"

STREAMS: Mapping[str, tuple[Shares, tuple[float, ...]]] = {
    ZIPF: (_zipf, EQUAL),
    ONE_KEY: (_half, EQUAL),
    "even, uneven machines": (_even, UNEQUAL),
    UNMERGEABLE: (_half, EQUAL),
}
"""The keys, and the capacities of the reducers."""


def run_one(stream: str, name: str, homes: Rows) -> SkewRun:
    """One stream with one strategy."""
    shares, capacities = STREAMS[stream]
    limits = SteeringLimits(strategy=CHOICES[name])
    groups: Rows = np.bincount(homes.astype(np.int64), minlength=BUCKETS).astype(float)
    cluster = SimulatedReducers(
        BUCKETS,
        len(capacities),
        limits,
        row_s=ROW_S,
        budget_rows=BUDGET_ROWS,
        capacities=capacities,
        groups=None if stream == UNMERGEABLE else groups,
    )
    of_buckets: Rows = np.bincount(
        homes.astype(np.int64), weights=shares(len(homes)), minlength=BUCKETS
    ).astype(float)
    sizes = dict(zip(cluster.members, capacities, strict=True))
    moments = list(_moments(cluster, of_buckets, SHARE * sum(capacities) / ROW_S))
    arrived = sum(moment.arrived for moment in moments)
    half = moments[COMING_S // 2 : COMING_S]
    return SkewRun(
        stream=stream,
        strategy=name,
        rows_per_second=arrived / len(moments),
        ratio=_ratio([moment.done_by for moment in half], sizes),
        moves=len(cluster.moves),
        mean_delay_s=cluster.delay_row_s / arrived,
        ended_with=cluster.strategy,
        assistants=max(moment.assistants for moment in moments),
        use_ratio=_ratio([moment.used_by for moment in half], sizes),
    )


def _moments(cluster: SimulatedReducers, shares: Rows, rows: float) -> Iterator[Moment]:
    """Until everything is done that arrived."""
    chance = np.random.default_rng(SEED)
    nothing = np.zeros(len(shares))
    for second in range(LONGEST_S):
        coming = second < COMING_S
        yield cluster.step(chance.poisson(shares * rows).astype(float) if coming else nothing)
        if not coming and cluster.waiting_rows < 0.5:
            return
    raise BenchError("The rows do not come to an end; the reducers are too slow for them.")


def _ratio(figures: list[Mapping[MemberId, float]], sizes: Mapping[MemberId, float]) -> float:
    """max/min of what members have in all, by capacity."""
    sums = [sum(each[name] for each in figures) / size for name, size in sizes.items()]
    return float(max(sums) / max(min(sums), 1e-9))


def skew_grid(runs: list[SkewRun]) -> Grid:
    """The table."""
    rows = [
        [
            f"{run.stream}, {run.strategy}",
            f"{run.rows_per_second:,.0f}",
            f"{run.ratio:.2f}",
            f"{run.use_ratio:.2f}",
            f"{run.mean_delay_s:.1f}",
            str(run.moves),
            str(run.assistants),
            run.ended_with,
        ]
        for run in runs
    ]
    columns = [
        "keys, strategy",
        "rows/s",
        "rows max/min",
        "use max/min",
        "delay s",
        "moves",
        "assistants",
        "at the end",
    ]
    return Grid("Strategies on four reducers (simulated)", columns, rows)
