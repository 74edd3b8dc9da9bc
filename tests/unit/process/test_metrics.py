"""The port on which a process answers Prometheus."""

from __future__ import annotations

import logging
import socket
import urllib.request
from contextlib import ExitStack

import pytest

from mars.core.errors import Unavailable
from mars.core.settings import MetricsSettings
from mars.core.types import MemberId, Topic
from mars.local.network import free_port
from mars.process.life import ServiceHealth
from mars.process.telemetry.member import Reporter
from mars.process.telemetry.metrics import Exposition, ProcessMetrics
from mars.process.telemetry.scraping import CONNECTIONS_MAX
from mars.protocol.ports import PartitionReading

MEMBER = MemberId("mapper-1")


def scraped(port: int) -> set[str]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        return set(answer.read().decode().splitlines())


def test_process_answers_before_it_has_reported_and_after() -> None:
    services = ServiceHealth("mapper")
    metrics = ProcessMetrics(MEMBER, "mapper", services)
    settings = MetricsSettings(port=free_port())
    exposition = Exposition(settings, metrics)
    try:
        services.lost(Unavailable("zookeeper", "away"))
        early = scraped(settings.port)
        assert 'mars_process_missing{service="zookeeper"} 1.0' in early
        assert 'mars_process_info{member="mapper-1",role="mapper"} 1.0' in early
        assert not any(line.startswith("mars_mapper") for line in early)
        services.found("zookeeper")
        reading = PartitionReading(Topic("flows"), 3, 12, "reading")
        Reporter(MEMBER, "mapper", metrics.reported).report(7, (), partitions=[reading])
        later = scraped(settings.port)
        assert {
            "mars_process_rows_total 7.0",
            'mars_mapper_next_offset{partition="3",topic="flows"} 12.0',
            'mars_mapper_partitions{state="reading",topic="flows"} 1.0',
        } <= later
        assert not any(line.startswith("mars_process_missing{") for line in later)
    finally:
        exposition.close()
    with pytest.raises(OSError, match="refused"):
        scraped(settings.port)


def test_port_in_use_is_said_and_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    metrics = ProcessMetrics(MEMBER, "mapper", ServiceHealth("mapper"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        Exposition(MetricsSettings(port=port), metrics).close()
    assert "choose another metrics.port" in caplog.text


def test_nothing_is_served_unless_a_port_is_named(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    Exposition(MetricsSettings(), ProcessMetrics(MEMBER, "bulk", ServiceHealth("bulk"))).close()
    assert caplog.text == ""


def test_half_requests_are_cut_off_the_oldest_first_and_a_scrape_is_answered() -> None:
    settings = MetricsSettings(port=free_port())
    exposition = Exposition(settings, ProcessMetrics(MEMBER, "mapper", ServiceHealth("mapper")))
    with ExitStack() as halves:
        halves.callback(exposition.close)
        sockets = []
        for _ in range(CONNECTIONS_MAX + 5):
            half = socket.create_connection(("127.0.0.1", settings.port), timeout=30)
            sockets.append(halves.enter_context(half))
            half.sendall(b"GET /metrics HTTP/1.1\r\nHost: ")

        assert 'mars_process_info{member="mapper-1",role="mapper"} 1.0' in scraped(settings.port)
        for oldest in sockets[:6]:
            assert oldest.recv(1) == b"", "it was not cut off"
        sockets[6].setblocking(False)
        with pytest.raises(BlockingIOError):
            sockets[6].recv(1)
