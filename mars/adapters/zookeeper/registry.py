"""Streams and tasks on ZooKeeper."""

from __future__ import annotations

from collections.abc import Callable

from kazoo.client import TransactionRequest
from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError
from kazoo.protocol.states import ZnodeStat

from mars.adapters.zookeeper.connection import Reply, ZooKeeperConnection
from mars.adapters.zookeeper.duties import Watching
from mars.adapters.zookeeper.paths import Paths
from mars.definitions import (
    TaskDefinition,
    decode_definition,
    decode_stream,
    encode_definition,
    encode_stream,
)
from mars.errors import Rejected
from mars.plan import Stream
from mars.types import StreamName, TaskName

DEFINITION_BYTES_MAX = 1_000_000
"""Longest definition: over 1 MiB a packet ends the session of a ZooKeeper as it is delivered."""


class ZooKeeperRegistry:
    """`Registry` on ZooKeeper. Reads follow a sync, so that what any process wrote is seen.

    Writing a definition of more than `DEFINITION_BYTES_MAX` raises Rejected.
    """

    def __init__(self, connection: ZooKeeperConnection, namespace: str) -> None:
        self._connection = connection
        self._paths = Paths(namespace)

    def ping(self) -> str | None:
        """None if ZooKeeper answers, else a sentence that says what to do."""
        return self._connection.ping()

    # --------------------------------------------------------------------------------- streams

    def streams(self) -> dict[StreamName, Stream]:
        """All streams by name."""
        streams = [decode_stream(raw) for raw in self._children(self._paths.streams)]
        return {stream.name: stream for stream in streams}

    def stream(self, name: StreamName) -> Stream | None:
        """One stream."""
        found = self._read(self._paths.stream(name))
        return None if found is None else decode_stream(found[0])

    def put_stream(self, stream: Stream) -> None:
        """Declare or replace a stream."""
        path, value = self._paths.stream(stream.name), _checked(encode_stream(stream))
        self._connection.ensure(self._paths.streams)
        while not (self._created(path, value) or self._replaced(path, value)):
            pass  # somebody made it, and somebody deleted it again

    def delete_stream(self, name: StreamName) -> bool:
        """False if there was none."""
        path = self._paths.stream(name)
        return self._connection.transact(lambda some: some.delete(path), NoNodeError)

    # ----------------------------------------------------------------------------------- tasks

    def tasks(self) -> dict[TaskName, TaskDefinition]:
        """All definitions, deleted ones included."""
        definitions = [decode_definition(raw) for raw in self._children(self._paths.tasks)]
        return {definition.name: definition for definition in definitions}

    def task(self, name: TaskName) -> tuple[TaskDefinition, int] | None:
        """A definition and the registry's version of it."""
        found = self._read(self._paths.task(name))
        return None if found is None else (decode_definition(found[0]), found[1].version)

    def create_task(self, definition: TaskDefinition) -> bool:
        """False if the name exists (a deleted task's name exists, see `replace_task`)."""
        value = _checked(encode_definition(definition))

        def build(transaction: TransactionRequest) -> None:
            transaction.create(self._paths.task(definition.name), value)
            transaction.set_data(self._paths.tasks, b"")  # what `watch_tasks` watches

        self._connection.ensure(self._paths.tasks)
        return self._connection.transact(build, NodeExistsError)

    def replace_task(self, definition: TaskDefinition, expected: int) -> bool:
        """Write a definition if the registry's version still is `expected`; else False."""
        value = _checked(encode_definition(definition))

        def build(transaction: TransactionRequest) -> None:
            transaction.set_data(self._paths.task(definition.name), value, expected)
            transaction.set_data(self._paths.tasks, b"")

        return self._connection.transact(build, BadVersionError, NoNodeError)

    def watch_tasks(self, changed: Callable[[], None]) -> None:
        """Call `changed` after any change of any task, and after each reconnect.

        It runs in the connection's keeper thread: it must be quick, and must not close anything.
        """
        self._connection.stand(Watching(self._connection, self._arm, changed))

    # ---------------------------------------------------------------------------------- within

    def _arm(self, fired: Callable[[object], None]) -> None:
        self._connection.ensure(self._paths.tasks)
        self._connection.call(lambda client: client.exists_async(self._paths.tasks, watch=fired))

    def _created(self, path: str, value: bytes) -> bool:
        return self._connection.transact(lambda some: some.create(path, value), NodeExistsError)

    def _replaced(self, path: str, value: bytes) -> bool:
        return self._connection.transact(lambda some: some.set_data(path, value), NoNodeError)

    def _read(self, path: str) -> tuple[bytes, ZnodeStat] | None:
        _, found = self._connection.found([self._sync(path), self._get(path)])
        answer: tuple[bytes, ZnodeStat] | None = found
        return answer

    def _children(self, parent: str) -> list[bytes]:
        """The values of all nodes below `parent`: two round trips, whatever their number."""
        _, names = self._connection.found(
            [
                self._sync(parent),
                self._connection.send(lambda client: client.get_children_async(parent)),
            ]
        )
        found = self._connection.found([self._get(f"{parent}/{name}") for name in names or ()])
        return [one[0] for one in found if one is not None]

    def _sync(self, path: str) -> Reply:
        return self._connection.send(lambda client: client.sync_async(path))

    def _get(self, path: str) -> Reply:
        return self._connection.send(lambda client: client.get_async(path))


def _checked(value: bytes) -> bytes:
    if len(value) > DEFINITION_BYTES_MAX:
        raise Rejected(
            f"the definition takes {len(value):,} bytes, make it shorter than "
            f"{DEFINITION_BYTES_MAX:,}"
        )
    return value
