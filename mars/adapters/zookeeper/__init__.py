"""The task registry and the coordination on ZooKeeper.

registry.py      ZooKeeperRegistry: streams and tasks
queries.py       ZooKeeperQueryRegistry: ad-hoc queries
keys.py          ZooKeeperKeyRegistry: API keys
nodes.py         nodes as registries read and write them
coordinator.py   ZooKeeperCoordinator: members, election, assignment
duties.py        what must go on by itself: membership, watches
election.py      candidacy and reign
connection.py    the session, its keeper thread, and the table of errors
paths.py         the names of the nodes
"""

from __future__ import annotations

from mars.adapters.zookeeper.connection import ZooKeeperConnection
from mars.adapters.zookeeper.coordinator import ZooKeeperCoordinator
from mars.adapters.zookeeper.keys import ZooKeeperKeyRegistry
from mars.adapters.zookeeper.queries import ZooKeeperQueryRegistry
from mars.adapters.zookeeper.registry import ZooKeeperRegistry

__all__ = [
    "ZooKeeperConnection",
    "ZooKeeperCoordinator",
    "ZooKeeperKeyRegistry",
    "ZooKeeperQueryRegistry",
    "ZooKeeperRegistry",
]
