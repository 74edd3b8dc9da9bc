"""/v1/cluster, and what other machines ask a process: liveness, readiness, metrics."""

from __future__ import annotations

from http import HTTPStatus

from fastapi import APIRouter, Request, Response

from api.answering import Rendered, rendered
from api.documenting import problems
from api.routes.inside import EVENT_STREAM, Stopping, event_stream, gone_of
from api.schemas import Alive, AllFigures, ClusterView, Readiness
from api.services.all import Services
from api.services.metrics import CONTENT_TYPE


def router(services: Services, stopping: Stopping) -> APIRouter:
    """The paths of the service itself."""
    routes = APIRouter(tags=["service"])

    @routes.get("/v1/cluster", response_model=ClusterView)
    async def cluster() -> Response:
        """Members, leader, assignment, load, store epoch, backlog."""
        return await services.answering.answer("cluster", lambda: rendered(services.cluster.show()))

    @routes.get(
        "/v1/figures",
        response_model=AllFigures,
        responses={
            200: {
                "description": "Figures over the last minutes; or, if asked for, events named "
                "figures: first those, then each new one as it is taken",
                "content": {EVENT_STREAM: {"schema": {"type": "string"}}},
            },
            **problems(HTTPStatus.TOO_MANY_REQUESTS),
        },
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

    @routes.get("/healthz")
    async def alive() -> Alive:
        """Whether the process is alive."""
        return Alive()

    @routes.get(
        "/readyz",
        responses={503: {"description": "A server does not answer", "model": Readiness}},
    )
    async def ready(response: Response) -> Readiness:
        """Whether every server that the process needs answers."""
        readiness = services.health.readiness()
        if readiness.status != "ready":
            response.status_code = HTTPStatus.SERVICE_UNAVAILABLE
        return readiness

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
