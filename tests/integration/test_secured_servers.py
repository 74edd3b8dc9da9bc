"""The main job behind TLS, names and passwords, with no more rights than the docs ask for."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from mars.client.blocking import Client
from mars.core.errors import MarsError
from mars.core.settings import Settings, to_toml
from mars.local.network import free_port
from mars.local.roles import RoleProcess
from tests.conftest import READY_S, STOP_S, missing_java, missing_kafka, missing_valkey, need
from tests.support.certificates import make_certificate
from tests.support.cluster import MarsCluster, wait_for
from tests.support.rows import assert_exactly_once, expected, flow_rows, messages
from tests.support.secured import PASSWORDS, Secured, secured

pytestmark = pytest.mark.integration

PARTITIONS = 2
WINDOW_MS = 1_000
ROWS = 300
QUERY = (
    "SELECT sip, type, timestamp, count(*), sum(bytes) AS bytes, sum(id) AS ids, "
    "sum(hash) AS hashes FROM {stream} GROUP BY sip, type, timestamp WINDOWING 1 s"
)


REFUSED = {
    "kafka": "it refuses the credentials; check kafka.sasl_mechanism, name and password",
    "redis": "it refuses the credentials; check redis.username and redis.password",
    "zookeeper": "the nodes belong to another user; check zookeeper.digest_username",
}
"""What is said of a wrong password."""


STRANGER, WRONG = "stranger", "planted-wrong"


class Role(RoleProcess):
    """A process that gets its passwords as the docs say, in its environment."""

    def __init__(
        self, name: str, role: str, config: Path, passwords: Mapping[str, str] = PASSWORDS
    ) -> None:
        super().__init__(name, role, config, config.parent / "logs" / f"{name}.log")
        self._passwords = passwords

    def environment(self) -> Mapping[str, str]:
        return {**super().environment(), **self._passwords}


@contextmanager
def running(role: Role) -> Iterator[Role]:
    """A process for as long as the block."""
    role.start()
    try:
        yield role
    finally:
        role.stop(STOP_S)


class Guarded(MarsCluster):
    """A mapper, a reducer and an API that may use the servers; tests feed by the plain port."""

    def __init__(self, data: Path, servers: Secured) -> None:
        self.servers = servers
        self.settings, config = configured(servers.settings, data)
        self.processes = [Role(role, role, config) for role in ("mapper", "reducer", "api")]
        super().__init__(data)

    @property
    def api(self) -> str:
        return address(self.settings)

    @property
    def file(self) -> dict[str, Any]:
        return {"kafka": self.servers.kafka.bootstrap}

    def up(self) -> None:
        for process in self.processes:
            process.start()
        self.client = Client(self.api)

    def down(self) -> None:
        self.client.close()
        for process in self.processes:
            process.stop(STOP_S)


def configured(settings: Settings, folder: Path) -> tuple[Settings, Path]:
    """The settings with a port for the API, and their file."""
    own = replace(settings, api=replace(settings.api, port=free_port()))
    config = folder / "mars.toml"
    config.write_text(to_toml(own))
    return own, config


def address(settings: Settings) -> str:
    """Where the API of these settings listens."""
    return f"http://127.0.0.1:{settings.api.port}"


def services(url: str) -> dict[str, str]:
    """What /readyz says of each server; nothing before the API listens."""
    try:
        found: dict[str, str] = httpx.get(f"{url}/readyz").json()["services"]
    except httpx.TransportError:
        return {}
    return found


def all_answer(url: str) -> bool:
    """Whether it has all three servers."""
    return set(services(url).values()) == {"ok"}


def decided(url: str) -> dict[str, str]:
    """The same once each of them was asked."""
    found = services(url)
    return {} if "not asked yet" in found.values() else found


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    need(missing_java() or missing_kafka() or missing_valkey())
    folder = tmp_path_factory.mktemp("servers")
    with secured(folder, *make_certificate(folder), READY_S) as found:
        yield found


@pytest.fixture(scope="module")
def mars(servers: Secured, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    cluster = Guarded(tmp_path_factory.mktemp("mars"), servers)
    yield cluster
    cluster.down()


def test_results_are_exact_with_the_rights_that_the_docs_name(mars: Guarded) -> None:
    wait_for("all servers", lambda: all_answer(mars.api), seconds=READY_S)
    mars.declare("guarded", stream="guarded", partitions=PARTITIONS)
    mars.servers.may_read("guarded")
    options = {"delay": "2s", "idle_after": "1s"}
    mars.client.create_task("guarded", QUERY.format(stream="guarded"), options=options)
    rows = flow_rows(0, ROWS, time.time_ns() // 1_000_000, rows_per_s=1_000_000, disorder_ms=500)
    mars.produce("guarded", messages(rows, PARTITIONS))
    wanted = expected(rows, WINDOW_MS)
    assert_exactly_once(mars.read_until("mars.results.guarded", len(wanted)), wanted)
    assert mars.client.why("guarded").summary
    assert not [name for name in PASSWORDS.values() if name in mars.logs(lines=100_000)]


def test_a_topic_that_mars_may_not_read_is_named(mars: Guarded) -> None:
    wait_for("all servers", lambda: all_answer(mars.api), seconds=READY_S)
    mars.declare("closed", stream="closed", partitions=PARTITIONS)
    with pytest.raises(MarsError, match="Kafka refuses topic closed: the user may not do this"):
        mars.client.create_task("closed", QUERY.format(stream="closed"))


def test_strangers_are_left_out(servers: Secured, mars: Guarded) -> None:
    """The guards are there: without them the other tests would show nothing."""
    wait_for("all servers", lambda: all_answer(mars.api), seconds=READY_S)
    with pytest.raises(redis.AuthenticationError):
        redis.Redis(port=servers.valkey.port).ping()
    zookeeper = KazooClient(servers.zookeeper.hosts)
    zookeeper.start(READY_S)
    try:
        with pytest.raises(NoAuthError):
            zookeeper.get_children("/mars/default")
    finally:
        zookeeper.stop()
        zookeeper.close()
    with pytest.raises(KafkaException):
        AdminClient({"bootstrap.servers": servers.settings.kafka.bootstrap}).list_topics(timeout=3)


def test_wrong_passwords_are_told_apart_from_servers_that_are_away(
    servers: Secured, mars: Guarded, tmp_path: Path
) -> None:
    wait_for("all servers", lambda: all_answer(mars.api), seconds=READY_S)
    settings, config = configured(servers.settings, tmp_path)
    with running(Role(STRANGER, "api", config, dict.fromkeys(PASSWORDS, WRONG))) as stranger:
        found = wait_for("its answer", lambda: decided(address(settings)), seconds=READY_S)
    for service, words in REFUSED.items():
        assert words in found[service]
    assert WRONG not in stranger.log.read_text()


@pytest.mark.parametrize("role", ["mapper", "reducer"])
@pytest.mark.parametrize("service", ["kafka", "redis", "zookeeper"])
def test_a_process_with_a_wrong_password_says_which_and_takes_no_part(
    servers: Secured, mars: Guarded, tmp_path: Path, role: str, service: str
) -> None:
    wait_for("all servers", lambda: all_answer(mars.api), seconds=READY_S)
    (variable,) = (name for name in PASSWORDS if service.upper() in name)
    _settings, config = configured(servers.settings, tmp_path)
    with running(Role(STRANGER, role, config, {**PASSWORDS, variable: WRONG})) as stranger:
        log = stranger.log
        wait_for("its words", lambda: REFUSED[service] in log.read_text(), seconds=READY_S)
        there = {member.id: member for member in mars.client.cluster().members}
    # A mapper is there, and is given no partitions: those it would have to hear of from Kafka.
    assert STRANGER not in there or (role, service) == ("mapper", "kafka")
    assert WRONG not in log.read_text()
