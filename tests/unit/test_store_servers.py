"""Which nodes of a cluster are asked where the slots are, and to which connections are kept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest
from redis.cluster import ClusterNode
from redis.exceptions import RedisClusterException

from mars.adapters.redis import servers
from mars.adapters.redis.connection import at_node
from mars.adapters.redis.servers import ClusterServers
from mars.core.settings import RedisSettings

KEY = "mars:{task}:meta"


def node(port: int) -> ClusterNode:
    return ClusterNode("127.0.0.1", port)  # type: ignore[no-untyped-call]


class Layouts:
    """In place of redis-py's `NodesManager`: what a node answers, look by look."""

    def __init__(self, *layouts: Sequence[int]) -> None:
        self.asked: list[set[int]] = []
        self._layouts = iter(layouts)

    def look(self, seeds: Iterable[ClusterNode], **_options: object) -> Layout:
        self.asked.append({int(one.port) for one in seeds})
        found = next(self._layouts)
        if not found:
            raise RedisClusterException("no node answers")
        return Layout([node(port) for port in found])


class Layout:
    """The primaries, of which the first has all slots."""

    def __init__(self, nodes: Sequence[ClusterNode]) -> None:
        self.nodes_cache = {one.name: one for one in nodes}

    def get_node_from_slot(self, _slot: int) -> ClusterNode:
        return next(iter(self.nodes_cache.values()))

    def close(self) -> None:
        """Nothing is open."""


def test_nodes_that_left_the_cluster_are_not_asked_and_have_no_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    layouts = Layouts([7001, 7002], [], [7002, 7003], [7002, 7003])
    monkeypatch.setattr(servers, "NodesManager", layouts.look)
    store = ClusterServers(RedisSettings(url="redis+cluster://127.0.0.1:7000"), 1.0)

    gone = store.of(KEY)
    store.look_anew()
    with pytest.raises(RedisClusterException):
        store.of(KEY)
    stays = store.of(KEY)
    store.look_anew()

    assert store.of(KEY) is stays is not gone
    assert layouts.asked == [{7000}, {7000, 7001, 7002}, {7000, 7001, 7002}, {7000, 7002, 7003}]
    assert list(store._clients) == [("127.0.0.1", 7002)]


def test_nodes_get_the_credentials_of_the_url_or_else_those_of_the_settings() -> None:
    own = RedisSettings(url="redis+cluster://me:p%40ss@a:1,b:2", username="u", password="p")
    found = at_node(own, 1.0)
    assert (found["username"], found["password"]) == ("me", "p@ss")
    found = at_node(RedisSettings(url="redis+cluster://a:1", username="u", password="p"), 1.0)
    assert (found["username"], found["password"]) == ("u", "p")
