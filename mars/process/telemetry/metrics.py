"""A process's own figures for Prometheus, of its latest report; docs/reference/metrics.md has all.

They are served on a port of their own (`[metrics]`), by a thread that asks nobody anything: so they
come also while the process waits for a server, and `mars_process_report_age_seconds` tells of a
loop that hangs.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from mars.core.settings import MetricsSettings
from mars.core.types import MemberId
from mars.process.life import ServiceHealth
from mars.process.telemetry import logs
from mars.process.telemetry.member import resident_bytes
from mars.process.telemetry.scraping import ScrapeServer
from mars.protocol.ports import MemberInfo

MILLISECONDS_PER_SECOND = 1_000

LEADS = "leader_epoch"
"""The figure in a report by which a reducer says that it leads."""


class ProcessMetrics(Collector):
    """Figures of one process; `clock_s` never goes back."""

    def __init__(self, member: MemberId, role: str, services: ServiceHealth) -> None:
        self._member = member
        self._role = role
        self._services = services
        self._started_s = time.time()
        self._reported_s = time.monotonic()
        self._report: MemberInfo | None = None

    def reported(self, report: MemberInfo) -> None:
        """The process's loop has just said how it does."""
        self._report, self._reported_s = report, time.monotonic()

    def collect(self) -> Iterable[Metric]:
        """All figures as of now."""
        yield from self._process()
        report = self._report
        if report is None:
            return
        yield CounterMetricFamily(
            "mars_process_rows", "Rows handled since the start.", report.load.get("rows_total", 0)
        )
        if self._role == "mapper":
            yield from _mapper(report)
        if self._role == "reducer":
            yield from _reducer(report)

    def _process(self) -> Iterator[Metric]:
        info = GaugeMetricFamily(
            "mars_process_info", "Always 1; who this is.", labels=["member", "role"]
        )
        info.add_metric([self._member, self._role], 1)
        yield info
        yield GaugeMetricFamily(
            "mars_process_start_time_seconds", "When it started (epoch).", self._started_s
        )
        yield CounterMetricFamily(
            "mars_process_cpu_seconds", "CPU time it took.", time.process_time()
        )
        yield GaugeMetricFamily("mars_process_resident_bytes", "Memory it holds.", resident_bytes())
        yield GaugeMetricFamily(
            "mars_process_report_age_seconds",
            "Since its loop last reported; grows while the loop hangs or waits.",
            time.monotonic() - self._reported_s,
        )
        missing = GaugeMetricFamily(
            "mars_process_missing", "1 for each server it waits for.", labels=["service"]
        )
        for service in self._services.missing:
            missing.add_metric([service], 1)
        yield missing


def _mapper(report: MemberInfo) -> Iterator[Metric]:
    offsets = GaugeMetricFamily(
        "mars_mapper_next_offset",
        "Offset of the next message it takes.",
        labels=["topic", "partition"],
    )
    states: Counter[tuple[str, str]] = Counter()
    for reading in report.partitions:
        offsets.add_metric([reading.topic, str(reading.partition)], reading.position)
        states[reading.topic, reading.state] += 1
    partitions = GaugeMetricFamily(
        "mars_mapper_partitions", "Partitions it reads, by state.", labels=["topic", "state"]
    )
    for (topic, state), count in states.items():
        partitions.add_metric([topic, state], count)
    yield offsets
    yield partitions


def _reducer(report: MemberInfo) -> Iterator[Metric]:
    buckets = GaugeMetricFamily(
        "mars_reducer_buckets", "Buckets assigned to it, by state.", labels=["state"]
    )
    for state, count in Counter(status.state for status in report.buckets).items():
        buckets.add_metric([state], count)
    yield buckets
    drafts = CounterMetricFamily(
        "mars_reducer_drafts",
        "Windows written before they closed, by what became of that, since the start.",
        labels=["outcome"],
    )
    for outcome in ("committed", "taken_back"):
        drafts.add_metric([outcome], report.load.get(f"drafts_{outcome}_total", 0))
    yield drafts
    yield GaugeMetricFamily(
        "mars_reducer_leads", "1 if it leads the reducers.", int(LEADS in report.load)
    )


class Exposition:
    """The port on which a process answers Prometheus; none where `port` is 0."""

    def __init__(self, settings: MetricsSettings, metrics: Collector) -> None:
        self._server: ScrapeServer | None = None
        if not settings.port:
            return
        registry = CollectorRegistry(auto_describe=False)
        registry.register(metrics)
        log = logs.logger("metrics")
        try:
            self._server = ScrapeServer(settings.host, settings.port, make_wsgi_app(registry))
        except OSError as error:
            # Counting rows matters more than being watched.
            logs.error(
                log,
                "metrics cannot be served: choose another metrics.port, or stop what uses it",
                host=settings.host,
                port=settings.port,
                problem=error.strerror,
            )
            return
        logs.info(log, "metrics are served", host=settings.host, port=settings.port)

    def close(self) -> None:
        """Answer no more."""
        if self._server is not None:
            self._server.close()
