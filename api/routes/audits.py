"""For those who check: verification, rows that were not counted, incidents."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response

from api.http.answering import rendered, respond
from api.http.documenting import gives, problems
from api.routes.inside import TIME_MAX, End, Number, OfPartition
from api.routes.streams import AWAY, IN_USE, UNKNOWN
from api.services.all import Services
from api.services.inside.naming import AskedWindow
from mars.client.answers import DeadRows, Incidents, Verification

WRONG = HTTPStatus.UNPROCESSABLE_ENTITY

LIMIT_DEFAULT = 100
LIMIT_MAX = 1_000
"""Of rows in one answer: with samples and sentences up to a megabyte of JSON."""

AFTER_MAX = 4_000
"""Characters of a place in mars.dead: that of some hundred partitions."""

Limit = Annotated[int, Query(ge=1, le=LIMIT_MAX)]
Time = Annotated[int | None, Query(ge=-TIME_MAX, le=TIME_MAX, description="epoch ms")]


def router(services: Services) -> APIRouter:
    """The paths of those who check."""
    routes = APIRouter(tags=["audit"])

    @routes.get(
        "/v1/tasks/{name}/verify",
        responses=gives(Verification) | problems(UNKNOWN, IN_USE, WRONG, AWAY),
    )
    async def verify(
        name: str,
        window_start: Time = None,
        window_end: End = None,
        partition: OfPartition = None,
        window_number: Number = None,
    ) -> Response:
        """Compute a finished window (else the last one) again from its source rows, and compare."""
        asked = AskedWindow(window_start, window_end, partition, window_number)
        found = await services.turns.verifications.take(lambda: services.verifier(name, asked))
        return found.response()

    @routes.get(
        "/v1/tasks/{name}/dead",
        responses=gives(DeadRows) | problems(UNKNOWN, WRONG, AWAY),
    )
    async def dead(
        name: str,
        reason: Annotated[str | None, Query(description="only rows left out for it")] = None,
        after: Annotated[
            str | None, Query(max_length=AFTER_MAX, description="the next of the page before")
        ] = None,
        limit: Limit = LIMIT_DEFAULT,
        order: Annotated[
            Literal["oldest", "newest"],
            Query(description="newest: of the last ones, in one page; oldest: all, page by page"),
        ] = "oldest",
    ) -> Response:
        """List rows that were not counted, and results that were withheld; a page may be short with
        more to come.
        """

        def listed() -> DeadRows:
            if order == "newest":
                return services.dead.newest(name, reason, after, limit)
            return services.dead.page(name, reason, after, limit)

        found = await services.turns.topics.take(lambda: rendered(listed()))
        return found.response()

    @routes.get("/v1/incidents", responses=gives(Incidents) | problems(UNKNOWN, WRONG, AWAY))
    def incidents(
        task: Annotated[
            str | None, Query(description="those of a task, and those that concern all")
        ] = None,
        since: Time = None,
        limit: Limit = LIMIT_DEFAULT,
    ) -> Response:
        """What happened that people should hear of, newest first."""
        return respond(services.incidents.recent(task, since, limit))

    return routes
