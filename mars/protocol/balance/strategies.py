"""Which way of spreading buckets suits the load: chosen by how unevenly rows and use fall.

Key distribution is taken as an optimisation, as in the dynamic load distribution for Flink: a map
of keys to nodes for which max C(n) / min C(n) is least, C being the rows that node n handles; one
strategy for each kind of data and cluster, and a change between them while they run.

    HASH      equal numbers of buckets; nothing moves because of use       for keys that are even
    GREEDY    equal use, by moving the bucket that helps most              for keys that are skewed
    WEIGHTED  the same, of use by what each reducer may use of a core      for machines that differ
    SPLIT     the same, and assistants of a bucket that is hotter     for one key that needs more
              than a reducer (`splitting`)                            than a processor
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import fmean

from mars.core.types import Bucket, MemberId
from mars.protocol.balance.placement import ReducerLoad, deviation

UNEVEN_RATIO = 1.5
"""Max/min of rows per reducer above which hashing alone is not enough: eight buckets of even keys
on three reducers are 3 : 2 by number."""

EVEN_RATIO = 1.2
"""At or below it, and with an even use, nothing is left to be gained. It lies well below the other,
so that the strategy does not go to and fro."""

ROWS_FEW = 10.0
"""Rows a second that every reducer counts as having: a ratio to nothing says nothing."""

CAPACITIES_DIFFER = 1.1
"""Max/min of capacities from which machines count as uneven."""


class Strategy(StrEnum):
    """How buckets are spread over reducers."""

    HASH = "hash"
    GREEDY = "greedy"
    WEIGHTED = "weighted"
    SPLIT = "split"


class ChoiceKind(StrEnum):
    """Why it is that strategy: it was set, there are no figures yet, a bucket is too hot, the load
    is uneven or even, or it lies in between, where the strategy stays.
    """

    SET = "set"
    UNKNOWN = "unknown"
    HOT = "hot"
    UNEVEN = "uneven"
    EVEN = "even"
    BETWEEN = "between"


@dataclass(frozen=True, slots=True)
class Choice:
    """A strategy, and why it is that one."""

    strategy: Strategy
    reason: str
    kind: ChoiceKind


def rows_ratio(reducers: Mapping[MemberId, ReducerLoad]) -> float:
    """max C(n) / min C(n) of those with fresh figures: C is rows a second by capacity."""
    rows = [(load.rows + ROWS_FEW) / load.capacity for load in reducers.values() if load.fresh]
    return max(rows) / min(rows) if rows else 1.0


def choose(
    reducers: Mapping[MemberId, ReducerLoad],
    before: Strategy,
    imbalance_max: float,
    too_hot: Bucket | None = None,
) -> Choice:
    """What suits the figures; between even and uneven it stays as it is.

    Uneven are the rows (`UNEVEN_RATIO`), or the use (a deviation above `imbalance_max`, where rows
    differ in cost). To change to HASH moves nothing: it only stops what is of no more use. SPLIT
    suits a bucket that is `too_hot` for a reducer, or has assistants.
    """
    ratio = rows_ratio(reducers)
    uneven_use = deviation(reducers)
    figures = f"rows per reducer max/min {ratio:.1f}, deviation of use {uneven_use:.2f}"
    if too_hot is not None:
        reason = f"bucket {too_hot} needs more than a reducer: {figures}"
        return Choice(Strategy.SPLIT, reason, ChoiceKind.HOT)
    if ratio > UNEVEN_RATIO or uneven_use > imbalance_max:
        reason = f"uneven: {figures}{_capacities(reducers)}"
        return Choice(_evening(reducers), reason, ChoiceKind.UNEVEN)
    if ratio <= EVEN_RATIO and uneven_use <= imbalance_max / 2:
        return Choice(Strategy.HASH, f"even: {figures}", ChoiceKind.EVEN)
    if before is Strategy.HASH:
        return Choice(before, f"even enough: {figures}", ChoiceKind.BETWEEN)
    reason = f"not even yet: {figures}{_capacities(reducers)}"
    return Choice(_evening(reducers), reason, ChoiceKind.BETWEEN)


def _evening(reducers: Mapping[MemberId, ReducerLoad]) -> Strategy:
    return Strategy.WEIGHTED if _uneven_machines(reducers) else Strategy.GREEDY


def _uneven_machines(reducers: Mapping[MemberId, ReducerLoad]) -> bool:
    sizes = [load.capacity for load in reducers.values()]
    return bool(sizes) and max(sizes) > CAPACITIES_DIFFER * min(sizes)


def _capacities(reducers: Mapping[MemberId, ReducerLoad]) -> str:
    if not _uneven_machines(reducers):
        return ""
    sizes = [load.capacity for load in reducers.values()]
    return f", capacities from {min(sizes):.2f} to {max(sizes):.2f}"


def as_seen(
    reducers: Mapping[MemberId, ReducerLoad], strategy: Strategy
) -> dict[MemberId, ReducerLoad]:
    """The loads as the strategy weighs them: to HASH and GREEDY all machines are equal.

    Each then has the mean capacity, not a whole processor: of less, less is uneven.
    """
    if strategy in {Strategy.WEIGHTED, Strategy.SPLIT} or not reducers:
        return dict(reducers)
    mean = fmean(load.capacity for load in reducers.values())
    return {
        member: load if load.capacity == mean else replace(load, capacity=mean)
        for member, load in reducers.items()
    }
