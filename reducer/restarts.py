"""Which processes begin again and again, as a leader sees them: it has no other eye for deaths."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from mars.core.types import MemberId
from mars.protocol.ports import MemberInfo

OFTEN = 5
"""So many begins of one member within WITHIN_MS are no accident and no upgrade."""

WITHIN_MS = 600_000


@dataclass(slots=True)
class _Begins:
    """Of one member: when its present life began, and when a new life was seen, seconds."""

    started_ms: int
    seen_s: deque[float] = field(default_factory=lambda: deque(maxlen=OFTEN))


class Restarts:
    """The begins of all members that this reign has seen.

    A life that ends between two looks is not seen. A member's first life that is seen is none that
    began anew, so a leader that is new knows of nothing.
    """

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self._clock = clock or time.monotonic
        self._begins: dict[MemberId, _Begins] = {}

    def begun_often(self, members: Iterable[MemberInfo]) -> list[MemberInfo]:
        """Those that have begun anew just now, for the fifth time within ten minutes, or more."""
        return [info for info in members if self._begins_anew(info)]

    def _begins_anew(self, info: MemberInfo) -> bool:
        begins = self._begins.setdefault(info.id, _Begins(info.started_ms))
        if begins.started_ms == info.started_ms:
            return False
        now_s = self._clock()
        begins.started_ms = info.started_ms
        begins.seen_s.append(now_s)
        return len(begins.seen_s) == OFTEN and now_s - begins.seen_s[0] <= WITHIN_MS / 1000
