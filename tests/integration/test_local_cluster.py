"""The embedded cluster for real: Kafka, ZooKeeper and Valkey, with stand-ins for our processes.

What is looked at here is who runs, who is started again, and what is left; our own processes have
tests of their own.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import redis
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient

from mars.local.network import free_port
from mars.local.servers import ValkeyServer, ZooKeeperServer
from mars.local.state import command_of
from tests.conftest import Servers, missing_kafka, missing_valkey, need

pytestmark = pytest.mark.integration

DEADLINE_S = 120.0
"""Longest wait for something that takes seconds on a quiet machine."""

WORKER = "import signal; signal.signal(signal.SIGTERM, lambda *_: exit(0)); signal.pause()"

API = """
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from mars.core.settings import load

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"leader": "reducer-1"}')

settings = load(Path(sys.argv[2]))
ThreadingHTTPServer((settings.api.host, settings.api.port), Handler).serve_forever()
"""


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


@dataclass(frozen=True, slots=True)
class Machine:
    """A folder with a data folder in it, four ports, and the command line."""

    folder: Path
    ports: dict[str, int]

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def arguments(self, *more: str) -> list[str]:
        ports = [word for name, port in self.ports.items() for word in (f"--{name}", str(port))]
        counts = ["--mappers", "1", "--reducers", "1", "--bulk", "0"]
        return [*self.command("up", "--data", str(self.data)), *counts, *ports, *more]

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-P", "-m", "mars.cli", *arguments]

    def environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(self.folder / "stand_in")}

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            list(words),
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )

    def up(self, *more: str) -> subprocess.CompletedProcess[str]:
        return self.run(*self.arguments("--detach", *more))

    def down(self) -> subprocess.CompletedProcess[str]:
        return self.run(*self.command("down", "--data", str(self.data)))

    def file(self) -> dict[str, object]:
        table = json.loads((self.data / "cluster.json").read_text("utf-8"))
        assert isinstance(table, dict)
        return table

    def processes(self) -> dict[str, tuple[int, int]]:
        """Name -> (pid, restarts)."""
        entries = self.file()["processes"]
        assert isinstance(entries, list)
        return {each["name"]: (each["pid"], each["restarts"]) for each in entries}

    def left(self) -> list[str]:
        """Processes of this folder that still run."""
        pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
        return [line for pid in pids if f"{self.data}/" in (line := command_of(pid))]


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """Ports and stand-ins; whatever runs is taken down after the test."""
    need(missing_kafka())
    need(missing_valkey())
    for role, code in [("mapper", WORKER), ("reducer", WORKER), ("api", API)]:
        package = tmp_path / "stand_in" / role
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
        (package / "__main__.py").write_text(code, "utf-8")
    names = ["kafka-port", "zookeeper-port", "redis-port", "api-port"]
    made = Machine(tmp_path, {name: free_port() for name in names})
    yield made
    made.down()


def produce(bootstrap: str, topic: str, value: bytes) -> None:
    """Make the topic and write one message."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(topic, 1, 1)]).values():
        future.result(30)
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, value)
    assert producer.flush(30) == 0


