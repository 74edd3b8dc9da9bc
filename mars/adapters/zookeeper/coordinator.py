"""Who is alive, who leads and who owns what, on ZooKeeper."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from kazoo.client import TransactionRequest
from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError

from mars.adapters.zookeeper.connection import Reply, ZooKeeperConnection
from mars.adapters.zookeeper.duties import Membership, Watching
from mars.adapters.zookeeper.election import Candidacy, Reign
from mars.adapters.zookeeper.paths import Paths
from mars.core.errors import Unavailable
from mars.core.types import LeaderEpoch, MemberId
from mars.protocol.ports import Assignment, MemberInfo


class _Fixed(msgspec.Struct, frozen=True):
    """What was fixed when the namespace was made."""

    buckets: int


class ZooKeeperCoordinator:
    """`Coordinator` on ZooKeeper; `member` is the name of this process.

    Callbacks given to `watch` run in the connection's keeper thread: they must be quick, and must
    not close anything.
    """

    def __init__(self, connection: ZooKeeperConnection, namespace: str, member: MemberId) -> None:
        self._connection = connection
        self._paths = Paths(namespace)
        self._candidacy = Candidacy(connection, self._paths, member)
        self._membership: Membership | None = None
        self._watchings: list[Watching] = []

    def connected(self) -> bool:
        """False from the moment the session is suspended."""
        return self._connection.link.connected

    def buckets(self, wanted: int) -> int:
        """B of this namespace: `wanted` if it is being made just now, else what was fixed."""
        self._connection.ensure(self._paths.root)
        path, value = self._paths.fixed, msgspec.json.encode(_Fixed(wanted))
        try:
            self._connection.call(lambda client: client.create_async(path, value), NodeExistsError)
        except NodeExistsError:
            raw, _ = self._connection.call(lambda client: client.get_async(path))
            return msgspec.json.decode(raw, type=_Fixed).buckets
        return wanted

    # --------------------------------------------------------------------------------- members

    def join(self, info: MemberInfo) -> None:
        """Register this process, now if there is a connection, and again after each expiry."""
        if self._membership is not None:
            self._membership.report(info)
            return
        self._membership = Membership(self._connection, self._paths, info)
        self._connection.stand(self._membership)

    def report(self, info: MemberInfo) -> None:
        """Refresh what is known of this process; does not wait, never raises."""
        if self._membership is not None:
            self._membership.report(info)

    def members(self, role: str) -> dict[MemberId, MemberInfo]:
        """Those of a role that are alive."""
        return self.roster(role)[role]

    def roster(self, *roles: str) -> dict[str, dict[MemberId, MemberInfo]]:
        """Those of each of these roles, asked for at once."""
        listed = self._connection.found([self._children(self._paths.role(role)) for role in roles])
        places = [
            (role, MemberId(name))
            for role, names in zip(roles, listed, strict=True)
            for name in names or ()
        ]
        found = self._connection.found([self._get(self._paths.member(*place)) for place in places])
        roster: dict[str, dict[MemberId, MemberInfo]] = {role: {} for role in roles}
        for (role, name), one in zip(places, found, strict=True):
            if one is not None:  # else it has left since it was listed
                roster[role][name] = msgspec.json.decode(one[0], type=MemberInfo)
        return roster

    def watch(self, changed: Callable[[], None]) -> None:
        """Call `changed` when members, assignment, connection or own leadership change."""
        watching = Watching(self._connection, self._arm, changed, self._standing)
        self._watchings.append(watching)
        self._connection.stand(watching)

    # ------------------------------------------------------------------ election, assignment

    def assignment(self) -> Assignment | None:
        """The current assignment, read after a sync with the ZooKeeper leader."""
        path = self._paths.assignment
        sync = self._connection.send(lambda client: client.sync_async(path))
        # One session's requests are answered in order: the read follows the sync.
        _, found = self._connection.found([sync, self._get(path)])
        if found is None or not found[0]:
            return None
        return msgspec.json.decode(found[0], type=Assignment)

    def campaign(self) -> None:
        """Stand for election in the background, for as long as the process lives."""
        self._connection.stand(self._candidacy)

    def leading(self) -> LeaderEpoch | None:
        """This process's own leader epoch while it leads, None at once when suspended."""
        reign = self._candidacy.reign
        return None if reign is None else reign.epoch

    def leadership(self) -> Reign | None:
        """The leadership that `leading` tells the epoch of."""
        return self._candidacy.reign

    def outgrow(self, floor: LeaderEpoch) -> None:
        """End the own leadership, and let leader epochs go on above `floor`."""
        self._candidacy.outgrow(floor)

    def publish(self, assignment: Assignment) -> bool:
        """Write the assignment if this process still leads in `assignment.leader_epoch`."""
        reign = self._candidacy.reign
        if reign is None or reign.epoch != assignment.leader_epoch:
            return False
        if self._wrote(reign, msgspec.json.encode(assignment)):
            return True
        self._candidacy.abdicate()
        return False

    def close(self) -> None:
        """Leave: members and election nodes vanish at once. The connection stays open."""
        self._connection.lay_down(self._candidacy)
        for watching in self._watchings:
            self._connection.lay_down(watching)
        if self._membership is not None:
            self._connection.lay_down(self._membership)
            self._membership.leave()
        try:
            self._candidacy.withdraw()
        except Unavailable:
            pass  # the nodes vanish with the session

    def _wrote(self, reign: Reign, value: bytes) -> bool:
        def build(transaction: TransactionRequest) -> None:
            reign.check(transaction, self._paths)
            transaction.set_data(self._paths.assignment, value)

        return self._connection.transact(build, BadVersionError, NoNodeError)

    def _standing(self) -> object:
        return self._connection.link, self.leading()

    def _arm(self, fired: Callable[[object], None]) -> None:
        members = self._paths.members
        self._connection.ensure(members)
        (roles,) = self._connection.found([self._children(members, fired)])
        self._connection.found(
            [self._children(self._paths.role(role), fired) for role in roles or ()]
        )
        self._connection.call(
            lambda client: client.exists_async(self._paths.assignment, watch=fired)
        )

    def _children(self, path: str, fired: Callable[[object], None] | None = None) -> Reply:
        return self._connection.send(lambda client: client.get_children_async(path, watch=fired))

    def _get(self, path: str) -> Reply:
        return self._connection.send(lambda client: client.get_async(path))
