"""Figures for Prometheus, in base units; docs/reference/metrics.md lists them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from api.services.context import Ports
from api.services.inside.missing import Missing
from api.services.inside.sampling import Sample, Sampler, TaskFigures
from api.services.operation.cluster import ROLES, ClusterService, ages_of, balance_of
from api.services.operation.figures import FigureService
from api.services.operation.health import Health
from api.services.requests import RequestFigures
from mars.client.answers import FigurePoint
from mars.core.types import MemberId, TaskName
from mars.protocol.ports import Assignment, Balance, Ledger, MemberInfo, MoveKind

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

MILLISECONDS_PER_SECOND = 1_000

FATES = ("read", "filtered", "bad", "future", "late", "counted", "emitted")

OUTCOMES = ("proven", "unproven", "lost")

Figures = Mapping[TaskName, TaskFigures]

Points = Mapping[TaskName, FigurePoint]
"""The newest of each task."""


class MetricService:
    """What the path /metrics does."""

    def __init__(
        self,
        ports: Ports,
        cluster: ClusterService,
        sampler: Sampler,
        figures: FigureService,
        health: Health,
        log_bytes_max: int,
    ) -> None:
        self._ports = ports
        self._cluster = cluster
        self._sampler = sampler
        self._figures = figures
        self._health = health
        self._log_bytes_max = log_bytes_max
        self.requests = RequestFigures()
        self._told: tuple[Sample, bytes] | None = None

    def expose(self) -> bytes:
        """The text that Prometheus reads. Servers that are away make figures miss, not fail."""
        return self._of_tasks(self._sampler.latest()) + _text(self.of_others())

    def _of_tasks(self, sample: Sample) -> bytes:
        """With many tasks nearly all of the text: made once of each sample."""
        told = self._told
        if told is None or told[0] is not sample:
            found = _text(of_tasks(sample, self._figures.newest()))
            self._told = told = (sample, found)
        return told[1]

    def of_others(self) -> Iterator[Metric]:
        """What is not by task, as of now."""
        missing = Missing(self._health.away())
        assigned = missing.begin("zookeeper", self._ports.coordinator.assignment)
        members = self._cluster.members(missing)
        assignment = assigned()
        if "zookeeper" not in missing.services:
            yield _counts(members)
        balance = balance_of(members)
        yield from _members(members)
        yield _ages(members, balance, self._ports.now_ms())
        yield from _tracker(members)
        yield from _buckets(members)
        yield from _balance(balance)
        yield from _assisting(members)
        yield from _store(assignment)
        yield GaugeMetricFamily(
            "mars_task_log_bytes_max",
            "The most that the logs of a task may be.",
            value=self._log_bytes_max,
        )
        yield _services(self._health)
        yield from self.requests.collect()


def of_tasks(sample: Sample, points: Points) -> Iterator[Metric]:
    """What there is of each task."""
    yield from _task_rows(sample.tasks)
    yield from _task_gauges(sample.tasks)
    yield _task_latency(sample.tasks, points)
    yield _task_history(sample.tasks)


def _text(metrics: Iterable[Metric]) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Fixed(list(metrics)))
    return generate_latest(registry)


class _Fixed(Collector):
    """Metrics that are known already."""

    def __init__(self, metrics: list[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def _task_rows(tasks: Figures) -> Iterator[Metric]:
    rows = CounterMetricFamily(
        "mars_task_rows", "Rows by fate, as committed.", labels=["task", "fate"]
    )
    waiting = GaugeMetricFamily(
        "mars_task_open_rows", "Counted rows with a window still to come.", labels=["task"]
    )
    for name, ledger in _ledgers(tasks):
        for fate in FATES:
            rows.add_metric([name, fate], getattr(ledger, fate))
        waiting.add_metric([name], ledger.open)
    yield rows
    yield waiting


def _ledgers(tasks: Figures) -> Iterator[tuple[TaskName, Ledger]]:
    for name, figures in tasks.items():
        if figures.ledger is not None:
            yield name, figures.ledger


def _task_gauges(tasks: Figures) -> Iterator[Metric]:
    lag = GaugeMetricFamily(
        "mars_task_lag_messages", "Messages not yet taken.", labels=["task", "partition"]
    )
    age = GaugeMetricFamily(
        "mars_task_watermark_age_seconds",
        "The store's clock less the watermark.",
        labels=["task"],
    )
    size = GaugeMetricFamily(
        "mars_task_log_bytes", "Size of the logs in Redis, as if uncompressed.", labels=["task"]
    )
    state = GaugeMetricFamily(
        "mars_task_state", "1 for the state it is in.", labels=["task", "state"]
    )
    for name, figures in tasks.items():
        state.add_metric([name, figures.state], 1)
        for partition, rows in (figures.lag or {}).items():
            lag.add_metric([name, str(partition)], rows)
        if figures.watermark_ms is not None and figures.now_ms is not None:
            age.add_metric(
                [name], (figures.now_ms - figures.watermark_ms) / MILLISECONDS_PER_SECOND
            )
        if figures.log_bytes is not None:
            size.add_metric([name], figures.log_bytes)
    yield from (lag, age, size, state)


def _task_latency(tasks: Figures, points: Points) -> Metric:
    latency = GaugeMetricFamily(
        "mars_task_close_latency_seconds",
        "From the end of the newest closed window until its rows were committed.",
        labels=["task"],
    )
    for name in tasks:
        point = points.get(name)
        if point is not None and point.close_latency_ms is not None:
            latency.add_metric([name], point.close_latency_ms / MILLISECONDS_PER_SECOND)
    return latency


def _task_history(tasks: Figures) -> Metric:
    done = GaugeMetricFamily(
        "mars_task_history_ratio", "Part of its history that is computed.", labels=["task"]
    )
    for name, figures in tasks.items():
        if figures.history is not None and figures.history.total:
            done.add_metric([name], figures.history.done / figures.history.total)
    return done


def _counts(members: Mapping[MemberId, MemberInfo]) -> Metric:
    count = GaugeMetricFamily("mars_members", "Live processes.", labels=["role"])
    for role in ROLES:
        count.add_metric([role], sum(info.role == role for info in members.values()))
    return count


def _members(members: Mapping[MemberId, MemberInfo]) -> Iterator[Metric]:
    labels = ["member", "role"]
    families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {
        "rows_per_second": GaugeMetricFamily(
            "mars_member_rows_per_second", "Rows a process handles.", labels=labels
        ),
        "cpu_seconds_total": CounterMetricFamily(
            "mars_member_cpu_seconds", "CPU time of a process.", labels=labels
        ),
        "cpu_use": GaugeMetricFamily(
            "mars_member_cpu_use", "CPU seconds a second, smoothed.", labels=labels
        ),
        "backlog_bytes": GaugeMetricFamily(
            "mars_member_backlog_bytes", "Unread bytes of the task with most.", labels=labels
        ),
        "queue_bytes": GaugeMetricFamily(
            "mars_member_queue_bytes", "Messages read and not yet written.", labels=labels
        ),
        "lag_messages": GaugeMetricFamily(
            "mars_member_lag_messages", "Messages ahead of a mapper.", labels=labels
        ),
        "resident_bytes": GaugeMetricFamily(
            "mars_member_resident_bytes", "Memory of a process.", labels=labels
        ),
    }
    for figure, family in families.items():
        for name, info in members.items():
            if figure in info.load:
                family.add_metric([name, info.role], info.load[figure])
        yield family


def _ages(members: Mapping[MemberId, MemberInfo], balance: Balance | None, now_ms: int) -> Metric:
    ages = GaugeMetricFamily(
        "mars_member_report_age_seconds",
        "Since a process last reported, by the leader's clock where it watches it.",
        labels=["member", "role"],
    )
    for name, age_s in ages_of(members, balance, now_ms).items():
        ages.add_metric([name, members[name].role], age_s)
    return ages


def _tracker(members: Mapping[MemberId, MemberInfo]) -> Iterator[Metric]:
    """The ackers of the tuple tracker; nothing where it is off."""
    pending = GaugeMetricFamily(
        "mars_tracker_pending_roots", "Batches that an acker waits for.", labels=["member"]
    )
    roots = CounterMetricFamily(
        "mars_tracker_roots", "Batches by what became of them.", labels=["member", "outcome"]
    )
    for name, info in members.items():
        if "tracker_pending_roots" not in info.load:
            continue
        pending.add_metric([name], info.load["tracker_pending_roots"])
        for outcome in OUTCOMES:
            roots.add_metric([name, outcome], info.load[f"tracker_{outcome}_total"])
    yield from (pending, roots)


def _assisting(members: Mapping[MemberId, MemberInfo]) -> Iterator[Metric]:
    """What reducers have merged of logs of others' buckets; nothing where none was asked to."""
    segments = CounterMetricFamily(
        "mars_assisted_segments",
        "Segments of logs that were merged for others, or too late.",
        labels=["member", "outcome"],
    )
    remaining = GaugeMetricFamily(
        "mars_assisted_remaining_ratio",
        "Part of the bytes that merging for others left.",
        labels=["member"],
    )
    for name, info in members.items():
        if "assisted_remaining" in info.load:
            remaining.add_metric([name], info.load["assisted_remaining"])
        if "assisted_segments_total" in info.load:
            segments.add_metric([name, "merged"], info.load["assisted_segments_total"])
            segments.add_metric([name, "refused"], info.load["assisted_refused_total"])
    yield from (segments, remaining)


