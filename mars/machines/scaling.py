"""How many members of a role the load asks for, computed at once and not one by one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from mars.ports import Wanted

DRAIN_S = 60.0
"""In which time a backlog should be gone: what that takes counts as load."""

OVERLOAD_MAX = 16.0
"""Largest factor by which a backlog raises the load: figures beyond are measured too badly."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What one member does and leaves undone: `done` and `growth` a second, `backlog` in the same
    unit (messages, or bytes).
    """

    use: float
    done: float = 0.0
    growth: float = 0.0
    backlog: float = 0.0

    @property
    def whole(self) -> float:
        """Use that it would take to keep up, and to work the backlog off within a minute."""
        if self.done <= 0:
            return self.use
        more = (max(0.0, self.growth) + self.backlog / DRAIN_S) / self.done
        return self.use * min(1.0 + more, OVERLOAD_MAX)


@dataclass(frozen=True, slots=True)
class ScaleLimits:
    """Mean use from `low` (LUT) to `high` (UUT) is left alone, else brought to `target` (TUT)."""

    low: float = 0.30
    high: float = 0.75
    target: float = 0.55


def wanted(role: str, members: Sequence[Demand], most: int, limits: ScaleLimits) -> Wanted:
    """How many members there should be, between 1 and `most`; none are known: as it is."""
    present = len(members)
    if not present:
        return Wanted(role, 0, 0, "nobody is there to be measured")
    whole = sum(member.whole for member in members)
    mean = whole / present
    need = max(1, min(most, math.ceil(whole / limits.target - 1e-9)))
    band = f"{limits.low:.0%} to {limits.high:.0%}"
    if mean > limits.high and need > present:
        reason = f"mean load {mean:.0%} is above {band}: {need} bring it to {limits.target:.0%}"
        return Wanted(role, present, need, reason)
    if mean < limits.low and need < present:
        reason = f"mean load {mean:.0%} is below {band}: {need} will do"
        return Wanted(role, present, need, reason)
    if mean > limits.high:
        return Wanted(
            role, present, present, f"mean load {mean:.0%}, and {most} are of use at most"
        )
    return Wanted(role, present, present, f"mean load {mean:.0%}")
