"""The health check of a container beside a real ZooKeeper."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from mars.adapters.zookeeper import ZooKeeperConnection, ZooKeeperCoordinator
from mars.core.settings import Settings, ZooKeeperSettings
from mars.core.types import MemberId
from mars.local.network import free_port
from mars.local.servers import ZooKeeperServer
from mars.process import health
from mars.process.health import problem_of
from mars.protocol.ports import MemberInfo

pytestmark = pytest.mark.integration


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    patient = health.member_problem
    monkeypatch.setattr(health, "member_problem", lambda look: patient(look, 2.0, 0.05))


def settings(hosts: str, namespace: str) -> Settings:
    return Settings(namespace=namespace, zookeeper=ZooKeeperSettings(hosts=hosts))


@contextmanager
def member(chosen: Settings, host: str, every_s: float | None) -> Iterator[None]:
    """A mapper on `host` that reports every `every_s` seconds; None: never again."""
    info = MemberInfo(id=MemberId(f"m-{host}"), role="mapper", host=host, pid=1, started_ms=0)
    connection = ZooKeeperConnection.open(chosen.zookeeper)
    coordinator = ZooKeeperCoordinator(connection, chosen.namespace, info.id)
    coordinator.join(info)
    stop = threading.Event()

    def report() -> None:
        while not stop.wait(every_s):
            coordinator.report(info)

    thread = threading.Thread(target=report)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        coordinator.close()
        connection.close()


def test_a_reporting_member_of_this_machine_is_well(zookeeper_server: ZooKeeperServer) -> None:
    chosen = settings(zookeeper_server.hosts, "health_well")
    with member(chosen, socket.gethostname(), every_s=0.05):
        assert problem_of("mapper", chosen) == ""


def test_a_member_that_stopped_reporting_is_not_well(zookeeper_server: ZooKeeperServer) -> None:
    chosen = settings(zookeeper_server.hosts, "health_silent")
    with member(chosen, socket.gethostname(), every_s=None):
        assert "does not refresh" in problem_of("mapper", chosen)


def test_members_of_other_machines_do_not_count(zookeeper_server: ZooKeeperServer) -> None:
    chosen = settings(zookeeper_server.hosts, "health_elsewhere")
    with member(chosen, "elsewhere", every_s=0.05):
        assert "registered" in problem_of("mapper", chosen)


def test_without_zookeeper_nobody_is_well() -> None:
    assert "connection" in problem_of("mapper", settings(f"127.0.0.1:{free_port()}", "nowhere"))
