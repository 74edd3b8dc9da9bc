"""Ad-hoc queries on ZooKeeper."""

from __future__ import annotations

from collections.abc import Callable

from mars.adapters.zookeeper.connection import ZooKeeperConnection
from mars.adapters.zookeeper.nodes import Nodes
from mars.adapters.zookeeper.paths import Paths
from mars.protocol.ports.queries import QueryId, QueryRecord, decode_query, encode_query


class ZooKeeperQueryRegistry:
    """`QueryRegistry` on ZooKeeper. Writing more than `DEFINITION_BYTES_MAX` raises Rejected."""

    def __init__(self, connection: ZooKeeperConnection, namespace: str) -> None:
        self._nodes = Nodes(connection)
        self._paths = Paths(namespace)

    def create(self, record: QueryRecord) -> bool:
        """False if the id exists."""
        path = self._paths.query(record.query.id)
        return self._nodes.create(self._paths.queries, path, encode_query(record))

    def all(self) -> list[QueryRecord]:
        """All that are kept, in no order."""
        return [decode_query(raw) for raw in self._nodes.members(self._paths.queries)]

    def get(self, query: QueryId) -> tuple[QueryRecord, int] | None:
        """A query and the registry's version of it."""
        found = self._nodes.read(self._paths.query(query))
        return None if found is None else (decode_query(found[0]), found[1].version)

    def replace(self, record: QueryRecord, expected: int) -> bool:
        """Write a query if the registry's version still is `expected`; else False."""
        path = self._paths.query(record.query.id)
        return self._nodes.replace(self._paths.queries, path, encode_query(record), expected)

    def delete(self, query: QueryId) -> bool:
        """False if there was none."""
        return self._nodes.delete(self._paths.queries, self._paths.query(query))

    def watch(self, changed: Callable[[], None]) -> None:
        """Call `changed` after any change of any query, and after each reconnect.

        It runs in the connection's keeper thread: it must be quick, and must not close anything.
        """
        self._nodes.watch(self._paths.queries, changed)
