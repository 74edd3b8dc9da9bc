"""/v1/cluster, and what other machines ask a process: liveness, readiness, metrics."""

from __future__ import annotations

from http import HTTPStatus

from fastapi import APIRouter, Request, Response

from api.http.answering import Rendered, rendered, respond
from api.http.documenting import EVENT_STREAM, gives, gives_or_streams, problems
from api.routes.inside import FIGURES_OR_EVENTS, Stopping, event_stream, gone_of
from api.routes.streams import AWAY
from api.services.all import Services
from api.services.operation.metrics import CONTENT_TYPE
from mars.client.answers import Alive, AllFigures, Cluster, Readiness


def router(services: Services, stopping: Stopping) -> APIRouter:
    """The paths of the service itself."""
    routes = APIRouter(tags=["service"])

    @routes.get("/v1/cluster", responses=gives(Cluster))
    async def cluster() -> Response:
        """Members, leader, assignment, load, store epoch, backlog."""
        return await services.answering.answer("cluster", lambda: rendered(services.cluster.show()))

    @routes.get(
        "/v1/figures",
        responses=gives_or_streams(AllFigures, FIGURES_OR_EVENTS)
        | problems(HTTPStatus.TOO_MANY_REQUESTS),
    )
    async def all_figures(request: Request) -> Response:
        """Rate and lag of all tasks together, and the newest figures of each, for charts."""
        if EVENT_STREAM not in request.headers.get("accept", ""):
            return await services.answering.answer(
                "figures", lambda: rendered(services.figures.of_all())
            )
        gone = gone_of(request, stopping, services.access)
        return event_stream(services.figures.follow_all(gone))

    # These two are async: they answer even when every thread waits for a server that is away.

    @routes.get("/healthz", responses=gives(Alive))
    async def alive() -> Response:
        """Whether the process is alive."""
        return respond(Alive())

    @routes.get(
        "/readyz",
        responses=gives(Readiness) | gives(Readiness, status=AWAY, says="A server does not answer"),
    )
    async def ready() -> Response:
        """Whether every server that the process needs answers."""
        readiness = services.health.readiness()
        return respond(readiness, status=HTTPStatus.OK if readiness.status == "ready" else AWAY)

    @routes.get(
        "/metrics",
        response_class=Response,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    )
    async def metrics() -> Response:
        """Figures for Prometheus."""
        return await services.answering.answer(
            "metrics", lambda: Rendered(services.metrics.expose(), CONTENT_TYPE)
        )

    return routes
