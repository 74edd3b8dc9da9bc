"""How long processes have said nothing: whether what they say of themselves still changes.

Their clocks and this one's need not agree, so a report is only compared with the one before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from threading import Lock

from api.services.context import Ports
from mars.core.errors import Unavailable
from mars.core.types import MemberId
from mars.protocol.ports import MemberInfo


class Pulse:
    """Remembers when each mapper's report last changed. Safe for threads."""

    def __init__(self, ports: Ports, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._ports = ports
        self._monotonic_s = monotonic_s
        self._lock = Lock()
        self._heard: dict[MemberId, tuple[int, float]] = {}

    def look(self) -> None:
        """Look at all mappers now. Raises nothing: who cannot be asked has not fallen silent."""
        try:
            members = self._ports.coordinator.members("mapper")
        except Unavailable:
            members = {}
        self.unheard_ms(members)

    def unheard_ms(self, members: Mapping[MemberId, MemberInfo]) -> dict[MemberId, int]:
        """Take what all mappers say now: for how long each has been seen to say nothing new."""
        now_s = self._monotonic_s()
        with self._lock:
            known = self._heard
            self._heard = {
                name: known[name]
                if name in known and known[name][0] == info.reported_ms
                else (info.reported_ms, now_s)
                for name, info in members.items()
            }
            return {
                name: round((now_s - since_s) * 1_000) if reported_ms else 0
                for name, (reported_ms, since_s) in self._heard.items()
            }
