"""/v1/tasks: definitions and states."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Response

from api.answering import Rendered, rendered
from api.body import body_of
from api.documenting import problems, takes
from api.errors import ALL_BUT_POST, only_post
from api.names import RESERVED_WORDS
from api.places import price_of
from api.routes.streams import AWAY, BAD_BODY, IN_USE, UNKNOWN
from api.schemas import (
    NewTaskRequest,
    TaskList,
    TaskRequest,
    TaskView,
    ValidateRequest,
    Validation,
)
from api.services.all import Services
from api.services.views import task_view, validation
from mars.definitions import TaskDefinition
from mars.types import TaskName

CHANGED = HTTPStatus.PRECONDITION_FAILED
BUSY = HTTPStatus.TOO_MANY_REQUESTS

VALIDATE_BYTES_MAX = 192 * 1024
"""Of a body with a query to check: the longest query (64 KiB), escaped, with options. Whoever may
look may check queries, and should not keep this process busy with other things."""


def router(services: Services) -> APIRouter:
    """The paths of tasks, but for those that look into one."""
    routes = APIRouter(prefix="/v1/tasks", tags=["tasks"])

    def answer(task: TaskDefinition) -> tuple[TaskDefinition, TaskView]:
        return task, _view(services, task)

    for word in RESERVED_WORDS:  # else these were tasks of that name
        routes.add_api_route(
            f"/{word}", only_post, methods=list(ALL_BUT_POST), include_in_schema=False
        )

    @routes.post(
        "/validate", responses=problems(*BAD_BODY, BUSY, AWAY), openapi_extra=takes(ValidateRequest)
    )
    async def validate(
        body: Annotated[ValidateRequest, Depends(body_of(ValidateRequest, VALIDATE_BYTES_MAX))],
    ) -> Validation:
        """Check a query: its plan and what its rows would look like. Touches nothing."""

        def check() -> Validation:
            plan = services.tasks.validate(body)
            name = None if body.name is None else TaskName(body.name)
            return validation(plan, services.shared_topics.warnings(name, plan))

        return await services.turns.checks.take(check, price_of(body.sql))

    @routes.post(
        "",
        status_code=HTTPStatus.CREATED,
        responses=problems(*BAD_BODY, IN_USE, BUSY, AWAY),
        openapi_extra=takes(NewTaskRequest),
    )
    async def create_task(
        body: Annotated[NewTaskRequest, Depends(body_of(NewTaskRequest))], response: Response
    ) -> TaskView:
        """Register a task."""
        task, view = await services.turns.changes.take(
            lambda: answer(services.tasks.create(body)), price_of(body.sql)
        )
        response.headers.update({"Location": f"/v1/tasks/{task.name}", **_version_of(task)})
        return view

    @routes.get(
        "",
        response_model=TaskList,
        responses=problems(HTTPStatus.UNPROCESSABLE_ENTITY, AWAY),
    )
    async def list_tasks(
        deleted: Annotated[bool, Query(description="list deleted ones too")] = False,
    ) -> Response:
        """List all tasks, each with its plan and its newest figures."""

        return await services.answering.answer(
            ("tasks", deleted), lambda: Rendered(services.listing.as_json(deleted=deleted))
        )

    @routes.get("/{name}", response_model=TaskView, responses=problems(UNKNOWN, AWAY))
    async def show_task(name: str) -> Response:
        """Show one task."""

        return await services.answering.answer(("task", name), lambda: _shown(services, name))

    @routes.put(
        "/{name}",
        responses=problems(*BAD_BODY, UNKNOWN, IN_USE, CHANGED, BUSY, AWAY),
        openapi_extra=takes(TaskRequest),
    )
    async def change_task(
        name: str,
        body: Annotated[TaskRequest, Depends(body_of(TaskRequest))],
        response: Response,
        if_match: Annotated[str | None, Header(description="the version in quotes")] = None,
    ) -> TaskView:
        """Make a new version of a task; the same query and options change nothing."""
        task, view = await services.turns.changes.take(
            lambda: answer(services.tasks.change(name, body, if_match).definition),
            price_of(body.sql),
        )
        response.headers.update(_version_of(task))
        return view

    @routes.delete(
        "/{name}", status_code=HTTPStatus.NO_CONTENT, responses=problems(UNKNOWN, IN_USE, AWAY)
    )
    def delete_task(name: str) -> None:
        """End a task; its results stay."""
        services.tasks.delete(name)

    @routes.post("/{name}/pause", responses=problems(UNKNOWN, IN_USE, AWAY))
    def pause_task(name: str, response: Response) -> TaskView:
        """Take no more rows until it is resumed."""
        task, view = answer(services.tasks.pause(name))
        response.headers.update(_version_of(task))
        return view

    @routes.post("/{name}/resume", responses=problems(UNKNOWN, IN_USE, AWAY))
    def resume_task(name: str, response: Response) -> TaskView:
        """Go on where it was paused, or failed."""
        task, view = answer(services.tasks.resume(name))
        response.headers.update(_version_of(task))
        return view

    return routes


def _shown(services: Services, name: str) -> Rendered:
    task = services.tasks.show(name)
    return rendered(_view(services, task), _version_of(task))


def _view(services: Services, task: TaskDefinition) -> TaskView:
    plan = services.compiler.plans(task).get(task.current.version)
    figures, missing = services.sampler.one(task)
    warnings = [] if plan is None else services.shared_topics.warnings(task.name, plan)
    return task_view(task, plan, figures, services.tasks.closed(task), missing, warnings)


def _version_of(task: TaskDefinition) -> dict[str, str]:
    return {"ETag": f'"{task.current.version}"'}
