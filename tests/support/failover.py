"""A Mars with two Valkeys: a primary, its replica, and processes that are sent to either of them.

    mapper-a, mapper-b, reducer-a, reducer-b, api ──▶ RedisLink ──▶ primary or replica
                                          replica ──▶ Link      ──▶ primary

The primary is the Valkey that `mars up` has started. Nothing in Mars knows that there are two.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import redis

from mars.adapters.redis import RedisPartialLog
from mars.client.answers import Member
from mars.client.blocking import Client
from mars.core.settings import RedisSettings, Settings
from mars.core.types import TaskName
from mars.local.network import free_port
from mars.local.servers import ValkeyServer
from mars.protocol.ports import Head
from tests.support.cluster import MarsCluster, running_mars, wait_for
from tests.support.linked import Change, LinkedRole
from tests.support.proxy import HOST, Link

MAPPERS = ("mapper-a", "mapper-b")
REDUCERS = ("reducer-a", "reducer-b")
API = "api-a"
REPLICA = "replica"

Variables = Mapping[str, Mapping[str, str]]
"""By the name of a process, what it gets in its environment beside the usual."""

READY_S = 60.0
"""Longest start of a Valkey on a busy machine."""

STOP_S = 10.0


class StoreServer:
    """One of the two Valkeys, by connections of the test's own."""

    def __init__(self, url: str, buckets: int) -> None:
        self.port = int(url.removesuffix("/0").rpartition(":")[2])
        self.client = redis.Redis.from_url(url)
        self._log = RedisPartialLog.open(Settings(redis=RedisSettings(url=url)), buckets)

    def close(self) -> None:
        """Give the connections back."""
        self._log.close()
        self.client.close()

    def head(self, task: str) -> Head:
        """What it holds of a task."""
        name = TaskName(task)
        found = self._log.head([name])[name]
        assert found is not None, f"{task} is not in the store at port {self.port}"
        return found

    def clock_s(self) -> float:
        """What it takes for the time, in seconds since 1970."""
        seconds, micros = self.client.time()
        return float(seconds + micros / 1e6)

    def replication(self) -> dict[str, Any]:
        """That part of INFO."""
        return self.client.info("replication")


class Failover:
    """The two Valkeys, the link between them, and the processes by their names."""

    def __init__(
        self,
        primary: StoreServer,
        replica: StoreServer,
        replication: Link,
        roles: dict[str, LinkedRole],
    ) -> None:
        self.primary = primary
        self.replica = replica
        self._replication = replication
        self._roles = roles

    @property
    def names(self) -> set[str]:
        """Of all processes."""
        return set(self._roles)

    def follow(self) -> None:
        """Let the replica follow the primary, and wait until it holds the same."""
        self._replication.heal()
        self.replica.client.replicaof(HOST, str(self._replication.port))
        wait_for("the replica to be synchronised", self._synchronised)

    def _synchronised(self) -> bool:
        written = self.primary.replication()["master_repl_offset"]
        found = self.replica.replication()
        return bool(found["master_link_status"] == "up" and found["slave_repl_offset"] >= written)

    def cut(self) -> None:
        """Stop the replication: from now on the replica is stale."""
        self._replication.cut()
        wait_for(
            "the replica to be alone",
            lambda: self.replica.replication()["master_link_status"] == "down",
        )

    def promote(self) -> None:
        """Make the replica a primary."""
        self.replica.client.replicaof("NO", "ONE")
        assert self.replica.replication()["role"] == "master"

    def send(self, target: StoreServer, names: Iterable[str] = ()) -> None:
        """Connect these processes, by default all, to one of the two and no longer to the other."""
        links = [self._roles[name].redis for name in names or self._roles]
        for link in links:
            _cut(link)
        for link in links:
            link.target = target.port
            link.heal()


def _cut(link: Link) -> None:
    """End its connections, also one that is being made at this moment."""
    link.cut()
    # It accepts one after the other: once this one is refused, it knows all that came before.
    with suppress(ConnectionError), socket.create_connection((HOST, link.port)) as last:
        last.recv(1)
    link.disconnect()


