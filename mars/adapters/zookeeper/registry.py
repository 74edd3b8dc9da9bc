"""Streams and tasks on ZooKeeper."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from kazoo.client import TransactionRequest
from kazoo.exceptions import NodeExistsError, NoNodeError

from mars.adapters.zookeeper.connection import ZooKeeperConnection
from mars.adapters.zookeeper.election import Reign
from mars.adapters.zookeeper.nodes import (
    DEFINITION_BYTES_MAX,
    UNMET,
    Check,
    Nodes,
    Stamp,
    Write,
    checked,
    no_check,
)
from mars.adapters.zookeeper.paths import Paths
from mars.core.definitions import (
    TaskDefinition,
    decode_definition,
    decode_stream,
    encode_definition,
    encode_stream,
)
from mars.core.errors import Unavailable
from mars.core.plan import Stream
from mars.core.types import StreamName, TaskName
from mars.protocol.ports import Leadership, TaskWrite

__all__ = ["DEFINITION_BYTES_MAX", "ZooKeeperRegistry"]


class ZooKeeperRegistry:
    """`Registry` on ZooKeeper. Reads follow a sync, so that what any process wrote is seen.

    Writing a definition of more than `DEFINITION_BYTES_MAX` raises Rejected.
    """

    def __init__(self, connection: ZooKeeperConnection, namespace: str) -> None:
        self._connection = connection
        self._nodes = Nodes(connection)
        self._paths = Paths(namespace)
        self._known: tuple[Stamp | None, dict[TaskName, tuple[TaskDefinition, int]]] | None = None

    def ping(self) -> str | None:
        """None if ZooKeeper lets us read our nodes, else a sentence that says what to do."""
        try:
            self.whole()
        except Unavailable as error:
            return str(error)
        return None

    def whole(self) -> bool:
        """False where this ZooKeeper was never used, or has lost everything."""
        return self._nodes.read(self._paths.whole) is not None

    def make_whole(self, lead: Leadership | None = None) -> bool:
        """Leave the mark that goes when everything goes."""
        check, path = self._check(lead), self._paths.whole
        self._connection.ensure(self._paths.root)

        def build(transaction: TransactionRequest) -> None:
            check(transaction)
            transaction.create(path)

        return self._connection.transact(build, NodeExistsError, *UNMET) or self.whole()

    # --------------------------------------------------------------------------------- streams

    def streams(self) -> dict[StreamName, Stream]:
        """All streams by name."""
        streams = [decode_stream(raw) for raw in self._nodes.members(self._paths.streams)]
        return {stream.name: stream for stream in streams}

    def stream(self, name: StreamName) -> Stream | None:
        """One stream."""
        found = self._nodes.read(self._paths.stream(name))
        return None if found is None else decode_stream(found[0])

    def put_stream(self, stream: Stream, lead: Leadership | None = None) -> bool:
        """Declare or replace a stream."""
        path, value = self._paths.stream(stream.name), checked(encode_stream(stream))
        self._connection.ensure(self._paths.streams)
        while not (self._created(path, value, lead) or self._replaced(path, value, lead)):
            # Somebody made it, and somebody deleted it again.
            if lead is not None and not self._holds(lead):
                return False
        return True

    def delete_stream(self, name: StreamName) -> bool:
        """False if there was none."""
        path = self._paths.stream(name)
        return self._connection.transact(lambda some: some.delete(path), NoNodeError)

    # ----------------------------------------------------------------------------------- tasks

    def tasks(self) -> dict[TaskName, TaskDefinition]:
        """All definitions, deleted ones included: one look tells whether any has changed."""
        return {name: definition for name, (definition, _) in self._all_tasks().items()}

    def versioned_tasks(self) -> dict[TaskName, tuple[TaskDefinition, int]]:
        """The same, each with the registry's version of it."""
        return dict(self._all_tasks())

    def _all_tasks(self) -> dict[TaskName, tuple[TaskDefinition, int]]:
        stamp, known = self._nodes.stamp(self._paths.tasks), self._known
        if known is None or stamp is None or stamp != known[0]:
            nodes = self._nodes.versioned(self._paths.tasks)
            found = [(decode_definition(raw), stat.version) for raw, stat in nodes]
            self._known = known = (stamp, {one[0].name: one for one in found})
        return known[1]

    def task(self, name: TaskName) -> tuple[TaskDefinition, int] | None:
        """A definition and the registry's version of it."""
        found = self._nodes.read(self._paths.task(name))
        return None if found is None else (decode_definition(found[0]), found[1].version)

    def create_task(self, definition: TaskDefinition, lead: Leadership | None = None) -> bool:
        """False if the name exists (a deleted task's name exists, see `replace_task`)."""
        path, value = self._paths.task(definition.name), encode_definition(definition)
        return self._nodes.create(self._paths.tasks, path, value, self._check(lead))

    def replace_task(
        self, definition: TaskDefinition, expected: int, lead: Leadership | None = None
    ) -> bool:
        """Write a definition if the registry's version still is `expected`; else False."""
        path, value = self._paths.task(definition.name), encode_definition(definition)
        return self._nodes.replace(self._paths.tasks, path, value, expected, self._check(lead))

    def write_tasks(self, writes: Sequence[TaskWrite]) -> int:
        """Write many definitions, in order and some hundred in one step: how many were written."""
        return self._nodes.write(
            self._paths.tasks,
            [self._write(one.definition, one.expected) for one in writes],
        )

    def _write(self, definition: TaskDefinition, expected: int | None) -> Write:
        return Write(self._paths.task(definition.name), encode_definition(definition), expected)

    def watch_tasks(self, changed: Callable[[], None]) -> None:
        """Call `changed` after any change of any task, and after each reconnect.

        It runs in the connection's keeper thread: it must be quick, and must not close anything.
        """
        self._nodes.watch(self._paths.tasks, changed)

    # ---------------------------------------------------------------------------------- within

    def _check(self, lead: Leadership | None) -> Check:
        """What a transaction checks besides: that this leadership holds, if one is given."""
        if lead is None:
            return no_check
        if not isinstance(lead, Reign):
            raise TypeError("a leadership of another coordinator")
        return partial(lead.check, paths=self._paths)

    def _holds(self, lead: Leadership) -> bool:
        return self._connection.transact(self._check(lead), *UNMET)

    def _created(self, path: str, value: bytes, lead: Leadership | None) -> bool:
        check = self._check(lead)

        def build(transaction: TransactionRequest) -> None:
            check(transaction)
            transaction.create(path, value)

        return self._connection.transact(build, NodeExistsError, *UNMET)

    def _replaced(self, path: str, value: bytes, lead: Leadership | None) -> bool:
        check = self._check(lead)

        def build(transaction: TransactionRequest) -> None:
            check(transaction)
            transaction.set_data(path, value)

        return self._connection.transact(build, *UNMET)
