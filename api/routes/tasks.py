"""/v1/tasks: definitions and states."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Response

from api.http.answering import Rendered, rendered
from api.http.body import body_of
from api.http.documenting import gives, problems, takes
from api.http.errors import ALL_BUT_POST, only_post
from api.http.places import price_of
from api.names import RESERVED_WORDS
from api.routes.streams import AWAY, BAD_BODY, IN_USE, UNKNOWN
from api.schemas import NewTaskRequest, TaskRequest, TaskSetRequest, ValidateRequest
from api.services.all import Services
from api.services.defining.zone_news import zone_warnings
from api.services.views import task_view, validation
from mars.client.answers import Task, Tasks, TaskSet, Validation
from mars.core.definitions import TaskDefinition
from mars.core.types import TaskName

CHANGED = HTTPStatus.PRECONDITION_FAILED
BUSY = HTTPStatus.TOO_MANY_REQUESTS

VALIDATE_BYTES_MAX = 192 * 1024
"""Of a body with a query to check: the longest query (64 KiB), escaped, with options. Whoever may
look may check queries, and should not keep this process busy with other things."""


SET_BYTES_MAX = 8 * 1024 * 1024
"""Of a body with a set of tasks: a thousand definitions have about one."""

LARGER = {("PUT", "/v1/tasks"): SET_BYTES_MAX}
"""The requests whose bodies may be longer than those of all others."""


def router(services: Services) -> APIRouter:
    """The paths of tasks, but for those that look into one."""
    routes = APIRouter(prefix="/v1/tasks", tags=["tasks"])

    for word in RESERVED_WORDS:  # else these were tasks of that name
        routes.add_api_route(
            f"/{word}", only_post, methods=list(ALL_BUT_POST), include_in_schema=False
        )

    @routes.post(
        "/validate",
        responses=gives(Validation) | problems(*BAD_BODY, BUSY, AWAY),
        openapi_extra=takes(ValidateRequest),
    )
    async def validate(
        body: Annotated[ValidateRequest, Depends(body_of(ValidateRequest, VALIDATE_BYTES_MAX))],
    ) -> Response:
        """Check a query: its plan and what its rows would look like. Touches nothing."""
        found = await services.turns.checks.take(
            lambda: _checked(services, body), price_of(body.sql)
        )
        return found.response()

    @routes.post(
        "",
        status_code=HTTPStatus.CREATED,
        responses=gives(Task, status=HTTPStatus.CREATED) | problems(*BAD_BODY, IN_USE, BUSY, AWAY),
        openapi_extra=takes(NewTaskRequest),
    )
    async def create_task(
        body: Annotated[NewTaskRequest, Depends(body_of(NewTaskRequest))],
    ) -> Response:
        """Register a task."""
        found = await services.turns.changes.take(
            lambda: _created(services, body), price_of(body.sql)
        )
        return found.response()

    @routes.get(
        "",
        responses=gives(Tasks) | problems(HTTPStatus.UNPROCESSABLE_ENTITY, AWAY),
    )
    async def list_tasks(
        deleted: Annotated[bool, Query(description="list deleted ones too")] = False,
    ) -> Response:
        """List all tasks, each with its plan and its newest figures."""

        return await services.answering.answer(
            ("tasks", deleted), lambda: Rendered(services.listing.as_json(deleted=deleted))
        )

    @routes.put(
        "",
        responses=gives(TaskSet) | problems(*BAD_BODY, IN_USE, BUSY, AWAY),
        openapi_extra=takes(TaskSetRequest),
    )
    async def apply_tasks(
        body: Annotated[TaskSetRequest, Depends(body_of(TaskSetRequest))],
    ) -> Response:
        """Make many tasks as they stand in the body, or nothing if one of them is wrong."""
        found = await services.turns.sets.take(lambda: _applied(services, body))
        return found.response()

    @routes.get("/{name}", responses=gives(Task) | problems(UNKNOWN, AWAY))
    async def show_task(name: str) -> Response:
        """Show one task."""
        return await services.answering.answer(
            ("task", name), lambda: _rendered(services, services.tasks.show(name))
        )

    @routes.put(
        "/{name}",
        responses=gives(Task) | problems(*BAD_BODY, UNKNOWN, IN_USE, CHANGED, BUSY, AWAY),
        openapi_extra=takes(TaskRequest),
    )
    async def change_task(
        name: str,
        body: Annotated[TaskRequest, Depends(body_of(TaskRequest))],
        if_match: Annotated[str | None, Header(description="the version in quotes")] = None,
    ) -> Response:
        """Make a new version of a task; the same query and options change nothing."""
        found = await services.turns.changes.take(
            lambda: _rendered(services, services.tasks.change(name, body, if_match).definition),
            price_of(body.sql),
        )
        return found.response()

    @routes.delete(
        "/{name}", status_code=HTTPStatus.NO_CONTENT, responses=problems(UNKNOWN, IN_USE, AWAY)
    )
    def delete_task(name: str) -> None:
        """End a task; its results stay."""
        services.tasks.delete(name)

    @routes.post("/{name}/pause", responses=gives(Task) | problems(UNKNOWN, IN_USE, AWAY))
    def pause_task(name: str) -> Response:
        """Take no more rows until it is resumed."""
        return _rendered(services, services.tasks.pause(name)).response()

    @routes.post("/{name}/resume", responses=gives(Task) | problems(UNKNOWN, IN_USE, AWAY))
    def resume_task(name: str) -> Response:
        """Resume a paused or failed task where it stopped."""
        return _rendered(services, services.tasks.resume(name)).response()

    return routes


def _checked(services: Services, body: ValidateRequest) -> Rendered:
    plan = services.tasks.validate(body)
    name = None if body.name is None else TaskName(body.name)
    return rendered(validation(plan, services.shared_topics.warnings(name, plan)))


def _created(services: Services, body: NewTaskRequest) -> Rendered:
    task = services.tasks.create(body)
    place = {"Location": f"/v1/tasks/{task.name}"}
    return _rendered(services, task, place, HTTPStatus.CREATED)


def _applied(services: Services, body: TaskSetRequest) -> Rendered:
    steps = services.sets.apply(body)
    name = None if body.set is None else body.set.name
    tasks = [step.view for step in steps]
    return rendered(TaskSet(set=name, dry_run=body.dry_run, tasks=tasks))


def _rendered(
    services: Services,
    task: TaskDefinition,
    headers: Mapping[str, str] | None = None,
    status: HTTPStatus = HTTPStatus.OK,
) -> Rendered:
    """A task as it is now, with its version as ETag."""
    plan = services.compiler.plans(task).get(task.current.version)
    figures, missing = services.sampler.one(task)
    warnings: list[str] = []
    if plan is not None:
        warnings += services.shared_topics.warnings(task.name, plan)
        warnings += zone_warnings(plan, services.queries.now_ms())
    view = task_view(task, plan, figures, services.maker.closed(task), missing, warnings)
    return rendered(view, {**(headers or {}), "ETag": f'"{task.current.version}"'}, status)
