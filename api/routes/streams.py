"""/v1/streams."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Depends, Response

from api.answering import Rendered, rendered
from api.body import body_of
from api.documenting import problems, takes
from api.presenting import stream_view
from api.schemas import StreamList, StreamRequest, StreamView
from api.services.all import Services

AWAY = HTTPStatus.SERVICE_UNAVAILABLE
UNKNOWN = HTTPStatus.NOT_FOUND
IN_USE = HTTPStatus.CONFLICT
BAD_BODY = (
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.UNPROCESSABLE_ENTITY,
)


def router(services: Services) -> APIRouter:
    """The paths of streams."""
    routes = APIRouter(prefix="/v1/streams", tags=["streams"])

    @routes.get("", response_model=StreamList, responses=problems(AWAY))
    async def list_streams() -> Response:
        """List all streams."""

        def make() -> Rendered:
            streams = [stream_view(stream) for stream in services.streams.list_all()]
            return rendered(StreamList(streams=streams))

        return await services.answering.answer("streams", make)

    @routes.get("/{name}", response_model=StreamView, responses=problems(UNKNOWN, AWAY))
    async def show_stream(name: str) -> Response:
        """Show one stream."""
        return await services.answering.answer(
            ("stream", name), lambda: rendered(stream_view(services.streams.show(name)))
        )

    @routes.put(
        "/{name}",
        responses={
            201: {"description": "Declared for the first time", "model": StreamView},
            **problems(*BAD_BODY, IN_USE, HTTPStatus.TOO_MANY_REQUESTS, AWAY),
        },
        openapi_extra=takes(StreamRequest),
    )
    async def put_stream(
        name: str,
        body: Annotated[StreamRequest, Depends(body_of(StreamRequest))],
        response: Response,
    ) -> StreamView:
        """Declare a stream, or replace its declaration."""
        stream, created = await services.turns.changes.take(
            lambda: services.streams.put(name, body)
        )
        if created:
            response.status_code = HTTPStatus.CREATED
            response.headers["Location"] = f"/v1/streams/{name}"
        return stream_view(stream)

    @routes.delete(
        "/{name}", status_code=HTTPStatus.NO_CONTENT, responses=problems(UNKNOWN, IN_USE, AWAY)
    )
    def delete_stream(name: str) -> None:
        """Remove a declaration that no task uses."""
        services.streams.delete(name)

    return routes
