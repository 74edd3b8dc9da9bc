"""The process: it listens at once, says what it misses, and stops when asked."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from mars.local.network import free_port
from tests.unit.api.twins import problem

WITHIN_S = 60.0
"""A start on a busy machine takes some seconds."""


def start(port: int, log: Path, **variables: str) -> subprocess.Popen[bytes]:
    """An API whose servers are all away."""
    nobody = free_port()
    environment = {name: value for name, value in os.environ.items() if name[:5] != "MARS_"} | {
        "MARS_API_PORT": str(port),
        "MARS_KAFKA_BOOTSTRAP": f"127.0.0.1:{nobody}",
        "MARS_REDIS_URL": f"redis://127.0.0.1:{nobody}/0",
        "MARS_ZOOKEEPER_HOSTS": f"127.0.0.1:{nobody}",
        **variables,
    }
    with log.open("wb") as file:
        return subprocess.Popen([sys.executable, "-m", "api"], env=environment, stderr=file)


def answering(process: subprocess.Popen[bytes], client: httpx.Client, log: Path) -> None:
    """Return once it answers."""
    deadline = time.monotonic() + WITHIN_S
    while True:
        try:
            client.get("/healthz")
            return
        except httpx.TransportError:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)


@pytest.fixture
def lonely(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], httpx.Client, Path]]:
    port, log = free_port(), tmp_path / "api.log"
    process = start(port, log)
    client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30)
    try:
        answering(process, client, log)
        yield process, client, log
    finally:
        client.close()
        process.kill()
        process.wait()


def test_process_without_any_server_answers_and_stops_when_asked(
    lonely: tuple[subprocess.Popen[bytes], httpx.Client, Path],
) -> None:
    process, client, log = lonely
    assert client.get("/healthz").json() == {"status": "alive"}
    assert problem(client.get("/v1/tasks"), 503)["service"] == "zookeeper"
    deadline = time.monotonic() + WITHIN_S
    while "not asked yet" in client.get("/readyz").text:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    answer = client.get("/readyz")
    assert answer.status_code == 503
    services = answer.json()["services"]
    assert set(services) == {"kafka", "redis", "zookeeper"}
    assert "ok" not in services.values()
    assert client.get("/metrics").status_code == 200
    assert client.get("/v1/cluster").json()["missing"] == ["kafka", "redis", "zookeeper"]
    process.send_signal(signal.SIGTERM)
    assert process.wait(WITHIN_S) == 0
    for service in services:
        assert f"waiting for {service}" in log.read_text()


def test_port_in_use_is_said_in_one_sentence(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = start(port, tmp_path / "api.log")
        assert process.wait(WITHIN_S) == 1
    (sentence,) = (tmp_path / "api.log").read_text().splitlines()
    assert f"127.0.0.1:{port} cannot be listened on" in sentence
    assert "api.port" in sentence


def test_nobody_is_believed_for_whom_they_ask_unless_a_setting_names_them(
    tmp_path: Path,
) -> None:
    for proxies, shown in (("", "address=127.0.0.1 "), ("127.0.0.0/8", "address=192.0.2.9 ")):
        port, log = free_port(), tmp_path / "api.log"
        process = start(port, log, MARS_API_PROXIES=proxies, FORWARDED_ALLOW_IPS="*")
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
                headers = {"X-Forwarded-For": "192.0.2.9", "Host": "evil.example"}
                answering(process, client, log)
                client.delete("/v1/tasks/a", headers=headers)
        finally:
            process.kill()
            process.wait()
        assert shown in log.read_text()
