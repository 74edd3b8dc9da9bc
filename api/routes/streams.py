"""/v1/streams."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Depends, Response

from api.http.answering import Rendered, rendered, respond
from api.http.body import body_of
from api.http.documenting import gives, problems, takes
from api.presenting import stream_view
from api.schemas import StreamRequest
from api.services.all import Services
from mars.client.answers import Stream, Streams

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

    @routes.get("", responses=gives(Streams) | problems(AWAY))
    async def list_streams() -> Response:
        """List all streams."""

        def make() -> Rendered:
            streams = [stream_view(stream) for stream in services.streams.list_all()]
            return rendered(Streams(streams=streams))

        return await services.answering.answer("streams", make)

    @routes.get("/{name}", responses=gives(Stream) | problems(UNKNOWN, AWAY))
    async def show_stream(name: str) -> Response:
        """Show one stream."""
        return await services.answering.answer(
            ("stream", name), lambda: rendered(stream_view(services.streams.show(name)))
        )

    @routes.put(
        "/{name}",
        responses=gives(Stream)
        | gives(Stream, status=HTTPStatus.CREATED, says="Declared for the first time")
        | problems(*BAD_BODY, IN_USE, HTTPStatus.TOO_MANY_REQUESTS, AWAY),
        openapi_extra=takes(StreamRequest),
    )
    async def put_stream(
        name: str, body: Annotated[StreamRequest, Depends(body_of(StreamRequest))]
    ) -> Response:
        """Declare a stream, or replace its declaration."""

        def put() -> tuple[Stream, bool]:
            stream, created = services.streams.put(name, body)
            return stream_view(stream, services.streams.warnings(stream)), created

        view, created = await services.turns.changes.take(put)
        if not created:
            return respond(view)
        place = {"Location": f"/v1/streams/{name}"}
        return respond(view, place, HTTPStatus.CREATED)

    @routes.delete(
        "/{name}", status_code=HTTPStatus.NO_CONTENT, responses=problems(UNKNOWN, IN_USE, AWAY)
    )
    def delete_stream(name: str) -> None:
        """Remove a declaration that no task uses."""
        services.streams.delete(name)

    return routes
