"""How many requests a second one caller may make: a bucket of tokens each."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock

BURST_S = 2.0
"""A caller that was silent may catch up this many seconds' worth: a page loads much at once."""

CALLERS_MAX = 10_000
"""Callers that are remembered, about 200 bytes each. Who comes back after so many others begins
with a full bucket."""


class TokenBuckets:
    """A bucket per caller, refilled at `per_second` tokens; a request takes one. Thread-safe."""

    def __init__(self, per_second: float, clock_s: Callable[[], float]) -> None:
        self._per_second = per_second
        self._full = max(1.0, per_second * BURST_S)
        self._clock_s = clock_s
        self._lock = Lock()
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, who: str) -> float:
        """Take a token: 0, or the seconds after which there is one."""
        now_s = self._clock_s()
        with self._lock:
            tokens, since_s = self._buckets.pop(who, (self._full, now_s))
            tokens = min(self._full, tokens + (now_s - since_s) * self._per_second)
            wait_s = 0.0 if tokens >= 1 else (1 - tokens) / self._per_second
            self._buckets[who] = (tokens if wait_s else tokens - 1, now_s)
            if len(self._buckets) > CALLERS_MAX:
                self._buckets.popitem(last=False)
        return wait_s
