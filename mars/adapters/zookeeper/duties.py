"""What must stand as long as the process lives: its membership, and what it watches."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from kazoo.exceptions import NodeExistsError, NoNodeError

from mars.adapters.zookeeper.connection import Link, ZooKeeperConnection
from mars.adapters.zookeeper.paths import Paths
from mars.core.errors import Unavailable
from mars.protocol.ports import MemberInfo


class Membership:
    """The ephemeral node that says that this process is alive, made again in each new session."""

    def __init__(self, connection: ZooKeeperConnection, paths: Paths, info: MemberInfo) -> None:
        self._connection = connection
        self._paths = paths
        self._info = info
        self._session: int | None = None

    def renew(self, link: Link) -> None:
        """Have the node in the present session."""
        if not link.connected:
            return
        path, session = self._path(), self._connection.session_id
        stat = self._connection.call(
            lambda client: client.exists_async(path, watch=self._connection.wake)
        )
        # A node of another session is that of our former life, which would vanish with it. Once
        # it is ours and is then taken away, a process of the same name lives: leave it alone.
        former = stat is not None and stat.ephemeralOwner != session
        if former and self._session != session:
            self._delete(path)
            stat = None
        if stat is None:
            self._create(path)
        self._session = session

    def report(self, info: MemberInfo) -> None:
        """Write what is known of the process, without waiting for the answer."""
        self._info = info
        if not self._connection.link.connected:
            return
        try:
            self._connection.send(
                lambda client: client.set_async(self._path(), msgspec.json.encode(info))
            )
        except Unavailable:
            pass  # best effort: the next report, or the next session, makes up for it

    def leave(self) -> None:
        """Take the node away, if there is a connection."""
        try:
            self._delete(self._path())
        except Unavailable:
            pass  # it vanishes with the session

    def _path(self) -> str:
        return self._paths.member(self._info.role, self._info.id)

    def _create(self, path: str) -> None:
        self._connection.ensure(self._paths.role(self._info.role))
        value = msgspec.json.encode(self._info)
        try:
            self._connection.call(
                lambda client: client.create_async(path, value, ephemeral=True), NodeExistsError
            )
        except NodeExistsError:
            self._connection.wake()  # somebody was faster: look again

    def _delete(self, path: str) -> None:
        try:
            self._connection.call(lambda client: client.delete_async(path), NoNodeError)
        except NoNodeError:
            pass


class Watching:
    """Calls `changed` whenever something that `arm` watches has changed, once for many changes.

    `arm` gets the function to be left as a watch, and is called again before each `changed`, so
    that whoever reads in `changed` misses nothing. A new connection counts as a change. `observe`
    gives what besides is to be noticed when it differs from last time.
    """

    def __init__(
        self,
        connection: ZooKeeperConnection,
        arm: Callable[[Callable[[object], None]], None],
        changed: Callable[[], None],
        observe: Callable[[], object] = lambda: None,
    ) -> None:
        self._connection = connection
        self._arm = arm
        self._changed = changed
        self._observe = observe
        self._observed: object = None
        self._armed_in: int | None = None

    def renew(self, link: Link) -> None:
        """Watch again what is watched no more, and tell of the change."""
        observed = self._observe()
        notice, self._observed = observed != self._observed, observed
        try:
            notice |= self._rearmed(link)
        finally:
            if notice:
                self._changed()

    def _rearmed(self, link: Link) -> bool:
        if not link.connected or self._armed_in == link.generation:
            return False
        # Set first, so that a watch that fires while the others are armed is not forgotten.
        self._armed_in = link.generation
        try:
            self._arm(self._fired)
        except Unavailable:
            self._armed_in = None
            raise
        return True

    def _fired(self, _event: object) -> None:
        self._armed_in = None
        self._connection.wake()
