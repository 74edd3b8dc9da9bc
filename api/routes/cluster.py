"""/v1/cluster, and what other machines ask a process: liveness, readiness, metrics."""

from __future__ import annotations

from http import HTTPStatus

from fastapi import APIRouter, Response

from api.schemas import Alive, ClusterView, Readiness
from api.services.all import Services
from api.services.metrics import CONTENT_TYPE


def router(services: Services) -> APIRouter:
    """The paths of the service itself."""
    routes = APIRouter(tags=["service"])

    @routes.get("/v1/cluster")
    def cluster() -> ClusterView:
        """Members, leader, assignment, load, store epoch, backlog."""
        return services.cluster.show()

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
    def metrics() -> Response:
        """Figures for Prometheus."""
        return Response(services.metrics.expose(), media_type=CONTENT_TYPE)

    return routes
