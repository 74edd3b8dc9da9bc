"""API keys on ZooKeeper."""

from __future__ import annotations

from collections.abc import Callable

from mars.adapters.zookeeper.connection import ZooKeeperConnection
from mars.adapters.zookeeper.nodes import Nodes
from mars.adapters.zookeeper.paths import Paths
from mars.protocol.ports.keys import ApiKey, KeyId, decode_key, encode_key


class ZooKeeperKeyRegistry:
    """`KeyRegistry` on ZooKeeper."""

    def __init__(self, connection: ZooKeeperConnection, namespace: str) -> None:
        self._nodes = Nodes(connection)
        self._paths = Paths(namespace)

    def all(self) -> list[ApiKey]:
        """All keys, in no order."""
        return [decode_key(raw) for raw in self._nodes.members(self._paths.keys)]

    def create(self, key: ApiKey) -> bool:
        """False if the id exists."""
        return self._nodes.create(self._paths.keys, self._paths.key(key.id), encode_key(key))

    def delete(self, key: KeyId) -> bool:
        """False if there was none."""
        return self._nodes.delete(self._paths.keys, self._paths.key(key))

    def watch(self, changed: Callable[[], None]) -> None:
        """Call `changed` after any change of any key, and after each reconnect.

        It runs in the connection's keeper thread: it must be quick, and must not close anything.
        """
        self._nodes.watch(self._paths.keys, changed)