def first_value(bootstrap: str, topic: str) -> bytes | None:
    """The first message of the topic."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader"})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
        return message.value()
    finally:
        consumer.close()


def test_a_cluster_starts_detached_and_its_data_survives(machine: Machine) -> None:
    up = machine.up()
    assert up.returncode == 0, up.stderr
    assert "kafka is ready" in up.stdout
    file = machine.file()
    assert file["api"] == f"http://127.0.0.1:{machine.ports['api-port']}"
    expected = {"redis", "zookeeper", "kafka", "mapper-1", "reducer-1", "api"}
    assert set(machine.processes()) == expected
    kafka, hosts, url = str(file["kafka"]), str(file["zookeeper"]), str(file["redis"])
    produce(kafka, "kept", b"hello")
    zookeeper = KazooClient(hosts)
    zookeeper.start()
    zookeeper.create("/kept", b"too")
    zookeeper.stop()
    zookeeper.close()
    with redis.Redis.from_url(url) as client:
        client.set("scratch", "1")

    status = machine.run(*machine.command("status", "--data", str(machine.data), "--json"))
    assert json.loads(status.stdout)["cluster"] == {"leader": "reducer-1"}
    second = machine.up()
    assert second.returncode == 1
    assert f"runs on {machine.data} already" in second.stderr

    down = machine.down()
    assert (down.returncode, machine.left()) == (0, [])
    assert not (machine.data / "cluster.json").exists()

    assert machine.up().returncode == 0
    assert first_value(kafka, "kept") == b"hello"
    zookeeper = KazooClient(hosts)
    zookeeper.start()
    assert zookeeper.get("/kept")[0] == b"too"
    zookeeper.stop()
    zookeeper.close()
    with redis.Redis.from_url(url) as client:
        assert client.dbsize() == 0  # without persistence: every start is empty


def test_everything_that_is_killed_is_started_again(machine: Machine) -> None:
    assert machine.up().returncode == 0
    before = machine.processes()
    for pid, _ in before.values():
        os.kill(pid, signal.SIGKILL)

    def all_back() -> bool:
        now = machine.processes()
        return now.keys() == before.keys() and all(
            now[name][0] != before[name][0] and now[name][1] >= 1 for name in before
        )

    eventually(all_back)
    produce(str(machine.file()["kafka"]), "after", b"it goes on")


def test_a_supervisor_that_is_killed_leaves_nothing_and_the_next_start_works(
    machine: Machine,
) -> None:
    assert machine.up().returncode == 0
    produce(str(machine.file()["kafka"]), "kept", b"hello")
    supervisor = machine.file()["supervisor"]
    assert isinstance(supervisor, int)
    os.kill(supervisor, signal.SIGKILL)
    eventually(lambda: machine.left() == [])
    assert machine.run(*machine.command("status", "--data", str(machine.data))).returncode == 3
    again = machine.up()
    assert again.returncode == 0, again.stderr
    assert first_value(str(machine.file()["kafka"]), "kept") == b"hello"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_everything_in_order(machine: Machine, number: signal.Signals) -> None:
    with subprocess.Popen(
        machine.arguments(), env=machine.environment(), stdout=subprocess.PIPE, text=True
    ) as up:
        assert up.stdout is not None
        assert any("Ctrl-C" in line for line in up.stdout)
        up.send_signal(number)
        assert up.wait(DEADLINE_S) == 0
    assert machine.left() == []


def test_a_child_that_cannot_start_takes_everything_down_with_one_message(
    machine: Machine,
) -> None:
    broken = machine.folder / "stand_in" / "api" / "__main__.py"
    broken.write_text("raise SystemExit('the API is broken')", "utf-8")
    up = machine.up()
    assert up.returncode == 1
    assert "api ended (exit code 1)" in up.stderr
    assert "the API is broken" in up.stderr
    assert machine.left() == []
    assert not (machine.data / "cluster.json").exists()


def test_a_port_in_use_is_told_and_nothing_is_started(machine: Machine) -> None:
    with socket.create_server(("127.0.0.1", machine.ports["kafka-port"])):
        up = machine.up()
    assert up.returncode == 1
    assert "--kafka-port" in up.stderr
    assert machine.left() == []


def test_the_shared_servers_answer(servers: Servers) -> None:
    assert [servers.kafka.missing(), servers.zookeeper.missing(), servers.valkey.missing()] == [
        None,
        None,
        None,
    ]


@pytest.mark.parametrize("kind", [ValkeyServer, ZooKeeperServer])
def test_a_paused_server_does_not_answer_until_it_is_resumed(
    tmp_path: Path, kind: type[ValkeyServer] | type[ZooKeeperServer]
) -> None:
    need(missing_kafka())
    server = kind(tmp_path)
    try:
        server.start()
        server.wait_ready(DEADLINE_S)
        server.pause()
        missing = server.missing()
        assert missing is not None
        assert str(server.port) in missing
        server.resume()
        server.wait_ready(DEADLINE_S)
    finally:
        server.kill()


def test_valkey_takes_further_options(tmp_path: Path) -> None:
    need(missing_valkey())
    server = ValkeyServer(tmp_path, options=["--maxmemory", "8mb", "--appendonly", "yes"])
    try:
        server.start()
        server.wait_ready(DEADLINE_S)
        with redis.Redis.from_url(server.url) as client:
            assert client.config_get("maxmemory")["maxmemory"] == str(8 * 2**20)
            assert client.config_get("maxmemory-policy")["maxmemory-policy"] == "noeviction"
            client.set("kept", "1")
        server.stop(DEADLINE_S)
        server.start()
        server.wait_ready(DEADLINE_S)
        with redis.Redis.from_url(server.url) as client:
            assert client.get("kept") == b"1"
    finally:
        server.kill()
