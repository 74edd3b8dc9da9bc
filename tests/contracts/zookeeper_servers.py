"""What the suites of registry and coordinator run on: the twins, and a real ZooKeeper."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from functools import partial
from typing import Protocol

import pytest
from kazoo.client import KazooClient

from mars.adapters.memory.coordinator import MemoryCoordinator, MemoryEnsemble
from mars.adapters.memory.keys import MemoryKeyRegistry, MemoryKeyShelf
from mars.adapters.memory.queries import MemoryQueryRegistry, MemoryQueryShelf
from mars.adapters.memory.registry import MemoryRegistry, MemoryShelf
from mars.adapters.zookeeper.connection import Reply, ZooKeeperConnection
from mars.adapters.zookeeper.coordinator import ZooKeeperCoordinator
from mars.adapters.zookeeper.keys import ZooKeeperKeyRegistry
from mars.adapters.zookeeper.paths import Paths
from mars.adapters.zookeeper.queries import ZooKeeperQueryRegistry
from mars.adapters.zookeeper.registry import ZooKeeperRegistry
from mars.core.settings import ZooKeeperSettings
from mars.core.types import MemberId
from mars.local.servers import ZooKeeperServer
from mars.protocol.ports import Coordinator, KeyRegistry, QueryRegistry, Registry
from tests.contracts.proxy import Proxy
from tests.contracts.waiting import READY_WITHIN_S, eventually

SESSION_S = 3.0
"""Long enough that a busy machine loses no session by itself."""


class Ensemble(Protocol):
    """The server, and what tests do to the processes that use it."""

    def registry(self) -> Registry:
        """A process's registry."""

    def queries(self) -> QueryRegistry:
        """A process's registry of queries."""

    def keys(self) -> KeyRegistry:
        """A process's registry of API keys."""

    def coordinator(self, member: str) -> Coordinator:
        """The coordinator of the process of that name."""

    def suspend(self, member: str) -> None:
        """Cut its connection; it knows when this returns."""

    def expire(self, member: str) -> None:
        """Cut its connection and have the server end its session; it knows when this returns."""

    def heal(self, member: str) -> None:
        """Let it connect again; it has when this returns."""

    def lose_all(self) -> None:
        """Lose what the server holds; each process is connected again when this returns."""

    def stands(self, member: str) -> bool:
        """Whether it stands for election, as the server sees it."""

    def close(self) -> None:
        """Free everything."""


class MemoryEnsembleUnderTest:
    """The twins."""

    def __init__(self) -> None:
        self.ensemble = MemoryEnsemble()
        self.shelf = MemoryShelf()
        self.query_shelf = MemoryQueryShelf()
        self.key_shelf = MemoryKeyShelf()

    def registry(self) -> MemoryRegistry:
        return MemoryRegistry(self.shelf)

    def queries(self) -> MemoryQueryRegistry:
        return MemoryQueryRegistry(self.query_shelf)

    def keys(self) -> MemoryKeyRegistry:
        return MemoryKeyRegistry(self.key_shelf)

    def coordinator(self, member: str) -> MemoryCoordinator:
        return MemoryCoordinator(self.ensemble, MemberId(member))

    def suspend(self, member: str) -> None:
        self.ensemble.suspend(MemberId(member))

    def expire(self, member: str) -> None:
        self.ensemble.expire(MemberId(member))

    def heal(self, member: str) -> None:
        self.ensemble.heal(MemberId(member))

    def lose_all(self) -> None:
        self.ensemble.wipe()
        MemoryRegistry(self.shelf).wipe()
        for member in list(self.ensemble.sessions):
            self.ensemble.heal(member)

    def stands(self, member: str) -> bool:
        return member in self.ensemble.candidates

    def close(self) -> None:
        pass


