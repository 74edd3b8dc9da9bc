"""Access to a running API process, and that no secret leaves it: over TLS, on real servers."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kazoo.client import KazooClient

from mars.client.blocking import Client
from mars.core.errors import Forbidden, NotAuthenticated
from mars.core.settings import load
from mars.local.network import free_port
from mars.process.health import api_problem
from tests.conftest import Servers
from tests.support.certificates import make_certificate
from tests.support.cluster import wait_for

pytestmark = pytest.mark.acceptance

SECRETS = {
    "MARS_REDIS_PASSWORD": "planted-redis-secret",
    "MARS_KAFKA_SASL_PASSWORD": "planted-kafka-secret",
    "MARS_KAFKA_SSL_KEY_PASSWORD": "planted-kafka-key-secret",
    "MARS_API_TLS_KEY_PASSWORD": "planted-tls-secret",
    "MARS_ZOOKEEPER_TLS_KEY_PASSWORD": "planted-zookeeper-secret",
}
"""Passwords in the environment of the process; that of Redis is wrong, so that it is refused."""

FLOWS = {
    "format": "json",
    "fields": {"at": "timestamp_ms", "sip": "string"},
    "event_time": "at",
}


@dataclass(frozen=True)
class Guarded:
    """An API process that asks for keys and answers with TLS."""

    url: str
    namespace: str
    config: Path
    certificate: Path
    log: Path
    servers: Servers

    def mars(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run one command of the CLI."""
        variables = {"MARS_API": self.url, "SSL_CERT_FILE": str(self.certificate)}
        return subprocess.run(
            [sys.executable, "-m", "mars.cli", *arguments],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env={**plain_environment(), **variables, **environment},
        )

    def first_key(self, role: str, *arguments: str) -> str:
        """A key made past the API."""
        made = self.mars("key", "create", "--role", role, *arguments, "--config", str(self.config))
        assert made.returncode == 0, made.stderr
        return made.stdout.strip()

    def client(self, key: str) -> Client:
        """A client that shows a key."""
        trusted = ssl.create_default_context(cafile=str(self.certificate))
        return Client(self.url, key=key, transport=httpx.HTTPTransport(verify=trusted))


def plain_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("MARS_")}


@pytest.fixture(scope="module")
def guarded(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    certificate, key = make_certificate(folder, SECRETS["MARS_API_TLS_KEY_PASSWORD"])
    port, namespace = free_port(), f"guarded_{uuid.uuid4().hex[:8]}"
    config, log = folder / "mars.toml", folder / "api.log"
    config.write_text(
        f'namespace = "{namespace}"\n[kafka]\nbootstrap = "{servers.bootstrap}"\n'
        f'[redis]\nurl = "{servers.url}"\n[zookeeper]\nhosts = "{servers.hosts}"\n'
        f'[api]\nport = {port}\naccess = "on"\n'
        f'tls_certificate_location = "{certificate}"\ntls_key_location = "{key}"\n'
        '[logging]\nlevel = "debug"\nformat = "json"\n'
    )
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "api", "--config", str(config)],
            env={**plain_environment(), **SECRETS},
            stdout=file,
            stderr=file,
        )
    made = Guarded(f"https://127.0.0.1:{port}", namespace, config, certificate, log, servers)
    try:
        wait_for("the API", lambda: answers(made, process))
        yield made
    finally:
        process.terminate()
        process.wait(30)


def answers(made: Guarded, process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None, made.log.read_text()
    try:
        with made.client("") as client:
            return client.readiness().services["zookeeper"] == "ok"
    except httpx.TransportError:
        return False


def kept_in_zookeeper(made: Guarded) -> str:
    """Every node of the namespace with its value."""
    client = KazooClient(made.servers.hosts)
    client.start(30)
    try:
        found, paths = [], [f"/mars/{made.namespace}"]
        while paths:
            path = paths.pop()
            found.append(path + repr(client.get(path)[0]))
            paths += [f"{path}/{name}" for name in client.get_children(path)]
        return "\n".join(found)
    finally:
        client.stop()
        client.close()


def audit(made: Guarded) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in made.log.read_text().splitlines()]
    return [line for line in lines if line["logger"] == "audit"]


