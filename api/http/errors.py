"""Errors as problem documents (RFC 9457), and the one table from our errors to HTTP statuses."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import msgspec
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.routing import Match

from mars.client.answers import MemberProblem, Problem
from mars.core.errors import (
    Conflict,
    Fenced,
    Forbidden,
    Interrupted,
    MarsError,
    NotAuthenticated,
    NotFound,
    Rejected,
    RequestError,
    SqlError,
    TaskLimit,
    TooMany,
    TopicRefused,
    Unavailable,
    VersionMismatch,
)
from mars.protocol.ports.access import without_secrets

PROBLEM_MEDIA_TYPE = "application/problem+json"

LOG = logging.getLogger(__name__)


class NotAnObject(RequestError):
    """The body is not JSON, or not a JSON object."""


class TooLarge(RequestError):
    """The body is larger than the settings allow."""


class TooManyRequests(TooMany):
    """A caller asks too often; there is a place for it in `wait_s` seconds."""

    def __init__(self, detail: str, wait_s: float) -> None:
        super().__init__(detail)
        self.wait_s = wait_s


class WrongMembers(Rejected):
    """Members of the body are unknown, missing or wrong; `problems` names each.

    `detail` says so in fewer words than all of theirs.
    """

    def __init__(self, problems: Sequence[MemberProblem], detail: str | None = None) -> None:
        super().__init__(detail or "; ".join(problem.detail for problem in problems))
        self.problems = tuple(problems)


STATUS_OF: Mapping[type[MarsError], HTTPStatus] = {
    NotAnObject: HTTPStatus.BAD_REQUEST,
    NotAuthenticated: HTTPStatus.UNAUTHORIZED,
    Forbidden: HTTPStatus.FORBIDDEN,
    NotFound: HTTPStatus.NOT_FOUND,
    Conflict: HTTPStatus.CONFLICT,
    VersionMismatch: HTTPStatus.PRECONDITION_FAILED,
    TooLarge: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    TooMany: HTTPStatus.TOO_MANY_REQUESTS,
    Rejected: HTTPStatus.UNPROCESSABLE_ENTITY,
    TaskLimit: HTTPStatus.UNPROCESSABLE_ENTITY,
    TopicRefused: HTTPStatus.UNPROCESSABLE_ENTITY,
    Unavailable: HTTPStatus.SERVICE_UNAVAILABLE,
    Interrupted: HTTPStatus.SERVICE_UNAVAILABLE,
    Fenced: HTTPStatus.SERVICE_UNAVAILABLE,
}
"""By class; a subclass that is not named has its parent's status. Others are 500."""

TITLE_OF: Mapping[HTTPStatus, str] = {
    HTTPStatus.BAD_REQUEST: "Not a JSON object",
    HTTPStatus.UNAUTHORIZED: "A key is needed",
    HTTPStatus.FORBIDDEN: "Not allowed",
    HTTPStatus.NOT_FOUND: "Not found",
    HTTPStatus.METHOD_NOT_ALLOWED: "Method not allowed",
    HTTPStatus.CONFLICT: "Taken or in use",
    HTTPStatus.PRECONDITION_FAILED: "Another version is current",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "Body too large",
    HTTPStatus.UNPROCESSABLE_ENTITY: "Wrong content",
    HTTPStatus.TOO_MANY_REQUESTS: "Too many at once",
    HTTPStatus.INTERNAL_SERVER_ERROR: "Internal error",
    HTTPStatus.SERVICE_UNAVAILABLE: "A server is not available",
}


def status_of(error: MarsError) -> HTTPStatus:
    """The HTTP status of one of our errors."""
    for kind in type(error).__mro__:
        if kind in STATUS_OF:
            return STATUS_OF[kind]
    return HTTPStatus.INTERNAL_SERVER_ERROR


def problem_of(error: MarsError) -> Problem:
    """The problem document of one of our errors."""
    status = status_of(error)
    title = TITLE_OF[status]
    match error:
        case SqlError():
            return Problem(
                title="The query is wrong",
                status=status,
                detail=error.detail,
                line=error.line,
                column=error.column,
            )
        case WrongMembers():
            return Problem(
                title=title, status=status, detail=str(error), errors=list(error.problems)
            )
        case TopicRefused():
            return Problem(title=title, status=status, detail=str(error))
        case Unavailable():
            return Problem(title=title, status=status, detail=str(error), service=error.service)
        case _:
            return Problem(title=title, status=status, detail=str(error))


