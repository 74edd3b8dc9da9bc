"""What became known of a time zone after a task was registered with it."""

from __future__ import annotations

from typing import Final

from mars.core.plan import Plan
from mars.core.windows import Zone, moment
from mars.core.windows.moments import DAY_MS
from mars.process.zones import zone_named

AHEAD_MS: Final = 2 * 366 * DAY_MS
"""How far ahead jumps are compared: governments seldom plan for longer."""


def zone_warnings(plan: Plan, now_ms: int) -> list[str]:
    """Where its windows are by a clock that is no longer right, or soon will not be."""
    pinned = plan.window.zone
    known = None if pinned is None else zone_named(pinned.name)
    if pinned is None or known is None:
        return []
    differs_ms = _differ_from(pinned, known, now_ms)
    if differs_ms is None:
        return []
    return [
        f"the rules of {pinned.name} have changed since version {plan.version} was registered: "
        f"clocks of {pinned.name} show another time from {moment(differs_ms)} on (database "
        f"{known.database}, and not {pinned.database}). Windows go on by the old rules. A new "
        "version goes by the new ones: a comment in the query is change enough"
    ]


def _differ_from(one: Zone, other: Zone, now_ms: int) -> int | None:
    """From when on two clocks differ, now or some time ahead; None: they do not."""
    jumps = {at for zone in (one, other) for at, _ in zone.jumps if 0 < at - now_ms < AHEAD_MS}
    times = (now_ms, *sorted(jumps))
    return next((at for at in times if one.offset_at(at) != other.offset_at(at)), None)
