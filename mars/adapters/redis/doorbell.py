"""The doorbell: who waits for entries is woken by the script that appends them.

Best effort. Bells are lost while the connection is; who waits also polls.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from multiprocessing.connection import wait as readable
from typing import Any

import redis
from redis.client import PubSub

from mars.adapters.redis.connection import ERRORS
from mars.adapters.redis.sentinels import is_former
from mars.adapters.redis.servers import StoreServers
from mars.core.types import TaskName

RECONNECT_PAUSE_S = 1.0
"""How often a lost connection is tried again; a try may block for the client's time-outs."""

BELLS_MAX = 10_000
"""How many bells are taken at once: a bound on the time that taking them needs."""


class Doorbell:
    """Hears the channels of some tasks, on a connection of its own to each server that has some.

    For one thread at a time.
    """

    def __init__(self, servers: StoreServers) -> None:
        self._servers = servers
        self._wanted: Mapping[str, TaskName] = {}
        self._heard: dict[str, PubSub] = {}
        self._left: set[str] = set()
        self._pubsubs: dict[redis.Redis, PubSub] = {}
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
        except ERRORS:
            self.close()
            self._servers.look_anew()
            self._next_try_s = time.monotonic() + RECONNECT_PAUSE_S
        # There is nobody to ask: wait as long as was asked for, so that the caller's loop keeps
        # its pace.
        time.sleep(max(0.0, deadline_s - time.monotonic()))
        return frozenset()

    def close(self) -> None:
        """Give the connections back; the next `wait` makes others."""
        pubsubs, self._pubsubs, self._heard, self._left = self._pubsubs, {}, {}, set()
        for pubsub in pubsubs.values():
            try:
                pubsub.close()
            except ERRORS:
                pass  # it was broken: that is why it is closed

    def _connected(self) -> bool:
        if any(is_former(client, pubsub) for client, pubsub in self._pubsubs.items()):
            self.close()
        if not self._pubsubs and time.monotonic() < self._next_try_s:
            return False
        for channel in self._wanted.keys() - self._heard.keys():
            client = self._servers.of(channel)
            if client not in self._pubsubs:
                self._pubsubs[client] = PubSub(client.connection_pool)
            # Each by itself: in a cluster those of several slots may not be named together.
            self._heard[channel] = self._pubsubs[client]
            self._heard[channel].ssubscribe(channel)
        for channel in self._heard.keys() - self._wanted.keys():
            self._heard.pop(channel).sunsubscribe(channel)
            self._left.add(channel)
        return bool(self._heard)

    def _rung(self, deadline_s: float) -> frozenset[TaskName]:
        """What has rung by now, or rings first."""
        rung = self._drained()
        while not rung and (left_s := deadline_s - time.monotonic()) > 0:
            readable([_socket(pubsub) for pubsub in set(self._heard.values())], left_s)
            rung = self._drained()
        return frozenset(rung)

    def _drained(self) -> set[TaskName]:
        rung: set[TaskName] = set()
        for pubsub in set(self._heard.values()):
            for _ in range(BELLS_MAX):
                message = pubsub.get_message(timeout=0.0)
                if message is None:
                    break
                rung |= self._task_of(message)
        return rung

    def _task_of(self, message: Mapping[str, Any]) -> set[TaskName]:
        """Whose bell it is; nobody's for a confirmed subscription."""
        channel = message["channel"].decode()
        if message["type"] == "sunsubscribe":
            if channel not in self._left:
                raise redis.ConnectionError("the slot of this channel has moved")
            self._left.discard(channel)
        if message["type"] != "smessage" or channel not in self._wanted:
            return set()
        return {self._wanted[channel]}


def _socket(pubsub: PubSub) -> socket.socket:
    """Where its bells come in. Raises what the client raises if it has been closed."""
    found = getattr(pubsub.connection, "_sock", None)
    if not isinstance(found, socket.socket) or found.fileno() < 0:
        raise redis.ConnectionError("the connection is closed")
    return found
