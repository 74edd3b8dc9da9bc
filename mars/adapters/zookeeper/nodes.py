"""Nodes as the registries use them: read after a sync, written with the word that they changed.

A *family* is a node and those right below it. Each write of a member also writes the family's own
node, so that one watch on that tells of any change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from kazoo.client import TransactionRequest
from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError
from kazoo.protocol.states import ZnodeStat

from mars.adapters.zookeeper.connection import Reply, ZooKeeperConnection
from mars.adapters.zookeeper.duties import Watching
from mars.core.errors import Rejected
from mars.core.portions import portions

DEFINITION_BYTES_MAX = 1_000_000
"""Longest value: over 1 MiB a packet ends the session of a ZooKeeper as it is delivered."""


STEP_BYTES_MAX = DEFINITION_BYTES_MAX // 2
"""Of members that are written as one: they are one packet, too."""

STEP_MEMBERS_MAX = 200
"""Of members that are written as one: a server does nothing else meanwhile."""

Stamp = tuple[int, int]
"""The transactions that made a family and that wrote it last: another one if made again."""

Check = Callable[[TransactionRequest], None]
"""Adds to a transaction what else must hold for it to take effect."""


@dataclass(frozen=True, slots=True)
class Write:
    """A member's value, and the version that it replaces; None: there is no such member."""

    path: str
    value: bytes
    expected: int | None


def no_check(_transaction: TransactionRequest) -> None:
    """Nothing else."""


UNMET = (BadVersionError, NoNodeError)
"""How ZooKeeper says that a check does not hold."""


class Nodes:
    """Reads and writes nodes. Reads follow a sync, so that what any process wrote is seen."""

    def __init__(self, connection: ZooKeeperConnection) -> None:
        self._connection = connection

    def read(self, path: str) -> tuple[bytes, ZnodeStat] | None:
        """A node's value; None if there is none."""
        _, found = self._connection.found([self._sync(path), self._get(path)])
        answer: tuple[bytes, ZnodeStat] | None = found
        return answer

    def stamp(self, family: str) -> Stamp | None:
        """What is another one after each write of a member; None if there is no such family.

        Members read after it are at least as new.
        """
        found = self.read(family)
        return None if found is None else (found[1].czxid, found[1].mzxid)

    def members(self, family: str) -> list[bytes]:
        """The values of all nodes of a family."""
        return [value for value, _stat in self.versioned(family)]

    def versioned(self, family: str) -> list[tuple[bytes, ZnodeStat]]:
        """The same with their versions: two round trips, whatever their number."""
        _, names = self._connection.found(
            [
                self._sync(family),
                self._connection.send(lambda client: client.get_children_async(family)),
            ]
        )
        found = self._connection.found([self._get(f"{family}/{name}") for name in names or ()])
        return [one for one in found if one is not None]

    def create(self, family: str, path: str, value: bytes, check: Check = no_check) -> bool:
        """Make a member; False if it is there. Raises Rejected for a value that is too long."""
        checked(value)

        def build(transaction: TransactionRequest) -> None:
            check(transaction)
            transaction.create(path, value)
            transaction.set_data(family, b"")

        self._connection.ensure(family)
        return self._connection.transact(build, NodeExistsError, *UNMET)

    def replace(
        self, family: str, path: str, value: bytes, expected: int, check: Check = no_check
    ) -> bool:
        """Write a member if its version still is `expected`; else False. Raises Rejected."""
        checked(value)

        def build(transaction: TransactionRequest) -> None:
            check(transaction)
            transaction.set_data(path, value, expected)
            transaction.set_data(family, b"")

        return self._connection.transact(build, *UNMET)

    def write(self, family: str, writes: Sequence[Write]) -> int:
        """Make and write members, in order and many as one: how many were written.

        It ends before the first step in which one is not as expected. Raises Rejected.
        """
        for one in writes:
            checked(one.value)
        self._connection.ensure(family)
        done = 0
        for step in portions(writes, (_one, STEP_MEMBERS_MAX), (_bytes, STEP_BYTES_MAX)):
            if not self._connection.transact(
                partial(_build, family, step), *UNMET, NodeExistsError
            ):
                break
            done += len(step)
        return done

    def delete(self, family: str, path: str) -> bool:
        """Take a member away; False if there was none."""

        def build(transaction: TransactionRequest) -> None:
            transaction.delete(path)
            transaction.set_data(family, b"")

        return self._connection.transact(build, NoNodeError)

    def watch(self, family: str, changed: Callable[[], None]) -> None:
        """Call `changed` after any change of any member, and after each reconnect.

        It runs in the connection's keeper thread: it must be quick, and must not close anything.
        """

        def arm(fired: Callable[[object], None]) -> None:
            self._connection.ensure(family)
            self._connection.call(lambda client: client.exists_async(family, watch=fired))

        self._connection.stand(Watching(self._connection, arm, changed))

    def _sync(self, path: str) -> Reply:
        return self._connection.send(lambda client: client.sync_async(path))

    def _get(self, path: str) -> Reply:
        return self._connection.send(lambda client: client.get_async(path))


def _one(_write: Write) -> int:
    return 1


def _bytes(write: Write) -> int:
    return len(write.value)


def _build(family: str, step: Sequence[Write], transaction: TransactionRequest) -> None:
    for one in step:
        if one.expected is None:
            transaction.create(one.path, one.value)
        else:
            transaction.set_data(one.path, one.value, one.expected)
    transaction.set_data(family, b"")


def checked(value: bytes) -> bytes:
    """A value that ZooKeeper takes. Raises Rejected."""
    if len(value) > DEFINITION_BYTES_MAX:
        raise Rejected(
            f"the definition takes {len(value):,} bytes; make it shorter than "
            f"{DEFINITION_BYTES_MAX:,}"
        )
    return value
