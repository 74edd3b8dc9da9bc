"""/v1/tasks/{name}/...: open windows, reasons, ledgers, results."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from api.callers import caller
from api.http.answering import Rendered, rendered
from api.http.documenting import EVENT_STREAM, gives, gives_or_streams, problems
from api.presenting import alike
from api.routes.streams import AWAY, IN_USE, UNKNOWN
from api.services.access import AccessService
from api.services.all import Services
from api.services.inside.naming import AskedWindow
from api.services.inside.windows import LIMIT_DEFAULT, LIMIT_MAX, select
from mars.client.answers import FigureList, FinishedWindows, Ledger, OpenWindows, Why, WindowLedger

FIGURES_OR_EVENTS = (
    "Figures over the last minutes; or, if asked for, events named figures: first those, then each "
    "new one as it is taken"
)

RESULTS_OR_EVENTS = (
    "The last finished windows; or, if asked for, result rows as they are committed: events named "
    "result, with partition:offset/positions as id and the row as data, and before those of each "
    "window and bucket one named source, with where they were counted from; one named gap says "
    "what Kafka had deleted before it was read; Last-Event-ID goes on behind an event"
)

WRONG = HTTPStatus.UNPROCESSABLE_ENTITY

TIME_MAX = 2**53
"""Of a time in a query parameter: what a JSON number holds exactly."""

End = Annotated[
    int | None,
    Query(
        ge=-TIME_MAX,
        le=TIME_MAX,
        description="epoch ms: its end, beside window_start; needed where windows cumulate",
    ),
]

OfPartition = Annotated[
    int | None,
    Query(ge=0, le=TIME_MAX, description="of a window that counts rows: whose rows"),
]

Number = Annotated[
    int | None,
    Query(
        ge=0,
        le=TIME_MAX,
        description="its number there, beside partition; of the task's current version",
    ),
]

Limit = Annotated[int, Query(ge=1, le=LIMIT_MAX, description="rows")]


class Stopping:
    """Tells event streams that the process is asked to stop."""

    def __init__(self) -> None:
        self.is_set = False

    def set(self) -> None:
        """End all event streams soon."""
        self.is_set = True


def gone_of(
    request: Request, stopping: Stopping, access: AccessService
) -> Callable[[], Awaitable[bool]]:
    """Says whether nobody listens to a stream any more, or may: keys are removed meanwhile."""
    who = caller()

    async def gone() -> bool:
        return stopping.is_set or not access.stands(who) or await request.is_disconnected()

    return gone


def event_stream(events: AsyncIterator[bytes]) -> StreamingResponse:
    """Server-sent events as a response, neither kept nor held back by what lies between."""
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(events, media_type=EVENT_STREAM, headers=headers)


def router(services: Services, stopping: Stopping) -> APIRouter:
    """The paths that look into a task."""
    routes = APIRouter(prefix="/v1/tasks/{name}", tags=["results"])

    @routes.get("/windows", responses=gives(OpenWindows) | problems(UNKNOWN, WRONG, AWAY))
    async def open_windows(
        name: str,
        key: Annotated[
            str | None, Query(description="the first key's text, or a JSON array of keys")
        ] = None,
        limit: Limit = LIMIT_DEFAULT,
        order: Annotated[
            str | None, Query(description="an item of the query; -item for descending")
        ] = None,
        partition: OfPartition = None,
    ) -> Response:
        """Open windows with their values as of now; the limit is per window."""
        wanted = select(key, order, limit, partition)

        return await services.answering.answer(
            ("windows", name, key, limit, order, partition),
            lambda: rendered(services.windows.open_windows(name, wanted)),
            services.turns.logs,
        )

    @routes.get("/why", responses=gives(Why) | problems(UNKNOWN, AWAY))
    async def why(name: str) -> Response:
        """Why no result is coming: per open window, who holds it."""

        return await services.answering.answer(
            ("why", name), lambda: rendered(services.why.why(name)), services.turns.logs
        )

    @routes.get(
        "/ledger",
        responses=gives(Ledger, WindowLedger) | problems(UNKNOWN, WRONG, AWAY),
    )
    async def ledger(
        name: str,
        window_start: Annotated[
            int | None, Query(ge=-TIME_MAX, le=TIME_MAX, description="epoch ms: of this window")
        ] = None,
        window_end: End = None,
        partition: OfPartition = None,
        window_number: Number = None,
    ) -> Response:
        """Where the task's rows went, as committed; it balances at any moment."""

        asked = AskedWindow(window_start, window_end, partition, window_number)
        return await services.answering.answer(
            ("ledger", name, *asked),
            lambda: _ledger(services, name, asked),
            services.turns.topics if asked.names_one else None,
        )

    @routes.get(
        "/figures",
        responses=gives_or_streams(FigureList, FIGURES_OR_EVENTS)
        | problems(UNKNOWN, HTTPStatus.TOO_MANY_REQUESTS, AWAY),
    )
    async def figures(name: str, request: Request) -> Response:
        """Rate, lag, watermark and close latency of a task, for charts."""

        if EVENT_STREAM not in request.headers.get("accept", ""):
            return await services.answering.answer(
                ("figures", name),
                lambda: rendered(services.figures.of_task(services.tasks.show(name).name)),
            )
        task = (await run_in_threadpool(services.tasks.show, name)).name
        gone = gone_of(request, stopping, services.access)
        events = services.figures.follow_task(task, gone)
        return event_stream(events)

    @routes.get(
        "/results",
        responses=gives_or_streams(FinishedWindows, RESULTS_OR_EVENTS)
        | problems(UNKNOWN, WRONG, IN_USE, HTTPStatus.TOO_MANY_REQUESTS, AWAY),
    )
    async def results(
        name: str,
        request: Request,
        window_start: Annotated[
            int | None, Query(ge=-TIME_MAX, le=TIME_MAX, description="epoch ms: this one only")
        ] = None,
        window_end: End = None,
        partition: OfPartition = None,
        window_number: Number = None,
        limit: Limit = LIMIT_DEFAULT,
        last_event_id: Annotated[
            str | None, Header(description="of a stream: the id of the last event that was seen")
        ] = None,
    ) -> Response:
        """The last finished windows, newest first, or a stream of server-sent events."""

        if EVENT_STREAM not in request.headers.get("accept", ""):
            asked = AskedWindow(window_start, window_end, partition, window_number)
            return await services.answering.answer(
                ("results", name, *asked, limit),
                lambda: Rendered(services.results.recent(name, asked, limit)),
                services.turns.topics,
            )
        gone = gone_of(request, stopping, services.access)
        return event_stream(await services.results.follow(name, gone, last_event_id))

    return routes


def _ledger(services: Services, name: str, asked: AskedWindow) -> Rendered:
    if asked.names_one:
        return rendered(services.window_ledgers.of_window(name, asked))
    task = services.tasks.show(name)
    return rendered(alike(services.progress.ledger(task), Ledger))
