"""All services, made from the ports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from api.http.answering import Rendered, Responder, rendered
from api.http.turns import AllTurns
from api.services.access import AccessPolicy, AccessService
from api.services.compiling import TaskCompiler
from api.services.context import BucketCount, ClusterContext, Ports
from api.services.defining.making import TaskMaker
from api.services.defining.sets import SetService
from api.services.inside.dead import DeadService
from api.services.inside.naming import AskedWindow
from api.services.inside.progress import ProgressTail
from api.services.inside.results import ResultService
from api.services.inside.sampling import Sampler
from api.services.inside.verifying import VerifyService
from api.services.inside.why import WhyService
from api.services.inside.window_ledger import WindowLedgerService
from api.services.inside.windows import WindowService
from api.services.listing import ListingService
from api.services.operation.cluster import ClusterService
from api.services.operation.figures import FigureService
from api.services.operation.health import Health
from api.services.operation.incidents import IncidentService
from api.services.operation.logs import LogReader
from api.services.operation.metrics import MetricService
from api.services.operation.pulse import Pulse
from api.services.previews.service import Previewer, PreviewService
from api.services.queries import QueryService
from api.services.shared_topics import SharedTopics
from api.services.streams import StreamService
from api.services.tasks import TaskService

Verifier = Callable[[str, AskedWindow], Rendered]
"""Computes a window of a task again, as `VerifyService.verify` does."""


@dataclass(frozen=True, slots=True)
class Services:
    """One service per family of paths, and what they share."""

    compiler: TaskCompiler
    streams: StreamService
    maker: TaskMaker
    tasks: TaskService
    sets: SetService
    shared_topics: SharedTopics
    progress: ProgressTail
    queries: QueryService
    previews: PreviewService
    windows: WindowService
    results: ResultService
    window_ledgers: WindowLedgerService
    verifying: VerifyService
    verifier: Verifier
    dead: DeadService
    incidents: IncidentService
    why: WhyService
    pulse: Pulse
    sampler: Sampler
    figures: FigureService
    listing: ListingService
    cluster: ClusterService
    metrics: MetricService
    health: Health
    access: AccessService
    answering: Responder
    turns: AllTurns


def build(
    ports: Ports,
    cluster: ClusterContext,
    health: Health,
    version: str,
    access: AccessPolicy | None = None,
    verifier: Verifier | None = None,
    previewer: Previewer | None = None,
) -> Services:
    """Wire the services; nothing is asked of any server yet.

    `verifier` and `previewer` do elsewhere what the services for it would do here.
    """
    compiler = TaskCompiler(ports.registry, cluster.namespace)
    buckets = BucketCount(ports.coordinator, cluster)
    progress = ProgressTail(ports.progress, buckets)
    maker = TaskMaker(ports, compiler, progress)
    tasks = TaskService(ports, compiler, maker, buckets, cluster)
    logs = LogReader(ports.log)
    pulse = Pulse(ports)
    sampler = Sampler(ports, compiler, progress, health.away)
    figures = FigureService(sampler, ports.now_ms)
    windows = WindowService(ports, compiler, buckets, tasks, progress, logs)
    members = ClusterService(ports, cluster, buckets, sampler, health.away, version)
    verifying = VerifyService(ports, compiler, buckets, tasks, progress, windows)
    return Services(
        compiler=compiler,
        streams=StreamService(ports, compiler, cluster.namespace),
        maker=maker,
        tasks=tasks,
        sets=SetService(ports, compiler, maker, buckets, cluster),
        shared_topics=SharedTopics(ports.registry, compiler),
        progress=progress,
        queries=QueryService(ports, compiler, buckets, cluster),
        previews=PreviewService(ports, compiler, buckets, cluster, previewer),
        windows=windows,
        results=ResultService(ports, compiler, tasks),
        window_ledgers=WindowLedgerService(ports, compiler, tasks, windows),
        verifying=verifying,
        verifier=verifier or (lambda *asked: rendered(verifying.verify(*asked))),
        dead=DeadService(ports, tasks),
        incidents=IncidentService(ports),
        why=WhyService(ports, compiler, buckets, tasks, progress, logs, pulse, health.away),
        pulse=pulse,
        sampler=sampler,
        figures=figures,
        listing=ListingService(tasks, compiler, sampler, figures),
        cluster=members,
        metrics=MetricService(ports, members, sampler, figures, health, cluster.log_bytes_max),
        health=health,
        access=AccessService(ports, access or AccessPolicy()),
        answering=Responder(),
        turns=AllTurns(),
    )
