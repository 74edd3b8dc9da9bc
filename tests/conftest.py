"""What tests share: real servers, and what happens when a test needs something that is not here.

On a developer's machine such a test is skipped with the reason; where CI is set it fails, because
there a test that is not run is a test that is missing.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, settings

from mars.core.errors import LocalClusterError
from mars.local import jars
from mars.local.child import Child
from mars.local.java import find_java
from mars.local.servers import KafkaServer, ValkeyServer, ZooKeeperServer, find_valkey
from tests.support.spark import SparkShelf

READY_S = 120.0
"""Longest start of a server on a machine that does other things too."""

STOP_S = 20.0

THREADS_MAX = 300
"""Of one process of tests; each client of Kafka has four and more."""

THREADS = Path("/proc/self/task")

# An example is right however long it takes on a busy machine. Where CI is set the examples are the
# same each time, so that a run fails because of a change; everywhere else new ones are tried.
settings.register_profile(
    "mars",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="CI" in os.environ,
)
settings.load_profile("mars")

# Servers of tests live for a minute or two. The second compiler of the Java machine takes half of
# the processor in that time, for code that is hardly used again.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")

S = TypeVar("S", bound=Child)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """In each folder, files with a cluster of their own come before those that share one.

    The shared one lives from its first file to the end of the folder, and does not run beside
    others for longer than it must: idle, it takes a quarter of a core.
    """
    folders = list(dict.fromkeys(item.path.parent for item in items))
    sharing = {item.path for item in items if "one_for_all" in getattr(item, "fixturenames", ())}
    items.sort(key=lambda item: (folders.index(item.path.parent), item.path in sharing))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Iterator[None]:
    """Look for clients of Kafka that tests have left, once they are many.

    The traceback of an expected error keeps them in a cycle, and among so many objects the
    interpreter hardly ever looks for cycles of old ones. Their threads take processor time, and a
    process has 1,024 thread-local keys, of which each takes one.
    """
    yield
    if THREADS.exists() and sum(1 for _ in THREADS.iterdir()) > THREADS_MAX:
        gc.collect()


@dataclass(frozen=True, slots=True)
class Servers:
    """A real Kafka, ZooKeeper and Valkey, shared by all tests of a run.

    Tests keep apart by topics, paths and keys of their own; a test that stops, pauses or empties a
    server makes its own.
    """

    kafka: KafkaServer
    zookeeper: ZooKeeperServer
    valkey: ValkeyServer

    @property
    def bootstrap(self) -> str:
        """Kafka's address."""
        return self.kafka.bootstrap

    @property
    def hosts(self) -> str:
        """ZooKeeper's address."""
        return self.zookeeper.hosts

    @property
    def url(self) -> str:
        """Valkey's address."""
        return self.valkey.url


def need(reason: str | None) -> None:
    """Skip the test for this reason, or fail it where CI is set; None: nothing is missing."""
    if reason is None:
        return
    if os.environ.get("CI"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def missing_java() -> str | None:
    """What keeps a Java server from running."""
    try:
        find_java()
    except LocalClusterError as error:
        return str(error)
    return None


def missing_kafka() -> str | None:
    """What keeps Kafka from running."""
    if not jars.location("kafka").is_dir():
        return "Kafka's jars are not there; run `make jars`."
    return missing_java()


def missing_valkey() -> str | None:
    """What keeps Valkey from running."""
    try:
        find_valkey()
    except LocalClusterError as error:
        return str(error)
    return None


def running(server: S) -> Iterator[S]:
    """Start it, yield it when it is ready, stop it."""
    server.start()
    try:
        server.wait_ready(READY_S)
        yield server
    finally:
        server.stop(STOP_S)


@pytest.fixture(scope="session")
def kafka_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """A Kafka for the whole run."""
    need(missing_kafka())
    yield from running(KafkaServer(tmp_path_factory.mktemp("kafka")))


@pytest.fixture(scope="session")
def zookeeper_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """A ZooKeeper for the whole run."""
    need(missing_java())
    yield from running(ZooKeeperServer(tmp_path_factory.mktemp("zookeeper")))


@pytest.fixture(scope="session")
def valkey_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyServer]:
    """A Valkey for the whole run."""
    need(missing_valkey())
    yield from running(ValkeyServer(tmp_path_factory.mktemp("valkey")))


@pytest.fixture(scope="session")
def spark_shelf() -> Iterator[SparkShelf]:
    """The engine on Spark, one session for as long as the same settings are asked for."""
    need(missing_java())
    shelf = SparkShelf()
    yield shelf
    shelf.close()


@pytest.fixture(scope="session")
def servers(
    valkey_server: ValkeyServer, zookeeper_server: ZooKeeperServer, kafka_server: KafkaServer
) -> Servers:
    """All three; a test that needs one of them asks for that one."""
    return Servers(kafka_server, zookeeper_server, valkey_server)
