"""Whether a process alone has lost a server that others of its role still reach.

It then keeps from them what they could do: its buckets or partitions stand still, though it is
alive. Where all have lost the server, nobody would do better, and nothing is to be changed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from mars.core.types import MemberId
from mars.protocol.balance.load_view import Freshness
from mars.protocol.ports import MemberInfo

NEEDED = frozenset({"kafka", "redis"})
"""Without these a member does nothing. Without ZooKeeper it is none, once its session has ended."""

CUT_OFF_S = 15.0
"""How long a server must be away for this process and there for another, all the time: longer than
a request's time-out (10 s), so that of those who have all waited for it none is called cut off
because it comes back from waiting last."""


@dataclass(frozen=True, slots=True)
class _Lost:
    since_s: float
    witnesses: frozenset[MemberId]


class CutOff:
    """Looks at the others for as long as something is missing; call `look` every second or so."""

    def __init__(self) -> None:
        self._freshness = Freshness()
        self._lost: Mapping[str, _Lost] = {}

    def look(
        self, now_s: float, missing: Collection[str], others: Iterable[MemberInfo]
    ) -> frozenset[str]:
        """The servers that this process alone has lost, for long enough to be sure.

        `missing` are those that it does not reach at `now_s` of its monotonic clock; `others` are
        the other members of its role. Who is about to stop is no witness.
        """
        others = tuple(others)
        fresh = self._freshness.fresh(others, now_s)
        well = frozenset(
            other.id
            for other in others
            if other.id in fresh and not other.leaving and not NEEDED.intersection(other.missing)
        )
        lost: dict[str, _Lost] = {}
        for service in NEEDED.intersection(missing):
            before = self._lost.get(service, _Lost(now_s, well))
            lost[service] = _Lost(before.since_s, before.witnesses & well)
            if not lost[service].witnesses:
                lost[service] = _Lost(now_s, well)
        self._lost = lost
        return frozenset(
            service
            for service, each in lost.items()
            if each.witnesses and now_s - each.since_s >= CUT_OFF_S
        )
