"""How many members of a role the load asks for, computed at once and not one by one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from mars.core.types import Bucket
from mars.protocol.ports import Wanted, WantedKind

DRAIN_S = 60.0
"""In which time a backlog should be gone: what that takes counts as load."""

OVERLOAD_MAX = 16.0
"""Largest factor by which a backlog raises the load: figures beyond are measured too badly."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What one member does and leaves undone: `done` and `growth` a second, `backlog` in the same
    unit (messages, or bytes).

    `parts` is over how many members its work could be spread at the most, `hottest` the bucket that
    costs it most. One that is `held_back`
    leaves undone what others do not take: its growth and backlog are given as 0.
    """

    use: float
    done: float = 0.0
    growth: float = 0.0
    backlog: float = 0.0
    parts: float = math.inf
    held_back: bool = False
    hottest: Bucket | None = None


@dataclass(frozen=True, slots=True)
class ScaleLimits:
    """Mean use from `low` (LUT) to `high` (UUT) is left alone, else brought to `target` (TUT)."""

    low: float = 0.30
    high: float = 0.75
    target: float = 0.55


def needs(members: Sequence[Demand]) -> list[float]:
    """Of each member the use that it would take to keep up, and to work the backlog off within a
    minute:

        whole = sum(use) * min(1 + (max(0, sum(growth)) + sum(backlog) / DRAIN_S) / sum(done), max)

    Growth counts for all together: as partitions and buckets change hands it rises at one member
    and falls at another. What is undone falls to those who leave it undone.
    """
    use, done = sum(member.use for member in members), sum(member.done for member in members)
    undone = _undone(members)
    whole = sum(undone)
    if done <= 0 or whole <= 0:
        return [member.use for member in members]
    more = use * min(whole / done, OVERLOAD_MAX - 1.0)
    return [member.use + more * part / whole for member, part in zip(members, undone, strict=True)]


def _undone(members: Sequence[Demand]) -> list[float]:
    """By member, a second: the growth of all is shared out to those where something grows."""
    growths = [max(0.0, member.growth) for member in members]
    net = max(0.0, sum(member.growth for member in members))
    share = net / sum(growths) if net else 0.0
    return [
        member.backlog / DRAIN_S + growth * share
        for member, growth in zip(members, growths, strict=True)
    ]


def wanted(role: str, members: Sequence[Demand], most: int, limits: ScaleLimits) -> Wanted:
    """How many members there should be, between 1 and `most`; none are known: as it is.

    Of each one only so much is asked for as its work has parts: further members would stand idle
    beside it.
    """
    present = len(members)
    if not present:
        return Wanted(role, 0, 0, "nobody is there to be measured")
    each = needs(members)
    mean = sum(each) / present
    asked = [
        min(use, member.parts * limits.target) for use, member in zip(each, members, strict=True)
    ]
    need = max(1, min(most, math.ceil(sum(asked) / limits.target - 1e-9)))
    held = sum(member.held_back for member in members)
    reason = _reason(mean, present, need, limits, capped=sum(asked) < sum(each))
    if held:
        reason += f"; {held} of {present} are held back: what lies ahead of them does not count"
    kind = _kind(mean, present, need, limits)
    changes = kind in {WantedKind.ABOVE, WantedKind.BELOW}
    return Wanted(role, present, need if changes else present, reason, kind)


def _kind(mean: float, present: int, need: int, limits: ScaleLimits) -> WantedKind:
    if mean > limits.high:
        return WantedKind.ABOVE if need > present else WantedKind.CAPPED
    if mean < limits.low and need < present:
        return WantedKind.BELOW
    return WantedKind.WITHIN


def _reason(mean: float, present: int, need: int, limits: ScaleLimits, *, capped: bool) -> str:
    band = f"{limits.low:.0%} to {limits.high:.0%}"
    if mean > limits.high and need > present:
        then = "share what can be shared" if capped else f"bring it to {limits.target:.0%}"
        return f"mean load {mean:.0%} is above {band}: {need} {then}"
    if mean > limits.high:
        return f"mean load {mean:.0%}, and more than {need} would be of no use"
    if mean < limits.low and need < present:
        return f"mean load {mean:.0%} is below {band}: {need} will do"
    return f"mean load {mean:.0%}"