class _Replica(ValkeyServer):
    """A Valkey with variables of its own."""

    def __init__(self, mars: MarsCluster, variables: Mapping[str, str]) -> None:
        super().__init__(mars.data / REPLICA, log=mars.data / "logs" / "replica.log")
        self._variables = variables

    def environment(self) -> Mapping[str, str]:
        """Ours, and what this test adds."""
        return {**os.environ, **self._variables}


@contextmanager
def failover(
    mars: MarsCluster, buckets: int, variables: Variables = MappingProxyType({})
) -> Iterator[Failover]:
    """A replica, and two mappers, two reducers and an API behind links.

    `mars.client` asks this API; the cluster's own has no link, and stands still.
    """
    with ExitStack() as stack:
        server = _Replica(mars, variables.get(REPLICA, {}))
        stack.callback(server.stop, STOP_S)
        server.start()
        server.wait_ready(READY_S)
        primary = stack.enter_context(closing(StoreServer(mars.file["redis"], buckets)))
        replica = stack.enter_context(closing(StoreServer(server.url, buckets)))
        # By default it waits 5 s for further replicas.
        primary.client.config_set("repl-diskless-sync-delay", 0)
        replication = stack.enter_context(closing(Link(primary.port)))
        roles: dict[str, LinkedRole] = {}
        pair = Failover(primary, replica, replication, roles)
        # A primary takes another replication id when its first replica comes, which is a loss of
        # the store to Mars: before anything is in it.
        pair.follow()
        roles |= beside(mars, stack, [*MAPPERS, *REDUCERS], variables=variables)
        yield pair


def beside(
    mars: MarsCluster,
    stack: ExitStack,
    names: Iterable[str],
    change: Change = lambda settings: settings,
    variables: Variables = MappingProxyType({}),
) -> dict[str, LinkedRole]:
    """These mappers and reducers and an API, which `mars.client` asks, by their names."""
    roles: dict[str, LinkedRole] = {}
    for name in names:
        role, own = name.partition("-")[0], variables.get(name)
        linked = LinkedRole(mars, role, name, change=change, variables=own)
        roles[name] = stack.enter_context(linked)
    stack.enter_context(mars.stopped("api"))
    roles[API] = stack.enter_context(_api(mars, change, variables.get(API)))
    wait_for("mappers and reducers", lambda: members(mars).keys() >= set(names))
    return roles


def beside_store(folder: Path, url: str, buckets: int, settings: str) -> Iterator[MarsCluster]:
    """Two mappers, two reducers and the API, whose store is at another address."""

    def there(own: Settings) -> Settings:
        return replace(own, redis=replace(own.redis, url=url))

    options = ("--mappers", "0", "--reducers", "0", "--bulk", "0", "--buckets", str(buckets))
    for mars in running_mars(folder, *options, settings=settings):
        with ExitStack() as stack:
            beside(mars, stack, [*MAPPERS, *REDUCERS], there)
            yield mars


@contextmanager
def _api(
    mars: MarsCluster, change: Change, variables: Mapping[str, str] | None
) -> Iterator[LinkedRole]:
    port = free_port()

    def listen_there(settings: Settings) -> Settings:
        return change(replace(settings, api=replace(settings.api, port=port)))

    own = mars.client
    with LinkedRole(mars, "api", API, change=listen_there, variables=variables) as api:
        mars.client = Client(f"http://{HOST}:{port}")
        try:
            yield api
        finally:
            mars.client.close()
            mars.client = own


def members(mars: MarsCluster) -> dict[str, Member]:
    """The living processes by their names."""
    return {member.id: member for member in mars.client.cluster().members}


def all_work(mars: MarsCluster, topic: str) -> bool:
    """Whether each mapper has partitions of this topic, and each reducer has buckets."""
    there = members(mars)
    topics = [{each.topic for each in there[name].partitions} for name in MAPPERS]
    return all(topic in each for each in topics) and all(there[name].buckets for name in REDUCERS)


def reducer(mars: MarsCluster, *, leads: bool) -> str:
    """The name of the reducer that leads, or of the other."""

    def leader() -> str:
        found = mars.client.cluster().leader
        return (found and found.member) or ""

    leading = wait_for("a leader", leader)
    return next(name for name in REDUCERS if (name == leading) == leads)
