"""The doorbell: who waits for entries is woken by the script that appends them.

Best effort. Bells are lost while the connection is; who waits also polls.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

import redis
from redis.client import PubSub

RECONNECT_PAUSE_S = 1.0
"""How often a lost connection is tried again; a try may block for the client's time-outs."""

BELLS_MAX = 10_000
"""How many bells are taken as one: a bound on the time that taking them needs."""


class Doorbell:
    """Hears the channels of some tasks, on a connection of its own. For one thread at a time."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self._wanted: frozenset[str] = frozenset()
        self._heard: frozenset[str] = frozenset()
        self._pubsub: PubSub | None = None
        self._next_try_s = 0.0

    def listen(self, channels: Iterable[str]) -> None:
        """Hear these channels, and no others, from the next `wait` on."""
        self._wanted = frozenset(channels)

    def wait(self, timeout_s: float) -> bool:
        """Wait for a bell; True if one rang. Never raises for what the server does."""
        deadline_s = time.monotonic() + timeout_s
        try:
            if self._connected() and self._rang(deadline_s):
                return True
        except (redis.RedisError, OSError):
            self.close()
            self._next_try_s = time.monotonic() + RECONNECT_PAUSE_S
        # There is nobody to ask: wait as long as was asked for, so that the caller's loop keeps
        # its pace.
        time.sleep(max(0.0, deadline_s - time.monotonic()))
        return False

    def close(self) -> None:
        """Give the connection back; the next `wait` makes another one."""
        pubsub, self._pubsub, self._heard = self._pubsub, None, frozenset()
        if pubsub is not None:
            try:
                pubsub.close()
            except (redis.RedisError, OSError):
                pass  # it was broken: that is why it is closed

    def _connected(self) -> bool:
        if self._pubsub is None:
            if time.monotonic() < self._next_try_s:
                return False
            self._pubsub = PubSub(self._client.connection_pool, ignore_subscribe_messages=True)
        if added := self._wanted - self._heard:
            self._pubsub.ssubscribe(*added)
        if removed := self._heard - self._wanted:
            self._pubsub.sunsubscribe(*removed)  # type: ignore[no-untyped-call]
        self._heard = self._wanted
        return bool(self._heard)

    def _rang(self, deadline_s: float) -> bool:
        while (left_s := deadline_s - time.monotonic()) > 0:
            if self._message(left_s):
                self._take_the_rest()
                return True
        return self._message(0.0)

    def _take_the_rest(self) -> None:
        for _ in range(BELLS_MAX):
            if not self._message(0.0):
                return

    def _message(self, timeout_s: float) -> bool:
        # None is the answer for a confirmed subscription, too.
        return self._pubsub is not None and self._pubsub.get_message(timeout=timeout_s) is not None
