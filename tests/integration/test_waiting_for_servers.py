"""Our processes without the servers they need: they wait, say for whom, and go on by themselves.

The processes of one small cluster are started before any server is there; then the servers come,
and each goes away for a while. No process may end in the meantime.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from mars.client.blocking import Client
from mars.core.settings import (
    ApiSettings,
    KafkaSettings,
    RedisSettings,
    Settings,
    ZooKeeperSettings,
    to_toml,
)
from mars.local.child import Child
from mars.local.network import free_port
from mars.local.roles import RoleProcess
from mars.local.servers import KafkaServer, ValkeyServer, ZooKeeperServer
from tests.conftest import READY_S, STOP_S, missing_kafka, missing_valkey, need
from tests.support.cluster import MarsCluster, wait_for
from tests.support.rows import assert_exactly_once, expected, flow_rows, messages

pytestmark = pytest.mark.integration

PARTITIONS = 2
WINDOW_MS = 1_000
SERVICES = ("kafka", "redis", "zookeeper")
SESSION_S = 4.0
"""Short, so that sessions expire while ZooKeeper is away."""

OPTIONS = {"delay": "2s", "idle_after": "1s"}
QUERY = (
    "SELECT sip, type, timestamp, count(*), sum(bytes) AS bytes, sum(id) AS ids, "
    "sum(hash) AS hashes FROM {stream} GROUP BY sip, type, timestamp WINDOWING 1 s"
)


class Apart(MarsCluster):
    """A mapper, a reducer and an API that know addresses, and servers that can be there or not."""

    def __init__(self, data: Path) -> None:
        self.servers: dict[str, Child] = {
            "zookeeper": (zookeeper := ZooKeeperServer(data / "zookeeper")),
            "kafka": (kafka := KafkaServer(data / "kafka")),
            "redis": (valkey := ValkeyServer(data / "redis")),
        }
        self.settings = Settings(
            kafka=KafkaSettings(bootstrap=kafka.bootstrap),
            redis=RedisSettings(url=valkey.url),
            zookeeper=ZooKeeperSettings(hosts=zookeeper.hosts, session_timeout_s=SESSION_S),
            api=ApiSettings(port=free_port()),
        )
        config = data / "mars.toml"
        config.write_text(to_toml(self.settings))
        self.processes = [
            RoleProcess(name, role, config, data / "logs" / f"{name}.log")
            for name, role in (("mapper-1", "mapper"), ("reducer-1", "reducer"), ("api", "api"))
        ]
        super().__init__(data)

    @property
    def api(self) -> str:
        return f"http://127.0.0.1:{self.settings.api.port}"

    @property
    def file(self) -> dict[str, Any]:
        return {"kafka": self.settings.kafka.bootstrap, "redis": self.settings.redis.url}

    def up(self) -> None:
        """Start the processes only."""
        for process in self.processes:
            process.start()
        self.client = Client(self.api)

    def down(self) -> None:
        self.client.close()
        for child in [*self.processes, *self.servers.values()]:
            child.stop(STOP_S)

    def log(self, name: str) -> str:
        return (self.data / "logs" / f"{name}.log").read_text()

    def missing(self) -> set[str]:
        """The services that /readyz does not find; its status and its words must agree."""
        answer = httpx.get(f"{self.api}/readyz")
        services = answer.json()["services"]
        away = {name for name, found in services.items() if found != "ok"}
        assert set(services) == set(SERVICES)
        assert answer.status_code == (503 if away else 200)
        return away

    def wait_missing(self, *names: str) -> None:
        def found() -> bool:
            try:
                return self.missing() == set(names)
            except httpx.TransportError:
                return False  # it does not listen yet

        wait_for(f"/readyz to miss {names or 'nothing'}", found, seconds=READY_S)

    def wait_log(self, name: str, text: str, after: int = 0) -> None:
        wait_for(f"{text!r} in the log of {name}", lambda: text in self.log(name)[after:])

    def assert_alive(self) -> None:
        for process in self.processes:
            process.check_alive()


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apart]:
    need(missing_kafka())
    need(missing_valkey())
    cluster = Apart(tmp_path_factory.mktemp("apart"))
    yield cluster
    cluster.down()


def test_processes_wait_for_servers_that_are_not_there_yet(apart: Apart) -> None:
    apart.wait_missing(*SERVICES)
    apart.wait_log("mapper-1", "waiting for zookeeper")
    apart.wait_log("reducer-1", "waiting for zookeeper")
    refused = apart.mars("task", "list")
    assert refused.returncode == 1
    assert "zookeeper" in refused.stderr.lower()
    assert httpx.get(f"{apart.api}/healthz").status_code == 200

    apart.servers["zookeeper"].start()
    apart.wait_missing("kafka", "redis")
    apart.wait_log("reducer-1", "waiting for kafka")
    apart.servers["kafka"].start()
    apart.wait_missing("redis")
    apart.wait_log("mapper-1", "waiting for redis")
    apart.wait_log("reducer-1", "waiting for redis")
    apart.servers["redis"].start()
    apart.wait_missing()

    apart.assert_alive()
    _assert_exact(apart, "first")


ADD_CODES = {"kafka": 1, "zookeeper": 1, "redis": 0}
"""How `mars task add` ends without a server: the store is filled later, so it is not missed."""


@pytest.mark.parametrize("name", SERVICES)
def test_a_server_that_goes_away_is_named_and_missed_until_it_is_back(
    apart: Apart, name: str
) -> None:
    apart.wait_missing()
    task = f"without_{name}"
    before = {process.name: len(apart.log(process.name)) for process in apart.processes}
    _register(apart, task)
    rows = _feed(apart, task, 0)

    apart.servers[name].stop(STOP_S)
    try:
        rows += _miss(apart, name, task, before, len(rows))
    finally:
        apart.servers[name].start()
    apart.wait_missing()
    for process in ("mapper-1", "reducer-1"):
        apart.wait_log(process, f"{name} answers again", after=before[process])
    rows += _feed(apart, task, len(rows))
    wanted = expected(rows, WINDOW_MS)
    assert_exactly_once(apart.read_until(f"mars.results.{task}", len(wanted)), wanted)
    ledger = apart.client.ledger(task)
    assert (ledger.late, ledger.bad) == (0, 0)
    apart.assert_alive()


def _miss(
    apart: Apart, name: str, task: str, before: dict[str, int], first: int
) -> list[dict[str, Any]]:
    """Look at everybody without a server; the rows that were fed meanwhile."""
    add = ["task", "add", "--name", f"added_{task}", "--sql", QUERY.format(stream=task)]
    with ThreadPoolExecutor() as beside:
        adding = beside.submit(apart.mars, *add)
        apart.wait_missing(name)
        for process in ("mapper-1", "reducer-1"):
            apart.wait_log(process, f"waiting for {name}", after=before[process])
    added = adding.result()
    assert added.returncode == ADD_CODES[name]
    assert (f"{name} is not available" in added.stderr) is (added.returncode != 0)
    apart.assert_alive()
    return [] if name == "kafka" else _feed(apart, task, first)


def _register(apart: Apart, name: str) -> None:
    apart.declare(name, stream=name, partitions=PARTITIONS)
    apart.client.create_task(name, QUERY.format(stream=name), options=OPTIONS)


def _feed(apart: Apart, topic: str, first: int) -> list[dict[str, Any]]:
    """Rows of the last moments: their times span less than the delay."""
    now = time.time_ns() // 1_000_000
    rows = flow_rows(first, 300, now, rows_per_s=1_000_000, disorder_ms=500)
    apart.produce(topic, messages(rows, PARTITIONS))
    return rows


def _assert_exact(apart: Apart, name: str) -> None:
    _register(apart, name)
    wanted = expected(_feed(apart, name, 0), WINDOW_MS)
    assert_exactly_once(apart.read_until(f"mars.results.{name}", len(wanted)), wanted)


def test_the_command_line_says_that_there_is_no_api(tmp_path: Path) -> None:
    nowhere = f"http://127.0.0.1:{free_port()}"

    def mars(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-P", "-m", "mars.cli", *words],
            capture_output=True,
            text=True,
            timeout=READY_S,
            check=False,
            cwd=tmp_path,
            env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        )

    unreachable = mars("task", "list", "--api", nowhere)
    assert unreachable.returncode == 1
    assert nowhere in unreachable.stderr
    assert "Traceback" not in unreachable.stderr
    unnamed = mars("task", "list")
    assert unnamed.returncode == 1
    assert "mars up" in unnamed.stderr
    nothing = mars("status")
    assert nothing.returncode == 3
    assert "mars up" in nothing.stderr