def test_keys_open_what_their_role_says_until_they_are_removed(guarded: Guarded) -> None:
    admin = guarded.first_key("admin")
    topic = f"{guarded.namespace}.flows"
    kafka = AdminClient({"bootstrap.servers": guarded.servers.bootstrap})
    kafka.create_topics([NewTopic(topic, 1)])[topic].result(30)
    with guarded.client(admin) as client:
        client.put_stream("flows", {**FLOWS, "topic": topic})
    operator = guarded.first_key("operator", "--topics", "elsewhere*")
    sql = "SELECT sip, count(*) FROM flows GROUP BY sip WINDOWING 1 s"
    with guarded.client(operator) as client:
        with pytest.raises(Forbidden, match=r"flows, only elsewhere\*"):
            client.create_task("by_sip", sql)
        with pytest.raises(Forbidden, match="needs admin"):
            client.delete_stream("flows")
        assert client.tasks() == []
    made = json.loads(
        guarded.mars("key", "create", "--role", "reader", "--json", MARS_KEY=admin).stdout
    )
    assert guarded.mars("stream", "list", MARS_KEY=made["key"]).returncode == 0
    removed = guarded.mars("key", "rm", made["id"], MARS_KEY=admin)
    assert removed.returncode == 0, removed.stderr
    gone = guarded.client(made["key"])
    wait_for("the key to open nothing any more", lambda: refused(gone))
    gone.close()
    told = guarded.mars("task", "list")
    assert told.returncode == 4
    assert "MARS_KEY" in told.stderr
    statuses = {(line["key"], line["method"], line["status"]) for line in audit(guarded)}
    assert (operator.split("_")[1], "POST", 403) in statuses
    assert (admin.split("_")[1], "PUT", 201) in statuses


def test_event_streams_of_a_key_end_when_it_is_removed(guarded: Guarded) -> None:
    admin, reader = guarded.first_key("admin"), guarded.first_key("reader")
    headers = {"Authorization": f"Bearer {reader}", "Accept": "text/event-stream"}
    trusted = ssl.create_default_context(cafile=str(guarded.certificate))
    with (
        httpx.Client(base_url=guarded.url, verify=trusted, timeout=60) as http,
        http.stream("GET", "/v1/figures", headers=headers) as streamed,
    ):
        assert streamed.status_code == 200
        events = streamed.iter_lines()
        assert next(events) == "event: figures"
        removed = guarded.mars("key", "rm", reader.split("_")[1], MARS_KEY=admin)
        assert removed.returncode == 0, removed.stderr
        deadline = time.monotonic() + 60
        for _line in events:  # which comes to an end
            assert time.monotonic() < deadline


def refused(client: Client) -> bool:
    try:
        client.tasks()
    except NotAuthenticated:
        return True
    return False


def test_health_check_asks_over_tls_and_status_says_that_a_key_is_needed(
    guarded: Guarded,
) -> None:
    assert "is not ready" in api_problem(load(guarded.config, environ={}).api)
    told = guarded.mars("status", "--api", guarded.url)
    assert told.returncode == 1
    assert "(401)" in told.stderr
    assert "MARS_KEY" in told.stderr


def test_no_secret_is_in_a_log_an_error_a_metric_or_zookeeper(guarded: Guarded) -> None:
    admin = guarded.first_key("admin", "--note", "searched for")
    wrong = admin[:-8] + "deadbeef"
    seen = []
    with httpx.Client(
        base_url=guarded.url, verify=ssl.create_default_context(cafile=str(guarded.certificate))
    ) as http:
        for key in (admin, wrong):
            headers = {"Authorization": f"Bearer {key}"}
            for path in ("/metrics", "/v1/cluster", "/v1/keys", "/v1/tasks/none", "/readyz"):
                answer = http.get(path, headers=headers)
                seen.append(f"{answer.headers} {answer.text}")
            body = {"sql": key, "name": "t"}
            seen.append(http.post("/v1/keys", headers=headers, json={"role": "none"}).text)
            http.post("/v1/tasks?key=" + key, headers=headers, json=body)
    redis = wait_for("Redis to refuse the password", lambda: refusal_of_redis(guarded))
    everything = {
        "answers": "\n".join(seen),
        "readiness": redis,
        "log": guarded.log.read_text(),
        "zookeeper": kept_in_zookeeper(guarded),
    }
    identity, secret = admin.split("_")[1:]
    assert identity in everything["zookeeper"]
    for place, text in everything.items():
        for name, planted in {**SECRETS, "key": secret, "wrong key": wrong}.items():
            assert planted not in text, f"{name} is in {place}"


def refusal_of_redis(made: Guarded) -> str:
    with made.client("") as client:
        found = client.readiness().services["redis"]
    return "" if found in {"ok", "not asked yet"} else found
