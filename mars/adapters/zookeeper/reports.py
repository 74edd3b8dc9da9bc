"""The members' reports as they stand in ZooKeeper, with how to tell whether they are refreshed."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
from kazoo.protocol.states import ZnodeStat

from mars.adapters.zookeeper.connection import Reply, ZooKeeperConnection
from mars.adapters.zookeeper.paths import Paths
from mars.core.types import MemberId
from mars.protocol.ports import MemberInfo


@dataclass(frozen=True, slots=True)
class MemberReport:
    """What a member last said of itself; `write` differs whenever it has said so again."""

    info: MemberInfo
    write: tuple[int, int]


class MemberReports:
    """Reads the reports of one role. Unlike a member it leaves no trace."""

    def __init__(self, connection: ZooKeeperConnection, namespace: str, role: str) -> None:
        self._connection = connection
        self._paths = Paths(namespace)
        self._role = role

    def read(self) -> list[MemberReport]:
        """All of the role that are alive. Raises Unavailable."""
        parent = self._paths.role(self._role)
        asked = self._connection.send(lambda client: client.get_children_async(parent))
        (names,) = self._connection.found([asked])
        found = self._connection.found([self._get(MemberId(name)) for name in names or ()])
        return [_report(*one) for one in found if one is not None]

    def _get(self, member: MemberId) -> Reply:
        path = self._paths.member(self._role, member)
        return self._connection.send(lambda client: client.get_async(path))


def _report(value: bytes, stat: ZnodeStat) -> MemberReport:
    # The transaction that made the node, and the number of writes to it since.
    return MemberReport(msgspec.json.decode(value, type=MemberInfo), (stat.czxid, stat.version))
