"""The doorbell: who waits for entries is woken by the script that appends them.

Best effort. Bells are lost while the connection is; who waits also polls.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import redis
from redis.client import PubSub

from mars.adapters.redis.sentinels import is_former
from mars.core.types import TaskName

RECONNECT_PAUSE_S = 1.0
"""How often a lost connection is tried again; a try may block for the client's time-outs."""

BELLS_MAX = 10_000
"""How many bells are taken at once: a bound on the time that taking them needs."""


class Doorbell:
    """Hears the channels of some tasks, on a connection of its own. For one thread at a time."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self._wanted: Mapping[str, TaskName] = {}
        self._heard: frozenset[str] = frozenset()
        self._pubsub: PubSub | None = None
        self._next_try_s = 0.0

    def listen(self, channels: Mapping[str, TaskName]) -> None:
        """Hear these channels, and no others, from the next `wait` on."""
        self._wanted = channels

    def wait(self, timeout_s: float) -> frozenset[TaskName]:
        """Wait for a bell; the tasks whose bells rang. Never raises for what the server does."""
        deadline_s = time.monotonic() + timeout_s
        try:
            if self._connected() and (rung := self._rung(deadline_s)):
                return rung
        except (redis.RedisError, OSError):
            self.close()
            self._next_try_s = time.monotonic() + RECONNECT_PAUSE_S
        # There is nobody to ask: wait as long as was asked for, so that the caller's loop keeps
        # its pace.
        time.sleep(max(0.0, deadline_s - time.monotonic()))
        return frozenset()

    def close(self) -> None:
        """Give the connection back; the next `wait` makes another one."""
        pubsub, self._pubsub, self._heard = self._pubsub, None, frozenset()
        if pubsub is not None:
            try:
                pubsub.close()
            except (redis.RedisError, OSError):
                pass  # it was broken: that is why it is closed

    def _connected(self) -> bool:
        if self._pubsub is not None and is_former(self._client, self._pubsub):
            self.close()
        if self._pubsub is None:
            if time.monotonic() < self._next_try_s:
                return False
            self._pubsub = PubSub(self._client.connection_pool, ignore_subscribe_messages=True)
        wanted = frozenset(self._wanted)
        if added := wanted - self._heard:
            self._pubsub.ssubscribe(*added)
        if removed := self._heard - wanted:
            self._pubsub.sunsubscribe(*removed)  # type: ignore[no-untyped-call]
        self._heard = wanted
        return bool(self._heard)

    def _rung(self, deadline_s: float) -> frozenset[TaskName]:
        first: TaskName | None = None
        while first is None and (left_s := deadline_s - time.monotonic()) > 0:
            first = self._bell(left_s)
        rung = set() if first is None else {first}
        for _ in range(BELLS_MAX):
            another = self._bell(0.0)
            if another is None:
                break
            rung.add(another)
        return frozenset(rung)

    def _bell(self, timeout_s: float) -> TaskName | None:
        """The next bell, of a task that is listened to; None for a confirmed subscription, too."""
        message = None if self._pubsub is None else self._pubsub.get_message(timeout=timeout_s)
        return None if message is None else self._wanted.get(message["channel"].decode())
