"""/v1/tasks/preview: a query tried before it is registered."""

from __future__ import annotations

from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Annotated

import anyio.to_thread
from fastapi import APIRouter, Depends, Request, Response
from msgspec.structs import asdict, replace
from starlette.concurrency import run_in_threadpool

from api.http.answering import event, rendered
from api.http.body import body_of
from api.http.documenting import EVENT_STREAM, gives_or_streams, problems, takes
from api.http.errors import problem_of
from api.preview_schemas import PreviewRequest
from api.routes.inside import event_stream
from api.routes.streams import AWAY, BAD_BODY
from api.services.all import Services
from api.services.previews.service import Steps
from mars.client.answers import Preview, PreviewProgress
from mars.core.errors import MarsError


def router(services: Services) -> APIRouter:
    """The path of previews."""
    routes = APIRouter(prefix="/v1/tasks", tags=["tasks"])

    @routes.post(
        "/preview",
        responses=gives_or_streams(
            Preview,
            "The preview; or, if asked for, events named progress, window (one each), and last "
            "preview (without windows) or problem",
        )
        | problems(*BAD_BODY, HTTPStatus.TOO_MANY_REQUESTS, AWAY),
        openapi_extra=takes(PreviewRequest),
    )
    async def preview(
        body: Annotated[PreviewRequest, Depends(body_of(PreviewRequest))], request: Request
    ) -> Response:
        """Try a query over a topic's last seconds, or over given rows. Touches nothing."""
        if EVENT_STREAM not in request.headers.get("accept", ""):
            found = await run_in_threadpool(lambda: rendered(services.previews.preview(body)))
            return found.response()
        steps = await run_in_threadpool(services.previews.begin, body)
        return event_stream(_events(steps))

    return routes


async def _events(steps: Steps) -> AsyncIterator[bytes]:
    try:
        while True:
            step = await anyio.to_thread.run_sync(next, steps, None)
            match step:
                case PreviewProgress():
                    yield event("progress", step)
                case Preview():
                    for window in step.windows:
                        yield event("window", window)
                    yield event("preview", replace(step, windows=[]))
                case _:
                    return
    except MarsError as error:
        yield event("problem", asdict(problem_of(error)))  # here with those that are null
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(steps.close)