def _buckets(members: Mapping[MemberId, MemberInfo]) -> Iterator[Metric]:
    """What owners and assistants say of the buckets that cost them most."""
    labels = ["bucket", "member"]
    use = GaugeMetricFamily(
        "mars_bucket_use",
        "CPU seconds a second of a bucket: of its owner, and of who assists it.",
        labels=labels,
    )
    rows = GaugeMetricFamily(
        "mars_bucket_rows_per_second", "Rows that its owner reads of a bucket.", labels=labels
    )
    backlog = GaugeMetricFamily(
        "mars_bucket_backlog_bytes", "What its owner has not read of a bucket.", labels=labels
    )
    for name, info in members.items():
        for load in info.loads:
            where = [str(load.bucket), name]
            use.add_metric(where, load.use)
            rows.add_metric(where, load.rows_per_second)
            backlog.add_metric(where, load.backlog_bytes)
    yield from (use, rows, backlog)


def _balance(balance: Balance | None) -> Iterator[Metric]:
    if balance is None:
        return
    yield GaugeMetricFamily("mars_reducer_use_mean", "Of a core.", value=balance.mean_use)
    yield GaugeMetricFamily(
        "mars_reducer_use_deviation", "Standard deviation of use.", value=balance.deviation
    )
    yield GaugeMetricFamily(
        "mars_reducer_rows_ratio", "Max/min of the reducers' rows.", value=balance.rows_ratio
    )
    yield from _moves(balance)
    strategy = GaugeMetricFamily(
        "mars_balance_strategy", "1 for how buckets are spread.", labels=["strategy", "kind"]
    )
    strategy.add_metric([balance.strategy, balance.strategy_kind], 1)
    yield strategy
    assistants = GaugeMetricFamily(
        "mars_bucket_assistants", "How many reducers merge for it.", labels=["bucket"]
    )
    for one in balance.assisted:
        assistants.add_metric([str(one.bucket)], len(one.assistants))
    yield assistants
    pressure = GaugeMetricFamily(
        "mars_reducer_pressure", "About 1: its room is full, or will be.", labels=["member"]
    )
    for name, value in balance.pressure.items():
        pressure.add_metric([name], value)
    yield pressure
    wanted = GaugeMetricFamily(
        "mars_wanted_members", "How many the load asks for.", labels=["role", "kind"]
    )
    for each in balance.wanted:
        wanted.add_metric([each.role, each.kind], each.wanted)
    yield wanted


def _moves(balance: Balance) -> Iterator[Metric]:
    moves = CounterMetricFamily(
        "mars_bucket_moves", "Buckets moved since this leader began.", labels=["kind"]
    )
    for kind in MoveKind:
        moves.add_metric([kind], balance.moves_by_kind.get(kind, 0))
    yield moves
    yield GaugeMetricFamily(
        "mars_buckets_lent", "Buckets that were moved under pressure.", value=balance.lent_total
    )


def _store(assignment: Assignment | None) -> Iterator[Metric]:
    if assignment is not None:
        yield GaugeMetricFamily(
            "mars_store_epoch", "Which life of Redis this is.", value=assignment.store_epoch
        )


def _services(health: Health) -> Metric:
    family = GaugeMetricFamily(
        "mars_service_up", "1 if the server answers this process.", labels=["service"]
    )
    for service, sentence in health.readiness().services.items():
        family.add_metric([service], sentence == "ok")
    return family
