"""The page of metrics lists each as the code has it; dashboard and alerts name no other."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.core import Metric

from api.services.operation.metrics import of_tasks
from mars.core.definitions import Backfill, LaneSpan
from mars.core.errors import Unavailable
from mars.core.types import AssignmentEpoch, Bucket, LeaderEpoch, MemberId, Topic, file_lane
from mars.process.life import ServiceHealth
from mars.process.telemetry.member import Reporter
from mars.process.telemetry.metrics import ProcessMetrics
from mars.protocol.ports import BucketLoad, BucketStatus, PartitionReading
from tests.unit.api.test_service import BALANCE
from tests.unit.api.twins import World

ROOT = Path(__file__).parents[3]
MONITORING = ROOT / "configs" / "monitoring"

MEMBER_FIGURES = (
    "rows_per_second",
    "cpu_seconds_total",
    "cpu_use",
    "resident_bytes",
    "backlog_bytes",
    "queue_bytes",
    "lag_messages",
    "leader_epoch",
    "tracker_pending_roots",
    "tracker_proven_total",
    "tracker_unproven_total",
    "tracker_lost_total",
    "assisted_segments_total",
    "assisted_refused_total",
    "assisted_remaining",
)

Line = tuple[str, str, str, str]
"""Name, type, labels, description."""


def lines_of(metrics: Iterable[Metric]) -> dict[str, Line]:
    found = {}
    for metric in metrics:
        name = f"{metric.name}_total" if metric.type == "counter" else metric.name
        labels = {label for sample in metric.samples for label in sample.labels} - {"le"}
        found[name] = (name, metric.type, ", ".join(sorted(labels)), metric.documentation)
    return found


def of_the_api(world: World) -> dict[str, Line]:
    assert world.register(start="earliest").status_code == 201
    world.start_in_store()
    world.run_batch([{"timestamp": 5_000, "sip": "a"}])
    world.run_batch([{"timestamp": 5_000, "sip": "a"}], partition=1)
    world.commit(0, read=2, counted=2, closed_ms=0)
    world.services.figures.take()
    world.commit(0, read=2, counted=2, closed_ms=60_000, emit=2, emits=True)
    world.alter(backfills=(Backfill("b1", {file_lane("b2"): LaneSpan(0, 10)}, 1, 0),))
    world.services.figures.take()
    world.join_reducer(
        loads=(BucketLoad(Bucket(0), 0.25, 10.0, 100.0, 7),),
        balance=BALANCE,
        reported_ms=1,
        load=dict.fromkeys(MEMBER_FIGURES, 1.0),
    )
    assert world.http.get("/metrics").status_code == 200
    tasks = of_tasks(world.services.sampler.latest(), world.services.figures.newest())
    return lines_of([*tasks, *world.services.metrics.of_others()])


def of_processes() -> dict[str, Line]:
    found: dict[str, Line] = {}
    for role in ("mapper", "reducer"):
        services = ServiceHealth(role)
        services.lost(Unavailable("kafka", "away"))
        metrics = ProcessMetrics(MemberId(f"{role}-1"), role, services)
        Reporter(MemberId(f"{role}-1"), role, metrics.reported).report(
            7,
            (),
            partitions=[PartitionReading(Topic("flows"), 0, 5, "reading")],
            buckets=[BucketStatus(Bucket(0), AssignmentEpoch(1), "owning")],
            leader_epoch=LeaderEpoch(3),
        )
        found |= lines_of(metrics.collect())
    return found


def documented() -> dict[str, Line]:
    """The rows of all tables of metrics."""
    rows = {}
    for line in (ROOT / "docs" / "reference" / "metrics.md").read_text("utf-8").splitlines():
        if line.startswith("| `mars_"):
            name, kind, labels, what = (cell.strip() for cell in line.strip("|").split("|"))
            rows[name.strip("`")] = (name.strip("`"), kind, labels, what)
    return rows


def test_every_metric_is_documented_as_it_is(world: World) -> None:
    assert documented() == of_the_api(world) | of_processes()


def expressions() -> list[str]:
    alerts = json.loads((MONITORING / "alerts.json").read_text("utf-8"))
    dashboard = json.loads((MONITORING / "dashboard.json").read_text("utf-8"))
    rules = [rule["expr"] for group in alerts["groups"] for rule in group["rules"]]
    panels = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    queries = [each["query"]["query"] for each in dashboard["templating"]["list"][1:]]
    return rules + panels + queries


@pytest.mark.parametrize("expression", expressions())
def test_dashboard_and_alerts_name_metrics_and_labels_that_exist(expression: str) -> None:
    rows = documented()
    names = re.findall(r"\bmars_\w+", expression)
    assert names or "up{" in expression  # Prometheus's own
    for name in names:
        assert name.removesuffix("_bucket") in rows
    for name, labels in re.findall(r"\b(mars_\w+)\{([^}]*)\}", expression):
        for label in re.findall(r"(\w+)(?:=~?|!=)", labels):
            assert label in rows[name][2].split(", ")
    assert expression.count("(") == expression.count(")")


def test_there_is_an_alert_where_figures_are_missing_or_the_promise_is_not_kept() -> None:
    told = " ".join(expressions())
    for needed in (
        "absent(mars_members)",
        "up{job",
        'mars_tracker_roots_total{outcome="lost"}',
        "mars_task_close_latency_seconds",
        "mars_task_log_bytes_max",
    ):
        assert needed in told
    assert not re.search(r"\de\d", told), "a limit that a setting changes"


def test_each_alert_says_what_happened_and_what_to_do() -> None:
    alerts: dict[str, Any] = json.loads((MONITORING / "alerts.json").read_text("utf-8"))
    (group,) = alerts["groups"]
    assert len({rule["alert"] for rule in group["rules"]}) == len(group["rules"])
    for rule in group["rules"]:
        assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}
        assert re.fullmatch(r"\d+m", rule["for"])
        assert rule["labels"]["severity"] in {"critical", "warning"}
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["description"]
