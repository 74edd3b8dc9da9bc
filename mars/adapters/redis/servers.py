"""Which server has which keys: one has all, or each node of a cluster those of its slots.

All keys of a task are in one slot, so what is done with a task is done by one server.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import redis
from redis.cluster import ClusterNode, NodesManager
from redis.crc import key_slot
from redis.exceptions import AuthenticationError, RedisClusterException

from mars.adapters.redis.addresses import read_address
from mars.adapters.redis.connection import ERRORS, at_node, connect, translated
from mars.adapters.redis.scripts import Call
from mars.core.settings import RedisSettings

SLOTS_TIMEOUT_S = 1.0
"""How long a node may take to say which node has which slots; another one is asked then."""


class StoreServers(Protocol):
    """The servers of a store; calls may come from several threads."""

    joins_tasks: bool
    """True if a transaction may touch the keys of several tasks."""

    def of(self, key: str) -> redis.Redis:
        """The server that has this key, or channel. Raises what the client raises."""

    def each(self) -> Sequence[redis.Redis]:
        """All that have any. Raises what the client raises."""

    def look_anew(self) -> None:
        """A call has failed: ask for the servers before the next one."""

    def close(self) -> None:
        """Give all connections back."""


class OneServer:
    """`StoreServers` where there is one, or a primary that sentinels name."""

    joins_tasks = True

    def __init__(self, client: redis.Redis) -> None:
        self._client = client

    def of(self, key: str) -> redis.Redis:
        """It has them all."""
        del key
        return self._client

    def each(self) -> Sequence[redis.Redis]:
        """The one."""
        return [self._client]

    def look_anew(self) -> None:
        """Nothing to look at."""

    def close(self) -> None:
        """See `StoreServers`."""
        self._client.close()


class ClusterServers:
    """`StoreServers` where they are the primaries of a cluster, which redis-py finds.

    Calls go to the nodes by connections of ours, which follow no redirection: a script that met one
    has not run, and whoever sent it sends it again, as after any lost answer. By then it is known
    where the slot is.
    """

    joins_tasks = False

    def __init__(self, settings: RedisSettings, timeout_s: float) -> None:
        self._settings = settings
        self._timeout_s = timeout_s
        self._named = set(read_address(settings.url).servers)
        self._found: set[tuple[str, int]] = set()
        """All nodes, as the last one that was asked knew them."""
        self._clients: dict[tuple[str, int], redis.Redis] = {}
        self._nodes: NodesManager | None = None
        self._lock = threading.Lock()

    def of(self, key: str) -> redis.Redis:
        """The primary of its slot."""
        with self._lock:
            return self._client(self._known().get_node_from_slot(key_slot(key.encode())))

    def each(self) -> Sequence[redis.Redis]:
        """The primaries that have slots."""
        with self._lock:
            nodes = self._known().get_nodes_by_server_type("primary")
            return [self._client(node) for node in nodes]

    def look_anew(self) -> None:
        """Forget which node has which slots."""
        with self._lock:
            nodes, self._nodes = self._nodes, None
        if nodes is not None:
            nodes.close()

    def close(self) -> None:
        """See `StoreServers`."""
        self.look_anew()
        for client in self._clients.values():
            client.close()

    def _known(self) -> NodesManager:
        if self._nodes is None:
            options = at_node(self._settings, min(self._timeout_s, SLOTS_TIMEOUT_S))
            # Those that were found know it, too, when all that were named are gone. One that has
            # left the cluster is never asked again: it may be silent, or somebody else's.
            seeds = [
                ClusterNode(host, port)  # type: ignore[no-untyped-call]
                for host, port in {*self._named, *self._found}
            ]
            try:
                self._nodes = NodesManager(seeds, **options)
            except RedisClusterException as error:
                if isinstance(error.__cause__, AuthenticationError):
                    raise error.__cause__ from None
                raise
            self._found = set(map(_place, self._nodes.nodes_cache.values()))
            left = [place for place in self._clients if place not in self._found]
            for place in left:
                self._clients.pop(place).close()
        return self._nodes

    def _client(self, node: ClusterNode) -> redis.Redis:
        place = _place(node)
        if place not in self._clients:
            self._clients[place] = connect(self._settings, self._timeout_s, place)
        return self._clients[place]


def _place(node: ClusterNode) -> tuple[str, int]:
    return node.host, int(node.port)


def open_servers(settings: RedisSettings, timeout_s: float) -> StoreServers:
    """Those that the settings name; connects when it is first used. Raises SettingsError."""
    if read_address(settings.url).is_cluster:
        return ClusterServers(settings, timeout_s)
    return OneServer(connect(settings, timeout_s))


@contextmanager
def calling(servers: StoreServers) -> Iterator[None]:
    """Turn whatever the client raises into `Unavailable`."""
    with translated():
        try:
            yield
        except ERRORS:
            servers.look_anew()
            raise


def where_they_lie(
    servers: StoreServers,
    calls: Sequence[Call],
    run: Callable[[redis.Redis, Sequence[Call]], list[Any]],
) -> list[Any]:
    """Let each server run the calls on its keys; the answers in the order of the calls."""
    places: dict[redis.Redis, list[int]] = {}
    for number, (_, keys, _) in enumerate(calls):
        places.setdefault(servers.of(keys[0]), []).append(number)
    answers: dict[int, Any] = {}
    for client, numbers in places.items():
        found = run(client, [calls[number] for number in numbers])
        answers |= zip(numbers, found, strict=True)
    return [answers[number] for number in range(len(calls))]