class Process:
    """One process's way to the real server: a session behind a proxy."""

    def __init__(self, server: ZooKeeperServer, settings: ZooKeeperSettings | None = None) -> None:
        self.server = server
        self.proxy = Proxy(server.port)
        hosts = f"127.0.0.1:{self.proxy.port}"
        self.connection = ZooKeeperConnection.open(
            settings or ZooKeeperSettings(hosts=hosts, session_timeout_s=SESSION_S)
        )

    def identity(self) -> tuple[int, bytes]:
        """What the server knows the present session by."""
        identity: tuple[int, bytes] = self.connection._client.client_id
        return identity

    def end_session(self, identity: tuple[int, bytes]) -> None:
        """Have the server end a session, as it does with one that was silent for too long."""
        impostor = KazooClient(hosts=self.server.hosts, client_id=identity)
        impostor.start(READY_WITHIN_S)
        impostor.stop()
        impostor.close()

    def close(self) -> None:
        self.proxy.heal()
        self.connection.close()
        self.proxy.close()


class ZooKeeperUnderTest:
    """A namespace of its own on a real server."""

    def __init__(self, server: ZooKeeperServer) -> None:
        self.server = server
        self.namespace = f"test_{uuid.uuid4().hex}"
        self.processes: dict[str, Process] = {}

    def process(self, name: str) -> Process:
        """The process of that name, made when it is first asked for."""
        if name not in self.processes:
            self.processes[name] = Process(self.server)
        return self.processes[name]

    def registry(self) -> ZooKeeperRegistry:
        process = self.process(f"registry-{len(self.processes)}")
        return ZooKeeperRegistry(process.connection, self.namespace)

    def queries(self) -> ZooKeeperQueryRegistry:
        process = self.process(f"queries-{len(self.processes)}")
        return ZooKeeperQueryRegistry(process.connection, self.namespace)

    def keys(self) -> ZooKeeperKeyRegistry:
        process = self.process(f"keys-{len(self.processes)}")
        return ZooKeeperKeyRegistry(process.connection, self.namespace)

    def coordinator(self, member: str) -> ZooKeeperCoordinator:
        process = self.process(member)
        eventually(lambda: process.connection.link.connected)
        return ZooKeeperCoordinator(process.connection, self.namespace, MemberId(member))

    def suspend(self, member: str) -> None:
        process = self.process(member)
        process.proxy.cut()
        eventually(lambda: not process.connection.link.connected)

    def expire(self, member: str) -> None:
        identity = self.process(member).identity()
        self.suspend(member)
        self.process(member).end_session(identity)

    def heal(self, member: str) -> None:
        process = self.process(member)
        generation = process.connection.link.generation
        process.proxy.heal()
        eventually(lambda: process.connection.link.generation > generation)

    def lose_all(self) -> None:
        members = list(self.processes)
        for member in members:
            self.expire(member)
        eraser = KazooClient(hosts=self.server.hosts)
        eraser.start(READY_WITHIN_S)
        eraser.delete(Paths(self.namespace).root, recursive=True)
        eraser.stop()
        eraser.close()
        for member in members:
            self.heal(member)

    def stands(self, member: str) -> bool:
        paths = Paths(self.namespace)
        observer = self.process("observer").connection
        (names,) = observer.found(
            [observer.send(lambda client: client.get_children_async(paths.election))]
        )
        found = observer.found(
            [observer.send(partial(_get, path=paths.candidate(name))) for name in names or ()]
        )
        return member.encode() in [one[0] for one in found if one is not None]

    def close(self) -> None:
        for process in self.processes.values():
            process.close()


def _get(client: KazooClient, path: str) -> Reply:
    reply: Reply = client.get_async(path)
    return reply


@pytest.fixture
def zookeeper_ensemble(zookeeper_server: ZooKeeperServer) -> Iterator[ZooKeeperUnderTest]:
    """An empty namespace on the real server."""
    ensemble = ZooKeeperUnderTest(zookeeper_server)
    yield ensemble
    ensemble.close()


@pytest.fixture(params=["memory", pytest.param("zookeeper", marks=pytest.mark.integration)])
def ensemble(request: pytest.FixtureRequest) -> Iterator[Ensemble]:
    """An empty namespace: the twins', and a real one."""
    if request.param == "zookeeper":
        yield request.getfixturevalue("zookeeper_ensemble")
    else:
        yield MemoryEnsembleUnderTest()
