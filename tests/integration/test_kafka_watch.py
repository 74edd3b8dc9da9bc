"""What `/readyz` learns of Kafka, and how soon."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mars.adapters.kafka.watch import WATCH_S, KafkaWatch
from mars.core.settings import KafkaSettings, Settings
from mars.local.network import free_port
from mars.local.servers import KafkaServer
from tests.conftest import READY_S, missing_kafka, need, running
from tests.support.cluster import wait_for

pytestmark = pytest.mark.integration

SLACK_S = 0.5
"""For a busy machine, beside the time that the watch itself allows."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """A broker of its own, for it is stopped, that makes topics for whoever asks for them."""
    need(missing_kafka())
    folder = tmp_path_factory.mktemp("watched")
    yield from running(
        KafkaServer(folder, properties={"auto.create.topics.enable": "true"}),
    )


def watch(bootstrap: str) -> KafkaWatch:
    return KafkaWatch(Settings(namespace="watched", kafka=KafkaSettings(bootstrap=bootstrap)))


def asked(ask: KafkaWatch) -> str:
    """What it says, within its time; empty if Kafka answers."""
    before = time.monotonic()
    found = ask()
    assert time.monotonic() - before < WATCH_S + SLACK_S
    return found or ""


def stands_still(pid: int) -> bool:
    """A signal is sent before it is obeyed: a thread may still answer in that moment."""
    stats = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    return all(stat.rpartition(")")[2].split()[0] == "T" for stat in stats)


def test_an_address_where_nobody_listens_is_named() -> None:
    bootstrap = f"127.0.0.1:{free_port()}"
    assert asked(watch(bootstrap)) == (
        f"Kafka at {bootstrap} is not listening; check that it runs and kafka.bootstrap"
    )


def test_a_broker_that_hangs_is_named_in_time_and_found_again(broker: KafkaServer) -> None:
    ask = watch(broker.bootstrap)
    wait_for("the broker to answer", lambda: asked(ask) == "", seconds=READY_S)
    pid = broker.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        wait_for("the broker to stand still", lambda: stands_still(pid))
        for _ in range(2):  # over the connection that is there, then over a new one
            assert "does not answer" in asked(ask)
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_for("the broker to answer again", lambda: asked(ask) == "", seconds=READY_S)


def test_asking_makes_no_topic(broker: KafkaServer) -> None:
    ask = watch(broker.bootstrap)
    wait_for("the broker to answer", lambda: asked(ask) == "", seconds=READY_S)
    client = ask._client
    assert client is not None
    assert "mars.watched.control" not in client.list_topics(timeout=READY_S).topics
