"""/v1/queries: queries that run once, now."""

from __future__ import annotations

from functools import partial
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response

from api.http.answering import respond
from api.http.body import body_of
from api.http.documenting import gives, problems, takes
from api.http.places import price_of
from api.query_schemas import NewQueryRequest
from api.routes.streams import AWAY, BAD_BODY, IN_USE, UNKNOWN
from api.services.all import Services
from api.services.queries import QUERIES_KEPT
from api.services.query_views import query_view
from mars.client import answers
from mars.protocol.ports import QueryRecord

ARROW_STREAM = "application/vnd.apache.arrow.stream"
JSON = "application/json"

BUSY = HTTPStatus.TOO_MANY_REQUESTS


def router(services: Services) -> APIRouter:
    """The paths of ad-hoc queries."""
    routes = APIRouter(prefix="/v1/queries", tags=["queries"])

    def views(*records: QueryRecord) -> list[answers.Query]:
        runners = services.queries.runners(records)
        now_ms = services.queries.now_ms()
        return [query_view(record, now_ms, runners) for record in records]

    @routes.post(
        "",
        status_code=HTTPStatus.ACCEPTED,
        responses=gives(answers.Query, status=HTTPStatus.ACCEPTED)
        | problems(*BAD_BODY, BUSY, AWAY),
        openapi_extra=takes(NewQueryRequest),
    )
    async def create_query(
        body: Annotated[NewQueryRequest, Depends(body_of(NewQueryRequest))],
    ) -> Response:
        """Run a query once, now, over a stream's topic or over files; look at Location for it."""

        def made() -> answers.Query:
            return views(services.queries.create(body))[0]

        view = await services.turns.changes.take(made, price_of(body.sql))
        return respond(view, {"Location": f"/v1/queries/{view.id}"}, HTTPStatus.ACCEPTED)

    @routes.get(
        "", responses=gives(answers.Queries) | problems(HTTPStatus.UNPROCESSABLE_ENTITY, AWAY)
    )
    def list_queries(
        limit: Annotated[int, Query(ge=1, le=QUERIES_KEPT, description="queries")] = QUERIES_KEPT,
    ) -> Response:
        """List the queries that are kept, newest first."""
        return respond(answers.Queries(queries=views(*services.queries.list_all(limit))))

    @routes.get("/{query}", responses=gives(answers.Query) | problems(UNKNOWN, AWAY))
    def show_query(query: str) -> Response:
        """Show one query: its state, where its rows went, why it failed."""
        return respond(views(services.queries.show(query))[0])

    @routes.get(
        "/{query}/rows",
        response_class=Response,
        responses={
            200: {
                "description": "All result rows, in the order of windows and keys; Arrow if Accept "
                "asks for it",
                "content": {
                    JSON: {"schema": {"type": "array", "items": {"type": "object"}}},
                    ARROW_STREAM: {"schema": {"type": "string", "format": "binary"}},
                },
            },
            **problems(UNKNOWN, IN_USE, AWAY),
        },
    )
    async def query_rows(query: str, request: Request) -> Response:
        """The rows of a query that is done; they are kept for one day."""
        arrow = ARROW_STREAM in request.headers.get("accept", "")
        read = services.queries.arrow_rows if arrow else services.queries.json_rows
        rows = await services.turns.rows.take(partial(read, query))
        kind = ARROW_STREAM if arrow else JSON
        return Response(rows, media_type=kind, headers={"Vary": "Accept"})

    @routes.delete(
        "/{query}", status_code=HTTPStatus.NO_CONTENT, responses=problems(UNKNOWN, IN_USE, AWAY)
    )
    def cancel_query(query: str) -> None:
        """Stop a query; nothing happens to one that has ended."""
        services.queries.cancel(query)

    return routes