def render(problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    """A problem document as a response."""
    return Response(
        msgspec.json.encode(problem),
        status_code=problem.status,
        headers=dict(headers) if headers else None,
        media_type=PROBLEM_MEDIA_TYPE,
    )


def install(app: FastAPI) -> None:
    """Answer every error of `app` with a problem document."""
    app.add_exception_handler(MarsError, _on_mars_error)
    app.add_exception_handler(RequestValidationError, _on_parameters)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(Exception, _on_bug)


async def _on_mars_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, MarsError)  # noqa: S101 -- registered for this class
    problem = problem_of(error)
    headers = {"Retry-After": "1"} if problem.status in _WORTH_ANOTHER_TRY else None
    return render(problem, headers)


_WORTH_ANOTHER_TRY = frozenset({HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS})


async def _on_parameters(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 -- registered for this class
    return render(problem_of(WrongMembers(member_problems(error.errors()))))


async def _on_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 -- registered for this class
    status = HTTPStatus(error.status_code)
    title = TITLE_OF.get(status, status.phrase)
    detail, headers = str(error.detail), error.headers
    if status is HTTPStatus.NOT_FOUND:
        detail = f"there is no path {without_secrets(request.url.path)}; /docs lists all of them"
    elif status is HTTPStatus.METHOD_NOT_ALLOWED:
        detail = f"{request.url.path} does not know the method {request.method}"
        headers = {"Allow": ", ".join(_methods_of(request))}
    return render(Problem(title=title, status=status, detail=detail), headers)


def _methods_of(request: Request) -> list[str]:
    """What the path takes: each method has a route, and the router names that of the first."""
    if request.scope.get("endpoint") is only_post:
        return ["POST"]
    return [
        method
        for method in ("DELETE", "GET", "PATCH", "POST", "PUT")
        if any(
            route.matches({**request.scope, "method": method})[0] is Match.FULL
            for route in request.app.routes
        )
    ]


ALL_BUT_POST = ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "PUT")


async def only_post() -> None:
    """The endpoint of ALL_BUT_POST for a path that else would be another one's."""
    raise HTTPException(HTTPStatus.METHOD_NOT_ALLOWED)


async def _on_bug(request: Request, error: Exception) -> Response:
    path = without_secrets(request.url.path)
    LOG.error("%s %s failed: this is a bug", request.method, path, exc_info=error)
    status = HTTPStatus.INTERNAL_SERVER_ERROR
    detail = "this is a bug in Mars; the log of the API process has the details"
    return render(Problem(title=TITLE_OF[status], status=status, detail=detail))


def member_problems(errors: Sequence[Any]) -> list[MemberProblem]:
    """pydantic's findings as sentences that name the member (or query parameter)."""
    return [_member_problem(error) for error in errors]


PLACES = frozenset({"query", "path", "body"})
"""Parts of a request, with which the place of a finding begins; members may be called so, too."""


def _member_problem(error: Mapping[str, Any]) -> MemberProblem:
    path = list(map(str, error["loc"]))
    name = shown(".".join(path[1:] if len(path) > 1 and path[0] in PLACES else path))
    match error["type"]:
        case "extra_forbidden":
            detail = f"member {name} is unknown"
        case "missing":
            detail = f"member {name} is missing"
        case _:
            message = str(error["msg"]).removeprefix("Value error, ")
            detail = f"{name}: {message[:1].lower()}{message[1:]}"
    return MemberProblem(member=name, detail=detail)


NAME_CHARACTERS_SHOWN = 100
"""Of a member's name in a message: a name made of a megabyte helps nobody."""


def shown(name: str) -> str:
    """The name of a member or parameter as a message may have it."""
    shown = name if len(name) <= NAME_CHARACTERS_SHOWN else name[:NAME_CHARACTERS_SHOWN] + "..."
    return shown if shown.isprintable() else ascii(shown)
