"""The web application: routes, errors, limits, description."""

from __future__ import annotations

from fastapi import Depends, FastAPI
from fastapi.telemetry import TelemetryConfig
from fastapi_offline import FastAPIOffline

from api.http import documenting, errors
from api.http.body import BodyLimit
from api.http.gate import Gate
from api.http.parameters import known_only
from api.routes import (
    audits,
    cluster,
    dashboard,
    inside,
    keys,
    previews,
    queries,
    streams,
    tasks,
)
from api.routes.inside import Stopping
from api.services.all import Services

DESCRIPTION = """\
Exact windowed statistics over Kafka streams: declare a stream, register a task in SQL, read one
exact row per group and window from Kafka, or here. Times are epoch milliseconds. Errors are
problem documents (RFC 9457)."""

NO_TELEMETRY = TelemetryConfig(tracing=False, metrics=False, logs=False, auto_configure=False)
"""Mars has its own figures and logs. The framework's would send requests and errors, as they are,
wherever the environment says."""


def create_app(
    services: Services, *, version: str, body_bytes_max: int, stopping: Stopping | None = None
) -> FastAPI:
    """The application; it does nothing until it is asked."""
    app = FastAPIOffline(  # its page needs nothing from outside
        title="Mars",
        version=version,
        description=DESCRIPTION,
        redoc_url=None,
        redirect_slashes=False,
        telemetry=NO_TELEMETRY,
        openapi_tags=[
            {"name": "streams", "description": "Kafka topics with declared fields"},
            {"name": "tasks", "description": "registered queries"},
            {"name": "queries", "description": "queries that run once, now, on Spark"},
            {"name": "results", "description": "windows, open and finished"},
            {"name": "keys", "description": "who may use this interface"},
            {"name": "audit", "description": "results checked, rows not counted, incidents"},
            {"name": "service", "description": "the state of the service itself"},
        ],
    )
    stopping = stopping or Stopping()
    for router in (
        streams.router(services),
        previews.router(services),
        tasks.router(services),
        queries.router(services),
        inside.router(services, stopping),
        keys.router(services),
        audits.router(services),
        cluster.router(services, stopping),
    ):
        app.include_router(router, dependencies=[Depends(known_only)])
    app.include_router(dashboard.router())
    app.add_middleware(BodyLimit, bytes_max=body_bytes_max, larger=tasks.LARGER)
    app.add_middleware(Gate, services=services)  # the outermost: nothing is read before it
    errors.install(app)
    documenting.install(app)
    return app
