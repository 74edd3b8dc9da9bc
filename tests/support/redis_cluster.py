"""A Valkey Cluster: three primaries, each with a replica if wanted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import redis
from redis.crc import key_slot

from mars.adapters.redis.keys import TaskKeys
from mars.core.types import TaskName
from mars.local.network import HOST, free_port
from mars.local.servers import ValkeyServer
from tests.support.cluster import wait_for

PRIMARIES = 3
SLOTS = 16_384
NODE_TIMEOUT_MS = 2_000
READY_S = 60.0
STOP_S = 10.0


class ClusterNodeServer(ValkeyServer):
    """One node; what it knows of the others survives it, what it holds does not."""

    def __init__(self, data: Path) -> None:
        options = ["--cluster-enabled", "yes", "--cluster-port", str(free_port())]
        options += ["--cluster-node-timeout", str(NODE_TIMEOUT_MS)]
        options += ["--repl-diskless-sync-delay", "0", "--repl-backlog-ttl", "0"]
        super().__init__(data, options=options)
        self.bus = int(options[3])

    def ask(self, *words: object) -> Any:
        """One of CLUSTER's commands."""
        return self.call("CLUSTER", *words)

    def call(self, *words: object) -> Any:
        """Any command."""
        client = redis.Redis(HOST, self.port, decode_responses=True)
        try:
            return client.execute_command(*words)
        finally:
            client.close()

    @property
    def id(self) -> str:
        """By which the others know it."""
        return str(self.ask("MYID"))


class ValkeyCluster:
    """The nodes, primaries first; `url` is what Mars is given."""

    def __init__(self, nodes: Sequence[ClusterNodeServer]) -> None:
        self.nodes = nodes
        named = ",".join(f"{HOST}:{node.port}" for node in nodes[:PRIMARIES])
        self.url = f"redis+cluster://{named}"

    def meet(self) -> None:
        """Make one cluster of them: each primary has a third of the slots."""
        first = self.nodes[0]
        for node in self.nodes[1:]:
            first.ask("MEET", HOST, node.port, node.bus)
        wait_for("all to know one another", lambda: all(map(self._knows_all, self.nodes)))
        share = -(-SLOTS // PRIMARIES)
        for number, node in enumerate(self.nodes[:PRIMARIES]):
            last = min((number + 1) * share, SLOTS) - 1
            node.ask("ADDSLOTSRANGE", number * share, last)
        for number, node in enumerate(self.nodes[PRIMARIES:]):
            node.ask("REPLICATE", self.nodes[number].id)
        self.ready()

    def _knows_all(self, node: ClusterNodeServer) -> bool:
        known = str(node.ask("NODES"))
        return known.count(" connected") == len(self.nodes) and "handshake" not in known

    def ready(self) -> None:
        """Wait until all that run have what they should, and agree on who has which slots."""
        wait_for("a whole cluster", self._whole)

    def _whole(self) -> bool:
        try:
            running = [node for node in self.nodes if node.running]
            infos = [str(node.ask("INFO")) for node in running]
            owners = {str(self._owners(node)) for node in running}
            linked = [node.call("INFO", "replication") for node in running]
        except (redis.RedisError, OSError):
            return False
        up = all(each.get("master_link_status", "up") == "up" for each in linked)
        return up and len(owners) == 1 and all("cluster_state:ok" in each for each in infos)

    @staticmethod
    def _owners(node: ClusterNodeServer) -> dict[tuple[int, int], int]:
        found = node.ask("SLOTS")
        return {(int(each[0]), int(each[1])): int(each[2][1]) for each in found}

    def owner(self, task: str, namespace: str = "default") -> ClusterNodeServer:
        """The primary that has a task."""
        return self.owner_of(self.slot(task, namespace))

    @staticmethod
    def slot(task: str, namespace: str = "default") -> int:
        """Of a task."""
        return key_slot(TaskKeys.of(namespace, TaskName(task)).meta.encode())

    def owner_of(self, slot: int) -> ClusterNodeServer:
        """The primary that has a slot, as most of those that run see it."""
        node = next(node for node in self.nodes if node.running)
        for (first, last), port in self._owners(node).items():
            if first <= slot <= last:
                return next(each for each in self.nodes if each.port == port)
        raise AssertionError(f"nobody has slot {slot}")

    def other_than(self, node: ClusterNodeServer) -> ClusterNodeServer:
        """Another primary."""
        ports = set(self._owners(node).values()) - {node.port}
        return next(each for each in self.nodes if each.port in ports)

    def move(self, slot: int, target: ClusterNodeServer) -> None:
        """Move a slot key by key, as `valkey-cli --cluster reshard` does."""
        source = self.owner_of(slot)
        target.ask("SETSLOT", slot, "IMPORTING", source.id)
        source.ask("SETSLOT", slot, "MIGRATING", target.id)
        while keys := source.ask("GETKEYSINSLOT", slot, 1):
            source.call("MIGRATE", HOST, target.port, "", 0, 5_000, "KEYS", *keys)
        for node in (target, source):
            node.ask("SETSLOT", slot, "NODE", target.id)
        self.ready()

    def promoted(self, before: ClusterNodeServer, slot: int) -> ClusterNodeServer:
        """Wait until another node has the slot of one that died."""

        def another() -> ClusterNodeServer | None:
            found = self.owner_of(slot)
            return found if found is not before and found.running else None

        found = wait_for("another primary", another)
        assert found is not None
        self.ready()
        return found


@contextmanager
def valkey_cluster(folder: Path, *, replicas: bool = True) -> Iterator[ValkeyCluster]:
    """Ready for use; ended afterwards."""
    with ExitStack() as stack:
        nodes = [
            ClusterNodeServer(folder / f"node{number}")
            for number in range(PRIMARIES * (1 + replicas))
        ]
        for node in nodes:
            stack.callback(node.stop, STOP_S)
            node.start()
        for node in nodes:
            node.wait_ready(READY_S)
        cluster = ValkeyCluster(nodes)
        cluster.meet()
        yield cluster
